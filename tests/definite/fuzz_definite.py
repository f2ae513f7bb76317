"""Solutions in blocks, inverses and determinants of any positive definite matrix."""

import jax
import numpy as np
from cholesky.fuzz_cholesky import both, inexact
from fuzzing import Target, make_tests, numbers_only
from hypothesis import strategies as st

from examples import cholesky, definite

KEYS = {"dtype": inexact, "n": st.integers(1, 20), "k": st.integers(1, 9)}


def target(function, reference, arrays, **more):
    """The target of a function of a factor, and of what comes with it."""
    blocks = jax.P("x", "y")

    def call(p):
        return lambda a, *b: function(cholesky.cho_factor(a), *b)

    return Target(
        name=f"definite.{function.__name__}",
        parameters=st.fixed_dictionaries(KEYS),
        arrays=arrays,
        call=call,
        reference=numbers_only(reference),
        specs=lambda p: (blocks, blocks) if arrays == both else (blocks,),
        rounding=1e4,
        **more,
    )


def one(p, random):
    """A matrix alone: [N, N]."""
    return both(p | {"k": 0}, random)[:1]


TARGETS = (
    target(definite.cho_solve_blocks, np.linalg.solve, both, differentiate=(0, 1)),
    target(definite.cho_inv, np.linalg.inv, one),
    target(definite.cho_logdet, lambda a: np.linalg.slogdet(a)[1], one),
)

test_cases, test_draws = make_tests(TARGETS)
