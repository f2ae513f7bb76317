"""Tridiagonal problems, whose pieces lie on the devices of one axis or two."""

import numpy as np
from fuzzing import FLOATS, Target, make_tests
from hypothesis import strategies as st
from secular.test_secular import dense

from examples import secular

KEYS = {
    "dtype": st.sampled_from([*FLOATS, "float16", "complex64"]),
    "n": st.integers(1, 40),
    "axis": st.sampled_from(["x", ["y"], ["x", "y"], ["y", "x"]]),
}


def numbers(p, random):
    """A diagonal and a subdiagonal."""
    return random.normal(size=p["n"]), random.normal(size=p["n"] - 1)


def values(p, d, e):
    """The eigenvalues."""
    if p["dtype"] not in FLOATS:
        raise ValueError("no numbers for it")
    return np.linalg.eigvalsh(dense(d, e))


def is_solved(p, arrays, result, expected):
    """Raise AssertionError unless t q = q w, and q^T q = 1."""
    (w, q), (d, e) = (map(np.float64, each) for each in (result, arrays))
    size = 50 * np.finfo(np.asarray(result[0]).dtype).eps
    t = dense(d, e)
    assert np.abs(t @ q - q * w).max() <= size * np.abs(t).sum(1).max()
    assert np.abs(q.T @ q - np.eye(len(w))).max() <= size
    assert np.abs(w - expected).max() <= size * np.abs(t).sum(1).max()


def target(name, **more):
    """The target of a function of a diagonal and a subdiagonal."""
    return Target(
        name=f"secular.{name}",
        parameters=st.fixed_dictionaries(KEYS),
        arrays=numbers,
        call=lambda p: lambda d, e: getattr(secular, name)(d, e, p["axis"]),
        reference=values,
        kinds=("Auto", "Explicit"),
        given=("numpy", "jax", "replicated"),
        under=("nothing", "jit", "vmap", "scan"),  # derivatives are those of eigh
        **more,
    )


TARGETS = (
    target("eigh_tridiagonal", check=is_solved),
    target("eigvalsh_tridiagonal", rounding=1e4),
)

test_cases, test_draws = make_tests(TARGETS)
