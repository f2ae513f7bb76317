"""LU factors, solutions and determinants of a matrix in blocks."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from fuzzing import Target, dtypes, make_tests, numbers_only, sizes
from hypothesis import strategies as st

from examples import lu

NO_GRADIENT = "nothing", "jit", "vmap", "scan"


def matrix(p, random):
    """A matrix that is far from singular, complex."""
    n = p["n"]
    a = random.normal(size=(n, n, 2)) @ [1, 1j] + 3 * np.sqrt(n) * np.eye(n)
    return (a[random.permutation(n)],)


def both(p, random):
    """A matrix, and right-hand sides."""
    sides = random.normal(size=(p["n"], *p["sides"], 2)) @ [1, 1j]
    return *matrix(p, random), sides


def target(name, call, answer, arrays=matrix, **more):
    """A function of a matrix in blocks, small, as each case takes a compilation."""
    choices = {"dtype": dtypes, "n": sizes, "option": st.integers(0, 2)}
    choices["sides"] = st.sampled_from([(), (1,), (3,)])
    return Target(
        name=f"lu.{name}",
        parameters=st.fixed_dictionaries(choices),
        arrays=arrays,
        call=call,
        reference=lambda p, *arrays: numbers_only(partial(answer, p))(p, *arrays),
        specs=lambda p: (jax.P("x", "y"),),
        rounding=1e4,
        **more,
    )


def slogdet(p, a):
    """Sign and logarithm, as NumPy has them."""
    return tuple(np.linalg.slogdet(a))


def is_identity(p, arrays, result, expected):
    """A solution of a x = a is the identity."""
    wrong = np.abs(np.asarray(result) - np.eye(p["n"])).max()
    assert wrong < 1e4 * jnp.finfo(result.dtype).eps, f"off by {wrong}"


REFUSALS = (
    "a is a {}: pass an array of JAX or NumPy",
    "b is a {}: pass an array of JAX or NumPy",
)

TARGETS = (
    target(
        "solve",
        lambda p: lambda a, b: lu.solve(a, b, refine=p["option"] % 2),
        lambda p, a, b: np.linalg.solve(a, b),
        arrays=both,
        differentiate=(0, 1),
    ),
    target(
        "lu_solve",
        lambda p: lambda a, b: lu.lu_solve(lu.lu_factor(a), b, p["option"]),
        lambda p, a, b: np.linalg.solve([a, a.T, a.conj().T][p["option"]], b),
        arrays=both,
        differentiate=(0, 1),
    ),
    target(
        "lu_factor",
        lambda p: lambda a: lu.lu_solve(lu.lu_factor(a), a),
        lambda p, a: a,
        under=NO_GRADIENT,
        check=is_identity,
    ),
    target(
        "first_zero_pivot",
        lambda p: lambda a: lu.first_zero_pivot(lu.lu_factor(a)),
        lambda p, a: -1,
        under=NO_GRADIENT,
    ),
    target("lu_slogdet", lambda p: lambda a: lu.lu_slogdet(lu.lu_factor(a)), slogdet),
    target("slogdet", lambda p: lu.slogdet, slogdet),
    target("det", lambda p: lu.det, lambda p, a: np.linalg.det(a)),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
