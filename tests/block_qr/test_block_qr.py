import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from fft.test_fft import lies
from jax.sharding import AxisType
from on_devices import as_double, assert_agreed, assert_close, devices, noise

from examples.block_qr import lstsq_blocks, qr_blocks
from examples.communication import measure

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
BLOCKS = jax.P("x", "y")
pytestmark = pytest.mark.usefixtures("double")


def positive_qr(a):
    """Return q and r of JAX, r with a diagonal that is not negative."""
    q, r = jnp.linalg.qr(a)
    sign = jnp.where(jnp.diagonal(r).real < 0, -1.0, 1.0)
    return q * sign[None], r * sign[:, None]


def assert_right(a, q, r, name=""):
    """Fail unless q has right angles, and q r the columns of a, each by itself."""
    bound = 48 * np.finfo(a.dtype).eps
    a, q, r = map(as_double, (a, q, r))
    size = np.abs(a).max(0)
    size = np.where(size == 0, 1, size)
    assert np.abs(q.conj().T @ q - np.eye(q.shape[1])).max() < bound, name
    wrong = np.linalg.norm(q @ (r / size) - a / size, axis=0)
    assert wrong.max() < bound, name


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
    expected = positive_qr(a)
    with devices(mesh, kind):
        q, r = qr_blocks(jax.device_put(a, BLOCKS))
        assert_agreed(q, r)
        for ours, theirs in zip((q, r), expected, strict=True):
            assert lies(ours, BLOCKS)
            assert_close(ours, theirs, 1e-13)
    assert q.dtype == r.dtype == dtype
    assert not np.tril(r, -1).any()
    assert not np.diag(r).imag.any()
    assert_right(a, q, r)


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
    "zeros, which fill no blocks": np.zeros((10, 9)),
    "ones, which fill no blocks": np.ones((10, 10)),
}
FEW = "half the rank", "equal columns", "clustered", "zero columns"


@pytest.mark.parametrize(
    ("mesh", "dtype", "names", "scale"),
    [
        ((3, 2), np.float64, HARD, 1),
        *(((4, 2), np.float32, FEW, scale) for scale in (1, 1e-30, 1e30)),
    ],
    ids=["double", "single", "small", "large"],
)
def test_hard_matrices_are_factored_to_rounding(mesh, dtype, names, scale):
    """Right angles, and each column by itself; no reflector leads into padding."""
    with devices(mesh):
        for name in names:
            a = dtype(scale) * HARD[name].astype(dtype)
            assert_right(a, *qr_blocks(a), name)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_nan_and_infinity_come_out_as_nan(wrong):
    a = noise(48, 24)
    a[5, 9] = wrong
    with devices((2, 4)):
        a, b = jax.device_put((a, noise(48, 8)), BLOCKS)
        q, r = qr_blocks(a)
        x, ratio = lstsq_blocks(a, b)
    assert np.isnan(np.asarray(r)[:, 9]).any()
    assert np.isnan(q).any()
    assert np.isnan(x).all()
    assert np.isnan(ratio)


# ---------------------------------------------------------------- derivatives


def derivatives(f, given, ways):
    """Return gradients of a sum over what f returns, and their change along ways.

    By one program: eager, each operation of a derivative is compiled by itself.
    """

    def loss(*given):
        weights = [np.cos(np.arange(v.size)).reshape(v.shape) for v in f(*given)]
        terms = [w * (1 - 2j) * v for w, v in zip(weights, f(*given), strict=True)]
        return sum((term.real**3).sum() for term in terms)

    slopes = jax.grad(loss, tuple(range(len(given))))
    return jax.jit(lambda *given: jax.jvp(slopes, given, ways))(*given)


def fit(a, b):
    return (lstsq_blocks(a, b).x,)


def normal_equations(a, b):
    return (jnp.linalg.solve(a.conj().T @ a, a.conj().T @ b),)


