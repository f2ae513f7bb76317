from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from on_devices import AUTO, EXPLICIT, assert_agreed, devices, noise

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

KEY = jax.random.key(0)
pytestmark = pytest.mark.usefixtures("double")


def with_values(s, shape, dtype=np.float64):
    """Return a matrix with these singular values, and random vectors."""
    u, v = (np.linalg.qr(noise(n, len(s), dtype=dtype, seed=n))[0] for n in shape)
    return u * s @ v.conj().T


lapack_values = partial(jnp.linalg.svd, compute_uv=False)


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


@pytest.mark.parametrize(
    ("kind", "dtype", "n", "s", "qr"),
    [
        (AUTO, np.float64, 61, np.linspace(2, 1, 7), {}),
        (EXPLICIT, np.complex128, 64, np.logspace(0, -12, 7), {"qr": tsqr.qr}),
    ],
    ids=["float64", "complex128"],
)
def test_singular_values_are_as_near_as_lapacks(kind, dtype, n, s, qr):
    """With either QR, of sizes that divide and others."""
    a = with_values(s, (n, 7), dtype)
    with devices((2, 4), kind), jax.numpy_dtype_promotion("strict"):
        u, found, vh = svd(a, "y", **qr)
        right(a, u, found, vh)
        assert_agreed(u, found, vh)
        alone = svdvals(a, "y", **qr)
    for values in found, alone:
        assert np.abs(values - s).max() < 10 * np.finfo(dtype).eps * s[0]


def test_u_lies_where_a_does_and_only_triangles_travel():
    odd = jax.ShapeDtypeStruct((61, 5), np.float64)
    with devices((8,)):
        a = jax.device_put(noise(800, 5), jax.P("x"))
        factor = jax.jit(lambda a: svd(a, qr=tsqr.qr)).lower(a).compile()
        assert factor.output_shardings[0].is_equivalent_to(a.sharding, 2)
        pairs, values, whole = measure(factor), measure(svdvals, a), measure(svd, odd)
        costs = cost_of_svd(a), cost_of_svd(odd)
    assert (pairs.sent, pairs.counts) == (3 * 5 * 5 * 8, {"collective-permute": 3})
    assert (values.sent, values.counts) == (7 * 5 * 5 * 8, {"all-gather": 1})
    for program, cost in zip((values, whole), costs, strict=True):
        assert (program.sent, program.counts) == (cost.sent, cost.counts)


# ----------------------------------------------------------------------- derivatives


def test_derivatives_are_those_of_lapack_first_and_second():
    """Of values, and of vectors whose sign or phase does not count."""
    a, along = (noise(21, 5, dtype=np.complex128, seed=seed) for seed in (0, 2))

    def both(factor, values):
        def loss(a):
            u, s, vh = factor(a)
            each = (jnp.abs(u) ** 4).sum(0) + (jnp.abs(vh) ** 4).sum(1) + s**3
            return (each * jnp.cos(jnp.arange(5.0))).sum() + values(a)[-1]

        return jax.jit(lambda a: jax.jvp(jax.grad(loss), (a,), (along,)))(a)

    expected = both(lambda a: jnp.linalg.svd(a, full_matrices=False), lapack_values)
    with devices((2, 3)):
        ours = both(lambda a: svd(a, "y", tsqr.qr), lambda a: svdvals(a, "y"))
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)


def test_equal_values_and_zeros_have_slopes_and_their_vectors_none():
    equal, zero = np.eye(16, 3), noise(16, 3) * [1, 1, 0]
    values = jax.jit(jax.grad(lambda a: svdvals(a).sum()))
    vectors = jax.jit(jax.grad(lambda a: (svd(a)[0] ** 3).sum()))
    with devices((8,)):
        assert np.isfinite(values(zero)).all()
        np.testing.assert_allclose(values(equal), equal, atol=1e-15)  # u vh
        for a in zero, equal:
            assert not np.isfinite(vectors(a)).all()


def test_a_batch_may_lie_along_an_axis_of_its_own():
    batch = noise(4, 21, 3)
    slope = jax.grad(lambda a: (svd(a, "data")[1] + svdvals(a, "data"))[0])
    expected = jax.vmap(jax.grad(lambda a: 2 * lapack_values(a)[0]))(batch)
    with jax.set_mesh(jax.make_mesh((2, 4), ("model", "data"), (EXPLICIT, AUTO))):
        placed = jax.device_put(batch, jax.P("model"))
        ours = jax.jit(jax.vmap(slope, spmd_axis_name="model"))(placed)
    assert ours.sharding.spec[0] == "model"
    np.testing.assert_allclose(ours, expected, atol=1e-12)


# -------------------------------------------------------------- the first k of any


def test_powers_come_near_the_best_within_the_error():
    """The error is that of what comes out; values of any size are off by no more."""
    truth, left = 1 / np.arange(1, 41), []
    a = with_values(truth, (40, 40))
    with devices((2, 4)), jax.numpy_dtype_promotion("strict"):
        placed = jax.device_put(a, jax.P("x", "y"))
        for powers in 0, 3:
            found = randomized_svd(placed, 5, Sketch(KEY, 5, powers), qr=tsqr.qr)
            *factors, error = found
            assert_agreed(*found)
            assert jax.typeof(found.u).sharding.spec == jax.P("x", None)
            assert jax.typeof(found.vh).sharding.spec == jax.P(None, "y")
            product = as_one(*factors)
            right(product, *factors, rounding=60)
            np.testing.assert_allclose(error, np.linalg.norm(product - a), 1e-9)
            assert (np.abs(found.s - truth[:5]) <= error).all()
            assert (truth[5:] <= error).all()
            left.append(error / np.linalg.norm(truth[5:]))
    assert left[0] > 1.02
    assert 1 <= left[1] < 1.001


