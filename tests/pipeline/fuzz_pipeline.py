"""A pipeline of layers on different devices."""

import jax
import jax.numpy as jnp
import numpy as np
from fuzzing import DTYPES, Target, make_tests
from hypothesis import strategies as st

from examples import pipeline

KEYS = {
    "dtype": st.sampled_from([dtype for dtype in DTYPES if "float" in dtype]),
    "layers": st.integers(1, 2),
    "odd": st.sampled_from([0, 0, 0, 1]),
    "n": st.integers(1, 3),
    "rows": st.integers(1, 2),
    "microbatches": st.integers(1, 4),
}


def arrays(p, random):
    """Weights of all layers, and a batch."""
    n, mesh = p["n"], p["mesh"]
    rows = p["rows"] * mesh["data"] * p["microbatches"] + p["odd"]
    weights = random.normal(size=(p["layers"] * mesh["stage"], n, n)) / 2
    return weights, *random.normal(size=(2, rows, n))


def stage(weights, piece):
    """Apply some layers; the tree also has what they pass on."""
    x = piece["x"]
    for w in jnp.unstack(weights):
        x = x + jnp.tanh(x @ w)
    return piece | {"x": x}


def call(p):
    """Return the loss of a batch."""

    def cost(answer, y):
        return ((answer["x"] - y) ** 2 + answer["shift"] ** 2).mean()

    loss = pipeline.pipelined(stage, cost, p["microbatches"])
    return lambda w, x, y: loss(w, ({"x": x, "shift": x}, y))


def reference(p, weights, x, y):
    """Return the loss, a layer after the other."""
    start = x
    for w in weights:
        x = x + np.tanh(x @ w)
    return ((x - y) ** 2 + start**2).mean()


REFUSALS = (
    "a batch {} cannot be cut into {} parts of {} microbatches: take a multiple of {}",
)

TARGETS = (
    Target(
        name="pipeline.pipelined",
        parameters=st.fixed_dictionaries(KEYS),
        arrays=arrays,
        call=call,
        reference=reference,
        specs=lambda p: (jax.P("stage"), jax.P("data"), jax.P("data")),
        plain=lambda p: not p["odd"],
        axes=("stage", "data"),
        differentiate=(0, 1, 2),
        given=("numpy", "jax", "sharded", "replicated"),
    ),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
