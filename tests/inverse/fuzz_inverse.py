"""Solutions and the inverse in blocks, of a matrix whose factors are known."""

import jax
import numpy as np
from fuzzing import NUMBERS, Target, dtypes, make_tests
from hypothesis import strategies as st
from lu.fuzz_lu import REFUSALS

from examples import inverse, lu

BLOCKS = jax.P("x", "y")
SYSTEM = st.fixed_dictionaries(
    {
        "dtype": dtypes,
        "n": st.integers(1, 9),
        "sides": st.integers(1, 5),
        "trans": st.integers(0, 2),
    }
)


def matrix(p, random):
    """A matrix that is far from singular, complex."""
    n = p["n"]
    a = random.normal(size=(n, n, 2)) @ [1, 1j] + 3 * np.sqrt(n) * np.eye(n)
    return (a[random.permutation(n)],)


def both(p, random):
    """A matrix, and right-hand sides."""
    return *matrix(p, random), random.normal(size=(p["n"], p["sides"], 2)) @ [1, 1j]


def answered(function):
    """Let a function of NumPy answer for those types that LAPACK factors."""

    def reference(p, *arrays):
        if p["dtype"] not in NUMBERS:
            raise ValueError("no type that LAPACK factors")
        return function(p, *arrays)

    return reference


def solution(p, a, b):
    """The solution of NumPy, of a, a^T or a^H."""
    return np.linalg.solve([a, a.T, a.conj().T][p["trans"]], b)


def multiply_to_the_matrix(p, arrays, result, expected):
    """Compare L U with the rows and columns of the matrix."""
    rows, columns, lower, upper = map(np.asarray, result)
    keep, along = np.flatnonzero(rows < p["n"]), np.flatnonzero(columns < p["n"])
    found = (lower @ upper)[keep][:, along]
    wrong = np.abs(found - expected[rows[keep]][:, columns[along]]).max()
    assert wrong < 1e4 * np.finfo(lower.dtype).eps, f"off by {wrong}"


TARGETS = (
    Target(
        name="inverse.lu_solve_blocks",
        parameters=SYSTEM,
        arrays=both,
        call=lambda p: (
            lambda a, b: inverse.lu_solve_blocks(lu.lu_factor(a), b, p["trans"])
        ),
        reference=answered(solution),
        specs=lambda p: (BLOCKS, BLOCKS),
        differentiate=(0, 1),
        rounding=1e4,
    ),
    Target(
        name="inverse.inv",
        parameters=SYSTEM,
        arrays=matrix,
        call=lambda p: lambda a: inverse.inv(lu.lu_factor(a)),
        reference=answered(lambda p, a: np.linalg.inv(a)),
        specs=lambda p: (BLOCKS,),
        rounding=1e4,
    ),
    Target(
        name="inverse.unpack",
        parameters=SYSTEM,
        arrays=matrix,
        call=lambda p: lambda a: inverse.unpack(lu.lu_factor(a)),
        reference=answered(lambda p, a: a),
        specs=lambda p: (BLOCKS,),
        under=("nothing", "jit", "scan"),
        check=multiply_to_the_matrix,
    ),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
