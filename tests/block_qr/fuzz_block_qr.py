"""QR and least squares of a matrix of any shape, in blocks."""

from dataclasses import replace

import jax
import numpy as np
from fuzzing import Target, dtypes, make_tests, numbers_only
from hypothesis import strategies as st

from examples import block_qr

BLOCKS = jax.P("x", "y")
keys = {"dtype": dtypes, "m": st.integers(1, 9), "n": st.integers(1, 9)}


def matrix(p, random):
    """A matrix of full rank, complex."""
    m, n = p["m"], p["n"]
    return (random.normal(size=(m, n, 2)) @ [1, 1j] + 3 * np.sqrt(m) * np.eye(m, n),)


def both(p, random):
    """A matrix, and right-hand sides."""
    return *matrix(p, random), random.normal(size=(p["m"], p["sides"], 2)) @ [1, 1j]


def fit(a, b):
    """The solution of NumPy, if there is one."""
    if len(a) < a.shape[1]:
        raise ValueError("wide")
    return np.linalg.lstsq(a, b)[0]


def multiply_to_a(p, arrays, result, expected):
    """Compare q r with the matrix, and q^H q with the identity."""
    q, r = map(np.asarray, result)
    rounding = 1e3 * np.finfo(q.dtype).eps
    assert np.abs(q @ r - expected).max() < rounding * np.abs(expected).max()
    assert np.abs(q.conj().T @ q - np.eye(q.shape[1])).max() < rounding


FACTORS = Target(
    name="block_qr.qr_blocks",
    parameters=st.fixed_dictionaries(keys | {"sides": st.integers(1, 5)}),
    arrays=matrix,
    call=lambda p: block_qr.qr_blocks,
    reference=numbers_only(lambda a: a),
    kinds=("Auto", "Explicit"),  # a mixed mesh and lists are refused in words
    given=("numpy", "jax", "sharded", "replicated"),
    specs=lambda p: (BLOCKS,),
    under=("nothing", "jit", "scan"),
    check=multiply_to_a,
)
FIT = replace(
    FACTORS,
    name="block_qr.lstsq_blocks",
    arrays=both,
    call=lambda p: lambda a, b: block_qr.lstsq_blocks(a, b).x,
    specs=lambda p: (BLOCKS, BLOCKS),
    reference=numbers_only(fit),
    under=("nothing", "jit", "grad", "scan"),
    plain=lambda p: p["m"] >= p["n"],
    check=None,
    differentiate=(0, 1),
    rounding=1e4,
)

test_cases, test_draws = make_tests((FACTORS, FIT))
