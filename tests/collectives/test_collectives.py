import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType
from on_devices import devices

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
EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto

# The name of each in ring_cost.py, and the built-in one.
BUILT_IN = {
    "gather": ("all-gather", partial(lax.all_gather, axis=1, tiled=True)),
    "scatter": ("reduce-scatter", partial(lax.psum_scatter, tiled=True)),
    "reduce": ("all-reduce", lax.psum),
    "doubling": ("doubling", lax.psum),
    "exchange": (
        "all-to-all",
        partial(lax.all_to_all, split_axis=0, concat_axis=1, tiled=True),
    ),
}
OURS = {
    "gather": partial(ring_all_gather, axis=1),
    "gather both ways": partial(ring_all_gather, axis=-1, ways=2),
    "scatter": ring_reduce_scatter,
    "scatter both ways": partial(ring_reduce_scatter, axis=-2, ways=2),
    "reduce": ring_all_reduce,
    "reduce both ways": partial(ring_all_reduce, ways=2),
    "doubling": doubling_all_reduce,
    "exchange": partial(direct_all_to_all, split_axis=0, concat_axis=1),
}
CASES = {case: (f, *BUILT_IN[case.split()[0]]) for case, f in OURS.items()}


def field(mesh, shape, dtype=jnp.float32):
    """Return a block of this shape for each device: [X@x, Y@y, ..]."""
    random = np.random.default_rng(0)
    array = random.integers(-4, 5, (*mesh, *shape))  # small: bfloat16 adds them exactly
    if jnp.issubdtype(dtype, jnp.complexfloating):
        array = array * (2 + 1j)
    return jax.device_put(jnp.asarray(array, dtype), BLOCKS)


def on_blocks(f, axis):
    """Return the program that runs `f(block, axis)` on the block of each device."""

    def run(blocks):
        return f(blocks[0, 0], axis)[None, None]

    return jax.jit(jax.shard_map(run, in_specs=BLOCKS, out_specs=BLOCKS))


# ------------------------------------------------ values, types, gradients, messages


@pytest.mark.parametrize(
    ("case", "mesh", "kind", "axis", "dtype"),
    [
        *((case, (2, 4), EXPLICIT, "y", jnp.float32) for case in BUILT_IN),
        ("gather both ways", (2, 3), AUTO, "y", jnp.bfloat16),
        ("scatter both ways", (2, 3), AUTO, "y", jnp.int8),
        ("reduce both ways", (2, 4), AUTO, ("x", "y"), jnp.complex64),
        ("doubling", (2, 4), AUTO, ("x", "y"), jnp.float32),
        ("exchange", (3, 2), AUTO, ("x", "y"), jnp.int32),
    ],
)
def test_each_does_what_the_built_in_one_does(case, mesh, kind, axis, dtype):
    """In as many bytes."""
    ours, name, theirs = CASES[case]
    with devices(mesh, kind):
        array = field(mesh, (24, 2), dtype)
        mine, built_in = (
            on_blocks(f, axis).lower(array).compile() for f in (ours, theirs)
        )
        answer, expected = mine(array), built_in(array)
    np.testing.assert_array_equal(answer, expected)
    assert answer.dtype == expected.dtype
    assert answer.sharding.is_equivalent_to(expected.sharding, answer.ndim)
    size = math.prod(mesh["xy".index(each)] for each in axis)
    word = 4 if dtype == jnp.bfloat16 else array.dtype.itemsize  # as XLA:CPU sends it
    program = measure(mine)
    assert program.sent == ring_bytes(name, 24 * 2 * word, size)
    assert program.counts == {"collective-permute": ring_rounds(name, size)}
    if kind == EXPLICIT and case != "doubling":
        assert program.sent == measure(built_in).sent


@pytest.mark.parametrize("case", [c for c in OURS if f"{c} both ways" not in OURS])
def test_the_gradient_is_that_of_the_built_in_one_in_its_bytes(case):
    ours, _, theirs = CASES[case]

    def loss(array, f):
        found = on_blocks(f, "y")(array)
        return (found * np.cos(np.arange(found.size)).reshape(found.shape)).sum()

    with devices((2, 4)):
        array = field((2, 4), (8, 3))
        slopes = (jax.jit(jax.grad(partial(loss, f=f))) for f in (ours, theirs))
        mine, built_in = (slope.lower(array).compile() for slope in slopes)
        gradient, expected = mine(array), built_in(array)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-5)
    assert gradient.sharding.is_equivalent_to(array.sharding, 4)
    factor = 4 / 3 if case == "doubling" else 1  # 2 of 4 pieces against 2 * 3
    assert measure(mine).sent == factor * measure(built_in).sent


def test_a_block_that_is_the_same_everywhere_counts_on_every_device():
    @jax.jit
    @jax.shard_map(in_specs=jax.P(), out_specs=jax.P("y"))
    def run(block):
        return [(f(block, "y"), theirs(block, "y")) for f, _, theirs in CASES.values()]

    with devices((2, 4)):
        for answer, expected in run(np.arange(16).reshape(8, 2)):
            np.testing.assert_array_equal(answer, expected)


def test_one_device_sends_nothing():
    def run(array):
        return [on_blocks(f, "y")(array) for f in OURS.values()]

    with devices((8, 1)):
        assert measure(run, field((8, 1), (4, 2))).counts == {}


