"""Cholesky factors and solutions, of any positive definite matrix."""

from dataclasses import replace

import jax
import numpy as np
from fuzzing import NUMBERS, Target, make_tests, numbers_only
from hypothesis import strategies as st

from examples import cholesky

inexact = st.sampled_from([*NUMBERS, "float16", "bfloat16"])  # others have no gradient
anything = st.fixed_dictionaries(
    {"dtype": inexact, "n": st.integers(1, 20), "k": st.integers(0, 2)}
)


def both(p, random):
    """A matrix of eigenvalues 1 or more, and right-hand sides: [N], or [N, K]."""
    n, shape = p["n"], (p["n"], p["k"]) if p["k"] else (p["n"],)
    half = random.normal(size=(n, n, 2)) @ [1, 1j]
    a = half @ half.conj().T / n + np.eye(n)  # of real numbers, the real part
    return a, random.normal(size=(*shape, 2)) @ [1, 1j]


def sum_of_squares(a):
    """The trace of a, whatever the order is; padding has ones on its diagonal."""
    c = cholesky.cho_factor(a).c
    return (c * c.conj()).real.sum() - (len(c) - len(a))


SOLVE = Target(
    name="cholesky.cho_solve",
    parameters=anything,
    arrays=both,
    call=lambda p: lambda a, b: cholesky.cho_solve(cholesky.cho_factor(a), b),
    reference=numbers_only(np.linalg.solve),
    specs=lambda p: (jax.P("x", "y"),),
    differentiate=(0, 1),
    rounding=1e4,
)
FACTOR = replace(
    SOLVE,
    name="cholesky.cho_factor",
    arrays=lambda p, random: both(p, random)[:1],
    call=lambda p: sum_of_squares,
    reference=numbers_only(lambda a: np.trace(a).real),
    differentiate=(0,),
)

test_cases, test_draws = make_tests((SOLVE, FACTOR))
