"""Solutions in blocks, inverses and determinants of any positive definite matrix."""

import jax
import numpy as np
from cholesky.fuzz_cholesky import REFUSALS, both, inexact
from fuzzing import Target, make_tests, numbers_only
from hypothesis import strategies as st

from examples import cholesky, definite

sizes = {"dtype": inexact, "n": st.integers(1, 20)}


def of_factor(function):
    """Call a function of the factor of a, and of what comes with it."""
    return lambda p: lambda a, *more: function(cholesky.cho_factor(a), *more)


def one(p, random):
    """A matrix alone: [N, N]."""
    return both({**p, "k": 0}, random)[:1]


BLOCKS = jax.P("x", "y")
TARGETS = (
    Target(
        name="definite.cho_solve_blocks",
        parameters=st.fixed_dictionaries({**sizes, "k": st.integers(1, 9)}),
        arrays=both,
        call=of_factor(definite.cho_solve_blocks),
        reference=numbers_only(np.linalg.solve),
        specs=lambda p: (BLOCKS, BLOCKS),
        differentiate=(0, 1),
        rounding=1e4,
    ),
    Target(
        name="definite.cho_inv",
        parameters=st.fixed_dictionaries(sizes),
        arrays=one,
        call=of_factor(definite.cho_inv),
        reference=numbers_only(np.linalg.inv),
        specs=lambda p: (BLOCKS,),
        rounding=1e4,
    ),
    Target(
        name="definite.cho_logdet",
        parameters=st.fixed_dictionaries(sizes),
        arrays=one,
        call=of_factor(definite.cho_logdet),
        reference=numbers_only(lambda a: np.linalg.slogdet(a)[1]),
        specs=lambda p: (BLOCKS,),
        rounding=1e4,
    ),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
