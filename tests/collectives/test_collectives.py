import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from on_devices import AUTO, EXPLICIT, assert_close, devices, noise

from examples.collectives import (
    direct_all_to_all,
    doubling_all_reduce,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)
from examples.communication import measure
from examples.ring_cost import ring_bytes, ring_rounds

BLOCKS = jax.P("x", "y")
ALONG_X = {"in_specs": jax.P("x"), "out_specs": jax.P("x"), "axis_names": {"x"}}
SPLIT = {"split_axis": 0, "concat_axis": 1}
ALIKE = {"split_axis": 0, "concat_axis": 0}
GATHER = partial(lax.all_gather, axis=1, tiled=True)
SCATTER = partial(lax.psum_scatter, tiled=True)
EXCHANGE = partial(lax.all_to_all, tiled=True)

CASES = {  # each begins with its name in ring_cost.py
    "all-gather": (partial(ring_all_gather, axis=1), GATHER),
    "all-gather both ways": (partial(ring_all_gather, axis=-1, ways=2), GATHER),
    "reduce-scatter": (ring_reduce_scatter, SCATTER),
    "reduce-scatter both ways": (partial(ring_reduce_scatter, ways=2), SCATTER),
    "all-reduce": (ring_all_reduce, lax.psum),
    "all-reduce both ways": (partial(ring_all_reduce, ways=2), lax.psum),
    "doubling": (doubling_all_reduce, lax.psum),
    "all-to-all": [partial(f, **SPLIT) for f in (direct_all_to_all, EXCHANGE)],
    "all-to-all in place": [partial(f, **ALIKE) for f in (direct_all_to_all, EXCHANGE)],
}
ONE_WAY = [case for case in CASES if " " not in case]


def field(*shape, dtype=jnp.float32):
    """Return small integers [X@x, Y@y, ..], which bfloat16 adds exactly."""
    array = np.random.default_rng(0).integers(-4, 5, shape)
    unit = 2 + 1j if jnp.issubdtype(dtype, jnp.complexfloating) else 1
    return jax.device_put(jnp.asarray(unit * array, dtype), BLOCKS)


def on_blocks(f, axis):
    """Return the program that runs `f(block, axis)` on the block of each device."""

    def run(blocks):
        return f(blocks[0, 0], axis)[None, None]

    return jax.jit(jax.shard_map(run, in_specs=BLOCKS, out_specs=BLOCKS))


# ------------------------------------------------ values, types, gradients, messages


@pytest.mark.parametrize(
    ("case", "mesh", "kind", "axis", "dtype"),
    [
        *((case, (2, 4), EXPLICIT, "y", jnp.float32) for case in ONE_WAY),
        ("all-gather both ways", (2, 3), AUTO, "y", jnp.bfloat16),
        ("reduce-scatter both ways", (2, 3), AUTO, "y", jnp.int8),
        ("all-reduce both ways", (2, 4), AUTO, ("x", "y"), jnp.complex64),
        ("doubling", (2, 4), AUTO, ("x", "y"), jnp.float32),
        ("all-to-all", (3, 2), AUTO, ("x", "y"), jnp.int32),
        ("all-to-all in place", (2, 4), AUTO, "x", jnp.int32),
    ],
)
def test_each_does_what_the_built_in_one_does(case, mesh, kind, axis, dtype):
    """In as many bytes."""
    name, *_ = case.split()
    with devices(mesh, kind):
        array = field(*mesh, 24, 2, dtype=dtype)
        runs = [on_blocks(f, axis).lower(array).compile() for f in CASES[case]]
        answer, expected = (run(array) for run in runs)
        np.testing.assert_array_equal(answer, expected)
        assert answer.dtype == expected.dtype
        assert answer.sharding.is_equivalent_to(expected.sharding, answer.ndim)
        mine, built_in = map(measure, runs)
    size = math.prod(mesh["xy".index(each)] for each in axis)
    word = 4 if dtype == jnp.bfloat16 else array.dtype.itemsize  # as XLA:CPU sends it
    assert mine.sent == ring_bytes(name, 24 * 2 * word, size)
    assert mine.counts == {"collective-permute": ring_rounds(name, size)}
    if kind == EXPLICIT and name != "doubling":
        assert mine.sent == built_in.sent


