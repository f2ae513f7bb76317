import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_week
from jax.sharding import AxisType
from on_devices import assert_agreed, devices, noise

from examples.communication import measure
from examples.tsqr import lstsq, qr

KINDS = [AxisType.Explicit, AxisType.Auto]


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def rows(a, axis="x"):
    """Split the rows of an array over `axis`, if its size divides them."""
    sizes = jax.sharding.get_abstract_mesh().shape
    count = math.prod(sizes[name] for name in axis)
    return jax.device_put(a, jax.P(tuple(axis)) if len(a) % count == 0 else jax.P())


def dense(a):
    """Factor in one place, with a diagonal that is not negative."""
    q, r = jnp.linalg.qr(a)
    sign = jnp.where(jnp.diagonal(r).real < 0, -1, 1)
    return q * sign[None], r * sign[:, None]


def alike(answers, expected, atol=1e-12):
    for answer, truth in zip(answers, expected, strict=True):
        np.testing.assert_allclose(answer, truth, atol=atol)


def factors(a, q, r):
    """Assert that q r = a, q^H q = 1, and that r is upper triangular, to rounding."""
    eps = np.finfo(a.dtype).eps
    wide = np.result_type(a, np.float64)
    q, r, a = np.asarray(q, wide), np.asarray(r, wide), np.asarray(a, wide)
    assert np.abs(q.conj().T @ q - np.eye(q.shape[1])).max() < 20 * eps
    assert np.linalg.norm(q @ r - a) <= 20 * eps * np.linalg.norm(a)
    assert (np.tril(r, -1) == 0).all()
    assert (np.diag(r).real >= 0).all()
    assert (np.diag(r).imag == 0).all()


# ------------------------------------------------------------------- right answers


@pytest.mark.parametrize(("size", "n"), [(6, 35), (8, 48)])
def test_any_number_of_devices_agrees_with_one(size, n):
    """In the same bits on all: no sum makes them equal, and no type proves it."""
    a = noise(n, 4)
    with devices((size,)):
        blocks = rows(a)
        q, r = qr(blocks)
        assert_agreed(q, r)
        assert q.sharding.is_equivalent_to(blocks.sharding, 2)
        assert r.sharding.is_fully_replicated
    factors(a, q, r)
    alike((q, r), dense(a))


@pytest.mark.parametrize(
    ("kind", "dtype"), list(zip(KINDS, [np.float32, np.complex128], strict=True))
)
def test_both_axes_of_a_mesh_split_the_rows_of_every_type(kind, dtype):
    a = noise(40, 4, dtype=dtype)
    with devices((2, 4), kind):
        blocks = rows(a, "xy")
        q, r = qr(blocks, axis=("x", "y"))
        assert q.dtype == r.dtype == dtype
        factors(a, q, r)
        assert q.sharding.is_equivalent_to(blocks.sharding, 2)


HARD = {
    "a column of zeros": noise(48, 4) * [1, 0, 1, 1],
    "two equal columns": noise(48, 4)[:, [0, 1, 0, 2]],
    "zeros on half of the devices": noise(48, 4) * (np.arange(48) < 24)[:, None],
    "one column": np.repeat(noise(48, 1), 4, axis=1),
    "zero": np.zeros((48, 4)),
    "graded columns": noise(48, 4) * np.logspace(0, -15, 4),
    "graded rows": noise(48, 4) * np.logspace(9, -9, 48)[:, None],
    "Vandermonde": np.vander(np.linspace(0, 1, 48), 4),
}


@pytest.mark.parametrize(("size", "count"), [(8, 48), (6, 48), (8, 13)])
def test_columns_stay_at_right_angles_whatever_the_rank(size, count):
    """And if a device has fewer rows than there are columns, or zeros alone."""
    with devices((size,)):
        for a in HARD.values():
            factors(a[:count], *qr(rows(a[:count])))


def ill(n, k, condition):
    u, _ = np.linalg.qr(noise(n, k))
    v, _ = np.linalg.qr(noise(k, k))
    return ((u * np.geomspace(1, 1 / condition, k)) @ v).astype(np.float32)


def test_the_condition_does_not_matter_where_cholesky_qr_breaks():
    a = ill(48, 4, 1e6)
    with devices((8,)):
        factors(a, *qr(rows(a)))
    lower = jnp.linalg.cholesky(jnp.asarray(a.T @ a))
    q = np.linalg.solve(lower, a.T)
    assert not np.abs(q @ q.T - np.eye(4)).max() < 0.1  # nor if it is NaN


