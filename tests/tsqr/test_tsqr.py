import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from block_qr.test_block_qr import positive_qr
from cases import each_refusal, each_week
from on_devices import AUTO, EXPLICIT, assert_agreed, devices, noise

from examples.communication import measure
from examples.tsqr import lstsq, qr

pytestmark = pytest.mark.usefixtures("double")


def rows(a, axis="x"):
    """Split the rows of an array over `axis`, if its size divides them."""
    sizes = jax.sharding.get_abstract_mesh().shape
    count = math.prod(sizes[name] for name in axis)
    return jax.device_put(a, jax.P(tuple(axis)) if len(a) % count == 0 else jax.P())


def alike(answers, expected, atol=1e-12):
    for answer, truth in zip(answers, expected, strict=True):
        np.testing.assert_allclose(answer, truth, atol=atol)


def assert_factors(a, q, r):
    """Assert that q r = a, q^H q = 1, and that r is upper triangular, to rounding."""
    eps = np.finfo(a.dtype).eps
    q, r = np.asarray(q), np.asarray(r)
    assert np.abs(q.conj().T @ q - np.eye(q.shape[1])).max() < 20 * eps
    assert np.linalg.norm(q @ r - a) <= 20 * eps * np.linalg.norm(a)
    np.testing.assert_array_equal(r, np.triu(r))
    assert (np.diag(r).real >= 0).all()
    assert (np.diag(r).imag == 0).all()


# ------------------------------------------------------------------- right answers


@pytest.mark.parametrize(
    ("mesh", "n", "kind", "dtype"),
    [((6,), 35, EXPLICIT, np.float64), ((2, 4), 48, AUTO, np.complex128)],
    ids=str,
)
def test_any_number_of_devices_agrees_with_one(mesh, n, kind, dtype):
    """In the same bits on all: no sum makes them equal, and no type proves it."""
    a, axis = noise(n, 4, dtype=dtype), ("x", "y")[: len(mesh)]
    with devices(mesh, kind):
        blocks = rows(a, axis)
        q, r = qr(blocks, axis)
        assert_agreed(q, r)
        assert q.sharding.is_equivalent_to(blocks.sharding, 2)
        assert r.sharding.is_fully_replicated
    assert q.dtype == r.dtype == dtype
    assert_factors(a, q, r)


HARD = [
    noise(48, 4) * [1, 0, 1, 1],
    np.repeat(noise(48, 1), 4, axis=1),
    noise(48, 4) * (np.arange(48) < 24)[:, None],  # zeros on half of the devices
    np.zeros((48, 4)),
    noise(48, 4) * np.logspace(0, -15, 4),
    noise(48, 4) * np.logspace(9, -9, 48)[:, None],
]


@pytest.mark.parametrize(("size", "count"), [(6, 48), (8, 13)])
def test_columns_stay_at_right_angles_whatever_the_rank(size, count):
    """And if a device has fewer rows than there are columns, or zeros alone."""
    with devices((size,)):
        for a in HARD:
            assert_factors(a[:count], *qr(rows(a[:count])))


def test_least_squares_are_those_of_numpy():
    """With sides of another type, under strict promotion."""
    a, b = noise(47, 4, dtype=np.complex64), noise(47, 3, seed=2)
    with devices((2, 3), AUTO), jax.numpy_dtype_promotion("strict"):
        x = lstsq(a, b, ("y", "x"))
    assert x.dtype == np.complex128
    alike([x], [np.linalg.lstsq(a, b)[0]])


# ----------------------------------------------------------------------- gradients


def weighted(factor):
    """Return a function of a that depends on every number in both factors."""

    def loss(a):
        q, r = factor(a)
        weights = np.cos(np.arange(q.size).reshape(q.shape))
        both = (jnp.abs(q.real * weights + q.imag) ** 2).sum()
        return both + (r.real**3 + r.imag**2).sum()

    return loss


def test_derivatives_of_all_orders_are_those_of_one_device():
    """Where a device has fewer rows than there are columns; strict promotion."""
    a, way = noise(18, 5, dtype=np.complex128), noise(18, 5, seed=2) + 0j

    def derivatives(factor):
        both = jax.value_and_grad(weighted(factor))
        return jax.jit(lambda a: jax.jvp(both, (a,), (way,)))

    expected = derivatives(positive_qr)(jnp.asarray(a))
    with devices((6,)), jax.numpy_dtype_promotion("strict"):
        blocks = rows(a)
        found = derivatives(qr)(blocks)
        assert found[0][1].sharding.is_equivalent_to(blocks.sharding, 2)
    for mine, theirs in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)


