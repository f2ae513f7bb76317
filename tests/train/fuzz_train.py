"""A small model, trained in parallel."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from fuzzing import DTYPES, Target, make_tests
from hypothesis import strategies as st

from examples import train

REAL = [dtype for dtype in DTYPES if "float" in dtype]
parameters = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*REAL, "complex64"]),
        "blocks": st.integers(1, 2),
        "n": st.integers(1, 2),
        "f": st.integers(1, 2),
        "rows": st.integers(1, 2),
        "odd": st.sampled_from([0, 0, 0, 1]),
    }
)


def arrays(p, random):
    """Parameters that all axes can cut, and a batch."""
    mesh, blocks = p["mesh"], p["blocks"]
    n, f = p["n"] * mesh["data"], p["f"] * mesh["data"] * mesh.get("model", 1)
    rows, normal = p["rows"] * mesh["data"] + p["odd"], random.normal
    first, second = normal(size=(blocks, n, f)), normal(size=(blocks, f, n))
    biases = normal(size=(blocks, f)), normal(size=(blocks, n))
    pair = normal(size=(2, rows, n, 2)) @ [1, 1j]
    return first / n, biases[0], second / f, biases[1], *pair


def call(loss):
    """Return the loss as a function of six arrays."""
    return lambda p: lambda *a: loss(dict(zip(train.NAMES, a[:4], strict=True)), a[4:])


def reference(p, *arrays):
    """Return the loss, block by block, of real numbers."""
    if p["dtype"] not in REAL:
        raise ValueError("no real numbers")
    *params, x, y = arrays
    for w1, b1, w2, b2 in zip(*params, strict=True):
        x = x + np.tanh(x @ w1 + b1) @ w2 + b2
    return ((x - y) ** 2).mean()


def lying(row):
    """Return how arrays lie by a row of the table."""
    specs = [train.SPECS[row][name] for name in train.NAMES]
    return lambda p: (*specs, jax.P("data"), jax.P("data"))


def started(p):
    """Return the parameters that `create` makes, by two optimizers."""

    def both(x):
        def make(key):
            return train.init(key, p["blocks"], *x.shape)

        made = []
        for optimizer in optax.adafactor(0.1), optax.sgd(0.1, momentum=0.9):
            start = train.create(make, optimizer, train.SPECS["tensor"])
            made.append(start(jax.random.key(0))[0]["w1"])
        return made

    return both


def spread(p, arrays, result, wanted):
    """Expect the variance of the formula, the same for both, and not zeros."""
    one, other = result
    assert one.shape == (p["blocks"], *arrays[0].shape)
    np.testing.assert_array_equal(one, other)
    assert one.std() * np.sqrt(len(arrays[0])) < 3
    assert np.abs(one).min() > 0


common = {
    "parameters": parameters,
    "arrays": arrays,
    "reference": reference,
    "plain": lambda p: not p["odd"] or p["mesh"]["data"] == 1,
    "differentiate": (0, 1, 2, 3, 4),
    "given": ("numpy", "jax", "sharded", "replicated"),
}
REFUSALS = (
    "a batch of {} cannot be cut in {}: take a multiple of it",
    "axes {} of two types: make all Auto or all Explicit",
)

TARGETS = (
    Target(
        name="train.loss",
        call=call(train.loss),
        specs=lying("tensor"),
        axes=("data", "model"),
        **common,
    ),
    Target(
        name="train.sharded_loss",
        call=call(train.sharded_loss),
        specs=lying("sharded"),
        axes=("data",),
        **common,
    ),
    Target(
        name="train.init",
        parameters=parameters,
        arrays=lambda p, random: (np.zeros((p["n"], p["f"] * p["mesh"]["model"])),),
        call=started,
        reference=lambda p, x: jnp.shape(x),
        check=spread,
        axes=("data", "model"),
        given=("numpy",),
        under=("nothing",),
    ),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
