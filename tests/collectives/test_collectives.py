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


def gathered(stack):
    """Return what every device has after an all-gather of `stack[rank]`, [n, m]."""
    return [np.concatenate(stack, axis=1)] * len(stack)


def reduced(stack):
    return [stack.sum(axis=0)] * len(stack)


def exchanged(stack):
    pieces = [np.split(block, len(stack), axis=0) for block in stack]
    return [np.concatenate(mine, axis=1) for mine in zip(*pieces, strict=True)]


# XLA's name for each, the built-in one, and the reference in NumPy.
BUILT_IN = {
    "gather": (
        "all-gather",
        lambda b, axis: lax.all_gather(b, axis, axis=1, tiled=True),
        gathered,
    ),
    "scatter": (
        "reduce-scatter",
        lambda b, axis: lax.psum_scatter(b, axis, tiled=True),
        lambda stack: np.split(stack.sum(axis=0), len(stack)),
    ),
    "reduce": ("all-reduce", lax.psum, reduced),
    "doubling": ("doubling", lax.psum, reduced),
    "exchange": (
        "all-to-all",
        lambda b, axis: lax.all_to_all(b, axis, 0, 1, tiled=True),
        exchanged,
    ),
}
OURS = {
    "gather": lambda b, axis: ring_all_gather(b, axis, 1),
    "gather both ways": lambda b, axis: ring_all_gather(b, axis, -1, ways=2),
    "scatter": ring_reduce_scatter,
    "scatter both ways": lambda b, axis: ring_reduce_scatter(b, axis, -2, ways=2),
    "reduce": ring_all_reduce,
    "reduce both ways": lambda b, axis: ring_all_reduce(b, axis, ways=2),
    "doubling": doubling_all_reduce,
    "exchange": lambda b, axis: direct_all_to_all(b, axis, 0, 1),
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

    def program(array):
        return jax.shard_map(
            lambda blocks: f(blocks[0, 0], axis)[None, None],
            in_specs=BLOCKS,
            out_specs=BLOCKS,
        )(array)

    return jax.jit(program)


def oracle(reference, array, axis="y"):
    """Apply a reference to the blocks along y, or x and y: [X, Y, ..] -> [X, Y, ..]."""
    blocks = np.asarray(array)
    rows = blocks if axis == "y" else blocks.reshape(1, -1, *blocks.shape[2:])
    after = np.stack([np.stack(reference(row)) for row in rows])
    return after.reshape(*blocks.shape[:2], *after.shape[2:])


def check(case, mesh, axis, dtype=jnp.float32):
    """Check values, type and bytes of a case against its reference."""
    ours, kind, theirs, reference = CASES[case]
    array = field(mesh, (24, 2), dtype)
    run = on_blocks(ours, axis).lower(array).compile()
    answer, built_in = run(array), jax.eval_shape(on_blocks(theirs, axis), array)
    assert (answer.shape, answer.dtype) == (built_in.shape, built_in.dtype)
    np.testing.assert_array_equal(answer, oracle(reference, array, axis))
    word = 4 if dtype == jnp.bfloat16 else array.dtype.itemsize  # as XLA:CPU sends it
    sizes = dict(zip("xy", mesh, strict=True))
    cost = ring_bytes(kind, 24 * 2 * word, math.prod(sizes[name] for name in axis))
    assert measure(run).sent == cost
    return answer, array, cost


def on_everything(block):
    """Return the results of all cases, for a block that is the same everywhere."""

    @jax.jit
    @jax.shard_map(in_specs=jax.P(), out_specs=jax.P("y"))
    def run(block):
        return {case: ours(block, "y") for case, ours in OURS.items()}

    return run(block)


@pytest.mark.parametrize("case", BUILT_IN)
def test_each_does_what_the_built_in_one_does_in_its_bytes(case):
    with devices((2, 4)):
        answer, array, cost = check(case, (2, 4), "y")
        built_in = on_blocks(CASES[case][2], "y").lower(array).compile()
        assert built_in.output_shardings.is_equivalent_to(answer.sharding, answer.ndim)
        assert case == "doubling" or measure(built_in).sent == cost


@pytest.mark.parametrize(
    ("case", "mesh", "axis", "dtype"),
    [
        ("gather both ways", (2, 3), "y", jnp.bfloat16),
        ("scatter both ways", (2, 3), "y", jnp.int8),
        ("reduce both ways", (2, 4), ("x", "y"), jnp.complex64),
        ("doubling", (2, 4), ("x", "y"), jnp.float32),
        ("exchange", (3, 2), ("x", "y"), jnp.int32),
    ],
)
def test_any_axes_of_any_numbers_are_right_in_their_bytes(case, mesh, axis, dtype):
    with devices(mesh, AxisType.Auto):
        check(case, mesh, axis, dtype)


@pytest.mark.parametrize(
    "case",
    [
        "gather both ways",
        "scatter both ways",
        "reduce both ways",
        "doubling",
        "exchange",
    ],
)
def test_the_gradient_is_that_of_the_built_in_one_in_its_bytes(case):
    ours, _, theirs, _ = CASES[case]
    with devices((2, 4)):
        array = field((2, 4), (8, 3))
        weights = np.random.default_rng(1).standard_normal(
            jax.eval_shape(on_blocks(ours, "y"), array).shape
        )

        def loss(array, f):
            return (on_blocks(f, "y")(array) * weights).sum()

        mine, wanted = (
            jax.jit(jax.grad(partial(loss, f=f))).lower(array).compile()
            for f in (ours, theirs)
        )
        gradient = mine(array)
        np.testing.assert_allclose(gradient, wanted(array), rtol=1e-5, atol=1e-5)
        assert gradient.sharding.is_equivalent_to(array.sharding, 4)
        factor = 4 / 3 if case == "doubling" else 1  # 2 of 4 pieces against 2 * 3
        assert measure(mine).sent == factor * measure(wanted).sent


@pytest.mark.parametrize("case", ["gather both ways", "exchange"])
def test_a_batch_is_served_inside_and_outside(case):
    ours, _, _, reference = CASES[case]
    inside = on_blocks(jax.vmap(ours, (0, None)), "y")
    outside = jax.vmap(on_blocks(ours, "y"), in_axes=2, out_axes=2)
    with devices((2, 4)):
        array = field((2, 4), (3, 8, 2))
        found = jax.jit(lambda array: (inside(array), outside(array)))(array)
        each = [oracle(reference, array[:, :, i]) for i in range(3)]
    for batch in found:
        np.testing.assert_array_equal(batch, np.stack(each, axis=2))


def test_a_block_that_is_the_same_everywhere_counts_on_every_device():
    block = np.arange(16).reshape(8, 2)
    with devices((2, 4)):
        found = on_everything(block)
    for case, (*_, reference) in CASES.items():
        expected = np.concatenate(reference(np.stack([block] * 4)))
        np.testing.assert_array_equal(found[case], expected)


def test_one_device_sends_nothing():
    with devices((8, 1)):
        assert measure(on_everything, np.ones((4, 2), "f4")).counts == {}


@pytest.mark.parametrize(("shape", "ways"), [((), 1), ((3, 7), 2)])
def test_an_all_reduce_fills_its_pieces_with_zeros(shape, ways):
    with devices((2, 4)):
        array = field((2, 4), shape)
        program = on_blocks(lambda b, axis: ring_all_reduce(b, axis, ways), "y")
        run = program.lower(array).compile()
        np.testing.assert_array_equal(run(array), oracle(reduced, array))
    padded = -(-math.prod(shape) // 4) * 4 * 4
    assert measure(run).sent == ring_bytes("all-reduce", padded, 4)


def test_all_devices_get_the_same_bits():
    noise = np.random.default_rng(2).standard_normal((8, 1, 40)).astype(np.float32)
    with devices((8, 1)):
        cases = "reduce", "reduce both ways", "doubling"
        programs = [on_blocks(OURS[case], "x") for case in cases]
        run = jax.jit(lambda array: [f(array) for f in programs])
        for sums in map(np.asarray, run(jax.device_put(noise, BLOCKS))):
            assert (sums == sums[0]).all()
            np.testing.assert_allclose(sums[0], noise.sum(axis=0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("case", "size"), [("scatter", 8), ("reduce", 5)])
def test_messages_are_rounds_and_half_as_many_both_ways(case, size):
    kind = BUILT_IN[case][0]
    ways = OURS[case], OURS[f"{case} both ways"]
    with devices((size, 1)):
        array = field((size, 1), (size, 2))
        one, two = (measure(on_blocks(f, "x"), array) for f in ways)
    rounds = ring_rounds(kind, size)
    assert one.counts == two.counts == {"collective-permute": rounds}
    assert ring_rounds(kind, size, ways=2) == rounds // (size - 1) * (size // 2)
    ahead = {(i, (i + 1) % size) for i in range(size)}
    forward = [c.times for c in two.collectives if set(c.groups) == ahead]
    assert sum(forward) == ring_rounds(kind, size, ways=2)


def test_a_program_does_not_grow_with_the_ring():
    """It scatters and gathers, both ways."""

    def length(size):
        with devices((size, 1)):
            program = on_blocks(OURS["reduce both ways"], "x")
            lowered = program.lower(field((size, 1), (size, 2)))
            return len(lowered.as_text().split("\n"))

    assert length(8) == length(4)


@pytest.mark.parametrize(("case", "rounds"), [("doubling", 3), ("exchange", 7)])
def test_other_routes_are_a_message_a_round(case, rounds):
    with devices((8, 1)):
        program = measure(on_blocks(OURS[case], "x"), field((8, 1), (8, 2)))
    assert program.counts == {"collective-permute": rounds}
    assert ring_rounds(BUILT_IN[case][0], 8) == rounds


def test_an_exchange_may_split_and_join_any_axes():
    pairs = (0, 0), (1, 0), (-1, 1), (2, -3)
    programs = [
        on_blocks(lambda b, axis, pair=pair: direct_all_to_all(b, axis, *pair), "y")
        for pair in pairs
    ]
    with devices((2, 4)):
        array = field((2, 4), (4, 8, 4))
        found = jax.jit(lambda array: [f(array) for f in programs])(array)
    for (split, concat), answer in zip(pairs, found, strict=True):
        pieces = np.split(np.asarray(array), 4, axis=split % 3 + 2)
        rows = [
            np.concatenate([*piece.swapaxes(0, 1)], concat % 3 + 1) for piece in pieces
        ]
        np.testing.assert_array_equal(answer, np.stack(rows, axis=1))


def refused(f, shape, dtype=jnp.float32):
    with devices((2, 3)):
        on_blocks(f, "y")(field((2, 3), shape, dtype))


EIGHT = "8 elements along axis 0 cannot be cut into 3 pieces: pad them to 9"


@pytest.mark.parametrize(
    ("f", "shape", "complaint"),
    [
        (ring_reduce_scatter, (8,), EIGHT),
        (OURS["exchange"], (8, 2), EIGHT),
        (OURS["gather"], (8,), r"a block \(8,\) has no axis 1"),
        (OURS["scatter both ways"], (8,), r"a block \(8,\) has no axis -2"),
        (OURS["exchange"], (9,), r"a block \(9,\) has no axis 1"),
        (
            lambda b, axis: ring_all_gather(b, axis, 0, 3),
            (8,),
            "a ring has 1 or 2 ways round, not 3",
        ),
        (doubling_all_reduce, (8,), "3 devices cannot pair up again and again"),
        (
            lambda b, _: ring_all_gather(b, ("y", "x")),
            (8,),
            r"is not in the order of the mesh: pass \('x', 'y'\)",
        ),
    ],
)
def test_what_cannot_be_cut_and_other_ways_and_axes_are_refused(f, shape, complaint):
    with pytest.raises(ValueError, match=complaint):
        refused(f, shape)


def test_booleans_are_no_numbers_to_add_but_may_travel():
    for f in ring_reduce_scatter, ring_all_reduce, doubling_all_reduce:
        with pytest.raises(ValueError, match=r"pass block.astype\(int\)"):
            refused(f, (8,), bool)
    with devices((2, 4)):
        array = field((2, 4), (3, 2), bool)
        answer = on_blocks(lambda b, axis: ring_all_gather(b, axis, 1), "y")(array)
        np.testing.assert_array_equal(answer, oracle(gathered, array))


ALONG_X = {"in_specs": jax.P("x"), "out_specs": jax.P("x"), "axis_names": {"x"}}


def test_outside_and_on_blocks_that_are_still_cut_they_are_refused():
    for f in (
        lambda b: ring_all_gather(b, "x"),
        lambda b: ring_all_reduce(b, "x"),
        lambda b: direct_all_to_all(b, "x", 0, 1),
        lambda b: ring_reduce_scatter(b, "x", 1),
    ):
        with pytest.raises(ValueError, match="no axis 'x' here: call it inside"):
            f(jnp.ones((4, 4)))
        with devices((2, 4)):
            array = jax.device_put(np.ones((8, 8), np.float32), BLOCKS)
            with pytest.raises(ValueError, match="is still cut: name all its axes"):
                jax.shard_map(f, **ALONG_X)(array)


@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
def test_sums_leave_an_axis_alone_that_is_not_theirs(kind):
    """Where only x is Manual, and blocks are cut along y as well."""
    numbers = np.random.default_rng(0).integers(0, 9, (8, 8)).astype(np.float32)
    adders = [ring_reduce_scatter, doubling_all_reduce]
    adders += [ring_all_reduce] if kind == AxisType.Auto else []
    sums = [jax.shard_map(lambda b, f=f: f(b, "x"), **ALONG_X) for f in adders]
    with devices((2, 4), kind):
        array = jax.device_put(numbers, BLOCKS)
        found = jax.jit(lambda array: [f(array) for f in sums])(array)
    for total, copies in zip(found, (1, 2, 2), strict=False):
        expected = np.tile(numbers.reshape(2, 4, 8).sum(0), (copies, 1))
        np.testing.assert_array_equal(total, expected)
