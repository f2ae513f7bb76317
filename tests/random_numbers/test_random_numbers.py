import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from fft.test_fft import lies
from jax import random
from on_devices import AUTO, EXPLICIT, as_double, devices, noise

from examples import random_numbers
from examples.communication import measure
from examples.random_numbers import block_bits, per_device_key, sample

P = jax.P
SHAPE = 48, 24
KEY = random.key(7)
ROWS = P("x")


def poisson(key, shape):
    return random.poisson(key, random_numbers.like_key(5.0, key), shape)


def on_one_device(sampler, shape, tile):
    with devices((1,)):
        return np.asarray(sample(sampler, KEY, shape, ROWS, tile), np.float32)


def by_block(f, spec):
    """Return a program without arguments that runs `f` on every device."""
    return jax.jit(jax.shard_map(f, in_specs=(), out_specs=spec))


def dropper(spec, rate, key=KEY):
    """Return the program that drops cells of blocks laid out by this spec."""
    drop = partial(random_numbers.dropout, key=key, rate=rate, spec=spec)
    return jax.jit(jax.shard_map(drop, in_specs=spec, out_specs=spec))


@pytest.mark.parametrize(
    ("spec", "mesh", "shape", "block"),
    [
        (P(None, ("y", "x")), (3, 2), (48, 48), (48, 8)),
        (P("x", "y"), (2, 4), (2, 4, 6, 3), (1, 1, 6, 3)),
        (P(), (2, 4), (), ()),
    ],
)
def test_the_blocks_are_those_of_the_global_bits(spec, mesh, shape, block):
    with devices(mesh):
        draw = by_block(lambda: block_bits(KEY, block, spec), spec)
        np.testing.assert_array_equal(draw(), random.bits(KEY, shape))


@pytest.mark.parametrize(
    ("mesh", "spec", "dtype", "kind"),
    [
        ((4, 2), P("y", "x"), jnp.bfloat16, EXPLICIT),
        ((3, 2), P("x", "y"), jnp.complex64, AUTO),
    ],
)
def test_dropout_drops_what_the_global_view_drops(mesh, spec, dtype, kind):
    """Also of a cotangent, under strict promotion, with 64 bits."""
    drop = dropper(spec, 0.3)
    x, strict = noise(*SHAPE).astype(dtype), jax.numpy_dtype_promotion("strict")
    with devices(mesh, kind), strict, jax.enable_x64(True):
        placed = jax.device_put(x, spec)
        both = jax.jit(lambda x: (drop(x), jax.vjp(drop, x)[1](x)[0]))
        run = both.lower(placed).compile()
        found = run(placed)
        assert all(lies(each, spec) for each in found)
    assert measure(run).counts == {}
    keep = np.asarray(random.bernoulli(KEY, np.float32(0.7), SHAPE))
    expected, rounding = keep * as_double(x) / 0.7, 2 * float(jnp.finfo(dtype).eps)
    for each in found:
        assert each.dtype == dtype
        np.testing.assert_allclose(as_double(each), expected, rtol=rounding)


@pytest.mark.parametrize(
    ("sampler", "mesh", "spec", "kind"),
    [
        (random_numbers.gamma, (2, 4), P("x", "y"), EXPLICIT),
        (poisson, (2, 2), P(("y", "x")), AUTO),
    ],
)
def test_a_sample_is_that_of_one_device(sampler, mesh, spec, kind):
    """A loop in a sampler waits for nobody; its parameters have their gradient."""

    def draw(scale):
        def scaled(key, tile):
            return scale * sampler(key, tile)

        return sample(scaled, KEY, (8, 24), spec, (2, 6))

    with devices(mesh, kind):
        run = jax.jit(draw).lower(1.0).compile()
        draws, slope = run(1.0), jax.jit(jax.grad(lambda s: draw(s).sum()))(2.0)
        assert lies(draws, spec)
    expected = on_one_device(sampler, (8, 24), (2, 6))
    np.testing.assert_allclose(draws, expected, rtol=1e-5)
    np.testing.assert_allclose(slope, expected.sum(), rtol=1e-5)
    assert measure(run).counts == {}