def test_a_key_gives_the_same_on_any_mesh():
    """To rounding; sizes that nothing divides, and either type of axes."""
    a = noise(37, 29) * np.logspace(0, -3, 29)

    def run(mesh, kind, axes, key=KEY):
        with devices(mesh, kind):
            u, s, vh, error = randomized_svd(a, 4, Sketch(key, powers=1), axes)
            assert_agreed(u, s, vh, error)
        return np.vstack([as_one(u, s, vh), np.full(29, error)])

    expected = run((8,), EXPLICIT, ("x", ()))
    pencils = run((3, 2), AUTO, ("y", "x"))
    three_axes = run((2, 2, 2), EXPLICIT, (("z", "x"), "y"))
    for found in pencils, three_axes:
        np.testing.assert_allclose(found, expected, atol=1e-12)
    other = run((8,), EXPLICIT, ("x", ()), jax.random.key(1))
    assert np.abs(other - expected).max() > 1e-9


def test_vmap_finds_all_values_of_many_and_the_sketch_is_no_wider():
    batch = noise(3, 12, 8)
    with devices((2, 4)):
        run = jax.jit(jax.vmap(lambda a: randomized_svd(a, 8, Sketch(KEY, 3, 0))))
        for a, *factors, error in zip(batch, *run(batch), strict=True):
            right(a, *factors, rounding=60)
            assert error < 1e-13 * np.linalg.norm(a)


def test_nothing_is_held_or_sent_but_blocks_and_thin_panels_as_predicted():
    """Beside its block a device holds L words for each row and column at most."""
    many, word, (n, m) = 4 + 10, 4, (512, 768)
    with devices((2, 4)):
        blocks = jax.NamedSharding(jax.sharding.get_mesh(), jax.P("x", "y"))
        a = jax.ShapeDtypeStruct((n, m), np.float32, sharding=blocks)
        program = measure(lambda a: randomized_svd(a, 4, Sketch(KEY)), a)
        expected = cost_of_search(a, 4, Sketch(KEY))
    assert program.temporaries < word * many * (n + m) + 2 * word * 8 * many**2
    assert (program.sent, program.counts) == (expected.sent, expected.counts)
    assert program.counts["reduce-scatter"] == 6


def test_the_gradient_that_the_refusal_names_is_that_of_the_values():
    a = with_values(np.array([5, 3, 1e-9]), (20, 12))

    def loss(a):
        u, _, vh, _ = randomized_svd(jax.lax.stop_gradient(a), 2, Sketch(KEY))
        return (u.conj().T @ a @ vh.conj().T).trace().real

    with devices((2, 4), AUTO):
        ours = jax.grad(loss)(a)
    truth = jax.grad(lambda a: lapack_values(a)[:2].sum())(a)
    np.testing.assert_allclose(ours, truth, atol=1e-9)


def test_nan_comes_out_and_zeros_and_large_numbers_have_squares():
    nan, large = noise(20, 9), np.float32(1e25) * noise(20, 9, dtype=np.float32)
    nan[11, 2] = np.nan
    with devices((2, 4)):
        _, s, _, error = randomized_svd(nan, 2, Sketch(KEY))
        for values in svd(nan, ("x", "y"))[1], svdvals(nan), s, error:
            assert np.isnan(values).all()
        assert randomized_svd(np.zeros((20, 9)), 2, Sketch(KEY)).error == 0
        error = randomized_svd(large, 2, Sketch(KEY)).error
    least = np.linalg.norm(np.linalg.svd(large / 1e25, compute_uv=False)[2:])
    np.testing.assert_allclose(error / 1e25, least, rtol=1e-4)


def first(a, k=1, sketch=None):
    return randomized_svd(a, k, sketch or Sketch(KEY))


@each_refusal(
    (lambda a: svd(a.T), r"a \(3, 8\) is not tall: pass \[N, K\], N >= K"),
    (lambda a: first(a[0]), r"a \(3,\) is not a matrix"),
    (lambda a: svd([["1"]]), "a is of <U1: pass an array of one of"),
    (lambda a: svd(a, ("x", "x")), "pass each once, and outside"),
    (lambda a: svd(a, "z"), r"no mesh axis \['z'\] in context"),
    (lambda a: first(a, 4), "k = 4 .* pass k from 1 to 3"),
    (lambda a: first(a, 1, Sketch(KEY, -1)), "that are not negative"),
    (lambda a: first(a, 1, Sketch(jax.random.key(0, impl="rbg"))), "rbg numbers dep"),
    (lambda a: randomized_svd(a, 1, KEY), r"pass Sketch\(jax.random.key"),
    (jax.grad(lambda a: first(a).error), "derivative: differentiate the real part"),
)
def test_what_has_no_answer_is_refused(call, words):
    with devices((2, 4)), pytest.raises(ValueError, match=words):
        call(noise(8, 3))
