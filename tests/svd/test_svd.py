import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from on_devices import assert_agreed, devices, noise

from examples import tsqr
from examples.communication import measure
from examples.svd import (
    Sketch,
    cost_of_search,
    cost_of_svd,
    randomized_svd,
    svd,
    svdvals,
)

KINDS = [AxisType.Explicit, AxisType.Auto]
KEY = jax.random.key(0)
pytestmark = pytest.mark.usefixtures("double")


def with_values(s, shape, dtype=np.float64):
    """Return a matrix with these singular values, and random vectors."""
    u, v = (np.linalg.qr(noise(n, len(s), dtype=dtype, seed=n))[0] for n in shape)
    return u * s @ v.conj().T


def lapack(a):
    return jnp.linalg.svd(a, full_matrices=False)


def as_one(u, s, vh):
    return np.asarray(u) * np.asarray(s) @ np.asarray(vh)


def right(a, u, s, vh, rounding=20):
    """Assert that u s vh = a and that both have orthonormal columns, to rounding."""
    eps, one = rounding * np.finfo(a.dtype).eps, np.eye(len(s))
    assert u.dtype == vh.dtype == a.dtype
    for q in np.asarray(u), np.asarray(vh).conj().T:
        assert np.abs(q.conj().T @ q - one).max() < eps
    assert np.linalg.norm(as_one(u, s, vh) - a) <= eps * np.linalg.norm(a)


# --------------------------------------------------------------------- tall matrices


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_singular_values_are_as_near_as_lapacks(dtype):
    """Of noise and from 1 to 1e-12, with either QR, sizes that divide and others."""
    eps, graded = np.finfo(dtype).eps, dtype == np.complex128
    s = np.logspace(0, -12, 7) if graded else np.linspace(1, 2, 7)
    kind, more, n = (KINDS[0], {"qr": tsqr.qr}, 64) if graded else (KINDS[1], {}, 61)
    a = with_values(s, (n, 7), dtype)
    with devices((2, 4), kind), jax.numpy_dtype_promotion("strict"):
        u, found, vh = svd(a, "y", **more)
        right(a, u, found, vh)
        assert_agreed(u, found, vh)
        alone = svdvals(a, "y", **more)
    truth = np.linalg.svd(a.astype(np.complex128), compute_uv=False)
    for values in found, alone:
        assert np.abs(values - truth).max() < 10 * eps * truth[0]


def test_u_lies_where_a_does_and_only_triangles_travel():
    odd = jax.ShapeDtypeStruct((61, 5), np.float64)
    with devices((8,)):
        a = jax.device_put(noise(800, 5), jax.P("x"))
        factor = jax.jit(lambda a: svd(a, qr=tsqr.qr)).lower(a).compile()
        assert factor.output_shardings[0].is_equivalent_to(a.sharding, 2)
        by_pairs, by_gather = measure(factor), measure(svdvals, a)
        whole = measure(svd, odd)
        costs = cost_of_svd(a), cost_of_svd(odd)
    assert by_pairs.counts == {"collective-permute": 3}
    assert by_pairs.sent == 3 * 5 * 5 * 8
    assert by_gather.counts == {"all-gather": 1}
    assert by_gather.sent == costs[0].sent == 7 * 5 * 5 * 8
    assert whole.sent == costs[1].sent
    assert whole.counts == costs[1].counts == {"all-gather": 2}


# ----------------------------------------------------------------------- derivatives


def test_derivatives_are_those_of_lapack_first_and_second():
    """Of values, and of vectors whose sign or phase does not count."""
    a, along = (noise(21, 5, dtype=np.complex128, seed=seed) for seed in (0, 2))

    def both(factor):
        def loss(a):
            u, s, vh = factor(a)
            each = (jnp.abs(u) ** 4).sum(0) + (jnp.abs(vh) ** 4).sum(1)
            return ((each + s**3) * jnp.cos(jnp.arange(5, dtype=s.dtype))).sum()

        slope = jax.grad(loss)
        run = jax.jit(lambda a: (slope(a), jax.jvp(slope, (a,), (along,))[1]))
        return run(jnp.asarray(a))

    def smallest(values):
        return jax.jit(jax.grad(lambda a: values(a)[-1]))(a)

    expected = both(lapack)
    values = smallest(lambda a: jnp.linalg.svd(a, compute_uv=False))
    with devices((2, 3)):
        ours = both(lambda a: svd(a, "y", tsqr.qr))
        alone = smallest(lambda a: svdvals(a, "y"))
    for answer, truth in zip((*ours, alone), (*expected, values), strict=True):
        np.testing.assert_allclose(answer, truth, rtol=1e-9, atol=1e-9)


