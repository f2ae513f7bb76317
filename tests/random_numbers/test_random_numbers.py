import math
from functools import cache, partial
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_week
from jax import lax, random
from jax.sharding import AxisType
from on_devices import devices

from examples.communication import measure
from examples.random_numbers import (
    block_bits,
    dropout,
    gamma,
    like_key,
    per_device_key,
    sample,
)

P = jax.P
MESHES = [(1, 1), (8, 1), (1, 8), (2, 4), (4, 2), (3, 2)]  # the last: a subset
KINDS = [AxisType.Explicit, AxisType.Auto]
SPECS = [P("x", "y"), P("y", "x"), P(("x", "y")), P(None, ("y", "x")), P("x"), P()]
SHAPE = (48, 24)
KEY = random.key(7)


def uniform(key, shape):
    return random.uniform(key, shape)


@cache
def tiles_of(sampler, tile, shape=SHAPE):
    """Draw tile by tile, in a loop, on one device."""
    rows, columns = (range(n // part) for n, part in zip(shape, tile, strict=True))

    @jax.jit
    def draw(i, j):
        return sampler(random.fold_in(random.fold_in(KEY, i), j), tile)

    return np.block([[np.asarray(draw(i, j)) for j in columns] for i in rows])


def by_block(f, spec, shape=SHAPE):
    """Return a program without arguments that runs `f(spec)` on every device."""
    return jax.jit(jax.shard_map(lambda: f(spec), in_specs=(), out_specs=spec))


def cut(spec, shape=SHAPE):
    """Return the shape of a block on the mesh in context."""
    parts = [() if part is None else np.atleast_1d(part).tolist() for part in spec]
    sizes = jax.sharding.get_abstract_mesh().shape
    counts = [math.prod(sizes[name] for name in names) for names in parts]
    counts += [1] * (len(shape) - len(counts))
    return tuple(n // count for n, count in zip(shape, counts, strict=True))


def masked(x, rate, key=KEY):
    """Drop cells in NumPy, by the mask of the global view."""
    keep = np.asarray(random.bernoulli(key, 1 - rate, x.shape))
    return np.where(keep, x / np.float32(1 - rate).astype(x.dtype), 0).astype(x.dtype)


# ---------------------------------------------------------------- a global draw


@pytest.mark.parametrize(
    ("spec", "mesh", "shape"),
    [
        (P("x", "y"), (4, 2), (48, 48)),
        (P(None, ("y", "x")), (3, 2), (48, 48)),
        (P("x", "y"), (2, 4), (2, 4, 6, 3)),
        (P(), (2, 4), ()),
        *(each_week(spec, mesh, (48, 48)) for spec in SPECS for mesh in MESHES),
    ],
)
def test_the_blocks_are_those_of_the_global_bits(spec, mesh, shape):
    with devices(mesh):
        block = cut(spec, shape)
        draw = by_block(lambda spec: block_bits(KEY, block, spec), spec)
        np.testing.assert_array_equal(draw(), random.bits(KEY, shape))


def test_a_block_costs_no_more_than_a_draw_of_its_size():
    with devices((8, 1)):
        ours = by_block(lambda spec: block_bits(KEY, (128, 64), spec), P("x"))
        own = by_block(lambda spec: random.bits(KEY, (128, 64)), P("x"))
        assert measure(ours).temporaries <= 1.1 * measure(own).temporaries
        assert measure(ours).counts == {}


@pytest.mark.parametrize(
    ("mesh", "spec", "dtype", "kind"),
    [
        ((4, 2), P("y", "x"), jnp.bfloat16, KINDS[0]),
        ((3, 2), P("x", "y"), jnp.complex64, KINDS[1]),
        each_week((2, 4), P("x", "y"), jnp.float32, KINDS[0]),
        each_week((1, 1), P("x"), jnp.float32, KINDS[1]),
    ],
)
def test_dropout_drops_what_the_global_view_drops(mesh, spec, dtype, kind):
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(dtype)
    with devices(mesh, kind):
        drop = jax.shard_map(
            lambda block: dropout(block, KEY, 0.3, spec), in_specs=spec, out_specs=spec
        )
        placed = jax.device_put(x, spec)
        run = jax.jit(drop).lower(placed).compile()
        answer = run(placed)
        assert answer.dtype == dtype
        assert answer.sharding.is_equivalent_to(placed.sharding, 2)
        close = {"rtol": 2 * float(jnp.finfo(dtype).eps)}
        wide = np.complex64 if dtype == jnp.complex64 else np.float32
        np.testing.assert_allclose(
            np.asarray(answer).astype(wide), masked(x, 0.3).astype(wide), **close
        )
    assert measure(run).counts == {}


def test_the_gradient_passes_where_a_cell_remains():
    x = np.ones(SHAPE, np.float32)
    spec = P("x", "y")
    with devices((2, 4)):
        drop = jax.shard_map(
            lambda block: dropout(block, KEY, 0.25, spec), in_specs=spec, out_specs=spec
        )
        placed = jax.device_put(x, spec)
        loss = jax.jit(jax.grad(lambda x: (drop(x) ** 2).sum() / 2))
        gradient = loss(placed)
        np.testing.assert_allclose(gradient, masked(masked(x, 0.25), 0.25), rtol=1e-6)
        assert gradient.sharding == placed.sharding


def test_a_rate_of_zero_changes_nothing():
    with devices((8, 1)):
        x = jax.device_put(np.arange(64.0, dtype=np.float32), P("x"))
        drop = jax.shard_map(
            lambda x: dropout(x, KEY, 0, P("x")), in_specs=P("x"), out_specs=P("x")
        )
        np.testing.assert_array_equal(drop(x), x)


# ------------------------------------------------------------------------ tiles


@pytest.mark.parametrize(
    ("mesh", "spec", "kind"),
    [
        ((2, 4), P("x", "y"), KINDS[0]),
        ((3, 2), P(("y", "x")), KINDS[1]),
        *(each_week(mesh, P("x", "y"), KINDS[0]) for mesh in MESHES),
    ],
)
def test_a_sample_is_drawn_tile_by_tile(mesh, spec, kind):
    expected = tiles_of(uniform, (2, 3))
    with devices(mesh, kind):
        draws = sample(uniform, KEY, SHAPE, spec, (2, 3))
        np.testing.assert_array_equal(draws, expected)
        wanted = jax.NamedSharding(jax.sharding.get_mesh(), spec)
        assert draws.sharding.is_equivalent_to(wanted, 2)


@pytest.mark.parametrize("spec", [P("x", "y"), each_week(P(("x", "y")))], ids=str)
def test_a_loop_in_a_sampler_waits_for_nobody(spec):
    expected = tiles_of(gamma, (2, 3), (16, 24))
    with devices((2, 4)):
        draw = jax.jit(lambda key: sample(gamma, key, (16, 24), spec, (2, 3)))
        run = draw.lower(KEY).compile()
        np.testing.assert_allclose(run(KEY), expected, rtol=1e-5)
    assert measure(run).counts == {}


def test_a_scalar_and_a_list_of_sizes_are_drawn():
    with devices((2, 4)):
        np.testing.assert_array_equal(sample(uniform, KEY, (), P()), uniform(KEY, ()))
        draws = sample(uniform, KEY, [8, 4], P("x"))
        np.testing.assert_array_equal(draws, sample(uniform, KEY, (8, 4), P("x")))


def test_dropout_under_strict_promotion_and_64_bits():
    x = np.ones(SHAPE, np.float32)
    spec = P("x", "y")
    strict = jax.numpy_dtype_promotion("strict")

    @jax.jit
    @jax.shard_map(in_specs=spec, out_specs=spec)
    def drop(block):
        return dropout(block, random.key(7), 0.3, spec)

    with devices((2, 4)), strict, jax.enable_x64(True):
        answer = np.asarray(drop(jax.device_put(x, spec)))
    np.testing.assert_allclose(answer, masked(x, 0.3), rtol=1e-6)


def test_a_tile_is_a_row_and_a_longer_sample_begins_with_a_shorter():
    expected = tiles_of(uniform, (1, 24))
    with devices((8, 1)):
        for rows in 48, 16:
            draws = sample(uniform, KEY, (rows, 24), P("x"))
            np.testing.assert_array_equal(draws, expected[:rows])


def test_axes_that_the_sampler_adds_come_last():
    def ways(key, shape):
        return random.multivariate_normal(key, jnp.zeros(3), jnp.eye(3), shape)

    with devices((2, 4)):
        draws = np.asarray(sample(ways, KEY, (4, 8), P("x", "y"), (1, 2)))
    assert draws.shape == (4, 8, 3)
    expected = ways(random.fold_in(random.fold_in(KEY, 2), 3), (1, 2))
    np.testing.assert_allclose(draws[2:3, 6:8], expected, rtol=1e-5, atol=1e-6)


def test_a_sampler_chooses_the_type():
    for dtype in jnp.float32, jnp.bfloat16, jnp.complex64:

        def typed(key, shape, dtype=dtype):
            return random.normal(key, shape, dtype)

        def draw(key, typed=typed):
            return sample(typed, key, (4, 8), P("x", "y"), (1, 2))

        with devices((2, 4)):
            assert jax.eval_shape(draw, KEY).dtype == dtype


def test_a_reparametrised_normal_has_its_gradient():
    def loss(mean, scale):
        def normal(key, shape):
            return mean + scale * random.normal(key, shape)

        return sample(normal, KEY, (16, 8), P("x", "y"), (2, 2)).sum()

    noise = tiles_of(random.normal, (2, 2), (16, 8))
    with devices((2, 4)):
        gradient = jax.jit(jax.grad(loss, (0, 1)))(1.0, 2.0)
    np.testing.assert_allclose(gradient, (128, noise.sum()), rtol=1e-4)


def test_shards_are_independent():
    with devices((8, 1)):
        draws = sample(random.normal, KEY, (8, 1024), P("x"))
        spec = P("x")
        bits = by_block(lambda spec: block_bits(KEY, (1, 1024), spec), spec)()
    for shards in np.asarray(draws), np.asarray(bits) / 2.0**32 - 0.5:
        for one, other in combinations(shards, 2):
            assert not np.isin(one, other).all()
            assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(1024)


def test_poisson_runs_with_a_parameter_of_the_keys_type():
    def poisson(key, shape):
        return random.poisson(key, like_key(5.0, key), shape)

    with devices((8, 1)):
        draw = jax.jit(lambda key: sample(poisson, key, (8, 16), P("x")))
        run = draw.lower(KEY).compile()
        draws = np.asarray(run(KEY))
    assert measure(run).counts == {}
    expected = random.poisson(random.fold_in(random.fold_in(KEY, 3), 0), 5.0, (1, 16))
    np.testing.assert_array_equal(draws[3:4], expected)


def test_like_key_keeps_values_and_shapes():
    np.testing.assert_array_equal(like_key([1, 2], KEY), np.float32([1, 2]))
    assert like_key(3, KEY).shape == ()


# ------------------------------------------------------------- a key per device


def test_each_device_has_the_key_of_its_rank():
    axes = ("x", "y"), "y"

    def both(_):
        keys = (per_device_key(KEY, axis) for axis in axes)
        return tuple(random.key_data(key)[None] for key in keys)

    with devices((2, 4)):
        keys, along_y = by_block(both, (P(axes[0]), P("y")))()
    expected = random.key_data(jax.vmap(random.fold_in, (None, 0))(KEY, np.arange(8)))
    np.testing.assert_array_equal(keys, expected)
    np.testing.assert_array_equal(along_y, expected[:4])


def test_one_key_on_all_devices_draws_the_same_everywhere():
    """The mistake that the page warns of: no error, eight copies."""

    def both(_):
        keys = KEY, per_device_key(KEY, "x")
        return tuple(random.normal(key, (1, 64)) for key in keys)

    with devices((8, 1)):
        copies, others = map(np.asarray, by_block(both, (P("x"), P("x")))())
    assert (copies == copies[0]).all()
    assert len(np.unique(others)) == others.size


# ------------------------------------------------------------ what is refused


def refused(call, phrase):
    with devices((8, 1)), pytest.raises(ValueError, match=phrase):
        call()


def drop(x, key=KEY, rate=0.5):
    run = jax.shard_map(
        lambda x: dropout(x, key, rate, P("x")), in_specs=P("x"), out_specs=P("x")
    )
    return run(jax.device_put(x, P("x")))


@pytest.mark.parametrize(
    ("key", "phrase"),
    [
        (random.PRNGKey(0), r"uint32\[2\] is no typed key: pass jax.random.key"),
        (random.split(KEY, 3), r"key<fry>\[3\] holds 3 keys"),
        (3, "int.* is no typed key"),
    ],
)
def test_other_keys_are_refused(key, phrase):
    refused(lambda: sample(uniform, key, (8, 4), P("x")), phrase)
    refused(lambda: per_device_key(key, "x"), phrase)
    refused(lambda: drop(np.ones(8, np.float32), key), phrase)


def test_other_generators_are_refused_where_bits_are_counted():
    rbg = random.key(0, impl="rbg")
    refused(lambda: drop(np.ones(8, np.float32), rbg), "pass a threefry2x32 key")


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5, math.nan])
def test_a_rate_is_a_fraction(rate):
    refused(lambda: drop(np.ones(8, np.float32), rate=rate), "take 0 <= rate < 1")


def test_integers_cannot_be_dropped():
    refused(lambda: drop(np.ones(8, np.int32)), "int32 cannot be scaled")


@pytest.mark.parametrize(
    ("shape", "spec", "tile", "phrase"),
    [
        ((12, 4), P("x"), None, "axis 0: 12 cells .* tiles of 1 .* a shape of 16"),
        ((16, 4), P("x"), (3, 4), "tiles of 3 on each of 8 devices.* a shape of 24"),
        ((16, 4), P("x"), (1, 3), "axis 1: 4 cells"),
        ((16, 4), P("x"), (1,), r"tile \(1,\) is for no array of 2 axes"),
        ((16, 4), P("x"), (1, 0), r"tile \(1, 0\)"),
        ((16, 4), P("z"), None, r"no mesh axis \['z'\] in context"),
        ((16, 4), P("x", None, "y"), None, "places 3 axes, but the array has 2"),
    ],
)
def test_blocks_are_whole_tiles(shape, spec, tile, phrase):
    refused(lambda: sample(uniform, KEY, shape, spec, tile), phrase)


def test_shapes_specs_and_samplers_are_checked():
    refused(lambda: sample(uniform, KEY, (8.0, 4), P("x")), "is no shape: pass a tuple")
    refused(lambda: sample(uniform, KEY, (8, 4), "x"), "'x' is no spec: pass jax.P")
    refused(lambda: sample(uniform, KEY, (8, 4), P("x"), ()), r"tile \(\) is for no")
    refused(
        lambda: sample(lambda key, shape: (1, 2), KEY, (8, 4), P("x")), "draws tuple"
    )
    ones = np.ones(8, np.float32)
    refused(lambda: jax.jit(lambda rate: drop(ones, rate=rate))(0.5), "rate is traced")


def test_a_sampler_draws_the_shape_that_it_is_asked_for():
    refused(
        lambda: sample(
            lambda key, shape: random.uniform(key, (2,)), KEY, (8, 4), P("x")
        ),
        r"draws \(2,\) where \(1, 4\) is asked for",
    )


def test_a_device_knows_its_rank_in_shard_map_only():
    refused(lambda: per_device_key(KEY, "x"), "inside a jax.shard_map over")
    refused(lambda: block_bits(KEY, (2,), P("x")), "inside a jax.shard_map over")


def test_more_numbers_than_the_counter_has_are_refused():
    bits = partial(block_bits, shape=(2**30, 1), spec=P("x"))
    refused(lambda: jax.eval_shape(bits, KEY), "over 2[*]{2}32 cells")


# -------------------------------------------------------- samplers that wait


def test_a_loop_over_draws_is_not_left_to_the_compiler():
    """So that the page may say what `sample` is for."""
    with devices((8,), AxisType.Auto):
        i = jax.device_put(np.arange(16), P("x"))
        row = jax.vmap(lambda i: random.poisson(random.fold_in(KEY, i), 5.0, (4,)))
        assert measure(row, i).counts == {"all-reduce": None}
        apart = jax.shard_map(
            jax.vmap(lambda i: lax.while_loop(lambda i: i < 9, lambda i: i + 1, i)),
            in_specs=P("x"),
            out_specs=P("x"),
        )
        assert measure(apart, i).counts == {}
