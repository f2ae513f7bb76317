"""Fuzzing notices what is wrong, and no function of arrays is without a target."""

import ast
import re

import fuzzing
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from jax import lax

from examples import lu

FILES = sorted(fuzzing.MODULES.glob("[!_]*.py"))
refuse = lu.check_matrix  # a vector is none
UNDRAWN = {"cost", "dense", "elimination_order", "gamma"}  # other tests have
PLAIN = {
    "mesh": [["x", 2, "Explicit"], ["y", 2, "Explicit"]],
    "given": "numpy",
    "under": "nothing",
    "strict": False,
    "x64": False,
    "seed": 0,
    "parameters": {"n": 4, "dtype": "float32"},
}


def run(call, reference=np.sin, refusals=(), **changes):
    """Run a case of a target of one vector; return its outcome."""
    target = fuzzing.Target(
        name="lu.sin",
        parameters=st.nothing(),
        arrays=lambda p, random: (random.normal(size=p["n"]),),
        call=lambda p: call,
        reference=lambda p, a: reference(a),
        refusals=refusals,
    )
    return fuzzing.run(target, PLAIN | changes)


@pytest.mark.parametrize("under", fuzzing.TRANSFORMS)
@pytest.mark.parametrize("given", fuzzing.GIVEN[:-1])  # lists are passed alone
def test_right_passes_and_wrong_fails(under, given):
    assert run(jnp.sin, under=under, given=given) == "right"
    with pytest.raises(AssertionError):
        run(lambda a: jnp.sin(a) * 1.001, under=under, given=given)


def test_a_refusal_passes_where_there_is_no_answer_or_it_is_admitted():
    assert run(refuse, refuse) == "refused"
    assert run(refuse, refusals=("a {}",), given="jax") == "refused"


@pytest.mark.parametrize(
    ("message", "call", "options"),
    [
        ("the gradient", lambda a: lax.stop_gradient(jnp.sin(a)), {"under": "grad"}),
        ("TypeError: ", lambda a: jnp.dot(a, jnp.ones(3)), {"reference": refuse}),
        ("ValueError: a ", refuse, {"refusals": ("a {}",)}),  # NumPy's plain call
        ("ValueError: a ", refuse, {"given": "jax"}),  # not admitted
        ("no error for: ", jnp.sin, {"reference": refuse}),
    ],
)
def test_other_outcomes_fail(message, call, options):
    with pytest.raises(AssertionError, match=message):
        run(call, **options)


def find_entrances(file) -> set[str]:
    """Return the functions of arrays in a module that none of its others uses."""
    body = ast.parse(file.read_text()).body
    body = [node for node in body if getattr(node, "name", "") != "main"]
    nodes = [node for top in body for node in ast.walk(top)]
    bases = {id(n.value) for n in nodes if isinstance(n, ast.Attribute)}  # f.defjvp(g)
    used = {n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in bases}
    unused = (f for f in body if isinstance(f, ast.FunctionDef) and f.name not in used)
    return {f.name for f in unused if "Array" in ast.unparse(f).partition('"""')[0]}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_function_of_arrays_is_fuzzed(file):
    fuzz = fuzzing.ROOT / f"tests/{file.stem}/fuzz_{file.stem}.py"
    entrances = find_entrances(file) - UNDRAWN
    if entrances or fuzz.exists():
        words = {*re.findall(r"\w+", fuzz.read_text())}
        assert {*entrances, "test_draws", "make_tests"} <= words
