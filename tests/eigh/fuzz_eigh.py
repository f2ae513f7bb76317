"""Eigenvalues and eigenvectors of matrices in blocks, on meshes of two axes."""

import functools

import jax
import numpy as np
from fuzzing import NUMBERS, Target, double, make_tests, numbers_only
from hypothesis import strategies as st

from examples import eigh
from examples.secular import IN_PAIRS

KEYS = {
    "dtype": st.sampled_from([*NUMBERS, "float16", "int32"]),
    "n": st.integers(1, 24),
    "own": st.booleans(),
}


def matrix(p, random):
    """A random matrix [N, N], complex, with its eigenvalues apart."""
    n = p["n"]
    return (random.normal(size=(n, n, 2)) @ [2, 2j] + np.diag(4.0 * n * np.arange(n)),)


def hermitian_part(a):
    return (a + a.conj().T) / 2


def solve_as(function):
    """Return the call: with the joins of secular.py, or without."""
    solvers = eigh.ON_EACH, IN_PAIRS
    return lambda p: functools.partial(function, tridiagonal=solvers[p["own"]])


def is_solved(p, arrays, result, expected):
    """Fail unless a v = v w, and v^H v = 1."""
    a, w, v = map(double, (*arrays, *result))
    unit = np.finfo(result[0].dtype).eps * 10 * (len(w) + 10)
    size = unit * max(np.abs(w).max(), 1e-30)
    np.testing.assert_allclose(hermitian_part(a) @ v, v * w, rtol=0, atol=size)
    np.testing.assert_allclose(v.conj().T @ v, np.eye(len(w)), rtol=0, atol=unit)
    np.testing.assert_allclose(w, expected, rtol=0, atol=size)


target = functools.partial(
    Target,
    parameters=st.fixed_dictionaries(KEYS),
    arrays=matrix,
    reference=numbers_only(lambda a: np.linalg.eigvalsh(hermitian_part(a))),
    specs=lambda p: (jax.P("x", "y"),),
    kinds=("Auto", "Explicit"),
    given=("numpy", "jax", "sharded", "replicated"),
    rounding=1e4,
)
VALUES = target("eigh.eigvalsh", call=solve_as(eigh.eigvalsh))
VECTORS = target(
    "eigh.eigh",
    call=solve_as(eigh.eigh),
    check=is_solved,
    under=("nothing", "jit", "scan"),  # vectors have any phase
)

test_cases, test_draws = make_tests((VALUES, VECTORS))
