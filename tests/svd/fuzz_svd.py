"""Singular values of tall matrices."""

import jax
import numpy as np
from fuzzing import NUMBERS, Target, make_tests
from hypothesis import strategies as st

from examples import svd

AXES = "x", "y", ["y", "x"], ["x", "y"]

tall = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(NUMBERS),
        "m": st.integers(1, 40),
        "k": st.integers(1, 5),
        "axis": st.sampled_from(AXES),
    }
)
few = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(NUMBERS),
        "m": st.integers(1, 30),
        "n": st.integers(1, 30),
        "k": st.integers(1, 4),
    }
)


def matrix(p, random):
    """A random matrix [M, K], complex."""
    return (random.normal(size=(p["m"], p["k"], 2)) @ [1, 1j],)


def low_rank(p, random):
    """A random matrix [M, N] of rank k, complex; its real part, too."""
    return (matrix(p, random)[0] @ random.normal(size=(p["k"], p["n"])),)


def if_tall(function):
    """Let a function of NumPy answer for tall matrices."""

    def reference(p, a):
        if p["m"] < p["k"]:
            raise ValueError("not tall")
        return function(a)

    return reference


def of_rank(p, a):
    """The matrix, if it has so many values."""
    if p["k"] > min(p["m"], p["n"]):
        raise ValueError("fewer values than that")
    return a


def rows(p):
    """The spec of what lies by rows."""
    return (jax.P(p["axis"] if isinstance(p["axis"], str) else tuple(p["axis"])),)


def again(factor):
    """Return what multiplies the first three factors of a matrix."""

    def product(a):
        u, s, vh = factor(a)[:3]
        return (u * s.astype(u.dtype)[None]) @ vh

    return product


def first_few(p):
    """The product of the first factors, which is a matrix of rank k."""

    def factor(a):
        return svd.randomized_svd(a, p["k"], svd.Sketch(jax.random.key(0)))

    return again(factor)


REFUSALS = ("axes {} of two types: make all Auto or all Explicit",)

TARGETS = (
    Target(
        name="svd.svd",
        parameters=tall,
        arrays=matrix,
        call=lambda p: again(lambda a: svd.svd(a, p["axis"])),
        reference=if_tall(lambda a: a),
        specs=rows,
        rounding=1e5,
    ),
    Target(
        name="svd.randomized_svd",
        parameters=few,
        arrays=low_rank,
        call=first_few,
        reference=of_rank,
        specs=lambda p: (jax.P("x", "y"),),
        kinds=("Auto", "Explicit"),  # meshes of both are refused
        under=("nothing", "jit"),
        rounding=1e5,
    ),
    Target(
        name="svd.svdvals",
        parameters=tall,
        arrays=matrix,
        call=lambda p: lambda a: svd.svdvals(a, p["axis"]),
        reference=if_tall(lambda a: np.linalg.svd(a, compute_uv=False)),
        specs=rows,
        rounding=1e5,
    ),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
