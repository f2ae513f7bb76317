import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from on_devices import assert_agreed, devices, noise

from examples.communication import measure
from examples.tsqr import lstsq, qr

EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto


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
    factors(a, q, r)
    alike((q, r), dense(a))


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
            factors(a[:count], *qr(rows(a[:count])))


def test_dependent_columns_show_on_the_diagonal_of_r():
    """As lstsq says nothing: two equal columns, and one that is a sum of three."""
    a = noise(48, 4)
    with devices((8,)):
        for column in a[:, 0], a[:, 0] + a[:, 1] - a[:, 2]:
            a[:, 3] = column
            diagonal = np.abs(np.diag(qr(rows(a))[1]))
            assert diagonal.min() < 1e-13 * diagonal.max()


@pytest.mark.parametrize(("size", "shape"), [(8, (48,)), (6, (47, 3))])
def test_least_squares_are_those_of_numpy(size, shape):
    a, b = noise(shape[0], 4, dtype=np.complex128), noise(*shape, seed=2)
    with devices((size,)):
        x = lstsq(rows(a), rows(b))
    assert x.shape == (4, *shape[1:])
    alike([x], [np.linalg.lstsq(a, b)[0]])


def test_sides_of_another_type_are_fitted_under_strict_promotion():
    """A refusal comes while JAX traces, so the gradient need not be compiled."""
    a, b = noise(24, 3, dtype=np.complex64), noise(24, 2, seed=2).astype(np.float32)
    with devices((2, 4), AUTO), jax.numpy_dtype_promotion("strict"):
        x = lstsq(*(jax.device_put(each, jax.P(("y", "x"))) for each in (a, b)))
        turn = jax.eval_shape(jax.grad(lambda a: abs(qr(a, "y")[1]).sum()), a)
    alike([x], [np.linalg.lstsq(a, b)[0]], atol=1e-5)
    assert (turn.shape, turn.dtype) == (a.shape, a.dtype)


# ----------------------------------------------------------------------- gradients


def weighted(factor):
    """Return a function of a that depends on every number in both factors."""

    def loss(a):
        q, r = factor(a)
        weights = np.cos(np.arange(q.size).reshape(q.shape))
        both = (jnp.abs(q.real * weights + q.imag) ** 2).sum()
        return both + (r.real**3 + r.imag**2).sum()

    return loss


def test_gradients_are_those_of_one_device():
    a = noise(48, 4, dtype=np.complex128)

    def both_modes(factor):
        f = weighted(factor)
        return jax.jit(lambda a: (jax.grad(f)(a), jax.jvp(f, (a,), (a**2,))[1]))

    expected = both_modes(dense)(a)
    with devices((8,)):
        blocks = rows(a)
        gradient, tangent = both_modes(qr)(blocks)
        assert gradient.sharding.is_equivalent_to(blocks.sharding, 2)
    alike((gradient, tangent), expected)


def test_second_derivatives_are_those_of_one_device():
    """Where a device has fewer rows than there are columns."""
    a, along = noise(17, 5, dtype=np.complex128), noise(17, 5, seed=2) + 0j

    def slope(factor):
        gradient = jax.grad(weighted(factor))
        return jax.jit(lambda a: jax.jvp(gradient, (a,), (along,))[1])(jnp.asarray(a))

    expected = slope(dense)
    with devices((6,)):
        np.testing.assert_allclose(slope(qr), expected, rtol=1e-9, atol=1e-9)


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
    assert [program.sent for program in programs] == [4 * words(size, 12)] * 2
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


@pytest.mark.parametrize(("own", "further"), [(EXPLICIT, AUTO), (AUTO, EXPLICIT)])
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


def test_a_batch_on_an_axis_of_its_own_is_not_gathered():
    with devices((2, 4), AUTO):
        batch = jax.device_put(noise(4, 24, 3), jax.P("x", "y"))
        program = measure(jax.vmap(lambda a: qr(a, "y"), spmd_axis_name="x"), batch)
    assert program.counts == {"collective-permute": 2}
    assert program.sent == 2 * 8 * words(4, 3)


# -------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("a", "complaint"),
    [
        (np.ones((4, 8)), r"a \(4, 8\) is not tall: pass \[N, K\], N >= K"),
        (np.ones(8), r"a \(8,\) is not tall"),
        (np.ones((8, 0)), r"a \(8, 0\) is not tall"),
        (np.ones((8, 2), int), "int64 has no QR here: pass one of"),
        ([[1.0]], "a is a list: pass an array of numbers"),
        (np.full((2, 1), None), "a is of object: pass an array of numbers"),
    ],
)
def test_what_is_not_tall_is_refused(a, complaint):
    with devices((8,)):
        for f in qr, lambda a: lstsq(a, np.ones(len(a))):
            with pytest.raises(ValueError, match=complaint):
                f(a)


@pytest.mark.parametrize(
    ("b", "complaint"),
    [
        (np.ones(7), r"b \(7,\) does not fit a \(8, 2\): pass 8 rows"),
        (np.ones((8, 1, 1)), r"does not fit a \(8, 2\): pass 8 rows"),
        ([1.0] * 8, "b is a list"),
        (np.full(8, None), "b is of object"),
    ],
)
def test_sides_that_do_not_fit_are_refused(b, complaint):
    with devices((8,)), pytest.raises(ValueError, match=complaint):
        lstsq(np.ones((8, 2)), b)


def test_axes_that_do_not_split_rows_are_refused():
    a = np.ones((8, 2))
    for f in qr, lambda a, axis: lstsq(a, a, axis):
        with devices((2, 4)):
            for axis, complaint in [
                ([], "pass the name of a mesh axis, or"),
                (["x", "x"], "pass the name of a mesh axis, or"),
                (("x", "z"), r"no mesh axis \['z'\] in context"),
            ]:
                with pytest.raises(ValueError, match=complaint):
                    f(a, axis)
            inside = jax.shard_map(lambda a, f=f: f(a, "y"), out_specs=jax.P("y"))
            with pytest.raises(ValueError, match=r"over \['y'\]: pass blocks to"):
                inside(rows(a, "y"))