@pytest.mark.parametrize(("size", "shape"), [(8, (48,)), (6, (47, 3))])
def test_least_squares_are_those_of_numpy(size, shape):
    a, b = noise(shape[0], 4, dtype=np.complex128), noise(*shape, seed=2)
    with devices((size,)):
        x = lstsq(rows(a), rows(b))
    assert x.shape == (4, *shape[1:])
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


@pytest.mark.parametrize(
    ("size", "kind", "dtype"),
    [(8, KINDS[0], np.complex128), each_week(6, KINDS[1], np.float64)],
)
def test_gradients_are_those_of_one_device(size, kind, dtype):
    a = noise(48, 4, dtype=dtype)

    def both_modes(factor):
        f = weighted(factor)
        return jax.jit(lambda a: (jax.grad(f)(a), jax.jvp(f, (a,), (a**2,))[1]))

    expected = both_modes(dense)(a)
    with devices((size,), kind):
        blocks = rows(a)
        gradient, tangent = both_modes(qr)(blocks)
        assert gradient.sharding.is_equivalent_to(blocks.sharding, 2)
    alike((gradient, tangent), expected)


def test_blocks_of_less_than_full_rank_do_not_hurt_the_gradient():
    """Fewer rows than columns on each device, and some rows of zeros."""
    a = noise(13, 4) * (np.arange(13) > 3)[:, None]
    with devices((8,)):
        gradient = jax.jit(jax.grad(weighted(qr)))(rows(a))
    alike([gradient], [jax.jit(jax.grad(weighted(dense)))(a)])


def test_least_squares_have_the_gradient_of_the_normal_equations():
    a, b = noise(48, 4), noise(48, seed=2)

    def normal(a, b):
        return (jnp.linalg.solve(a.T @ a, a.T @ b) ** 2).sum()

    with devices((8,)):
        both = jax.grad(lambda a, b: (lstsq(a, b) ** 2).sum(), (0, 1))
        ours = jax.jit(both)(rows(a), rows(b))
    alike(ours, jax.jit(jax.grad(normal, (0, 1)))(a, b))


# --------------------------------------------------------------------------- costs


def words(size, k):
    """Return what one device sends at most: rounds, and what excess ranks need."""
    return k * k * (size.bit_length() - 1 + 3 * (size & (size - 1) > 0))


@pytest.mark.parametrize("size", [6, 8])
def test_a_device_sends_a_triangle_a_round_to_its_pair(size):
    """However tall the matrix is; at distances of powers of two."""
    with devices((size,)):
        programs = [
            measure(qr, rows(np.ones((size * n, 12), np.float32))) for n in (12, 600)
        ]
    rounds = size.bit_length() - 1 + 2 * (size & (size - 1) > 0)
    counts = {"collective-permute": rounds}
    assert [program.counts for program in programs] == [counts] * 2
    for program in programs:
        assert program.sent == 4 * words(size, 12)
    routes = [set(step.groups) for step in programs[0].collectives]
    if size == 6:
        assert routes == [
            {(4, 0), (5, 1)},
            {(0, 1), (1, 0), (2, 3), (3, 2)},
            {(0, 2), (2, 0), (1, 3), (3, 1)},
            {(0, 4), (1, 5)},
        ]


def test_a_gradient_sends_one_sum_more():
    with devices((8,)):
        a = rows(np.ones((96, 8), np.float32))
        forward, both = measure(qr, a), measure(jax.grad(weighted(qr)), a)
    assert both.counts["collective-permute"] == 3
    sums = both.sent - forward.sent
    assert 0 < sums <= 2 * 2 * 7 / 8 * 4 * 8 * 8 + 16  # and the loss


# --------------------------------------------------------------------- further axes


@pytest.mark.parametrize(("own", "further"), [KINDS, KINDS[::-1]])
def test_a_batch_may_lie_along_an_axis_of_its_own(own, further):
    batch, sides = noise(4, 21, 3), noise(4, 21, seed=2)
    mesh = jax.make_mesh((2, 4), ("model", "data"), (further, own))
    with jax.set_mesh(mesh):
        placed = jax.device_put(batch, jax.P("model"))
        each = jax.vmap(lambda a: qr(a, "data"), spmd_axis_name="model")
        q, r = jax.jit(each)(placed)
        alike((q, r), jax.vmap(dense)(batch))
        assert r.sharding.spec[0] == q.sharding.spec[0] == "model"
        near = jax.device_put(sides, jax.P("model"))
        slope = jax.grad(lambda a, b: (lstsq(a, b, "data") ** 2).sum())
        slopes = jax.jit(jax.vmap(slope, spmd_axis_name="model"))(placed, near)
    normal = jax.grad(lambda a, b: (jnp.linalg.solve(a.T @ a, a.T @ b) ** 2).sum())
    alike([slopes], [jax.jit(jax.vmap(normal))(batch, sides)], atol=1e-10)


