"""The fuzzing session notices what is wrong, and misses no public function."""

import json

import gate
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzzing import harness
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import lu

LIMIT = 40  # lines in refusals.txt: this number may only fall
MODULES = sorted(file.stem for file in harness.MODULES.glob("[!_]*.py"))
CASE = {
    "target": "fake",
    "mesh": [["x", 2, "Auto"], ["y", 2, "Auto"]],
    "given": "numpy",
    "under": "nothing",
    "strict": False,
    "x64": False,
    "seed": 0,
    "parameters": {"n": 4, "dtype": "float32"},
}


def target(call, reference=np.sin):
    """A target of one vector."""
    return harness.Target(
        name="fake",
        parameters=st.fixed_dictionaries({"n": harness.sizes, "dtype": harness.dtypes}),
        arrays=lambda p, random: (random.normal(size=p["n"]),),
        call=lambda p: call,
        reference=lambda p, a: reference(a),
    )


def outcome(monkeypatch, fake, **changes):
    """Run a case of this target."""
    monkeypatch.setattr(harness, "targets", lambda: {"fake": fake})
    return harness.run({**CASE, **changes})


@pytest.mark.parametrize("under", harness.UNDER)
@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_what_is_right_passes(monkeypatch, under, kind):
    mesh = [["x", 2, kind], ["y", 2, kind]]
    assert outcome(monkeypatch, target(jnp.sin), under=under, mesh=mesh) == "right"


@pytest.mark.parametrize("under", harness.UNDER)
def test_what_is_wrong_is_a_failure(monkeypatch, under):
    with pytest.raises(AssertionError):
        outcome(monkeypatch, target(lambda a: jnp.sin(a) * 1.001), under=under)


def test_a_gradient_that_is_silently_zero_is_a_failure(monkeypatch):
    fake = target(lambda a: jax.lax.stop_gradient(jnp.sin(a)))
    assert outcome(monkeypatch, fake) == "right"
    with pytest.raises(AssertionError, match="the gradient in argument 0 says"):
        outcome(monkeypatch, fake, under="grad")


def test_an_error_of_jax_is_a_failure(monkeypatch):
    with pytest.raises(AssertionError, match="TypeError: "):
        outcome(monkeypatch, target(lambda a: jnp.dot(a, jnp.ones(3))))


@pytest.mark.parametrize("name", harness.COMPILER)
def test_a_fault_of_the_compiler_is_told_from_others_and_is_still_there(name):
    kept = [case for case in harness.corpus([name]) if "XLA:CPU" in case.get("was", "")]
    said = [harness.run(case) for case in kept]
    assert said == ["refused by the compiler"] * len(kept) != []


def test_a_valueerror_that_no_module_raised_is_a_failure(monkeypatch):
    def refuse(a):
        raise ValueError("not today")

    with pytest.raises(AssertionError, match="ValueError: not today"):
        outcome(monkeypatch, target(refuse))


def refuse(a):
    """Refuse a vector, as a module does."""
    lu.check_matrix(a)


def test_a_module_may_not_refuse_the_plain_call(monkeypatch):
    with pytest.raises(AssertionError, match="NumPy's plain call is refused"):
        outcome(monkeypatch, target(refuse))


def test_a_refusal_must_be_of_an_admitted_kind(monkeypatch):
    with pytest.raises(AssertionError, match="a new kind of refusal: lu: a "):
        outcome(monkeypatch, target(refuse), given="jax")


def test_what_nobody_can_answer_may_be_refused_and_not_answered(monkeypatch):
    def nobody(a):
        raise ValueError

    assert outcome(monkeypatch, target(refuse, nobody)) == "refused"
    with pytest.raises(AssertionError, match="no error for what has no answer"):
        outcome(monkeypatch, target(jnp.sin, nobody))


@settings(max_examples=200, deadline=None)
@given(harness.meshes(("x", "y")))
def test_meshes_have_one_to_twelve_devices(mesh):
    assert 1 <= np.prod([size for _, size, _ in mesh]) <= harness.DEVICES
    assert [name for name, _, _ in mesh if name != "other"] == ["x", "y"]


# ------------------------------------------------------------ the whole book


@pytest.mark.parametrize("module", MODULES)
def test_every_function_of_arrays_has_a_target_or_is_reached_through_one(module):
    names = {
        name.partition(".")[2]
        for name in harness.targets()
        if name.startswith(f"{module}.")
    }
    inner = set(harness.inner().get(module, ()))
    assert not names & inner
    assert harness.array_functions(module) <= names | inner | harness.program(module)


def test_every_kept_case_is_one_that_could_be_drawn():
    for file in harness.CORPUS.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            case = json.loads(line)
            assert case["target"] in harness.targets()
            assert case.keys() - {"was"} == CASE.keys()
            assert case["target"].partition(".")[0] == file.stem


def test_the_kinds_of_refusals_are_those_of_the_sources_and_become_fewer():
    kinds = harness.refusals()
    assert kinds <= harness.kinds_in_sources(), "a line whose message is gone"
    assert len(kinds) <= LIMIT


def test_the_kept_cases_are_in_the_gate():
    assert "fuzz -- --corpus" in [step.session for step in gate.STEPS]
