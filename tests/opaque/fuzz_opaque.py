"""Singular values from the host."""

from dataclasses import replace

import jax
import numpy as np
from fuzzing import FLOATS, Target, assert_near, dtypes, make_tests
from hypothesis import strategies as st

from examples import opaque

choices = {
    "dtype": dtypes,
    "b": st.integers(1, 3),
    "odd": st.sampled_from([0, 0, 0, 1]),
}
matrices = st.fixed_dictionaries(choices | dict.fromkeys("mn", st.integers(1, 4)))


def batch(p, random):
    """Matrices of which the mesh can cut the batch, or not."""
    size = (p["b"] * p["mesh"]["batch"] + p["odd"], p["m"], p["n"])
    return (random.normal(size=(*size, 2)) @ [1, 1j],)


def values(p, a):
    """The singular values, of real matrices."""
    return np.linalg.svd(a, compute_uv=False)


def factors(p, arrays, result, wanted):
    """Compare the singular values, and the product of all three."""
    u, s, vh = result
    assert_near(s, wanted, 100)
    assert_near((u * s[..., None, :]) @ vh, np.asarray(arrays[0]), 100)


REFUSALS = (
    "a batch of {} cannot be cut into {} parts: pad it",
    "{}{} is no batch of matrices: pass [B, m, n], float32",
)

VALUES = Target(
    name="opaque.singular_values",
    parameters=matrices,
    arrays=batch,
    call=lambda p: opaque.singular_values,
    reference=values,
    specs=lambda p: (jax.P("batch"),),
    plain=lambda p: not p["odd"] or p["mesh"]["batch"] == 1,
    axes=("batch",),
)
FACTORS = replace(
    VALUES,
    name="opaque.numpy_svd",
    call=lambda p: opaque.numpy_svd,
    plain=lambda p: p["dtype"] in FLOATS,
    check=factors,
    given=("jax", "sharded", "replicated", "list"),  # JAX loses NumPy's under jit
    under=("nothing", "jit", "vmap", "scan"),
)

test_cases, test_draws = make_tests((VALUES, FACTORS), REFUSALS)
