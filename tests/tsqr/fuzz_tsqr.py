"""QR of tall matrices, whose rows lie along one axis, or along two."""

import jax
import numpy as np
from fuzzing import NUMBERS, Target, make_tests
from hypothesis import strategies as st

from examples import tsqr

inexact = st.sampled_from([*NUMBERS, "float16", "bfloat16"])  # others have no gradient
AXES = "x", "y", ["x"], ["y", "x"], ["x", "y"]

tall = st.fixed_dictionaries(
    {
        "dtype": inexact,
        "m": st.integers(1, 40),
        "k": st.integers(1, 5),
        "axis": st.sampled_from(AXES),
        "sides": st.integers(0, 2),
    }
)


def matrix(p, random):
    """A random matrix [M, K], complex."""
    return (random.normal(size=(p["m"], p["k"], 2)) @ [1, 1j],)


def both(p, random):
    """A matrix and right-hand sides, [M] or [M, S]."""
    shape = (p["m"], p["sides"]) if p["sides"] else (p["m"],)
    return *matrix(p, random), random.normal(size=(*shape, 2)) @ [1, 1j]


def checked(p):
    """Raise ValueError for what has no answer."""
    if p["m"] < p["k"] or p["dtype"] not in NUMBERS:
        raise ValueError("not tall, or no numbers for it")


def least(p, a, b):
    """The solution of least squares, of a tall matrix."""
    checked(p)
    return np.linalg.lstsq(a, b)[0]


def factors(p, a):
    """Q and R, with a diagonal of R that is not negative."""
    checked(p)
    q, r = np.linalg.qr(a)
    sign = np.sign(np.diag(r).real)
    return q * sign, r * sign[:, None]


def rows(p):
    """The spec of what lies by rows."""
    return jax.P(p["axis"] if isinstance(p["axis"], str) else tuple(p["axis"]))


REFUSALS = (
    "axes {} of two types: make all Auto or all Explicit",
    "{} is {}: pass an array of numbers",
)

TARGETS = (
    Target(
        name="tsqr.qr",
        parameters=tall,
        arrays=matrix,
        call=lambda p: lambda a: tsqr.qr(a, p["axis"]),
        reference=factors,
        specs=lambda p: (rows(p),),
        rounding=1e5,
    ),
    Target(
        name="tsqr.lstsq",
        parameters=tall,
        arrays=both,
        call=lambda p: lambda a, b: tsqr.lstsq(a, b, p["axis"]),
        reference=least,
        specs=lambda p: (rows(p), rows(p)),
        differentiate=(0, 1),
        rounding=1e5,
    ),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
