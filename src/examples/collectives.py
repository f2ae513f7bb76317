# SPDX-License-Identifier: MIT-0
"""Collectives from nothing but `ppermute`: what the built-in ones do, hop by hop.

P devices along a mesh axis form a ring, and a device sends to its neighbours only. What
has to be everywhere goes all the way round; a sum grows at every device it passes. Each
function does what one of `jax.lax` does, in the same bytes.

    ring_all_gather       block  [.., n, ..]    ->  [.., n P, ..]  the blocks in order
    ring_reduce_scatter   block  [.., n P, ..]  ->  [.., n, ..]    one piece of the sum
    ring_all_reduce       block  of any shape   ->  the same       the sum
    doubling_all_reduce   block  of any shape   ->  the same       the sum, P = 2^k
    direct_all_to_all     block  [.., n P, ..]  ->  [.., n, ..]    piece j to device j

Of its operand of b bytes a device sends (P - 1) b, (P - 1) / P b, 2 (P - 1) / P b, k b
and (P - 1) / P b. With `ways=2` half the pieces go round the other way: as many bytes,
over twice as many links, in half the rounds of messages.

Source of the doubling: Thakur, Rabenseifner, Gropp, Optimization of Collective
Communication Operations in MPICH, 2005, https://doi.org/10.1177/1094342005051521.

    JAX_NUM_CPU_DEVICES=8 python collectives.py

Copy this file alone: it needs JAX only. Call the functions inside `jax.shard_map`; an
`axis_name` may be a tuple of axes, in the order of the mesh. What they return varies
along it, as its type says, and each device rounds a sum to the type of its block.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from numbers import Integral

import jax
import jax.numpy as jnp
from jax import Array, lax


def shift(x: Array, axis_name: str, step: int) -> Array:
    """Send `x` to the device `step` places further along the ring `axis_name`."""
    size = lax.axis_size(axis_name)
    return lax.ppermute(x, axis_name, [(i, (i + step) % size) for i in range(size)])


def ring_size(axis_name: str | tuple[str, ...]) -> int:
    """Return the size of a mesh axis to send along, or raise ValueError for no axis."""
    with contextlib.suppress(NameError):
        return lax.axis_size(axis_name)
    raise ValueError(f"no axis {axis_name!r} here: call it inside `jax.shard_map`")


def ring(axis_name: str | tuple[str, ...]) -> tuple[int, Array]:
    """Return the size of the ring `axis_name` and this rank, or raise ValueError.

    A rank follows the order of a tuple of axes, `ppermute` that of the mesh.
    """
    size, rank = ring_size(axis_name), lax.axis_index(axis_name)
    axes = jax.sharding.get_abstract_mesh().axis_names
    order = tuple(axis for axis in axes if axis in axis_name)
    if isinstance(axis_name, tuple) and axis_name != order:
        raise ValueError(f"{axis_name} is not in the order of the mesh: pass {order}")
    return size, rank


def directions(size: int, ways: int) -> list[tuple[tuple[int, ...], int, int]]:
    """Return `steps, first, last`: the ways to go from hop `first` up to hop `last`."""
    if not isinstance(ways, Integral) or ways not in (1, 2):
        raise ValueError(f"a ring has 1 or 2 ways round, not {ways}")
    both = (size - 1) // 2 * (ways - 1)
    return [((+1, -1)[:ways], 0, both), ((+1,), both, size - 1 - both)]


def ring_loop(hop: Callable, carry, size: int, ways: int):
    """Return the last `carry = hop(steps, i, carry)` of a loop round the ring."""
    for steps, first, last in directions(size, ways):
        carry = lax.fori_loop(first, last, partial(hop, steps), carry)
    return carry


def piece_width(block: Array, axis: int, size: int) -> int:
    """Return how wide each of `size` pieces along `axis` is, or raise ValueError."""
    if not -block.ndim <= axis < block.ndim:
        raise ValueError(f"a block {block.shape} has no axis {axis}")
    n = block.shape[axis]
    if n % size:
        raise ValueError(
            f"{n} elements along axis {axis} cannot be cut into {size} pieces: pad "
            f"them to {-(-n // size) * size}"
        )
    return n // size


def check_whole(block: Array, *axes: int):
    """Raise ValueError for a block that is itself cut along these axes, or any."""
    spec = jax.typeof(block).sharding.spec
    if any(spec[axis] is not None for axis in axes or range(block.ndim)):
        raise ValueError(
            f"{jax.typeof(block)} is still cut: name all its axes in `axis_names` of "
            "`jax.shard_map`"
        )


def check_sum(block: Array):
    """Raise ValueError for booleans, whose sums `lax.psum` counts in integers."""
    if block.dtype == jnp.bool:
        raise ValueError("booleans do not add up: pass block.astype(int)")


def ring_all_gather(
    block: Array, axis_name: str, axis: int = 0, ways: int = 1
) -> Array:
    """Put the blocks of all devices side by side: `lax.all_gather(.., tiled=True)`.

    block: [.., n, ..] -> [.., n P, ..]

    Raises ValueError if the block has no such axis, or `ways` is not 1 or 2.
    """
    size, rank = ring(axis_name)
    check_whole(block)
    n, axis = piece_width(block, axis, 1), axis % block.ndim

    def put(whole, part, owner):
        return lax.dynamic_update_slice_in_dim(whole, part, owner % size * n, axis)

    def hop(steps, i, carry):
        whole, [*parts] = carry
        for way, step in enumerate(steps):
            parts[way] = shift(parts[way], axis_name, step)
            whole = put(whole, parts[way], rank - step * (i + 1))
        return whole, parts

    shape = *block.shape[:axis], n * size, *block.shape[axis + 1 :]
    whole = put(jnp.zeros_like(block, shape=shape), block, rank)
    mine = lax.dynamic_slice_in_dim(whole, rank * n, n, axis)  # block, of varying type
    return ring_loop(hop, (whole, [mine] * ways), size, ways)[0]


def ring_reduce_scatter(
    block: Array, axis_name: str, axis: int = 0, ways: int = 1
) -> Array:
    """Add up all blocks and keep one piece: `lax.psum_scatter(.., tiled=True)`.

    block: [.., n P, ..] -> [.., n, ..]

    Raises ValueError if P does not divide that axis, or `ways` is not 1 or 2.
    """
    check_sum(block)
    size, rank = ring(axis_name)
    n, axis = piece_width(block, axis, size), axis % block.ndim
    check_whole(block, axis)
    (_, _, back), (_, _, there) = directions(size, ways)

    def piece(owner):
        return lax.dynamic_slice_in_dim(block, owner % size * n, n, axis)

    def hop(steps, i, totals):
        [*totals] = totals
        for way, (step, hops) in enumerate(zip(steps, (there, back), strict=False)):
            mine = piece(rank + step * (hops - i))
            totals[way] = shift(totals[way] + mine, axis_name, step)
        return totals

    none = jnp.zeros_like(piece(rank))
    return sum(ring_loop(hop, [none] * ways, size, ways), piece(rank))


def ring_all_reduce(block: Array, axis_name: str, ways: int = 1) -> Array:
    """Add up the blocks of all devices, on all devices: `lax.psum`.

    block: any shape -> the same; zeros fill it up to a multiple of P elements

    Raises ValueError if `ways` is not 1 or 2.
    """
    size, _ = ring(axis_name)
    check_whole(block)
    row = jnp.pad(block.ravel(), (0, -block.size % size))
    piece = ring_reduce_scatter(row, axis_name, 0, ways)
    row = ring_all_gather(piece, axis_name, 0, ways)
    return row[: block.size].reshape(block.shape)


def doubling_all_reduce(block: Array, axis_name: str) -> Array:
    """Add up the blocks of all devices, on all devices, in log2 P messages: `lax.psum`.

    block: any shape -> the same

    Raises ValueError unless P is a power of two.
    """
    check_sum(block)
    size, _ = ring(axis_name)
    if size & (size - 1):
        raise ValueError(
            f"{size} devices cannot pair up again and again: take a power of two, or "
            "ring_all_reduce"
        )
    for bit in range(size.bit_length() - 1):
        pairs = [(i, i ^ 1 << bit) for i in range(size)]
        block = block + lax.ppermute(block, axis_name, pairs)
    return block


def direct_all_to_all(
    block: Array, axis_name: str, split_axis: int, concat_axis: int
) -> Array:
    """Send piece j to device j, join what arrives: `lax.all_to_all(.., tiled=True)`.

    block: [.., n P, .., m, ..] -> [.., n, .., m P, ..]

    Raises ValueError if P does not divide the axis to split, or there is no such axis.
    """
    size, rank = ring(axis_name)
    check_whole(block)
    n, _ = piece_width(block, split_axis, size), piece_width(block, concat_axis, 1)
    split_axis, concat_axis = split_axis % block.ndim, concat_axis % block.ndim
    arrived = []
    for step in range(size):  # unrolled: each step has a route of its own
        first = (rank + step) % size * n
        piece = lax.dynamic_slice_in_dim(block, first, n, split_axis)
        arrived.append(shift(piece, axis_name, step))
    m = arrived[0].shape[concat_axis]
    arrived = jnp.concatenate(arrived[::-1], concat_axis)  # from rank + 1, ..., rank
    return jnp.roll(arrived, (rank + 1) * m, concat_axis)


def main():
    """Add up the numbers of all devices round a ring, both ways."""
    count = jax.device_count()
    with jax.set_mesh(jax.make_mesh((count,), ("x",))):
        add = partial(ring_all_reduce, axis_name="x", ways=2)
        ranks = jax.device_put(jnp.arange(count), jax.P("x"))
        sums = jax.jit(jax.shard_map(add, out_specs=jax.P("x")))(ranks)
        print(f"{jax.typeof(sums)}  {sums}, expect {count * (count - 1) // 2} each")


if __name__ == "__main__":
    main()
