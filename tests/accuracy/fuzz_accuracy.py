"""Norms, condition numbers and reports, of solvers that multiply by an inverse."""

import jax
import jax.numpy as jnp
import numpy as np
from fuzzing import NUMBERS, Target, make_tests, numbers_only
from hypothesis import strategies as st

from examples import accuracy
from examples.norm_estimate import Inverse

equations = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*NUMBERS, "bfloat16", "int32"]),
        "n": st.integers(1, 17),
        "k": st.integers(0, 3),
        "power": st.sampled_from([0, 0, 25, -25]),
    }
)


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

    def through(known):
        return lambda b: known @ accuracy.place(b, jax.P())

    return Inverse((through(known), through(known.conj().T)), axes)


def report(judge, axes=()):
    """Return what gives the numbers of a report: a function of a, b and x."""
    return lambda a, b, x: jax.tree.leaves(judge(a, b, x, inverse(a, axes)))


def numbers(a, b, x):
    """What NumPy says of them, and the true error in the place of its bound."""
    scale = np.abs(a).max()
    a, b = a / scale, b / scale
    residual, size = np.abs(b - a @ x), np.abs(a) @ np.abs(x) + np.abs(b)
    norm, largest = np.abs(a).sum(1).max(), np.abs(x).max(0)
    backward = residual.max(0) / (norm * largest + np.abs(b).max(0))
    error = np.abs(x - np.linalg.solve(a, b)).max(0) / largest
    condition = norm * np.abs(np.linalg.inv(a)).sum(1).max()
    return backward, (residual / size).max(0), error, condition


def as_numpy_says(p, arrays, found, wanted):
    """The backward errors are equal, the estimates near, and the error in its bound."""
    for mine, truth in zip(found[:2], wanted[:2], strict=True):
        np.testing.assert_allclose(mine, truth, rtol=1e-2)
    assert (wanted[2] < 1.01 * np.asarray(found[2])).all()
    near(p, arrays, found[3], wanted[3])


def near(p, arrays, found, wanted):
    """An estimate is no larger than the truth, and at least a third of it."""
    assert wanted / 3 < found < 1.01 * wanted


ONLY = {
    "specs": lambda p: (jax.P("x", "y"),),
    "kinds": ("Auto", "Explicit"),  # meshes of both are refused, as by every module
    "given": ("numpy", "jax", "sharded", "replicated"),
}
TARGETS = (
    Target(
        name="accuracy.norm1",
        parameters=equations,
        arrays=matrix,
        call=lambda p: accuracy.norm1,
        reference=numbers_only(lambda a: np.linalg.norm(a, 1)),
        **ONLY,
    ),
    Target(
        name="accuracy.condition",
        parameters=equations,
        arrays=matrix,
        call=lambda p: lambda a: accuracy.condition(a, inverse(a)),
        reference=numbers_only(lambda a: np.linalg.cond(a / np.abs(a).max(), 1)),
        check=near,
        under=("nothing", "jit", "vmap", "scan"),  # its derivative is NaN
        **ONLY,
    ),
    Target(
        name="accuracy.assess",
        parameters=equations,
        arrays=both,
        call=lambda p: report(accuracy.assess),
        reference=numbers_only(numbers),
        check=as_numpy_says,
        under=("nothing", "jit", "vmap", "scan"),
        **ONLY,
    ),
    Target(
        name="accuracy.assess_blocks",
        parameters=equations.filter(lambda p: p["k"]),
        arrays=both,
        call=lambda p: jax.jit(report(accuracy.assess_blocks, ("x", "y"))),
        reference=numbers_only(numbers),
        check=as_numpy_says,
        under=("nothing", "jit"),
        **ONLY,
    ),
)

test_cases, test_draws = make_tests(TARGETS)
