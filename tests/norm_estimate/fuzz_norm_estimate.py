"""Norms of an inverse, on all devices, estimated by a solver that multiplies by it."""

import jax
import numpy as np
from fuzzing import NUMBERS, Target, make_tests
from hypothesis import strategies as st
from norm_estimate.test_norm_estimate import assert_near, by

from examples.norm_estimate import Inverse, place

sizes = {"n": st.integers(1, 17), "k": st.integers(1, 3)}
KEYS = {"dtype": st.sampled_from(NUMBERS)} | sizes


def both(p, random):
    """The inverse itself, and weights."""
    inverse = random.normal(size=(p["n"], p["n"], 2)) @ [1, 1j]
    return inverse, np.abs(random.normal(size=(p["n"], p["k"])))


def norms(inverse, weights):
    """Those of weights, and of ones."""
    return Inverse(by(place(inverse, jax.P()))).norms(weights)


def near(p, arrays, found, wanted):
    """An estimate is no larger than the truth, and at least a third of it."""
    assert_near(found, *arrays, 1e-2)


TARGETS = (
    Target(
        name="norm_estimate.Inverse.norms",
        parameters=st.fixed_dictionaries(KEYS),
        arrays=both,
        call=lambda p: jax.jit(norms),
        reference=lambda p, *arrays: arrays,
        check=near,
        under=("nothing", "jit", "vmap"),
        kinds=("Auto", "Explicit"),
        given=("numpy", "jax", "replicated"),
    ),
)

test_cases, test_draws = make_tests(TARGETS)
