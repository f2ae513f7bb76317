# SPDX-License-Identifier: MIT-0
"""Network: what leaves a host, and a sum that leaves less.

Devices of one host exchange data in its memory or over its own links; between hosts
there is a network, and it is slower. So it matters which of a program's messages cross
it, and that depends on the order of the devices in the mesh.

    block    [n, ...]        what one device adds; inner divides n
    program  .collectives    what `communication.measure` finds in a compiled program
    hosts    [0, 0, 1, 1]    the host of each device, in the order of the mesh

Cost of `psum_by_hosts`, of blocks of b bytes on h hosts: a reduce-scatter, an
all-reduce and an all-gather, of which a host sends 2 b (h - 1) / h to others. A single
all-reduce around d devices, host after host, sends 2 b (d - 1) / d.

    JAX_NUM_CPU_DEVICES=8 python network.py

The file needs JAX alone: copy it as it is, beside communication.py.
"""

from collections.abc import Iterator, Sequence

import jax
from jax import Array, lax


def psum_by_hosts(block: Array, inner: str, outer: str) -> Array:
    """Return `lax.psum(block, (outer, inner))`, of which little crosses `outer`.

    To be called in `shard_map`: block [n, ...] -> [n, ...], the same on all devices.
    Each device of a host adds up one part of the host's blocks, then that part of all
    hosts' blocks, and gets the other parts from its neighbours.

    Raises ValueError if the first axis cannot be cut into as many parts as `inner` has
    devices.
    """
    count = lax.axis_size(inner)
    if not block.ndim or block.shape[0] % count:
        raise ValueError(
            f"a block of shape {block.shape} cannot be cut into {count} parts for "
            f"the devices along {inner}: pad its first axis, or use lax.psum"
        )
    part = lax.psum_scatter(block, inner, tiled=True)
    part = lax.psum(part, outer)
    return lax.all_gather(part, inner, tiled=True, to="invarying")


def leaving(program, hosts: Sequence[int]) -> dict[int, int]:
    """Return the bytes that each host sends to others when a program runs once.

    program: what `communication.measure` returns. hosts: the host of each device in
    the order of the mesh, such as `[d.process_index for d in mesh.devices.flat]`.

    Raises ValueError if the program has more devices than `hosts`, or a loop of
    unknown length.
    """
    sent = dict.fromkeys(hosts, 0)
    for collective in program.collectives:
        if collective.times is None:
            raise ValueError(
                f"nobody knows how often a loop runs this {collective.kind}: give the "
                "loop a fixed length"
            )
        if max(map(max, collective.groups)) >= len(hosts):
            raise ValueError(
                f"the program runs on more devices than the {len(hosts)} in hosts: "
                "give the host of each device of the mesh"
            )
        for source, target, size in messages(collective):
            if hosts[source] != hosts[target]:
                sent[hosts[source]] += size * collective.times
    return sent


def messages(collective) -> Iterator[tuple[int, int, int]]:
    """Yield source, target and bytes of what a collective sends, in all its groups.

    All-to-alls and permutations send straight to the target; all others go around a
    ring, in the order of the group.
    """
    for group in collective.groups:
        if collective.kind == "collective-permute":
            yield (*group, collective.bytes)
        elif collective.kind == "all-to-all":
            size = collective.bytes // len(group)
            yield from ((a, b, size) for a in group for b in group if a != b)
        else:
            following = (*group[1:], group[0])
            ring = zip(group, following, strict=True)
            yield from ((a, b, collective.sent) for a, b in ring)


def main():
    """Sum a block of each device over two hosts, of half the devices each."""
    count = jax.device_count()
    hosts = 2 if count % 2 == 0 else 1
    mesh = jax.make_mesh((hosts, count // hosts), ("outer", "inner"))
    everywhere = jax.P(("outer", "inner"))
    with jax.set_mesh(mesh):
        x = jax.numpy.ones(8 * count * count, out_sharding=everywhere)
        add = jax.shard_map(
            lambda block: psum_by_hosts(block, "inner", "outer"),
            in_specs=everywhere,
            out_specs=jax.P(),
        )
        total = jax.jit(add)(x)
    print(f"{hosts} x {count // hosts} devices:", jax.typeof(total), float(total[0]))


if __name__ == "__main__":
    main()