def test_all_devices_get_the_same_bits():
    noise = np.random.default_rng(2).standard_normal((8, 1, 40)).astype(np.float32)
    cases = "reduce", "reduce both ways", "doubling"
    with devices((8, 1)):
        run = jax.jit(lambda array: [on_blocks(OURS[c], "x")(array) for c in cases])
        for sums in map(np.asarray, run(jax.device_put(noise, BLOCKS))):
            assert (sums == sums[0]).all()
            np.testing.assert_allclose(sums[0], noise.sum(axis=0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("case", "size", "rounds"),
    [("scatter both ways", 8, 4), ("reduce both ways", 5, 4)],
)
def test_half_of_the_messages_go_each_way(case, size, rounds):
    with devices((size, 1)):
        program = measure(on_blocks(OURS[case], "x"), field((size, 1), (size, 2)))
    ahead = {(i, (i + 1) % size) for i in range(size)}
    forward = [c.times for c in program.collectives if set(c.groups) == ahead]
    assert sum(forward) == ring_rounds(CASES[case][1], size, ways=2) == rounds


def test_a_program_does_not_grow_with_the_ring():
    """It scatters and gathers, both ways."""

    def length(size):
        with devices((size, 1)):
            program = on_blocks(OURS["reduce both ways"], "x")
            return program.lower(field((size, 1), (size, 2))).as_text().count("\n")

    assert length(8) == length(4)


@pytest.mark.parametrize(("split", "join"), [(0, 0), (1, 0), (-1, 1), (2, -3)])
def test_an_exchange_may_split_and_join_any_axes(split, join):
    positive = {"split_axis": split % 3, "concat_axis": join % 3, "tiled": True}
    pair = {"split_axis": split, "concat_axis": join}
    with devices((2, 4)):
        array = field((2, 4), (4, 8, 4))
        answer = on_blocks(partial(direct_all_to_all, **pair), "y")(array)
        expected = on_blocks(partial(lax.all_to_all, **positive), "y")(array)
    np.testing.assert_array_equal(answer, expected)


ALONG_X = {"in_specs": jax.P("x"), "out_specs": jax.P("x"), "axis_names": {"x"}}


@pytest.mark.parametrize("kind", [EXPLICIT, AUTO])
def test_sums_leave_an_axis_alone_that_is_not_theirs(kind):
    """Where only x is Manual, and blocks are cut along y as well."""
    numbers = np.random.default_rng(0).integers(0, 9, (8, 8)).astype(np.float32)
    adders = [ring_reduce_scatter, doubling_all_reduce]
    adders += [ring_all_reduce] if kind == AUTO else []
    with devices((2, 4), kind):
        array = jax.device_put(numbers, BLOCKS)
        for add in adders:
            run = jax.jit(jax.shard_map(partial(add, axis_name="x"), **ALONG_X))
            copies = 1 if add == ring_reduce_scatter else 2
            expected = np.tile(numbers.reshape(2, 4, 8).sum(0), (copies, 1))
            np.testing.assert_array_equal(run(array), expected)


# ------------------------------------------------------------------ what is refused


EIGHT = "8 elements along axis 0 cannot be cut into 3 pieces: pad them to 9"
BOOLEANS = r"pass block.astype\(int\)"


@pytest.mark.parametrize(
    ("f", "shape", "words"),
    [
        (ring_reduce_scatter, (8,), EIGHT),
        (OURS["exchange"], (8, 2), EIGHT),
        (OURS["gather"], (8,), r"a block \(8,\) has no axis 1"),
        (OURS["scatter both ways"], (8,), r"a block \(8,\) has no axis -2"),
        (OURS["exchange"], (9,), r"a block \(9,\) has no axis 1"),
        (partial(ring_all_gather, ways=3), (8,), "a ring has 1 or 2 ways round, not 3"),
        (doubling_all_reduce, (8,), "3 devices cannot pair up again and again"),
        (lambda b, _: ring_all_gather(b, ("y", "x")), (8,), r"pass \('x', 'y'\)"),
        (lambda b, axis: ring_reduce_scatter(b > 0, axis), (8,), BOOLEANS),
        (lambda b, axis: ring_all_reduce(b > 0, axis), (8,), BOOLEANS),
        (lambda b, axis: doubling_all_reduce(b > 0, axis), (8,), BOOLEANS),
    ],
)
def test_what_cannot_be_cut_or_added_is_refused(f, shape, words):
    with devices((2, 3)), pytest.raises(ValueError, match=words):
        on_blocks(f, "y")(field((2, 3), shape))


@pytest.mark.parametrize(
    "f",
    [
        ring_all_gather,
        ring_all_reduce,
        partial(direct_all_to_all, split_axis=0, concat_axis=1),
        partial(ring_reduce_scatter, axis=1),
    ],
)
def test_outside_and_on_blocks_that_are_still_cut_they_are_refused(f):
    f = partial(f, axis_name="x")
    with pytest.raises(ValueError, match="no axis 'x' here: call it inside"):
        f(jnp.ones((4, 4)))
    with devices((2, 4)), pytest.raises(ValueError, match="is still cut: name all its"):
        jax.shard_map(f, **ALONG_X)(field((2, 4), (2,)))