@pytest.mark.parametrize("kind", [each_week(KINDS[0]), KINDS[1]])
def test_a_batch_on_an_axis_of_its_own_is_not_gathered(kind):
    mesh = jax.make_mesh((2, 4), ("model", "data"), (kind,) * 2)
    with jax.set_mesh(mesh):
        batch = jax.device_put(noise(4, 24, 3), jax.P("model", "data"))
        each = jax.vmap(lambda a: qr(a, "data"), spmd_axis_name="model")
        program = measure(each, batch)
    assert program.counts == {"collective-permute": 2}
    assert program.sent == 2 * 8 * words(4, 3)


def test_second_derivatives_are_those_of_one_device():
    a, along = noise(17, 5, dtype=np.complex128), noise(17, 5, seed=2) + 0j

    def slope(factor):
        gradient = jax.grad(weighted(factor))
        return jax.jit(lambda a: jax.jvp(gradient, (a,), (along,))[1])(jnp.asarray(a))

    expected = slope(dense)
    with devices((6,)):
        np.testing.assert_allclose(slope(qr), expected, rtol=1e-9, atol=1e-9)


# -------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("a", "complaint"),
    [
        (np.ones((4, 8)), r"a \(4, 8\) is not tall: pass \[N, K\], N >= K"),
        (np.ones(8), r"a \(8,\) is not tall"),
        (np.ones((8, 0)), r"a \(8, 0\) is not tall"),
        (np.ones((8, 2), int), "int64 has no QR here: pass one of"),
    ],
)
def test_what_is_not_tall_is_refused(a, complaint):
    with devices((8,)):
        with pytest.raises(ValueError, match=complaint):
            qr(a)
        with pytest.raises(ValueError, match=complaint):
            lstsq(a, np.ones(len(a)))


def test_what_is_no_array_of_numbers_is_refused():
    with devices((8,)):
        for a, complaint in ([[1.0]], "a is a list"), (np.full((2, 1), None), "of obj"):
            with pytest.raises(ValueError, match=complaint):
                qr(a)
        for b, complaint in ([1.0] * 8, "b is a list"), (np.full(8, None), "of object"):
            with pytest.raises(ValueError, match=complaint):
                lstsq(np.ones((8, 2)), b)


def test_sides_of_another_type_are_fitted_under_strict_promotion():
    """A refusal comes while JAX traces, so the gradient need not be compiled."""
    a, b = noise(24, 3, dtype=np.complex64), noise(24, 2, seed=2).astype(np.float32)
    with devices((2, 4), KINDS[1]), jax.numpy_dtype_promotion("strict"):
        x = lstsq(*(jax.device_put(each, jax.P(("y", "x"))) for each in (a, b)))
        turn = jax.eval_shape(jax.grad(lambda a: abs(qr(a, "y")[1]).sum()), a)
    alike([x], [np.linalg.lstsq(a, b)[0]], atol=1e-5)
    assert (turn.shape, turn.dtype) == (a.shape, a.dtype)


def test_dependent_columns_show_on_the_diagonal_of_r():
    """As lstsq says nothing: two equal columns, and one that is a sum of three."""
    a = noise(48, 4)
    with devices((8,)):
        for column in a[:, 0], a[:, 0] + a[:, 1] - a[:, 2]:
            a[:, 3] = column
            diagonal = np.abs(np.diag(qr(rows(a))[1]))
            assert diagonal.min() < 1e-13 * diagonal.max()


def test_sides_that_do_not_fit_are_refused():
    with devices((8,)):
        for b in np.ones(7), np.ones((8, 1, 1)):
            with pytest.raises(
                ValueError, match=r"does not fit a \(8, 2\): pass 8 rows"
            ):
                lstsq(np.ones((8, 2)), b)


def test_a_mesh_without_the_axis_is_refused():
    with devices((8,)):
        for axis in [], ["x", "x"]:
            with pytest.raises(ValueError, match="pass the name of a mesh axis, or"):
                qr(np.ones((8, 2)), axis)
        for f in qr, lambda a, axis: lstsq(a, np.ones(8), axis):
            with pytest.raises(ValueError, match=r"no mesh axis \['z'\] in context"):
                f(np.ones((8, 2)), axis=("x", "z"))


def test_inside_a_shard_map_it_names_what_to_call_there():
    with devices((2, 4)):
        for f in qr, lambda a, axis: lstsq(a, a, axis):
            inside = jax.shard_map(lambda a, f=f: f(a, "y"), out_specs=jax.P("y"))
            with pytest.raises(ValueError, match=r"over \['y'\]: pass blocks to"):
                inside(rows(np.ones((8, 2)), "y"))
