"""Norms, condition numbers and reports, of solvers that multiply by an inverse."""

import jax
import jax.numpy as jnp
import numpy as np
from accuracy.test_accuracy import assert_expected
from fuzzing import NUMBERS, Target, double, make_tests, numbers_only
from hypothesis import strategies as st
from norm_estimate.test_norm_estimate import by

from examples import accuracy
from examples.norm_estimate import Inverse

kinds = st.sampled_from([*NUMBERS, "bfloat16", "int32"])
KEYS = {"dtype": kinds, "n": st.integers(1, 17), "k": st.integers(0, 3)}
KEYS |= {"power": st.sampled_from([0, 0, 25, -25])}
equations = st.fixed_dictionaries(KEYS)


def matrix(p, random):
    """A matrix of any size of numbers."""
    a = random.normal(size=(p["n"], p["n"], 2)) @ [1, 1j]
    power = p["power"] if p["dtype"] in NUMBERS else 0
    return ((a + 2 * p["n"] * np.eye(p["n"])) * 10.0**power,)


def both(p, random):
    """A matrix, and an x that is nearly a solution for b."""
    (a,), sides = matrix(p, random), (p["n"], p["k"]) if p["k"] else (p["n"],)
    x = random.normal(size=(*sides, 2)) @ [1, 1j]
    return a, a @ x * 1.001, x


def inverse(a, axes=()):
    """Return a solver that inverts a, on each device."""
    if a.dtype not in NUMBERS:
        return Inverse(lambda b: b, axes)  # which is refused
    known = jax.jit(lambda a: jnp.linalg.inv(accuracy.place(a, jax.P())))(a)
    return Inverse(by(known), axes)


def as_numpy_says(p, arrays, report, wanted):
    """The backward errors are equal, the estimates near, and the error in its bound."""
    assert_expected(report, *map(double, arrays), 1e-2)


def near(p, arrays, found, wanted):
    """An estimate is no larger than the truth, and at least a third of it."""
    assert wanted / 3 < found < 1.01 * wanted


def target(name, call, reference, arrays=matrix, **options):
    """Return the target of a function of numbers of this module."""
    return Target(
        name=f"accuracy.{name}",
        arrays=arrays,
        call=lambda p: call,
        reference=numbers_only(reference),
        specs=lambda p: (jax.P("x", "y"),),
        kinds=("Auto", "Explicit"),  # meshes of both are refused, as by every module
        given=("numpy", "jax", "sharded", "replicated"),
        **{"parameters": equations} | options,
    )


WITHOUT_GRAD = "nothing", "jit", "vmap", "scan"  # derivatives are NaN
TARGETS = (
    target(
        "norm1",
        accuracy.norm1,
        lambda a: np.linalg.norm(a, 1),
        parameters=equations.filter(lambda p: p["power"] >= 0),  # for differences
    ),
    target(
        "condition",
        lambda a: accuracy.condition(a, inverse(a)),
        lambda a: np.linalg.cond(a / np.abs(a).max(), 1),
        check=near,
        under=WITHOUT_GRAD,
    ),
    target(
        "assess",
        lambda a, b, x: accuracy.assess(a, b, x, inverse(a)),
        lambda *arrays: arrays,
        both,
        check=as_numpy_says,
        under=WITHOUT_GRAD,
    ),
    target(
        "assess_blocks",
        jax.jit(lambda *v: accuracy.assess_blocks(*v, inverse(v[0], ("x", "y")))),
        lambda *arrays: arrays,
        both,
        parameters=equations.filter(lambda p: p["k"]),
        check=as_numpy_says,
        under=("nothing", "jit"),
    ),
)

test_cases, test_draws = make_tests(TARGETS)
