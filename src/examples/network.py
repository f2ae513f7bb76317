# SPDX-License-Identifier: MIT-0
"""Network: what leaves a host, and a sum that leaves less.

Devices of one host exchange data in its memory or over its own links; between hosts
there is a network, and it is slower. So it matters which of a program's messages cross
it, and that depends on the order of the devices in the mesh.

    x        [d n@(outer, inner), ...]  a block of n rows on each of d devices
    program  .collectives   what `communication.measure` finds in a compiled program
    hosts    [0, 0, 1, 1]   the host of each device, in the order of the mesh

Cost of `sum_by_hosts`, of blocks of b bytes on h hosts: a reduce-scatter, an
all-reduce and an all-gather, of which a host sends 2 b (h - 1) / h to others. A single
all-reduce around d devices, host after host, sends 2 b (d - 1) / d.

    JAX_NUM_CPU_DEVICES=8 python network.py

The file needs JAX alone: copy it as it is, beside communication.py.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import jax
from jax import Array, lax


@partial(jax.jit, static_argnames=("inner", "outer"))
def sum_by_hosts(x: Array, *, inner: str, outer: str) -> Array:
    """Return the sum of the blocks of `x`, so that little crosses `outer`.

    x: [d n@(outer, inner), ...] -> [n, ...], the same on all d devices. Each device of
    a host adds up one part of the host's blocks, then that part of all hosts' blocks;
    at last an all-gather within each host brings the parts together.

    Raises ValueError without a mesh that has both axes, or if a block cannot be cut
    into as many parts as `inner` has devices.
    """
    hosts, parts = mesh_sizes(outer, inner)
    if not isinstance(x, Array) or x.dtype == jax.numpy.bool:
        kind = getattr(x, "dtype", type(x).__name__)
        raise ValueError(f"{kind} does not add up: pass an array of numbers")
    if not x.ndim or x.shape[0] % (hosts * parts * parts):
        raise ValueError(
            f"an array of shape {x.shape} cannot be cut into {hosts * parts} blocks "
            f"of {parts} parts along its first axis: pad each block"
        )

    def add(block):
        part = lax.psum_scatter(block, inner, tiled=True)
        return lax.psum(part, outer)

    spec = jax.P((outer, inner))
    sums = jax.shard_map(add, in_specs=spec, out_specs=jax.P(inner))(place(x, spec))
    return place(sums, jax.P())


def mesh_with(*names: str) -> jax.sharding.AbstractMesh:
    """Return the mesh in context, or raise ValueError if it lacks one of these axes."""
    mesh = jax.sharding.get_abstract_mesh()
    if missing := [name for name in names if name not in mesh.shape]:
        raise ValueError(f"no mesh axis {missing} in context: use `jax.set_mesh(mesh)`")
    return mesh


def mesh_sizes(*names: str) -> list[int]:
    """Return the sizes of mesh axes, or raise ValueError: two types may abort XLA."""
    mesh = mesh_with(*names)
    if len({(n in mesh.auto_axes, n in mesh.manual_axes) for n in names}) > 1:
        raise ValueError(f"axes {names} of two types: make all Auto or all Explicit")
    return [mesh.shape[name] for name in names]


def place(x: Array, spec: jax.P) -> Array:
    """Lay `x` out by `spec` on the mesh in context, whatever the type of its axes.

    Call it inside `jax.jit`. Those that `spec` names are all Auto or all Explicit.
    """
    mesh = jax.sharding.get_abstract_mesh()
    auto = {*jax.tree.leaves(tuple(spec))} <= {*mesh.auto_axes}
    x = jax.reshard(x, jax.P() if auto else spec) if mesh.explicit_axes else x
    return lax.with_sharding_constraint(x, spec) if auto else x


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
                f"a loop of unknown length runs this {collective.kind}: give the "
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
    ring, in the order of the group. (Gloo makes halves of a reduce-scatter, and then
    less leaves a host than on a ring.)
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
    with jax.set_mesh(mesh):
        x = jax.numpy.ones(count * count, out_sharding=jax.P(("outer", "inner")))
        total = sum_by_hosts(x, inner="inner", outer="outer")
    print(f"{hosts} x {count // hosts} devices:", jax.typeof(total), float(total[0]))


if __name__ == "__main__":
    main()