# --------------------------------------------------------------------------- costs


@pytest.mark.parametrize(
    ("size", "triangles", "distances"),
    [(6, 5, [{4}, {1}, {2}, {4}]), (8, 3, [{1}, {2}, {4}])],
)
def test_a_device_sends_a_triangle_a_round_to_its_pair(size, triangles, distances):
    """However tall the matrix is; of two excess ranks, two triangles come back."""
    with devices((size,)):
        for n in 12, 600:
            program = measure(qr, rows(np.ones((size * n, 12), np.float32)))
            assert program.counts == {"collective-permute": len(distances)}
            assert program.sent == 4 * 12 * 12 * triangles
            sent = [each.groups for each in program.collectives]
            assert [{abs(i - j) for i, j in pairs} for pairs in sent] == distances


def test_a_gradient_sends_one_sum_more():
    with devices((8,)):
        a = rows(np.ones((96, 8), np.float32))
        forward, both = measure(qr, a), measure(jax.grad(weighted(qr)), a)
    assert both.counts["collective-permute"] == 3
    sums = both.sent - forward.sent
    assert 0 < sums <= 2 * 2 * 7 / 8 * 4 * 8 * 8 + 16  # and the loss


# --------------------------------------------------------------------- further axes


def slopes_of(solve):
    """Return a function of a and b: gradients of the sum of the squares of x."""
    return jax.grad(lambda a, b: (solve(a, b) ** 2).sum(), (0, 1))


@pytest.mark.parametrize(
    ("own", "further"), [(EXPLICIT, AUTO), each_week(AUTO, EXPLICIT)]
)
def test_a_batch_may_lie_along_an_axis_of_its_own(own, further):
    """Gradients of least squares are those of the normal equations."""
    given = noise(4, 21, 3), noise(4, 21, seed=2)

    def each(a, b):
        return *qr(a, "data"), *slopes_of(lambda a, b: lstsq(a, b, "data"))(a, b)

    def in_one_place(a, b):
        slopes = slopes_of(lambda a, b: jnp.linalg.solve(a.T @ a, a.T @ b))(a, b)
        return *positive_qr(a), *slopes

    mesh = jax.make_mesh((2, 4), ("model", "data"), (further, own))
    with jax.set_mesh(mesh):
        placed = jax.device_put(given, jax.P("model"))
        found = jax.jit(jax.vmap(each, spmd_axis_name="model"))(*placed)
        assert all(part.sharding.spec[0] == "model" for part in found[:2])
    alike(found, jax.jit(jax.vmap(in_one_place))(*given), atol=1e-10)


def test_a_batch_on_an_axis_of_its_own_is_not_gathered():
    with devices((2, 4), AUTO):
        batch = jax.device_put(noise(4, 24, 3), jax.P("x", "y"))
        program = measure(jax.vmap(lambda a: qr(a, "y"), spmd_axis_name="x"), batch)
    assert program.counts == {"collective-permute": 2}
    assert program.sent == 2 * 8 * 2 * 3 * 3


# -------------------------------------------------------------------------- errors

A = np.ones((8, 2))


@each_refusal(
    (lambda: qr(A.T), r"a \(2, 8\) is not tall: pass \[N, K\], N >= K"),
    (lambda: qr(A[:, 0]), r"a \(8,\) is not tall"),
    (lambda: lstsq(A[:, :0], A), r"a \(8, 0\) is not tall"),
    (lambda: qr(A.astype(int)), "int64 has no QR here: pass one of"),
    (lambda: lstsq([[1.0]], A), "a is a list: pass an array of numbers"),
    (lambda: qr(A.astype("O")), "a is of object: pass an array of numbers"),
    (lambda: lstsq(A, A[:7]), r"b \(7, 2\) does not fit a \(8, 2\): pass 8 rows"),
    (lambda: lstsq(A, A[:, None]), r"does not fit a \(8, 2\): pass 8 rows"),
    (lambda: lstsq(A, [1.0] * 8), "b is a list"),
    (lambda: lstsq(A, A.astype("O")), "b is of object"),
    (lambda: qr(A, []), "pass the name of a mesh axis, or"),
    (lambda: lstsq(A, A, ["x", "x"]), "'x'.*pass the name of a mesh axis"),
    (lambda: qr(A, ("x", "z")), r"no mesh axis \['z'\] in context"),
    (lambda: jax.shard_map(qr, out_specs=jax.P("x"))(rows(A)), "pass blocks to"),
)
def test_what_has_no_answer_is_refused(call, words):
    with devices((2, 4)), pytest.raises(ValueError, match=words):
        call()
