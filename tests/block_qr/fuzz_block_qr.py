"""QR and least squares of a matrix of any shape, in blocks."""

import jax
import numpy as np
from fuzzing import NUMBERS, Target, dtypes, make_tests
from hypothesis import strategies as st

from examples import block_qr

BLOCKS = jax.P("x", "y")
SHAPE = st.fixed_dictionaries(
    {
        "dtype": dtypes,
        "m": st.integers(1, 9),
        "n": st.integers(1, 9),
        "sides": st.integers(1, 5),
    }
)


def matrix(p, random):
    """A matrix of full rank, complex."""
    m, n = p["m"], p["n"]
    return (random.normal(size=(m, n, 2)) @ [1, 1j] + 3 * np.sqrt(m) * np.eye(m, n),)


def both(p, random):
    """A matrix, and right-hand sides."""
    return *matrix(p, random), random.normal(size=(p["m"], p["sides"], 2)) @ [1, 1j]


def checked(p):
    """Raise for what is no type of a matrix here."""
    if p["dtype"] not in NUMBERS:
        raise ValueError("no type that LAPACK factors")


def factored(p, a):
    """What the factors multiply to: the matrix."""
    checked(p)
    return a


def fitted(p, a, b):
    """The solution of NumPy, if there is one."""
    checked(p)
    if p["m"] < p["n"]:
        raise ValueError("wide")
    return np.linalg.lstsq(a, b)[0]


def multiply_to_a(p, arrays, result, expected):
    """Compare q r with the matrix, and q^H q with the identity."""
    q, r = map(np.asarray, result)
    rounding = 1e3 * np.finfo(q.dtype).eps
    assert np.abs(q @ r - expected).max() < rounding * np.abs(expected).max()
    assert np.abs(q.conj().T @ q - np.eye(q.shape[1])).max() < rounding


TARGETS = (
    Target(
        name="block_qr.qr_blocks",
        parameters=SHAPE,
        arrays=matrix,
        call=lambda p: block_qr.qr_blocks,
        reference=factored,
        kinds=("Auto", "Explicit"),  # a mixed mesh and lists are refused in words
        given=("numpy", "jax", "sharded", "replicated"),
        specs=lambda p: (BLOCKS,),
        under=("nothing", "jit", "scan"),
        check=multiply_to_a,
    ),
    Target(
        name="block_qr.lstsq_blocks",
        parameters=SHAPE,
        arrays=both,
        call=lambda p: lambda a, b: block_qr.lstsq_blocks(a, b).x,
        reference=fitted,
        kinds=("Auto", "Explicit"),  # a mixed mesh and lists are refused in words
        given=("numpy", "jax", "sharded", "replicated"),
        specs=lambda p: (BLOCKS, BLOCKS),
        under=("nothing", "jit", "grad", "scan"),
        plain=lambda p: p["m"] >= p["n"],
        differentiate=(0, 1),
        rounding=1e4,
    ),
)

test_cases, test_draws = make_tests(TARGETS)
