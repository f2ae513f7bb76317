import math
from functools import cache, partial
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import combine
from hypothesis import given, settings
from hypothesis import strategies as st
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

WEEKLY = pytest.mark.weekly

each_kind = pytest.mark.parametrize("kind", KINDS, ids=["explicit", "auto"])


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


@cache
def bits_of(shape, tile):
    with devices((1, 1)):
        return np.asarray(sample(random.bits, KEY, shape, P(), tile))


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


IN_THE_GATE = [(4, 2), (3, 2), (2, 4), (3, 2), (8, 1), (1, 8)]  # one of each spec


@pytest.mark.parametrize(
    ("spec", "mesh"),
    [
        pytest.param(spec, mesh, marks=() if mesh == one else WEEKLY)
        for spec, one in zip(SPECS, IN_THE_GATE, strict=True)
        for mesh in MESHES
    ],
)
def test_the_blocks_are_those_of_the_global_bits(spec, mesh):
    shape = (48, 48)
    with devices(mesh):
        block = cut(spec, shape)
        draw = by_block(lambda spec: block_bits(KEY, block, spec), spec)
        np.testing.assert_array_equal(draw(), random.bits(KEY, shape))


@pytest.mark.parametrize("shape", [(), (8,), (2, 4, 6, 3)])
def test_an_array_may_have_any_number_of_axes(shape):
    spec = P(*["x", "y"][: len(shape)])
    with devices((2, 4)):
        block = cut(spec, shape)
        draw = by_block(lambda spec: block_bits(KEY, block, spec), spec)
        np.testing.assert_array_equal(draw(), random.bits(KEY, shape))


def test_a_block_costs_no_more_than_a_draw_of_its_size():
    with devices((8, 1)):
        ours = by_block(lambda spec: block_bits(KEY, (128, 64), spec), P("x"))
        own = by_block(lambda spec: random.bits(KEY, (128, 64)), P("x"))
        assert measure(ours).temporaries <= 1.1 * measure(own).temporaries
        assert measure(ours).counts == {}


PLACES = [
    ((2, 4), P("x", "y")),
    ((4, 2), P("y", "x")),
    ((3, 2), P("x", "y")),
    ((1, 1), P("x")),
]


@pytest.mark.parametrize(
    ("place", "dtype", "kind"),
    combine(PLACES, [jnp.float32, jnp.bfloat16, jnp.complex64], KINDS, strength=1),
)
def test_dropout_drops_what_the_global_view_drops(place, dtype, kind):
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(dtype)
    mesh, spec = place
    with devices(mesh, kind):
        drop = jax.shard_map(
            lambda block: dropout(block, KEY, 0.3, spec), in_specs=spec, out_specs=spec
        )
        placed = jax.device_put(x, spec)
        answer = jax.jit(drop)(placed)
        assert answer.dtype == dtype
        assert answer.sharding.is_equivalent_to(placed.sharding, 2)
        close = {"rtol": 2 * float(jnp.finfo(dtype).eps)}
        wide = np.complex64 if dtype == jnp.complex64 else np.float32
        np.testing.assert_allclose(
            np.asarray(answer).astype(wide), masked(x, 0.3).astype(wide), **close
        )
        assert measure(drop, placed).counts == {}


def test_the_gradient_passes_where_a_cell_was_kept():
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
    ("mesh", "kind"),
    [
        pytest.param(mesh, kind, marks=() if kind == KINDS[n % 2] else WEEKLY)
        for n, mesh in enumerate(MESHES, 1)
        for kind in KINDS
    ],
)
def test_a_sample_is_drawn_tile_by_tile(mesh, kind):
    expected = tiles_of(uniform, (2, 3))
    with devices(mesh, kind):
        draws = sample(uniform, KEY, SHAPE, P("x", "y"), (2, 3))
        np.testing.assert_array_equal(draws, expected)
        wanted = jax.NamedSharding(jax.sharding.get_mesh(), P("x", "y"))
        assert draws.sharding.is_equivalent_to(wanted, 2)


@settings(deadline=None, derandomize=True, max_examples=5)
@given(
    mesh=st.sampled_from(MESHES),
    spec=st.sampled_from(SPECS),
    tile=st.sampled_from([(1, 1), (2, 3), (1, 6)]),
)
def test_a_sample_does_not_depend_on_mesh_or_spec(mesh, spec, tile):
    shape = (96, 96) if tile != (1, 6) else (48, 288)
    with devices(mesh):
        draws = sample(random.bits, KEY, shape, spec, tile)
    np.testing.assert_array_equal(draws, bits_of(shape, tile))


