"""LU factors, solutions and determinants of a matrix in blocks."""

import jax
import jax.numpy as jnp
import numpy as np
from fuzzing import NUMBERS, Target, dtypes, make_tests
from hypothesis import strategies as st

from examples import lu

INNER = (
    *("result_type", "place", "indices", "order_of", "pad", "pad_identity"),
    *(
        "factor_panel",
        "tournament",
        "lower_panel",
        "displaced_positions",
        "block_positions",
        "local_offsets",
    ),
    *("swap_rows", "solve_rows", "eliminate_below", "own_slice", "batch_as"),
    *("eliminate", "eliminate_all", "substitute_both", "substitute", "matvec_blocks"),
    *("check_matrix", "check_sides", "factor", "solve_whole"),
    *("factor_and_solve", "diagonal", "parity", "inverse_transposed"),
    "sign_and_logarithm",
)
PROGRAM = ("elimination_order",)  # a picture of the order: see tests/lu/test_lu.py
BLOCKS = jax.P("x", "y")


def system(most):
    """Draw the parameters of a square system, small, as each takes a compilation."""
    return st.fixed_dictionaries(
        {
            "dtype": dtypes,
            "n": st.integers(1, most),
            "sides": st.sampled_from([(), (1,), (3,)]),
            "option": st.integers(0, 2),
        }
    )


def matrix(p, random):
    """A matrix that is far from singular, complex."""
    n = p["n"]
    a = random.normal(size=(n, n, 2)) @ [1, 1j] + 3 * np.sqrt(n) * np.eye(n)
    return (a[random.permutation(n)],)


def both(p, random):
    """A matrix, and right-hand sides."""
    sides = random.normal(size=(p["n"], *p["sides"], 2)) @ [1, 1j]
    return *matrix(p, random), sides


def checked(p):
    """Raise for what is no type of a matrix here."""
    if p["dtype"] not in NUMBERS:
        raise ValueError("no type that LAPACK factors")


def solution(p, a, b):
    """The solution of NumPy, of a, a^T or a^H."""
    checked(p)
    return np.linalg.solve(a, b)


def solution_with_factors(p, a, b):
    """The same, for the matrix that the option names."""
    checked(p)
    return np.linalg.solve([a, a.T, a.conj().T][p["option"]], b)


def logarithm(p, a):
    """Sign and logarithm, as NumPy has them."""
    checked(p)
    return tuple(np.linalg.slogdet(a))


def no_zero(p, a):
    """What tells that no pivot is zero."""
    checked(p)
    return -1


def determinant(p, a):
    """The determinant."""
    checked(p)
    return np.linalg.det(a)


def product(p, a):
    """What L U must be: the matrix."""
    checked(p)
    return a


def multiply_out(a):
    """Return a again, from its factors, by solving for each of its own columns."""
    return lu.lu_solve(lu.lu_factor(a), a)


def is_identity(p, arrays, result, expected):
    """A solution of a x = a is the identity."""
    wrong = np.abs(np.asarray(result) - np.eye(p["n"])).max()
    assert wrong < 1e4 * jnp.finfo(result.dtype).eps, f"off by {wrong}"


def with_factors(p):
    """Factor and solve, with the option as trans."""
    return lambda a, b: lu.lu_solve(lu.lu_factor(a), b, p["option"])


REFUSALS = (
    "a is a {}: pass an array of JAX or NumPy",
    "axes {} of two types: make all Auto or all Explicit",
    "b is a {}: pass an array of JAX or NumPy",
)

TARGETS = (
    Target(
        name="lu.solve",
        parameters=system(13),
        arrays=both,
        call=lambda p: lambda a, b: lu.solve(a, b, refine=p["option"] % 2),
        reference=solution,
        specs=lambda p: (BLOCKS,),
        differentiate=(0, 1),
        rounding=1e4,
    ),
    Target(
        name="lu.lu_solve",
        parameters=system(13),
        arrays=both,
        call=with_factors,
        reference=solution_with_factors,
        specs=lambda p: (BLOCKS,),
        differentiate=(0, 1),
        rounding=1e4,
    ),
    Target(
        name="lu.lu_slogdet",
        parameters=system(9),
        arrays=matrix,
        call=lambda p: lambda a: lu.lu_slogdet(lu.lu_factor(a)),
        reference=logarithm,
        specs=lambda p: (BLOCKS,),
        rounding=1e4,
    ),
    Target(
        name="lu.lu_factor",
        parameters=system(13),
        arrays=matrix,
        call=lambda p: multiply_out,
        reference=product,
        specs=lambda p: (BLOCKS,),
        under=("nothing", "jit", "vmap", "scan"),
        check=is_identity,
        rounding=1e4,
    ),
    Target(
        name="lu.slogdet",
        parameters=system(9),
        arrays=matrix,
        call=lambda p: lu.slogdet,
        reference=logarithm,
        specs=lambda p: (BLOCKS,),
        rounding=1e4,
    ),
    Target(
        name="lu.first_zero_pivot",
        parameters=system(13),
        arrays=matrix,
        call=lambda p: lambda a: lu.first_zero_pivot(lu.lu_factor(a)),
        reference=no_zero,
        specs=lambda p: (BLOCKS,),
        under=("nothing", "jit", "vmap", "scan"),
    ),
    Target(
        name="lu.det",
        parameters=system(9),
        arrays=matrix,
        call=lambda p: lu.det,
        reference=determinant,
        specs=lambda p: (BLOCKS,),
        rounding=1e4,
    ),
)

test_case, test_lists, test_draws = make_tests(lu, TARGETS, INNER, REFUSALS, PROGRAM)
