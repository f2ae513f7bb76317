from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_week
from jax.sharding import AxisType
from on_devices import devices

from examples.communication import measure
from examples.opaque import block_singular_values, numpy_svd, singular_values

P = jax.P
EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto


def is_split(x, spec):
    wanted = jax.NamedSharding(jax.sharding.get_mesh(), spec)
    return x.sharding.is_equivalent_to(wanted, x.ndim)


def matrices(count=24, dtype=np.float32, m=6, n=4):
    return np.random.default_rng(0).standard_normal((count, m, n)).astype(dtype)


def oracle(a):
    return np.linalg.svd(a, compute_uv=False)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [((2, 4), EXPLICIT), ((4, 2), AUTO), each_week((1, 1), EXPLICIT)],
)
def test_each_device_asks_numpy_for_its_own_matrices_and_sends_nothing(shape, kind):
    a = matrices()
    with devices(shape, kind):
        for axis in "x", "y":
            cut = jax.device_put(a, P(axis))
            split = jax.jit(partial(singular_values, axis=axis))
            run = split.lower(cut).compile()
            s = run(cut)
            np.testing.assert_allclose(s, oracle(a), rtol=1e-5)
            assert is_split(s, P(axis))
            assert measure(run).counts == {}


@pytest.mark.parametrize("kind", [EXPLICIT, AUTO])
def test_a_callback_alone_is_gathered(kind):
    with devices((8, 1), kind):
        cut = jax.device_put(matrices(), P("x"))
        program = measure(lambda a: numpy_svd(a)[1], cut)
    assert program.counts == {"all-gather": 1}
    assert program.sent == 7 * 24 * 6 * 4 * 4 // 8


@pytest.mark.parametrize(("kind", "m", "n"), [(EXPLICIT, 6, 4), (AUTO, 4, 6)])
def test_the_gradient_of_singular_values_is_that_of_jax_and_sends_nothing(kind, m, n):
    w = np.arange(1, 5, dtype=np.float32)
    thin = partial(jnp.linalg.svd, compute_uv=False)
    a = matrices(m=m, n=n)
    wanted = jax.jit(jax.vmap(jax.grad(lambda a: thin(a) @ w)))(a)
    with devices((8, 1), kind):
        cut = jax.device_put(a, P("x"))
        gradient = jax.grad(lambda a: (singular_values(a, "x") * w[None]).sum())
        run = jax.jit(gradient).lower(cut).compile()
        slope = run(cut)
        np.testing.assert_allclose(slope, wanted, atol=1e-4)
        assert is_split(slope, P("x"))
        assert measure(run).counts == {}


def test_values_from_the_host_cannot_pass_for_copies():
    with devices((8, 1)):
        cut = jax.device_put(matrices(), P("x"))
        false = jax.shard_map(block_singular_values, out_specs=P())
        with pytest.raises(ValueError, match="replication"):
            false(cut)


def test_a_matrix_without_numbers_spoils_no_other():
    a = matrices(8)
    a[2, 1, 1], a[5] = np.nan, np.inf
    with devices((8, 1)):
        s = np.asarray(singular_values(jax.device_put(a, P("x")), "x"))
    good = [i for i in range(8) if i not in (2, 5)]
    np.testing.assert_allclose(s[good], oracle(a[good]), rtol=1e-5)
    assert np.isnan(s[[2, 5]]).all()


@pytest.mark.parametrize("a", [np.ones((2, 2), int), np.ones(3, np.float32), [[1.0]]])
def test_numbers_that_the_host_would_round_are_refused(a):
    with pytest.raises(ValueError, match="is no batch of matrices"):
        numpy_svd(a)


def test_many_large_callbacks_at_once_come_to_an_end():
    a = matrices(64, m=64, n=64)
    with devices((8, 1)):
        cut, wanted = jax.device_put(a, P("x")), oracle(a)
        for _ in range(5):
            s = singular_values(cut, "x")
            np.testing.assert_allclose(s, wanted, rtol=1e-3, atol=1e-4)


def test_a_block_can_be_mapped():
    a = matrices(6)
    mapped = jax.vmap(block_singular_values)(a)
    np.testing.assert_allclose(mapped, oracle(a), rtol=1e-5)


@pytest.mark.parametrize(
    ("a", "axis", "complaint"),
    [
        (matrices(), "z", "no mesh axis 'z' in context"),
        (matrices()[0], "x", r"float32\[6, 4\] is no batch of matrices"),
        (matrices(dtype=np.complex64), "x", r"complex64\[24, 6, 4\] is no batch"),
        (matrices(13), "x", "a batch of 13 cannot be cut into 4 parts: pad it"),
    ],
)
def test_what_cannot_be_served_is_refused(a, axis, complaint):
    with devices((4, 2)), pytest.raises(ValueError, match=complaint):
        singular_values(a, axis)