def test_equal_values_and_zeros_have_slopes_and_their_vectors_none():
    equal, zero = np.eye(16, 3), noise(16, 3) * [1, 1, 0]

    @jax.jit
    def slopes(a):
        values = jax.grad(lambda a: svdvals(a).sum())(a)
        return values, jax.grad(lambda a: (svd(a)[0] ** 3).sum())(a)

    with devices((8,)):
        for a in zero, equal:
            slope, turn = slopes(a)
            assert np.isfinite(slope).all()
            assert not np.isfinite(turn).all()
    u, _, vh = np.linalg.svd(equal, full_matrices=False)
    np.testing.assert_allclose(slope, u @ vh)


def test_a_batch_may_lie_along_an_axis_of_its_own():
    batch = noise(4, 21, 3)
    mesh = jax.make_mesh((2, 4), ("model", "data"), tuple(KINDS))

    def both(a):
        return svd(a, "data")[1], jax.grad(lambda a: svdvals(a, "data")[0])(a)

    def expected(a):
        slope = jax.grad(lambda a: jnp.linalg.svd(a, compute_uv=False)[0])
        return lapack(a)[1], slope(a)

    with jax.set_mesh(mesh):
        placed = jax.device_put(batch, jax.P("model"))
        ours = jax.jit(jax.vmap(both, spmd_axis_name="model"))(placed)
        assert ours[0].sharding.spec[0] == "model"
    for one, other in zip(ours, jax.vmap(expected)(batch), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


# -------------------------------------------------------------- the first k of any


def tail(a, k):
    """Return what the best matrix of rank k leaves, by LAPACK."""
    return np.linalg.norm(np.linalg.svd(a, compute_uv=False)[k:])


def test_low_rank_and_noise_come_apart():
    """As near as any matrix of rank 4 can be, and the error is that of what returns."""
    a = with_values(np.array([9, 7, 5, 3.0]), (44, 60)) + noise(44, 60, seed=5) / 1000
    with devices((2, 4)), jax.numpy_dtype_promotion("strict"):
        placed = jax.device_put(a, jax.P("x", "y"))
        u, values, vh, error = randomized_svd(placed, 4, Sketch(KEY), qr=tsqr.qr)
        assert u.sharding.is_equivalent_to(jax.device_put(a, jax.P("x")).sharding, 2)
        assert vh.sharding.spec == jax.P(None, "y")
        assert_agreed(u, values, vh, error)
    truth, product = np.linalg.svd(a, compute_uv=False), as_one(u, values, vh)
    np.testing.assert_allclose(values, truth[:4], rtol=1e-5)
    np.testing.assert_allclose(error, tail(a, 4), rtol=1e-4)
    np.testing.assert_allclose(error, np.linalg.norm(product - a), 1e-4)
    right(product, u, values, vh, rounding=60)


def test_slow_decay_wants_powers_and_the_error_bounds_every_value():
    """Each value is off by less than `error`; four powers are nearly best."""
    a = with_values(1 / np.arange(1, 41), (40, 40))
    truth, left = np.linalg.svd(a, compute_uv=False), []
    with devices((2, 4)):
        for powers in 0, 3:
            found = randomized_svd(a, 5, Sketch(KEY, 5, powers))
            assert (np.abs(found.s - truth[:5]) <= found.error).all()
            assert (truth[5:] <= found.error).all()
            left.append(float(found.error) / tail(a, 5))
    assert left[0] > 1.02
    assert 1 <= left[1] < 1.001


def test_a_key_gives_the_same_on_any_mesh():
    """To rounding; sizes that nothing divides, and either type of axes."""
    a, answers = noise(37, 29) * np.logspace(0, -3, 29), []
    meshes = ((8,), ("x", ())), ((3, 2), ("y", "x")), ((2, 2, 2), (("z", "x"), "y"))
    for turn, (shape, axes) in enumerate(meshes):
        with devices(shape, KINDS[turn % 2]):
            u, s, vh, error = randomized_svd(a, 4, Sketch(KEY, powers=1), axes)
            assert_agreed(u, s, vh, error)
            answers.append((as_one(u, s, vh), np.asarray(s), float(error)))
    for answer in answers[1:]:
        for one, other in zip(answer, answers[0], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)
    with devices((8,)):
        other = randomized_svd(a, 4, Sketch(jax.random.key(1), powers=1), ("x", ()))
    assert abs(other.error - answers[0][2]) > 1e-9


def test_vmap_finds_all_values_of_many_and_the_sketch_is_no_wider():
    batch = noise(3, 12, 8)
    with devices((2, 4)):
        run = jax.jit(jax.vmap(lambda a: randomized_svd(a, 8, Sketch(KEY, 3, 0))))
        for a, *factors, error in zip(batch, *run(batch), strict=True):
            right(a, *factors, rounding=60)
            assert error < 1e-13 * np.linalg.norm(a)


def test_nothing_is_held_or_sent_but_blocks_and_thin_panels_as_predicted():
    """Beside its block a device holds L words for each row and column at most."""
    many, words, (n, m) = 4 + 10, 4, (512, 768)
    with devices((2, 4)):
        kind = jax.NamedSharding(jax.sharding.get_mesh(), jax.P("x", "y"))
        a = jax.ShapeDtypeStruct((n, m), np.float32, sharding=kind)
        program = measure(lambda a: randomized_svd(a, 4, Sketch(KEY)), a)
        expected = cost_of_search(a, 4, Sketch(KEY))
    triangles = 2 * words * 8 * many**2
    assert program.temporaries < words * many * (n + m) + triangles
    assert program.sent == expected.sent
    assert program.counts == expected.counts
    assert program.counts["reduce-scatter"] == 6


# -------------------------------------------------------------------------- errors


def test_nan_comes_out_of_every_function():
    a = noise(20, 9)
    a[11, 2] = np.nan
    with devices((2, 4)):
        found = randomized_svd(a, 2, Sketch(KEY))
        for s in svd(a, ("x", "y"))[1], svdvals(a), found.s, found.error:
            assert np.isnan(s).all()


def test_zeros_are_a_matrix_and_large_numbers_have_squares():
    with devices((2, 4)):
        assert randomized_svd(np.zeros((20, 9)), 2, Sketch(KEY)).error == 0
        large = np.float32(1e25) * noise(20, 9, dtype=np.float32)
        found = randomized_svd(large, 2, Sketch(KEY))
    np.testing.assert_allclose(found.error / 1e25, tail(large / 1e25, 2), rtol=1e-4)


def test_what_has_no_answer_is_refused():
    a, two_types = noise(8, 3), jax.make_mesh((2, 4), ("x", "y"), tuple(KINDS))
    calls = [
        (lambda a: svd(a.T), r"a \(3, 8\) is not tall: pass \[N, K\], N >= K"),
        (lambda a: randomized_svd(a[0], 1, Sketch(KEY)), r"a \(3,\) is not a matrix"),
        (lambda a: svd([["1"]]), "a is of <U1: pass an array of one of"),
        (lambda a: svd(a, ("x", "x")), "pass each once, and outside"),
        (lambda a: svd(a, "z"), r"no mesh axis \['z'\] in context"),
        (lambda a: randomized_svd(a, 4, Sketch(KEY)), "k = 4 .* pass k from 1 to 3"),
        (lambda a: randomized_svd(a, 1, Sketch(KEY, -1)), "that are not negative"),
        (lambda a: randomized_svd(a, 1, KEY), r"pass Sketch\(jax.random.key"),
        (
            jax.grad(lambda a: randomized_svd(a, 1, Sketch(KEY)).error),
            "has no derivative: differentiate the real part of u",
        ),
    ]
    with devices((2, 4)):
        for f, complaint in calls:
            with pytest.raises(ValueError, match=complaint):
                f(a)
    with jax.set_mesh(two_types), pytest.raises(ValueError, match="of two types"):
        randomized_svd(a, 2, Sketch(KEY))


def test_the_gradient_that_the_refusal_names_is_that_of_the_values():
    a = with_values(np.array([5, 3, 1e-9]), (20, 12))

    def loss(a):
        u, _, vh, _ = randomized_svd(jax.lax.stop_gradient(a), 2, Sketch(KEY))
        return jnp.einsum("ik,ij,kj->k", u.conj(), a, vh.conj()).real.sum()

    with devices((2, 4), AxisType.Auto):
        ours = jax.grad(loss)(a)
    truth = jax.grad(lambda a: jnp.linalg.svd(a, compute_uv=False)[:2].sum())(a)
    np.testing.assert_allclose(ours, truth, atol=1e-9)
