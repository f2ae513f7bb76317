from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from on_devices import AUTO, EXPLICIT, devices

from examples.communication import measure
from examples.opaque import block_singular_values, numpy_svd, singular_values

P = jax.P


def matrices(count=24, dtype=np.float32, m=6, n=4):
    return np.random.default_rng(0).standard_normal((count, m, n)).astype(dtype)


def oracle(a):
    return np.linalg.svd(a, compute_uv=False)


def weighted(values):
    return (values * np.arange(1, 5, dtype=np.float32)[None]).sum()


@pytest.mark.parametrize(
    ("mesh", "kind", "m", "n"),
    [((2, 4), EXPLICIT, 6, 4), ((4, 2), AUTO, 4, 6)],
)
@pytest.mark.parametrize("axis", ["x", "y"])
def test_values_and_gradients_are_right_and_send_nothing(mesh, kind, m, n, axis):
    """Each device asks NumPy for its own matrices."""
    a, thin = matrices(m=m, n=n), partial(jnp.linalg.svd, compute_uv=False)
    slope = jax.jit(jax.grad(lambda a: weighted(thin(a))))(a)
    split = partial(singular_values, axis=axis)
    with devices(mesh, kind):
        cut = jax.device_put(a, P(axis))
        for f, expected in (
            (split, oracle(a)),
            (jax.grad(lambda a: weighted(split(a))), slope),
        ):
            run = jax.jit(f).lower(cut).compile()
            found = run(cut)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
            assert found.sharding.is_equivalent_to(cut.sharding, found.ndim)
            assert measure(run).counts == {}


def test_values_from_the_host_cannot_pass_for_copies():
    false = jax.shard_map(block_singular_values, out_specs=P())
    with devices((8, 1)), pytest.raises(ValueError, match="replication"):
        false(jax.device_put(matrices(), P("x")))


def test_what_numpy_has_is_taken_in_the_dtype_of_jax():
    assert [each.dtype for each in numpy_svd(np.eye(3))] == 3 * [np.float32]


def test_a_matrix_without_numbers_spoils_no_other():
    a = matrices(8)
    a[2, 1, 1], a[5] = np.nan, np.inf
    with devices((8, 1)):
        s = np.asarray(singular_values(jax.device_put(a, P("x")), "x"))
    good = [i for i in range(8) if i not in (2, 5)]
    np.testing.assert_allclose(s[good], oracle(a[good]), rtol=1e-5)
    assert np.isnan(s[[2, 5]]).all()


def test_many_large_callbacks_at_once_come_to_an_end():
    a = matrices(64, m=64, n=64)
    with devices((8, 1)):
        cut, wanted = jax.device_put(a, P("x")), oracle(a)
        for _ in range(5):
            s = singular_values(cut, "x")
            np.testing.assert_allclose(s, wanted, rtol=1e-3, atol=1e-4)


def served(a, axis="x"):
    return lambda: singular_values(a, axis)


@each_refusal(
    (lambda: numpy_svd(np.ones((2, 2), int)), r"int64\[2, 2\] is no batch of mat"),
    (lambda: numpy_svd(np.ones(3, np.float32)), r"float32\[3\] is no batch"),
    (lambda: numpy_svd([[1.0]]), "list.* is no batch of matrices"),
    (served(matrices(), "z"), "no mesh axis 'z' in context"),
    (served(matrices()[0]), r"float32\[6, 4\] is no batch of matrices"),
    (served(matrices(dtype=np.complex64)), r"complex64\[24, 6, 4\] is no batch"),
    (served(matrices(13)), "a batch of 13 cannot be cut into 4 parts: pad it"),
)
def test_what_the_host_cannot_serve_is_refused(call, words):
    with devices((4, 2)), pytest.raises(ValueError, match=words):
        call()