@pytest.mark.parametrize(
    "spec", [P("x", "y"), pytest.param(P(("x", "y")), marks=WEEKLY)], ids=str
)
def test_a_loop_in_a_sampler_waits_for_nobody(spec):
    expected = tiles_of(gamma, (2, 3), (16, 24))
    with devices((2, 4)):
        draw = jax.jit(lambda key: sample(gamma, key, (16, 24), spec, (2, 3)))
        assert measure(draw, KEY).counts == {}
        np.testing.assert_allclose(draw(KEY), expected, rtol=1e-5)


def test_a_tile_is_a_row_unless_given():
    expected = tiles_of(uniform, (1, 24))
    with devices((8, 1)):
        np.testing.assert_array_equal(sample(uniform, KEY, SHAPE, P("x")), expected)


@each_kind
def test_a_scalar_and_a_list_of_sizes_are_drawn(kind):
    with devices((2, 4), kind):
        np.testing.assert_array_equal(sample(uniform, KEY, (), P()), uniform(KEY, ()))
        draws = sample(uniform, KEY, [8, 4], P("x"))
        np.testing.assert_array_equal(draws, sample(uniform, KEY, (8, 4), P("x")))


@each_kind
def test_dropout_under_strict_promotion_and_64_bits(kind):
    x = np.ones(SHAPE, np.float32)
    spec = P("x", "y")
    strict = jax.numpy_dtype_promotion("strict")

    @jax.jit
    @jax.shard_map(in_specs=spec, out_specs=spec)
    def drop(block):
        return dropout(block, random.key(7), 0.3, spec)

    with devices((2, 4), kind), strict, jax.enable_x64(True):
        answer = np.asarray(drop(jax.device_put(x, spec)))
    np.testing.assert_allclose(answer, masked(x, 0.3), rtol=1e-6)


def test_a_longer_sample_begins_with_the_shorter_one():
    with devices((8, 1)):
        short = np.asarray(sample(uniform, KEY, (16, 4), P("x")))
        longer = np.asarray(sample(uniform, KEY, (40, 4), P("x")))
    np.testing.assert_array_equal(longer[:16], short)


def test_axes_that_the_sampler_adds_come_last():
    def ways(key, shape):
        return random.multivariate_normal(key, jnp.zeros(3), jnp.eye(3), shape)

    with devices((2, 4)):
        draws = np.asarray(sample(ways, KEY, (4, 8), P("x", "y"), (1, 2)))
    assert draws.shape == (4, 8, 3)
    expected = ways(random.fold_in(random.fold_in(KEY, 2), 3), (1, 2))
    np.testing.assert_allclose(draws[2:3, 6:8], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.complex64])
def test_a_sampler_chooses_the_type(dtype):
    def typed(key, shape):
        return random.normal(key, shape, dtype)

    with devices((2, 4)):
        assert sample(typed, KEY, (4, 8), P("x", "y"), (1, 2)).dtype == dtype


@each_kind
def test_a_reparametrised_normal_has_its_gradient(kind):
    def loss(mean, scale):
        def normal(key, shape):
            return mean + scale * random.normal(key, shape)

        return sample(normal, KEY, (16, 8), P("x", "y"), (2, 2)).sum()

    noise = tiles_of(random.normal, (2, 2), (16, 8))
    with devices((2, 4), kind):
        gradient = jax.grad(loss, (0, 1))(1.0, 2.0)
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
        assert measure(draw, KEY).counts == {}
        draws = np.asarray(draw(KEY))
    expected = random.poisson(random.fold_in(random.fold_in(KEY, 3), 0), 5.0, (1, 16))
    np.testing.assert_array_equal(draws[3:4], expected)


def test_like_key_keeps_values_and_shapes():
    np.testing.assert_array_equal(like_key([1, 2], KEY), np.float32([1, 2]))
    assert like_key(3, KEY).shape == ()


# ------------------------------------------------------------- a key per device


def test_each_device_has_the_key_of_its_rank():
    with devices((2, 4)):
        keys = by_block(
            lambda spec: random.key_data(per_device_key(KEY, ("x", "y")))[None],
            P(("x", "y")),
        )()
        along_y = by_block(
            lambda spec: random.key_data(per_device_key(KEY, "y"))[None], P("y")
        )()
    expected = random.key_data(jax.vmap(random.fold_in, (None, 0))(KEY, np.arange(8)))
    np.testing.assert_array_equal(keys, expected)
    np.testing.assert_array_equal(along_y, expected[:4])


def test_one_key_on_all_devices_draws_the_same_everywhere():
    """The mistake that the page warns of: no error, eight copies."""
    with devices((8, 1)):
        same = by_block(lambda spec: random.normal(KEY, (1, 64)), P("x"))
        own = by_block(
            lambda s: random.normal(per_device_key(KEY, "x"), (1, 64)), P("x")
        )
        copies, others = np.asarray(same()), np.asarray(own())
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