@pytest.mark.parametrize(("mesh", "sends"), [((2, 4), True), ((8, 1), False)])
def test_a_block_that_is_the_same_everywhere_counts_on_every_device(mesh, sends):
    """One device alone sends nothing."""

    @jax.jit
    @jax.shard_map(in_specs=jax.P(), out_specs=jax.P("y"))
    def run(block):
        return [[f(block, "y") for f in pair] for pair in CASES.values()]

    block = np.arange(16).reshape(8, 2)
    with devices(mesh):
        for pair in run(block):
            np.testing.assert_array_equal(*pair)
        assert bool(measure(run, block).counts) == sends


@pytest.mark.parametrize("case", ["all-reduce", "all-reduce both ways", "doubling"])
def test_all_devices_get_the_same_bits(case):
    array = noise(8, 1, 40, dtype=np.float32)
    with devices((8, 1)):
        run = on_blocks(CASES[case][0], "x")
        sums = np.asarray(run(jax.device_put(array, BLOCKS)))
    assert (sums == sums[0]).all()
    assert_close(sums[0], array.sum(axis=0))


@pytest.mark.parametrize(
    ("name", "size", "rounds"), [("reduce-scatter", 8, 4), ("all-reduce", 5, 4)]
)
def test_half_of_the_messages_go_each_way(name, size, rounds):
    with devices((size, 1)):
        run = on_blocks(CASES[f"{name} both ways"][0], "x")
        program = measure(run, field(size, 1, size, 2))
    ahead = {(i, (i + 1) % size) for i in range(size)}
    forward = [c.times for c in program.collectives if set(c.groups) == ahead]
    assert sum(forward) == ring_rounds(name, size, ways=2) == rounds


@pytest.mark.parametrize(
    ("add", "kind"),
    [
        (ring_reduce_scatter, EXPLICIT),
        (doubling_all_reduce, EXPLICIT),
        (ring_all_reduce, AUTO),
    ],
)
def test_sums_leave_an_axis_alone_that_is_not_theirs(add, kind):
    """Where only x is Manual, and blocks are cut along y as well."""
    run = jax.jit(jax.shard_map(partial(add, axis_name="x"), **ALONG_X))
    with devices((2, 4), kind):
        array = field(8, 8)
        found = run(array)
    sums = np.asarray(array).reshape(2, 4, 8).sum(0)
    np.testing.assert_array_equal(found, np.tile(sums, (len(found) // 4, 1)))


# ------------------------------------------------------------------ what is refused


EIGHT = "8 elements along axis 0 cannot be cut into 3 pieces: pad them to 9"
BOOLEANS = r"pass block.astype\(int\)"
ALONG_Y = partial(ring_reduce_scatter, axis=1)


@pytest.mark.parametrize(
    ("f", "shape", "words"),
    [
        (ring_reduce_scatter, (8,), EIGHT),
        (partial(direct_all_to_all, **SPLIT), (8, 2), EIGHT),
        (partial(direct_all_to_all, **SPLIT), (9,), r"a block \(9,\) has no axis 1"),
        (partial(ring_all_gather, axis=1), (8,), r"a block \(8,\) has no axis 1"),
        (partial(ring_reduce_scatter, axis=-2), (8,), r"\(8,\) has no axis -2"),
        (partial(ring_all_gather, ways=3), (8,), "a ring has 1 or 2 ways round, not 3"),
        (doubling_all_reduce, (8,), "3 devices cannot pair up again and again"),
        (lambda b, _: ring_all_gather(b, ("y", "x")), (8,), r"pass \('x', 'y'\)"),
        (lambda b, axis: ring_reduce_scatter(b > 0, axis), (8,), BOOLEANS),
        (lambda b, axis: doubling_all_reduce(b > 0, axis), (8,), BOOLEANS),
    ],
)
def test_what_cannot_be_cut_or_added_is_refused(f, shape, words):
    with devices((2, 3)), pytest.raises(ValueError, match=words):
        on_blocks(f, "y")(field(2, 3, *shape))


@pytest.mark.parametrize(
    "f", [ring_all_gather, ring_all_reduce, CASES["all-to-all"][0], ALONG_Y]
)
def test_outside_and_on_blocks_that_are_still_cut_they_are_refused(f):
    f = partial(f, axis_name="x")
    with pytest.raises(ValueError, match="no axis 'x' here: call it inside"):
        f(jnp.ones((4, 4)))
    with devices((2, 4)), pytest.raises(ValueError, match="is still cut: name all its"):
        jax.shard_map(f, **ALONG_X)(field(2, 4, 2))
