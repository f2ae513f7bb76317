import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal, each_week
from on_devices import AUTO, EXPLICIT, assert_agreed, devices, noise

from examples import norm_estimate
from examples.communication import measure
from examples.norm_estimate import Grid, Inverse, place

AXES = "x", "y"
pytestmark = pytest.mark.usefixtures("double")


def by(inverse, out=(), unit=1):
    """Return a solver that multiplies by an inverse, and lays x out so."""

    def multiply(m, b):
        b = place(b, jax.P())
        return place(unit * (jnp.asarray(m, b.dtype) @ b), jax.P(*out))

    return tuple(functools.partial(multiply, m) for m in (inverse, inverse.conj().T))


@functools.cache
def norms(axes=AXES):
    """Return what estimates in blocks, or whole, of an inverse, weights, a power."""

    @jax.jit
    def run(inverse, weights, e=0):
        return Inverse(by(inverse, axes), axes).norms(place(weights, jax.P(*axes)), e)

    return run


def drawn(n, k, dtype=np.float64):
    """Return an inverse and weights."""
    weights = np.abs(noise(n, k, seed=1)).astype(dtype)
    return noise(n, n, dtype=np.dtype(dtype)), weights


def assert_near(found, inverse, weights, rtol=1e-4):
    """Assert that these are no larger than what NumPy says, and at least a third."""
    truths = (np.abs(inverse) @ np.abs(weights)).max(0), np.linalg.norm(inverse, np.inf)
    for mine, truth in zip(found, truths, strict=True):
        assert (np.asarray(mine) <= truth * (1 + rtol)).all()
        assert (np.asarray(mine) >= truth / 3).all()


@pytest.mark.parametrize(
    ("shape", "names", "kinds", "dtype"),
    [
        ((2, 4), AXES, (EXPLICIT, EXPLICIT), "float32"),
        ((2, 2, 2), ("data", "model", "z"), (AUTO, AUTO, EXPLICIT), "complex128"),
    ],
)
def test_blocks_and_whole_arrays_tell_the_same_from_below(shape, names, kinds, dtype):
    """Of two condition numbers, and weights of many sizes; by 2^e, exactly."""
    blocks, whole = norms(names[:2]), norms(())
    n, rtol = 24, 1e-3 if dtype == "float32" else 1e-10
    left, weights = drawn(n, 8, dtype)
    left, right = (np.linalg.qr(a)[0] for a in (left, left.T))
    weights *= np.logspace(0, 3, n).astype(dtype)[:, None]
    some = jax.devices()[: np.prod(shape)]
    with jax.set_mesh(jax.make_mesh(shape, names, kinds, devices=some)):
        for c in 1e1, 1e4:
            inverse = np.linalg.inv(left * np.geomspace(1, 1 / c, n) @ right)
            inverse = inverse.astype(dtype)
            found = blocks(inverse, weights)
            assert_near(found, inverse, weights, rtol)
            assert_agreed(*found)
            for mine, theirs in zip(found, whole(inverse, weights), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol)
        for e in 99, -99:
            same = blocks(inverse * np.float32(2) ** -e, weights, e)
            for mine, scaled in zip(found, same, strict=True):
                np.testing.assert_array_equal(mine, scaled)


@pytest.mark.parametrize("n", [1, 13])
def test_sizes_that_nothing_divides_are_filled_by_zeros(n):
    """One row has fewer columns to try, and norms that are exact."""
    inverse, weights = drawn(n, 8)
    known, filled = Inverse(by(inverse), AXES), np.pad(weights, ((0, 1), (0, 0)))
    with devices((2, 4)):
        run = jax.jit(lambda w: known.norms(place(w, jax.P(*AXES)), n=n))
        found = run(filled)
    assert_near(found, inverse, weights)
    if n == 1:
        np.testing.assert_allclose(found[1], np.abs(inverse).sum())


@pytest.mark.parametrize("columns", [each_week(1), 4])
def test_one_column_alone_is_defeated_and_four_are_not(columns, monkeypatch):
    """By 1 + C, whose rows, columns and first column of C add up to zero.

    Higham, FORTRAN Codes for Estimating the One-Norm, ACM Trans. Math. Softw. 14 (1988)
    """
    monkeypatch.setattr(norm_estimate, "COLUMNS", columns)
    n = 64
    u, v = (np.where(np.arange(n) % k < k // 2, 1.0, -1.0) for k in (4, 8))
    u[[0, -1]] = v[[0, -1]] = 0
    m = np.eye(n) + 2.0**10 * np.outer(u, v)
    with devices((2, 4)):
        found, _ = norms.__wrapped__()(m, np.ones((n, 4)))
    estimate = np.asarray(found)[0] / np.linalg.norm(m, np.inf)
    assert estimate < 1e-4 if columns == 1 else estimate > 0.9


def test_what_is_not_finite_has_no_finite_norm_on_any_device():
    """Of a weight, for its own column alone; of the inverse, for all."""
    inverse, weights = drawn(24, 8, "float32")
    with devices((2, 4)):
        for bad in np.nan, np.inf:
            flawed, wrong = weights.copy(), inverse.copy()
            flawed[5, 2] = wrong[6, 1] = bad
            each, norm = norms()(inverse, flawed)
            assert np.isfinite(each).tolist() == [column != 2 for column in range(8)]
            assert np.isfinite(norm)
            found = norms()(wrong, weights)
            assert not np.isfinite(found[0]).any()
            assert not np.isfinite(found[1])
            assert_agreed(*found)


def test_signs_are_the_same_on_any_mesh():
    found = []
    for shape, axes in ((1, 1), ()), ((2, 4), AXES):
        with devices(shape):
            like = jax.device_put(np.zeros((24, 8)), jax.P(*axes))
            how = Grid(24, 4, axes), norm_estimate.specs_of(axes), like
            search = norm_estimate.map_blocks(norm_estimate.initial_search, *how)
            found.append(np.asarray(search.x).reshape(24, -1, 4))
    one, parts = found
    np.testing.assert_array_equal(parts[:, 0], one[:, 0])
    np.testing.assert_array_equal(parts[:, 2], one[:, 1])  # each device has its last
    np.testing.assert_array_equal(parts[:, 1::2], one[:, [-1] * 4])


def test_messages_are_small_beside_the_weights():
    """With a solver that sends nothing: t numbers a norm and device, and squares."""
    n, k, t, shape = 256, 64, 4, (4, 2)
    with devices(shape):
        sharding = jax.NamedSharding(jax.sharding.get_mesh(), jax.P(*AXES))
        weights = jax.ShapeDtypeStruct((n, k), "float64", sharding=sharding)
        run = jax.jit(Inverse(lambda b: 2 * b, AXES).norms)
        program = measure(run, weights)
    norms = k // shape[1] + 1
    words = max(2 * t * t + t, 2 * t * shape[0]) * norms  # XLA joins sums
    assert 0 < max(each.bytes for each in program.collectives) <= 8 * words
    assert {"all-gather", "all-reduce"} == {*program.counts}


@each_refusal(
    (lambda w: Inverse(3).norms(w), "a int solves nothing"),
    (lambda w: Inverse((np.sin,)).transposed(), "a tuple solves nothing"),
    (lambda w: Inverse(lambda b: b[:2]).norms(w), r"returned \(2, 12\): \(4, 12\)"),
)
def test_what_does_not_solve_is_refused(call, words):
    with devices((1, 2)), pytest.raises(ValueError, match=words):
        call(np.ones((4, 2)))
