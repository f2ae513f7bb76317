"""Eigenvalues and eigenvectors of matrices in blocks, on meshes of two axes."""

import functools

import jax
import numpy as np
from fuzzing import NUMBERS, Target, make_tests
from hypothesis import strategies as st

from examples import eigh
from examples.secular import IN_PAIRS

shapes = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*NUMBERS, "float16", "int32"]),
        "n": st.integers(1, 24),
        "own": st.booleans(),
    }
)


def matrix(p, random):
    """A random matrix [N, N], complex, with its eigenvalues apart."""
    n = p["n"]
    noise = random.normal(size=(n, n, 2)) @ [1, 1j]
    return (noise + noise.conj().T + np.diag(4.0 * n * np.arange(n)),)


def solver(p, function):
    """The function, with the joins of secular.py or without."""
    solvers = IN_PAIRS if p["own"] else eigh.ON_EACH
    return functools.partial(function, tridiagonal=solvers)


def values(p, a):
    """The eigenvalues of the Hermitian part."""
    if p["dtype"] not in NUMBERS:
        raise ValueError("no numbers for it")
    return np.linalg.eigvalsh((a + a.conj().T) / 2)


def is_solved(p, arrays, result, expected):
    """Raise AssertionError unless a v = v w, and v^H v = 1."""
    (w, v), (a,) = result, arrays
    wide = np.result_type(np.asarray(a).dtype, np.float64)
    a, v, w = np.asarray(a, wide), np.asarray(v, wide), np.asarray(w, np.float64)
    a = (a + a.conj().T) / 2
    eps = np.finfo(np.asarray(result[0]).dtype).eps
    size = eps * 10 * (len(w) + 10)
    assert np.abs(a @ v - v * w).max() <= size * max(np.abs(w).max(), 1e-30)
    assert np.abs(v.conj().T @ v - np.eye(len(w))).max() <= size
    assert np.abs(w - expected).max() <= size * max(np.abs(w).max(), 1e-30)


HOW = {
    "parameters": shapes,
    "arrays": matrix,
    "reference": values,
    "specs": lambda p: (jax.P("x", "y"),),
    "kinds": ("Auto", "Explicit"),
    "given": ("numpy", "jax", "sharded", "replicated"),
    "rounding": 1e4,
}
TARGETS = (
    Target(name="eigh.eigvalsh", call=lambda p: solver(p, eigh.eigvalsh), **HOW),
    Target(
        name="eigh.eigh",
        call=lambda p: solver(p, eigh.eigh),
        check=is_solved,
        under=("nothing", "jit", "scan"),  # vectors have any phase
        **HOW,
    ),
)

test_cases, test_draws = make_tests(TARGETS)
