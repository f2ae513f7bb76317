"""Singular values of tall matrices."""

from dataclasses import replace

import jax
import numpy as np
from fuzzing import NUMBERS, Target, make_tests
from hypothesis import strategies as st
from tsqr.fuzz_tsqr import matrix

from examples import svd

AXES = "x", "y", ["y", "x"], ["x", "y"]
keys = {"dtype": st.sampled_from(NUMBERS)}
tall = {"m": st.integers(1, 40), "k": st.integers(1, 5), "axis": st.sampled_from(AXES)}
few = {"m": st.integers(1, 30), "n": st.integers(1, 30), "k": st.integers(1, 4)}


def low_rank(p, random):
    """A random matrix [M, N] of rank k, complex; its real part, too."""
    return (matrix(p, random)[0] @ random.normal(size=(p["k"], p["n"])),)


def if_fits(function):
    """Let a function of NumPy answer for matrices that have k singular values."""

    def reference(p, a):
        if p["k"] > min(a.shape):
            raise ValueError("fewer values than that")
        return function(a)

    return reference


def product(factors):
    """The product of the first three factors of a matrix."""
    u, s, vh = factors[:3]
    return (u * s.astype(u.dtype)[None]) @ vh


def first_few(p):
    """The product of the first factors, which is a matrix of rank k."""
    sketch = svd.Sketch(jax.random.key(0))
    return lambda a: product(svd.randomized_svd(a, p["k"], sketch))


ALL = Target(
    name="svd.svd",
    parameters=st.fixed_dictionaries(keys | tall),
    arrays=matrix,
    call=lambda p: lambda a: product(svd.svd(a, p["axis"])),
    reference=if_fits(lambda a: a),
    specs=lambda p: (jax.P((*p["axis"],)),),
    rounding=1e5,
)
VALUES = replace(
    ALL,
    name="svd.svdvals",
    call=lambda p: lambda a: svd.svdvals(a, p["axis"]),
    reference=if_fits(lambda a: np.linalg.svd(a, compute_uv=False)),
)
FEW = replace(
    ALL,
    name="svd.randomized_svd",
    parameters=st.fixed_dictionaries(keys | few),
    arrays=low_rank,
    call=first_few,
    specs=lambda p: (jax.P("x", "y"),),
    kinds=("Auto", "Explicit"),  # meshes of both are refused
    given=("numpy", "jax", "sharded", "replicated"),  # a list has digits of no rank k
    under=("nothing", "jit"),
)

test_cases, test_draws = make_tests((ALL, VALUES, FEW))
