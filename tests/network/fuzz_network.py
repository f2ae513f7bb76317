"""A sum over the devices of several hosts."""

import jax
import numpy as np
from fuzzing import Target, dtypes, make_tests
from hypothesis import strategies as st

from examples import network


def blocks(p, random):
    """Rows for every device, that can be cut into parts or not."""
    x, y = p["mesh"]["x"], p["mesh"]["y"]
    shape = p["n"] * x * y * y + p["odd"], *[2] * p["more"], 2
    return (random.normal(size=shape) @ [1, 1j],)


def total(p, x):
    """The sum of the blocks."""
    return sum(np.split(x, p["mesh"]["x"] * p["mesh"]["y"]))


REFUSALS = (
    "an array of shape {} cannot be cut into {} blocks of {} parts along its "
    "first axis: pad each block",
    "{} does not add up: pass an array of numbers",
)

keys = {"dtype": dtypes.filter(lambda name: name != "bool"), "n": st.integers(1, 3)}
keys |= {"more": st.integers(0, 2), "odd": st.sampled_from([0, 0, 0, 1])}
TARGETS = (
    Target(
        name="network.sum_by_hosts",
        parameters=st.fixed_dictionaries(keys),
        arrays=blocks,
        call=lambda p: lambda x: network.sum_by_hosts(x, inner="y", outer="x"),
        reference=total,
        specs=lambda p: (jax.P(("x", "y")),),
        plain=lambda p: not p["odd"],
    ),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
