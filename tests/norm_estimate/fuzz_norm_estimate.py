"""Norms of an inverse, on all devices, estimated by a solver that multiplies by it."""

import jax
import numpy as np
from fuzzing import NUMBERS, Target, make_tests
from hypothesis import strategies as st

from examples import norm_estimate

KEYS = {
    "dtype": st.sampled_from(NUMBERS),
    "n": st.integers(1, 17),
    "k": st.integers(1, 3),
}


def both(p, random):
    """The inverse itself, and weights."""
    inverse = random.normal(size=(p["n"], p["n"], 2)) @ [1, 1j]
    return inverse, np.abs(random.normal(size=(p["n"], p["k"])))


def norms(p):
    """Those of weights, and of ones."""

    def call(inverse, weights):
        known = norm_estimate.place(inverse, jax.P())
        pair = (lambda b: known @ b), (lambda b: known.conj().T @ b)
        return norm_estimate.Inverse(pair).norms(weights)

    return jax.jit(call)


def largest(p, inverse, weights):
    """What NumPy says of them."""
    size = np.abs(inverse)
    return (size @ np.abs(weights)).max(0), size.sum(1).max()


def near(p, arrays, found, wanted):
    """An estimate is no larger than the truth, and at least a third of it."""
    for mine, truth in zip(found, wanted, strict=True):
        assert ((truth / 3 < mine) & (mine < 1.01 * truth)).all()


TARGETS = (
    Target(
        name="norm_estimate.Inverse.norms",
        parameters=st.fixed_dictionaries(KEYS),
        arrays=both,
        call=norms,
        reference=largest,
        check=near,
        under=("nothing", "jit", "vmap"),
        kinds=("Auto", "Explicit"),
        given=("numpy", "jax", "replicated"),
    ),
)

test_cases, test_draws = make_tests(TARGETS)
