"""A small model, trained in parallel."""

import jax
import numpy as np
import optax
from fuzzing import DTYPES, Target, make_tests
from hypothesis import strategies as st

from examples import train

REAL = [dtype for dtype in DTYPES if "float" in dtype]
choices = {
    "dtype": st.sampled_from([*REAL, "complex64"]),
    "odd": st.sampled_from([0, 0, 0, 1]),
}
few = dict.fromkeys(("blocks", "n", "f", "rows"), st.integers(1, 2))
parameters = st.fixed_dictionaries(choices | few)


def arrays(p, random):
    """Parameters that all axes can cut, and a batch."""
    mesh, blocks = p["mesh"], p["blocks"]
    n, f = p["n"] * mesh["data"], p["f"] * mesh["data"] * mesh.get("model", 1)
    rows, normal = p["rows"] * mesh["data"] + p["odd"], random.normal
    first, second = normal(size=(blocks, n, f)), normal(size=(blocks, f, n))
    biases = normal(size=(blocks, f)), normal(size=(blocks, n))
    pair = normal(size=(2, rows, n, 2)) @ [1, 1j]
    return first / n, biases[0], second / f, biases[1], *pair


def reference(p, *arrays):
    """Return the loss, block by block, of real numbers."""
    if p["dtype"] not in REAL:
        raise ValueError("no real numbers")
    *params, x, y = arrays
    for w1, b1, w2, b2 in zip(*params, strict=True):
        x = x + np.tanh(x @ w1 + b1) @ w2 + b2
    return ((x - y) ** 2).mean()


def started(p):
    """Return w1 of the state that `create` makes."""

    def first(x):
        def make(key):
            return train.init(key, p["blocks"], *x.shape)

        start = train.create(make, optax.adafactor(0.1), train.SPECS["tensor"])
        return start(jax.random.key(0))[0]["w1"]

    return first


def spread(p, arrays, w1, shape):
    """Expect the variance of the formula, and not zeros."""
    assert w1.shape == (p["blocks"], *shape)
    assert w1.std() * np.sqrt(shape[0]) < 3
    assert np.abs(w1).min() > 0


REFUSALS = ("a batch of {} cannot be cut in {}: take a multiple of it",)


def target(loss, row, *axes):
    """Return the target of a loss, of parameters that lie by a row of the table."""
    specs = [train.SPECS[row][name] for name in train.NAMES]
    return Target(
        name=f"train.{loss.__name__}",
        parameters=parameters,
        arrays=arrays,
        call=lambda p: (
            lambda *a: loss(dict(zip(train.NAMES, a[:4], strict=True)), a[4:])
        ),
        reference=reference,
        specs=lambda p: (*specs, jax.P("data"), jax.P("data")),
        plain=lambda p: not p["odd"] or p["mesh"]["data"] == 1,
        axes=axes,
        differentiate=(0, 1, 2, 3, 4),
        given=("numpy", "jax", "sharded", "replicated"),
    )


TARGETS = (
    target(train.loss, "tensor", "data", "model"),
    target(train.sharded_loss, "sharded", "data"),
    Target(
        name="train.init",
        parameters=parameters,
        arrays=lambda p, random: (np.zeros((p["n"], p["f"] * p["mesh"]["model"])),),
        call=started,
        reference=lambda p, x: x.shape,
        check=spread,
        axes=("data", "model"),
        given=("numpy",),
        under=("nothing",),
    ),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
