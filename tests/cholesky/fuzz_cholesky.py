"""Cholesky factors and solutions, of any positive definite matrix."""

import jax
import numpy as np
from fuzzing import NUMBERS, Target, make_tests
from hypothesis import strategies as st

from examples import cholesky

INNER = (
    "rows_below_head",
    "solve_both",
    "all_reduce_head",
    "change_of_factor",
    "differentiate_strip",
    "check_array",
    "check_hermitian",
    "check_right",
    "right_solve",
    "eliminate_strip",
    "bind_factor",
    "gather_strip",
    "pad_square",
    "in_steps",
    "lapack_info",
    "leading_minors",
    "lower_factor",
    "lower_half",
    "half_tril",
    "place",
    "positions",
    "rows_of_columns",
    "solve_by_sweeps",
    "write_strip",
    "step_indices",
    "solve_strips",
    "matvec",
    "update",
)
PROGRAM = ("order",)  # a picture of the order: see tests/cholesky/test_cholesky.py

inexact = st.sampled_from([*NUMBERS, "float16", "bfloat16"])  # others have no gradient
anything = st.fixed_dictionaries(
    {"dtype": inexact, "n": st.integers(1, 20), "k": st.integers(0, 2)}
)


def definite(p, random):
    """A Hermitian matrix whose eigenvalues are 1 or more, [N, N]."""
    half = random.normal(size=(p["n"], p["n"], 2)) @ [1, 1j if complex_ones(p) else 0]
    return half @ half.conj().T / p["n"] + np.eye(p["n"])


def complex_ones(p):
    """Say whether the numbers of a case are complex."""
    return p["dtype"].startswith("complex")


def both(p, random):
    """A matrix and right-hand sides: [N], or [N, K]."""
    shape = (p["n"], p["k"]) if p["k"] else (p["n"],)
    return definite(p, random) + 0j, random.normal(size=(*shape, 2)) @ [1, 1j]


def solved(p, a, b):
    """The solution of the equations."""
    if p["dtype"] not in NUMBERS:
        raise ValueError("no numbers for it")
    return np.linalg.solve(a, b)


def squares(p, a):
    """The sum of the squares of L, which is the trace of a, whatever the order is."""
    if p["dtype"] not in NUMBERS:
        raise ValueError("no numbers for it")
    return np.trace(a).real


def summed(a):
    """The same from the factor; padding has ones on its diagonal."""
    c = cholesky.cho_factor(a).c
    real = (c * c.conj()).real
    return real.sum() - (len(c) - len(a))


REFUSALS = (
    "axes {} of two types: make all Auto or all Explicit",
    "{} is {}: pass an array of numbers",
)

TARGETS = (
    Target(
        name="cholesky.cho_solve",
        parameters=anything,
        arrays=both,
        call=lambda p: lambda a, b: cholesky.cho_solve(cholesky.cho_factor(a), b),
        reference=solved,
        specs=lambda p: (jax.P("x", "y"),),
        differentiate=(0, 1),
        rounding=1e4,
    ),
    Target(
        name="cholesky.cho_factor",
        parameters=anything,
        arrays=lambda p, random: both(p, random)[:1],
        call=lambda p: summed,
        reference=squares,
        specs=lambda p: (jax.P("x", "y"),),
        rounding=1e4,
    ),
)

test_case, test_lists, test_draws = make_tests(
    cholesky, TARGETS, INNER, REFUSALS, PROGRAM
)
