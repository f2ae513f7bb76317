import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.sharding import AxisType
from on_devices import as_double, assert_agreed, assert_close, devices, noise

from examples.block_qr import lstsq_blocks, qr_blocks, redistribute
from examples.communication import measure

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
BLOCKS = jax.P("x", "y")


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def positive(a):
    """Return NumPy's q and r, r with a diagonal that is not negative."""
    q, r = np.linalg.qr(a)
    diagonal = np.diag(r)[: q.shape[1]]
    sign = np.where(diagonal == 0, 1, diagonal / np.abs(diagonal))
    return q * sign, r * sign.conj()[:, None]


def errors(a, q, r):
    """Return how far q is from right angles and q r from a, each column by itself."""
    a, q, r = map(as_double, (a, q, r))
    size = np.abs(a).max(0)
    size = np.where(size == 0, 1, size)
    wrong = np.linalg.norm((q @ (r / size) - a / size), axis=0).max()
    return np.abs(q.conj().T @ q - np.eye(q.shape[1])).max(), wrong


def assert_as_good_as_lapack(a, q, r, name=""):
    """Fail if errors are three times those of LAPACK in the type of a."""
    ours, theirs = errors(a, q, r), errors(a, *scipy.linalg.qr(a, mode="economic"))
    bound = 3 * np.maximum(theirs, 16 * np.finfo(a.dtype).eps)  # LAPACK may be lucky
    assert (np.array(ours) <= bound).all(), (name, ours, theirs)


# --------------------------------------------------------------------- the layout


@pytest.mark.parametrize(("size", "n"), [(4, 6), (3, 5)])
def test_rows_are_dealt_out_in_turn_and_back(size, n):
    a = np.arange(size * n * 2.0).reshape(-1, 2)

    @jax.shard_map(in_specs=jax.P("x"), out_specs=jax.P("x"), check_vma=False)
    def there_and_back(block):
        dealt = redistribute(block, "x", True)
        return dealt, redistribute(dealt, "x", False)

    with devices((size,)):
        dealt, back = jax.jit(there_and_back)(jax.device_put(a, jax.P("x")))
    in_turn = a.reshape(n, size, 2).swapaxes(0, 1).reshape(-1, 2)
    np.testing.assert_array_equal(dealt, in_turn)
    np.testing.assert_array_equal(back, a)


# -------------------------------------------------------------------- the factors


@pytest.mark.parametrize(
    ("mesh", "kind", "shape", "dtype"),
    [
        ((2, 4), EXPLICIT, (48, 24), np.float64),
        ((3, 2), AUTO, (24, 48), np.complex128),
    ],
)
def test_q_and_r_are_those_of_lapack_in_blocks(mesh, kind, shape, dtype):
    """Tall with several windows, and wide; with a diagonal that is positive."""
    a = noise(*shape, dtype=dtype)
    with devices(mesh, kind):
        q, r = qr_blocks(jax.device_put(a, BLOCKS))
        assert_agreed(q, r)
        blocks = jax.NamedSharding(jax.sharding.get_mesh(), BLOCKS)
        for ours, theirs in zip((q, r), positive(a), strict=True):
            assert ours.sharding.is_equivalent_to(blocks, 2)
            assert_close(ours, theirs, 1e-13)
    assert q.dtype == r.dtype == dtype
    assert not np.tril(r, -1).any()
    assert not np.diag(r).imag.any()
    assert_as_good_as_lapack(a, q, r)


