import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from on_devices import assert_agreed, devices, noise

from examples import norm_estimate
from examples.communication import measure
from examples.norm_estimate import Grid, Inverse, place

KINDS = [AxisType.Explicit, AxisType.Auto]
AXES = "x", "y"


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def by(inverse, out=()):
    """Return a solver that multiplies by an inverse from NumPy, and lays x out so."""

    def multiply(m, b):
        b = place(b, jax.P())
        return place(jnp.asarray(m).astype(b.dtype) @ b, jax.P(*out))

    return tuple(functools.partial(multiply, m) for m in (inverse, inverse.conj().T))


@functools.cache
def norms_in_blocks(axes=AXES):
    """Return what estimates with everything in blocks, of an inverse and weights."""

    def norms(inverse, weights):
        known = Inverse(by(inverse, axes), axes)
        return known.norms(place(weights, jax.P(*axes)))

    return jax.jit(norms)


def assert_near(found, inverse, weights, rtol=1e-4):
    """Assert that these are no larger than what NumPy says, and at least a third."""
    size = np.abs(inverse)
    truths = (size @ np.abs(weights)).max(0), size.sum(1).max()
    for mine, truth in zip(found, truths, strict=True):
        assert (np.asarray(mine) <= truth * (1 + rtol)).all()
        assert (np.asarray(mine) >= truth / 3).all()


@pytest.mark.parametrize(
    ("shape", "dtype"), [((2, 4), "float32"), ((3, 2), "complex128")]
)
def test_blocks_and_whole_arrays_tell_the_same_from_below(shape, dtype):
    """Of matrices of many condition numbers, and weights of many sizes."""
    n, k, rtol = 24, 8, 1e-3 if dtype == "float32" else 1e-10
    left, right = (
        np.linalg.qr(noise(n, n, dtype=np.dtype(dtype), seed=s))[0] for s in (1, 2)
    )
    weights = np.abs(noise(n, k)) * np.logspace(0, 3, n)[:, None]
    with devices(shape, KINDS[shape[0] % 2]):
        whole = jax.jit(lambda m, w: Inverse(by(m)).norms(w))
        for c in 1e1, 1e4:
            inverse = np.linalg.inv(left * np.geomspace(1, 1 / c, n) @ right)
            given = inverse.astype(dtype), weights.astype(dtype)
            found, computed = norms_in_blocks()(*given), whole(*given)
            for mine, theirs in zip(found, computed, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol)
            assert_near(found, given[0], weights, rtol)
            assert_agreed(*found)


@pytest.mark.parametrize("n", [1, 3, 13])
def test_sizes_that_nothing_divides_are_filled_by_zeros(n):
    """Small ones have fewer columns to try, and norms that are exact."""
    inverse, weights = noise(n, n), np.abs(noise(n, 8, seed=1))
    known, filled = Inverse(by(inverse), AXES), np.pad(weights, ((0, n % 2), (0, 0)))
    with devices((2, 4)):
        run = jax.jit(lambda w: known.norms(place(w, jax.P(*AXES)), n=n))
        found = run(filled)
    assert_near(found, inverse, weights)
    if n < 4:
        np.testing.assert_allclose(found[1], np.abs(inverse).sum(1).max())


def test_axes_have_any_name_and_others_are_left_alone():
    names = "data", "model"
    kinds = AxisType.Explicit, AxisType.Auto, AxisType.Explicit
    inverse, weights = noise(8, 8), np.abs(noise(8, 4, seed=1))
    with jax.set_mesh(jax.make_mesh((2, 2, 2), ("data", "z", "model"), kinds)):
        found = norms_in_blocks(names)(inverse, weights)
        assert jax.typeof(found[0]).sharding.spec == jax.P("model")
    assert_near(found, inverse, weights)


@pytest.mark.parametrize("columns", [1, 4])
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
        known = Inverse(by(m, AXES), AXES)
        run = jax.jit(lambda w: known.norms(place(w, jax.P(*AXES))))
        estimate = np.asarray(run(np.ones((n, 4)))[0])[0] / np.linalg.norm(m, np.inf)
    assert estimate < 1e-4 if columns == 1 else estimate > 0.9


def test_what_is_not_finite_has_no_finite_norm_on_any_device():
    """Of a weight, for its own column alone; of the inverse, for all."""
    with devices((4, 2)):
        for bad in np.nan, np.inf:
            inverse, weights = noise(8, 8), np.abs(noise(8, 4, seed=1))
            flawed = weights.copy()
            flawed[5, 2] = bad
            norms, norm = norms_in_blocks()(inverse, flawed)
            assert np.isfinite(norms).tolist() == [True, True, False, True]
            assert np.isfinite(norm)
            inverse[6, 1] = bad
            found = norms_in_blocks()(inverse, weights)
            assert not np.isfinite(found[0]).any()
            assert not np.isfinite(found[1])
            assert_agreed(*found)


def test_powers_of_two_change_nothing_else():
    inverse, weights = noise(8, 8), np.abs(noise(8, 4, seed=1))
    with devices((2, 4)):
        run = jax.jit(lambda m, e, w: Inverse(by(m)).norms(w, e))
        plain = run(inverse, 0, weights)
        for e in 1000, -999:
            scaled = run(inverse * 2.0**-e, e, weights)
            np.testing.assert_array_equal(scaled[0], plain[0])
            np.testing.assert_array_equal(scaled[1], plain[1])


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


def test_what_does_not_solve_is_refused():
    w = np.ones((4, 2))
    with devices((1, 2)):
        with pytest.raises(ValueError, match="a int solves nothing"):
            Inverse(3).norms(w)
        with pytest.raises(ValueError, match="a tuple solves nothing"):
            Inverse((np.sin,)).transposed()
        with pytest.raises(ValueError, match=r"returned \(2, 12\): \(4, 12\) went in"):
            Inverse(lambda b: b[:2]).norms(w)
