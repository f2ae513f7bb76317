"""Solutions and the inverse in blocks, of a matrix whose factors are known."""

import jax
import numpy as np
from fuzzing import Target, dtypes, make_tests, numbers_only
from hypothesis import strategies as st
from lu.fuzz_lu import REFUSALS, matrix

from examples import inverse, lu

KEYS = {"dtype": dtypes, "n": st.integers(1, 9)}
KEYS |= {"sides": st.integers(1, 5), "trans": st.integers(0, 2)}


def both(p, random):
    """A matrix, and right-hand sides."""
    return *matrix(p, random), random.normal(size=(p["n"], p["sides"], 2)) @ [1, 1j]


def solution(p, a, b):
    """The solution of NumPy, of a, a^T or a^H."""
    turned = [a, a.T, a.conj().T][p["trans"]]
    return numbers_only(np.linalg.solve)(p, turned, b)


def multiply_to_the_matrix(p, arrays, result, expected):
    """Compare L U with the rows and columns of the matrix."""
    rows, columns, lower, upper = map(np.asarray, result)
    keep, along = np.flatnonzero(rows < p["n"]), np.flatnonzero(columns < p["n"])
    wrong = (lower @ upper)[keep][:, along] - expected[rows[keep]][:, columns[along]]
    assert np.abs(wrong).max() < 1e4 * np.finfo(lower.dtype).eps


def target(name, reference, arrays=matrix, **more):
    """The target of a function of factors, and of what comes with them."""

    def call(p):
        trans = [p["trans"]] if arrays is both else []
        return lambda a, *b: getattr(inverse, name)(lu.lu_factor(a), *b, *trans)

    return Target(
        name=f"inverse.{name}",
        parameters=st.fixed_dictionaries(KEYS),
        arrays=arrays,
        call=call,
        reference=reference,
        specs=lambda p: (jax.P("x", "y"),) * (2 if arrays is both else 1),
        rounding=1e4,
        **more,
    )


AS_IT_IS = {"under": ("nothing", "jit", "scan"), "check": multiply_to_the_matrix}
TARGETS = (
    target("lu_solve_blocks", solution, both, differentiate=(0, 1)),
    target("inv", numbers_only(np.linalg.inv)),
    target("unpack", numbers_only(lambda a: a), **AS_IT_IS),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
