"""Gradients of a mean over a batch in blocks."""

import jax
import jax.numpy as jnp
import numpy as np
from fuzzing import DTYPES, Target, assert_near, make_tests
from hypothesis import strategies as st

from examples import gradients

REAL = [dtype for dtype in DTYPES if "float" in dtype]
sizes = dict.fromkeys("btn", st.integers(1, 3)) | {"odd": st.sampled_from([0, 0, 0, 1])}
parameters = st.fixed_dictionaries({"dtype": st.sampled_from(REAL), **sizes})


def arrays(p, random):
    """Parameters, examples and weights: [N], [T, B, N], [T, B]."""
    b, t, n = p["b"] * p["mesh"]["batch"] + p["odd"], p["t"], p["n"]
    x, weights = random.normal(size=(t, b, n)), random.uniform(0.5, 1.5, size=(t, b))
    return random.normal(size=n), x, weights


def one(p, random):
    """The same without microbatches."""
    v, x, weights = arrays(p | {"t": 1}, random)
    return v, x[0], weights[0]


def loss(v, x):
    """A loss that is not linear."""
    return jnp.tanh(x @ v) ** 2


def mean(p, v, x, weights):
    """The weighted mean of all losses, and its gradient."""
    height = np.tanh(x @ v)
    slope = 2 * height * (1 - height**2)
    sums = ((weights * slope)[..., None] * x).reshape(-1, x.shape[-1]).sum(0)
    return (weights * height**2).sum() / weights.sum(), sums / weights.sum()


def rounded(p, arrays, result, wanted):
    """Compare as the losses are rounded, whatever type their sum has."""
    eps = float(jnp.finfo(p["dtype"]).eps)
    for mine, theirs in zip(result, wanted, strict=True):
        own = float(jnp.finfo(mine.dtype).eps)
        assert_near(np.asarray(mine), np.asarray(theirs), 100 * max(1, eps / own))


REFUSALS = (
    "a batch of {} cannot be cut into {} parts: pad it to {} examples, and pass"
    " weights that are 0 for those you added",
)


def target(name, arrays, cut):
    """The target of a function of a loss, parameters, examples and weights."""
    function = getattr(gradients, name)
    return Target(
        name=f"gradients.{name}",
        parameters=parameters,
        arrays=arrays,
        call=lambda p: lambda *a: function(loss, *a),
        reference=mean,
        specs=lambda p: (jax.P(), cut, cut),
        plain=lambda p: not p["odd"] or p["mesh"]["batch"] == 1,
        check=rounded,
        axes=("batch",),
        given=("numpy", "jax", "sharded", "replicated"),
    )


TARGETS = (
    target("accumulate", arrays, jax.P(None, "batch")),
    target("value_and_grad", one, jax.P("batch")),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
