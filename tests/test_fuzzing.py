"""Fuzzing notices what is wrong, and no function of arrays is without a target."""

import importlib

import fuzzing
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from examples import lu

FILES = sorted(fuzzing.MODULES.glob("[!_]*.py"))
PLAIN = {
    "target": "lu.sin",
    "mesh": [["x", 2, "Auto"], ["y", 2, "Auto"]],
    "given": "numpy",
    "under": "nothing",
    "strict": False,
    "x64": False,
    "seed": 0,
    "parameters": {"n": 4, "dtype": "float32"},
}


def outcome(call, reference=np.sin, refusals=(), **changes):
    """Run a case of a target of one vector."""
    target = fuzzing.Target(
        name="lu.sin",
        parameters=st.fixed_dictionaries({"n": fuzzing.sizes, "dtype": fuzzing.dtypes}),
        arrays=lambda p, random: (random.normal(size=p["n"]),),
        call=lambda p: call,
        reference=lambda p, a: reference(a),
        refusals=refusals,
        compiler_fault="LayoutUtil",
    )
    return fuzzing.run(target, PLAIN | changes)


def refuse(a):
    """Refuse a vector, as a module does."""
    lu.check_matrix(a)


@pytest.mark.parametrize("under", fuzzing.UNDER)
def test_what_is_right_passes_and_what_is_wrong_is_a_failure(under):
    kind = "Auto" if under in ("jit", "grad") else "Explicit"
    mesh = [["x", 2, kind], ["y", 2, kind]]
    assert outcome(jnp.sin, under=under, mesh=mesh) == "right"
    with pytest.raises(AssertionError):
        outcome(lambda a: jnp.sin(a) * 1.001, under=under)
    if under == "grad":
        with pytest.raises(AssertionError, match="the gradient in argument 0 is 0"):
            outcome(lambda a: jax.lax.stop_gradient(jnp.sin(a)), under=under)


def test_an_error_that_no_module_raised_is_a_failure_or_the_compilers():
    def call(a):
        raise ValueError(words)

    with pytest.raises(AssertionError, match="TypeError: "):
        outcome(lambda a: jnp.dot(a, jnp.ones(3)))
    words = "not today"
    with pytest.raises(AssertionError, match="ValueError: not today"):
        outcome(call)
    words = "LayoutUtil"
    assert outcome(call) == "refused by the compiler"


def test_a_refusal_must_be_admitted_and_none_of_the_plain_call_is():
    with pytest.raises(AssertionError, match="NumPy's plain call is refused"):
        outcome(refuse)
    with pytest.raises(AssertionError, match="a refusal that is not admitted: a "):
        outcome(refuse, given="jax")
    assert outcome(refuse, refusals=("a {}",), given="jax") == "refused"


def test_what_nobody_can_answer_may_be_refused_and_not_answered():
    assert outcome(refuse, refuse) == "refused"
    with pytest.raises(AssertionError, match="no error for what has no answer"):
        outcome(jnp.sin, refuse)


@pytest.mark.parametrize("name", [file.stem for file in FILES])
def test_every_module_of_arrays_is_fuzzed(name):
    module = importlib.import_module(f"examples.{name}")
    file = fuzzing.ROOT / f"tests/{name}/fuzz_{name}.py"
    if file.exists() or fuzzing.array_functions(module):
        assert "test_draws = make_tests(" in file.read_text()