@pytest.mark.parametrize(
    ("functions", "mesh", "kind", "shapes", "dtype"),
    [
        ((qr_blocks, positive_qr), (2, 4), EXPLICIT, [(12, 12)], np.float64),
        ((qr_blocks, positive_qr), (3, 2), AUTO, [(13, 7)], np.complex128),
        ((fit, normal_equations), (3, 2), AUTO, [(13, 7), (13, 3)], np.complex128),
    ],
    ids=["square", "tall", "fit"],
)
def test_derivatives_are_those_of_jax(functions, mesh, kind, shapes, dtype):
    """First and second ones, in both modes."""
    ours, theirs = functions
    given, ways = (
        tuple(noise(*shape, dtype=dtype, seed=seed) for shape in shapes)
        for seed in (0, 5)
    )
    expected = derivatives(theirs, given, ways)
    with devices(mesh, kind):
        found = derivatives(ours, given, ways)
    for mine, wanted in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        assert_close(mine, wanted, 1e-9)


# -------------------------------------------------------------- least squares


def test_least_squares_are_numpys_and_the_ratio_tells_of_rank():
    a, b = noise(M, N), noise(M, 4, seed=1)
    with devices((2, 4)):
        for name in ("half the rank", "equal columns", "zero columns", "zeros", "ones"):
            ratio = lstsq_blocks(HARD[name], b).ratio
            assert not ratio > N * np.finfo(float).eps, name
        x, ratio = lstsq_blocks(a, b)
        assert_agreed(x, ratio)
        assert lies(x, BLOCKS)
        assert_close(x, np.linalg.lstsq(a, b)[0], 1e-13)
        r = np.linalg.qr(a, "r")
        expected = (np.abs(np.diag(r)) / np.linalg.norm(r, axis=0)).min()
        for scaled in ratio, lstsq_blocks(a * GRADES, b).ratio:
            np.testing.assert_allclose(scaled, expected, rtol=1e-9)


# ------------------------------------------------ where it runs, and what it holds


def test_a_batch_lies_along_an_axis_of_its_own():
    """Beside axes of other names."""
    a, axes = noise(4, 8, 6), ("rows", "cols")
    factor = functools.partial(qr_blocks, axes=axes)
    with devices((2, 2, 2), AUTO, ("z", "cols", "rows")):
        batch = jax.device_put(a, jax.P("z", *axes))
        found = jax.jit(jax.vmap(factor, spmd_axis_name="z"))(batch)
        assert found[0].addressable_shards[0].data.shape == (2, 4, 3)
    for ours, theirs in zip(found, jax.vmap(positive_qr)(a), strict=True):
        assert_close(ours, theirs, 1e-13)


def test_no_device_holds_one_whole():
    """Of q, r and what is held meanwhile: a few blocks."""
    with devices((2, 4)):
        n = 1024
        a = jax.ShapeDtypeStruct((2 * n, n), np.float64, sharding=BLOCKS)
        block = 2 * n * n * 8 // 8
        program = measure(qr_blocks, a)
        assert program.temporaries < 4 * block
        assert program.outputs < 1.6 * block


A = noise(8, 8)


@each_refusal(
    (lambda: qr_blocks(A[0]), r"a is \(8,\): pass an array \[M, N\]"),
    (lambda: qr_blocks(A[:0]), r"a is \(0, 8\): pass an array"),
    (lambda: qr_blocks([[1.0]]), "a is a list: pass an array"),
    (lambda: qr_blocks(A.astype(int)), "has no QR here"),
    (lambda: qr_blocks(A, axes=("x", "x")), "two axes"),
    (lambda: qr_blocks(A, axes=("x", "z")), r"no mesh axis \['z'\] .*set_mesh"),
    (lambda: lstsq_blocks(A[:4], A), "M >= N"),
    (lambda: lstsq_blocks(A, A[:4]), "does not fit"),
    (lambda: jax.grad(lambda a: qr_blocks(a)[1].sum())(A[:4]), "wide"),
    (lambda: jax.shard_map(qr_blocks, out_specs=BLOCKS)(A), "outside"),
)
def test_what_is_no_matrix_is_refused(call, words):
    with devices((2, 4)), pytest.raises(ValueError, match=words):
        call()