M, N = 64, 48
GRADES = 10.0 ** -np.linspace(0, 200, N)
LEFT, RIGHT = (np.linalg.qr(noise(n, N, seed=n))[0] for n in (M, N))
ZEROS = np.isin(np.arange(N), [0, 5, 6, 7, 8, 9, 10, 11, N - 1])
HARD = {
    "columns graded": noise(M, N) * GRADES,
    "rows graded": 10.0 ** -np.linspace(0, 200, M)[:, None] * noise(M, N),
    "clustered": LEFT * np.where(np.arange(N) < 20, 1, 1e-9) @ RIGHT.T,
    "half the rank": noise(M, N // 2) @ noise(N // 2, N, seed=1),
    "equal columns": np.repeat(noise(M, N // 2), 2, axis=1),
    "zero columns": np.where(ZEROS, 0, noise(M, N)),
    "zeros": np.zeros((M, N)),
    "ones": np.ones((M, N)),
    "permuted identity": np.eye(M)[::-1, :N].copy(),
    "tiny": 1e-300 * noise(M, N),
    "huge": 1e300 * noise(M, N),
}


def test_hard_matrices_lose_no_more_than_with_lapack():
    """Right angles, and each column by itself, whatever its scale."""
    with devices((3, 2)):
        for name, a in HARD.items():
            assert_as_good_as_lapack(a, *qr_blocks(a), name)


def test_hard_matrices_lose_no_more_in_single_precision():
    with devices((4, 2)):
        for name in ("half the rank", "equal columns", "clustered", "zero columns"):
            for scale in (1, 1e-30, 1e30):
                a = np.float32(scale) * HARD[name].astype(np.float32)
                assert_as_good_as_lapack(a, *qr_blocks(a), name)


def test_rows_beyond_the_matrix_take_no_part_whatever_its_rank():
    """Where zeros fill up, no reflector may lead into them: M = N + 1, 10 on 4."""
    with devices((4, 2)):
        for a in (np.zeros((10, 9)), np.ones((10, 10))):
            q, r = qr_blocks(a)
            assert max(errors(a, q, r)) < 1e-14


def test_nan_and_infinity_come_out_as_nan():
    with devices((2, 4)):
        for wrong in (np.nan, np.inf):
            a = noise(48, 24)
            a[5, 9] = wrong
            a, b = (jax.device_put(v, BLOCKS) for v in (a, noise(48, 8)))
            q, r = qr_blocks(a)
            assert np.isnan(np.asarray(r)[:, 9]).any()
            assert np.isnan(q).any()
            x, ratio = lstsq_blocks(a, b)
            assert np.isnan(x).all()
            assert np.isnan(ratio)


# ---------------------------------------------------------------- derivatives


def tangent(a):
    return noise(*a.shape, dtype=a.dtype, seed=5)


def in_both_modes(f, given, ways):
    """Return tangents, cotangents of weights, and the tangents' sum by those weights.

    By one program: eager, each operation of a derivative is compiled by itself.
    """

    @jax.jit
    def run(given, ways):
        _, push = jax.linearize(f, *given)

        def weighted(ways):
            found = push(*ways)
            weights = (noise(*v.shape, dtype=v.dtype, seed=8) for v in found)
            total = sum((w * v).sum() for w, v in zip(weights, found, strict=True))
            return total.real, found

        (forward, found), back = jax.value_and_grad(weighted, has_aux=True)(ways)
        return found, back, forward

    found, back, forward = run(given, ways)
    return found, back, np.asarray(forward)


@pytest.mark.parametrize(
    ("mesh", "shape", "dtype"),
    [
        (((2, 4), EXPLICIT), (12, 12), np.float64),
        (((3, 2), AUTO), (13, 7), np.complex128),
    ],
)
def test_derivatives_are_those_of_differences(mesh, shape, dtype):
    with devices(*mesh):
        a = noise(*shape, dtype=dtype)
        way, h = tangent(a), 1e-6
        found, back, forward = in_both_modes(qr_blocks, (a,), (way,))
        pairs = zip(positive(a + h * way), positive(a - h * way), found, strict=True)
        for after, before, ours in pairs:
            assert_close(ours, (after - before) / (2 * h), 1e-8)
        assert_close((np.asarray(back[0]) * way).sum().real, forward, 1e-12)


def test_a_second_derivative_is_that_of_differences():
    with devices((2, 2)):
        a = noise(6, 4)
        way, h = tangent(a), 1e-5
        slope = jax.grad(lambda a: (jnp.abs(qr_blocks(a)[1]) ** 3).sum())
        both = jax.jit(lambda a: jax.jvp(slope, (a,), (way,)))
        (_, found), *slopes = both(a), both(a + h * way)[0], both(a - h * way)[0]
        by_hand = (slopes[0] - slopes[1]) / (2 * h)
        assert_close(found, np.asarray(by_hand), 1e-7)


def test_a_wide_matrix_has_no_derivative_and_says_so():
    with devices((2, 4)), pytest.raises(ValueError, match="wide"):
        jax.grad(lambda a: qr_blocks(a)[1].sum())(noise(8, 16))


# -------------------------------------------------------------- least squares


@pytest.mark.parametrize(
    ("mesh", "case"),
    [((2, 4), (48, 24, 8, np.float64)), ((3, 2), (23, 7, 5, np.complex64))],
    ids=str,
)
def test_least_squares_are_those_of_numpy_in_blocks(mesh, case):
    with devices(mesh):
        m, n, sides, dtype = case
        a, b = noise(m, n, dtype=dtype), noise(m, sides, dtype=dtype, seed=1)
        given = [jax.device_put(v, BLOCKS if m == 48 else jax.P()) for v in (a, b)]
        x, ratio = lstsq_blocks(*given)
        if m == 48:
            assert x.sharding.is_equivalent_to(given[1].sharding, 2)
        wide = np.result_type(dtype, np.float64)
        theirs = np.linalg.lstsq(a.astype(wide), b.astype(wide))[0]
        assert_close(x, theirs, 100 * np.finfo(dtype).eps)
        assert_agreed(x, ratio)
        r = np.linalg.qr(a.astype(wide))[1]
        sines = np.abs(np.diag(r)) / np.linalg.norm(r, axis=0)
        assert_close(ratio, sines.min(), 100 * np.finfo(dtype).eps)


def test_the_ratio_tells_of_columns_that_depend_on_others():
    with devices((2, 4)):
        b = noise(M, 4)  # as above: one program
        for name in ("half the rank", "equal columns", "zero columns", "zeros", "ones"):
            ratio = lstsq_blocks(HARD[name], b).ratio
            assert not ratio > N * np.finfo(float).eps, name
        for a in (noise(M, N), noise(M, N) * GRADES):  # scales of columns do not matter
            assert lstsq_blocks(a, b).ratio > 0.1
        assert lstsq_blocks(np.eye(M, N), b).ratio == 1


def test_derivatives_of_a_fit_are_those_of_differences():
    with devices((3, 2), AUTO):
        a, b = noise(13, 7, dtype=complex), noise(13, 3, dtype=complex, seed=1)
        da, db, h = tangent(a), tangent(b), 1e-6

        def fit(a, b):
            return (lstsq_blocks(a, b).x,)

        (found,), back, forward = in_both_modes(fit, (a, b), (da, db))
        after, before = (np.linalg.lstsq(a + s * da, b + s * db)[0] for s in (h, -h))
        assert_close(found, (after - before) / (2 * h), 1e-8)
        both = sum(
            (np.asarray(v) * d).sum() for v, d in zip(back, (da, db), strict=True)
        )
        assert_close(both.real, forward, 1e-12)


# ------------------------------------------------ where it runs, and what it holds


def test_axes_have_other_names_and_one_is_left_alone():
    with devices((2, 2, 2), names=("z", "cols", "rows")):
        a = noise(12, 8)
        q, r = qr_blocks(a, axes=("rows", "cols"))
        assert_close(r, positive(a)[1], 1e-13)
        assert jax.typeof(q).sharding.spec == jax.P("rows", "cols")
        assert "z" not in str(jax.typeof(r).sharding.spec)
        assert_agreed(q, r)


def test_a_batch_lies_along_an_axis_of_its_own():
    with devices((2, 2, 2), AUTO):
        a = noise(4, 8, 6)
        batch = jax.device_put(a, jax.P("z", "x", "y"))
        q, r = jax.jit(jax.vmap(qr_blocks, spmd_axis_name="z"))(batch)
        for i in range(4):
            assert_close(r[i], positive(a[i])[1], 1e-13)
            assert_close(q[i], positive(a[i])[0], 1e-13)


def test_no_device_holds_one_whole():
    """Of q, r and what is held meanwhile: a few blocks."""
    with devices((2, 4)):
        n = 1024
        a = jax.ShapeDtypeStruct((2 * n, n), np.float64, sharding=BLOCKS)
        block = 2 * n * n * 8 // 8
        program = measure(qr_blocks, a)
        assert program.temporaries < 4 * block
        assert program.outputs < 1.6 * block


def test_what_is_no_matrix_and_no_mesh_is_refused():
    a = noise(8, 8)
    with pytest.raises(ValueError, match="set_mesh"):
        qr_blocks(a)
    with devices((2, 4)):
        for wrong in (a[0], a[:0], [[1.0]]):
            with pytest.raises(ValueError, match="pass an array"):
                qr_blocks(wrong)
        for call, complaint in [
            (lambda: qr_blocks(a.astype(int)), "has no QR here"),
            (lambda: qr_blocks(a, axes=("x", "x")), "two axes"),
            (lambda: lstsq_blocks(a[:4], a), "M >= N"),
            (lambda: lstsq_blocks(a, a[:4]), "does not fit"),
        ]:
            with pytest.raises(ValueError, match=complaint):
                call()
        with pytest.raises(ValueError, match="outside"):
            jax.shard_map(qr_blocks, out_specs=BLOCKS)(jax.device_put(a, BLOCKS))