def test_a_tile_is_a_row_and_a_longer_sample_begins_with_a_shorter():
    """The sampler chooses the type; a scalar is a tile."""
    halves = partial(random.uniform, dtype=jnp.bfloat16)
    expected = on_one_device(halves, SHAPE, (1, 24))
    with devices((8, 1)):
        for rows in 48, 16:
            draws = sample(halves, KEY, [rows, 24], ROWS)
            assert draws.dtype == jnp.bfloat16
            np.testing.assert_array_equal(draws, expected[:rows])
        assert sample(random.uniform, KEY, (), P()) == random.uniform(KEY, ())


def test_each_device_has_the_key_of_its_rank():
    def both():
        keys = (per_device_key(KEY, axis) for axis in (("x", "y"), "y"))
        return tuple(random.key_data(key)[None] for key in keys)

    with devices((2, 4)):
        keys, along_y = by_block(both, (P(("x", "y")), P("y")))()
    expected = random.key_data(jax.vmap(random.fold_in, (None, 0))(KEY, np.arange(8)))
    np.testing.assert_array_equal(keys, expected)
    np.testing.assert_array_equal(along_y, expected[:4])


def ask(sampler=random.uniform, shape=(8, 4), spec=ROWS, tile=None, key=KEY):
    return sample(sampler, key, shape, spec, tile)


def drop(dtype=np.float32, rate=0.5, key=KEY):
    return dropper(ROWS, rate, key)(jax.device_put(np.ones(8, dtype), ROWS))


def count_bits(shape):
    return jax.jit(block_bits, static_argnums=(1, 2))(KEY, shape, ROWS)


@each_refusal(
    (lambda: ask(key=random.PRNGKey(0)), r"uint32\[2\] is no typed key: pass jax"),
    (lambda: per_device_key(random.split(KEY, 3), "x"), r"key<fry>\[3\] holds 3 k"),
    (lambda: drop(key=3), "int.* is no typed key"),
    (lambda: drop(key=random.key(0, impl="rbg")), "pass a threefry2x32 key"),
    (lambda: ask(key=random.key(0, impl="rbg")), "pass a threefry2x32 key"),
    (lambda: drop(rate=math.nan), "rate of nan .*take 0 <= rate < 1"),
    (lambda: jax.jit(lambda rate: drop(rate=rate))(0.5), "rate is traced"),
    (lambda: drop(np.int32), "int32 cannot be scaled"),
    (lambda: per_device_key(KEY, "x"), "inside a jax.shard_map over .*x"),
    (lambda: block_bits(KEY, (2,), P("x")), "inside a jax.shard_map over"),
    (lambda: count_bits((2**30, 1)), "over 2.*32 cells"),
    (lambda: ask(lambda key, shape: (1, 2)), "draws tuple"),
    (lambda: ask(lambda key, shape: KEY), r"draws \(\) where \(1, 4\) is asked"),
    (lambda: ask(shape=(12, 4)), "axis 0: 12 cells .* of 1 .* a shape of 16"),
    (lambda: ask(shape=(16, 4), tile=(3, 4)), "of 3 on each of 8 .* a shape of 24"),
    (lambda: ask(tile=(1,)), r"tile \(1,\) is for no array of 2 axes"),
    (lambda: ask(tile=(1, 0)), r"tile \(1, 0\)"),
    (lambda: ask(spec=P("z")), r"no mesh axis \['z'\] in context"),
    (lambda: ask(spec=P("x", None, "y")), "places 3 axes, but the array has 2"),
    (lambda: ask(shape=(8.0, 4)), "is no shape: pass a tuple"),
    (lambda: ask(spec="x"), "'x' is no spec: pass jax.P"),
)
def test_what_makes_no_sense_is_refused(call, words):
    with devices((8, 1)), pytest.raises(ValueError, match=words):
        call()
