"""Singular values from the host, and the largest numbers of rows."""

import jax
import numpy as np
from fuzzing.harness import FLOATS, Target, assert_near, dtypes
from hypothesis import strategies as st

from examples import opaque

INNER = "check_real_matrices", "block_svd", "block_singular_values"
INNER += "place", "candidates", "choose", "merge", "split_top_k"

matrices = st.fixed_dictionaries(
    {
        "dtype": dtypes,
        "b": st.integers(1, 3),
        "odd": st.sampled_from([0, 0, 0, 1]),
        "m": st.integers(1, 4),
        "n": st.integers(1, 4),
    }
)
rows = st.fixed_dictionaries(
    {
        "dtype": dtypes,
        "shape": st.lists(st.sampled_from([1, 2, 4, 6]), min_size=0, max_size=2),
        "n": st.sampled_from([1, 4, 12, 13, 24]),
        "k": st.integers(0, 5),
        "cut": st.sampled_from(["rows", "columns", "both"]),
    }
)


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


def scores(p, random):
    """Rows of different numbers, as long as they are fractions."""
    size = (*p["shape"], p["n"])
    return (random.permutation(int(np.prod(size))).reshape(size) / 64 - 1,)


def largest(p, a):
    """A stable sort of what is to be as small as possible."""
    if not 1 <= p["k"] <= p["n"] or np.iscomplexobj(a):
        raise ValueError("no such k, or no order")
    places = np.argsort(-a.astype(float), axis=-1, kind="stable")[..., : p["k"]]
    return np.take_along_axis(a, places, -1), places


def lying(p):
    """Rows that are split, cut, or both."""
    first, last = {"rows": ("x", None), "columns": (None, "y")}.get(
        p["cut"], ("x", "y")
    )
    return (jax.P(*[first, None][: len(p["shape"])], last),)


TARGETS = (
    Target(
        name="opaque.singular_values",
        parameters=matrices,
        arrays=batch,
        call=lambda p: opaque.singular_values,
        reference=values,
        specs=lambda p: (jax.P("batch"),),
        plain=lambda p: not p["odd"] or p["mesh"]["batch"] == 1,
        axes=("batch",),
    ),
    Target(
        name="opaque.numpy_svd",
        parameters=matrices,
        arrays=batch,
        call=lambda p: opaque.numpy_svd,
        reference=values,
        specs=lambda p: (jax.P("batch"),),
        plain=lambda p: p["dtype"] in FLOATS,
        check=factors,
        axes=("batch",),
        given=("jax", "sharded", "replicated", "list"),  # JAX loses NumPy's under jit
        under=("nothing", "jit", "vmap", "scan"),
    ),
    Target(
        name="opaque.top_k",
        parameters=rows,
        arrays=scores,
        call=lambda p: lambda a: opaque.top_k(a, p["k"]),
        reference=largest,
        specs=lying,
    ),
)
