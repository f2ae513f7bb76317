# SPDX-License-Identifier: MIT-0
"""Collective matmul: one of three matrices travels while the other two stay.

On a mesh axis x of P devices a product of split matrices must move one of them. Round a
ring it moves panel by panel, each hop beside the product of the panel at hand, so that
a device holds two panels of the traveller and never the whole of it.

    ring_matmul   a  [M@x, K]   b  [K@x, N]   ->  c  [M@x, N]    b travels
    ag_matmul     a  [M@x, K]   b  [K, N@x]   ->  c  [M, N@x]    a travels
    matmul_rs     a  [M, K@x]   b  [K@x, N]   ->  c  [M@x, N]    c travels

Each device sends P - 1 panels, (P - 1) / P of the traveller: as much as an all-gather
or a reduce-scatter of it. With `ways=2` half a panel goes each way round: as many bytes
in twice as many messages, over both directions of every link.

Source: Wang et al., Overlap Communication with Dependent Computation via Decomposition
in Large Deep Learning Models, ASPLOS 2023, https://doi.org/10.1145/3567955.3567959.

    JAX_NUM_CPU_DEVICES=8 python collective_matmul.py

Copy this file alone: it needs JAX only.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax


def shift(x: Array, axis_name: str, step: int) -> Array:
    """Send `x` to the device `step` places further along the ring `axis_name`."""
    size = lax.axis_size(axis_name)
    return lax.ppermute(x, axis_name, [(i, (i + step) % size) for i in range(size)])


def wide(*arrays: Array) -> jnp.dtype:
    """Return the type to add up products in: float32 for narrower floats."""
    dtype = jnp.result_type(*arrays)
    floating = jnp.issubdtype(dtype, jnp.floating)
    return jnp.promote_types(dtype, jnp.float32) if floating else dtype


def product(a: Array, b: Array) -> Array:
    """Multiply two blocks: [m, k] x [k, n] -> [m, n], in the type `wide(a, b)`."""
    return jnp.dot(a, b, preferred_element_type=wide(a, b))


def mesh_sizes(*names: str) -> list[int]:
    """Return the sizes of these axes of the mesh in context, or raise ValueError."""
    sizes = jax.sharding.get_abstract_mesh().shape
    if missing := [name for name in names if name not in sizes]:
        raise ValueError(
            f"no mesh axis {missing} in context: call it inside "
            f"`with jax.set_mesh(mesh)`, for a mesh with the axes {names}"
        )
    return [sizes[name] for name in names]


def check_product(a: Array, b: Array, rows: int, inner: int, columns: int):
    """Raise ValueError unless a [M, K] and b [K, N] can be cut into so many parts."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"{a.shape} x {b.shape} is no product of two matrices")
    sizes, parts = (*a.shape, b.shape[1]), (rows, inner, columns)
    for name, size, count in zip("MKN", sizes, parts, strict=True):
        if size % count:
            more = -(-size // count) * count
            raise ValueError(
                f"{name} = {size} cannot be cut into {count} parts: pad it to {more}"
            )


def lanes(rows: int, ways: int) -> list[tuple[int, int, int]]:
    """Return `step, first, height` of the parts in which a panel of `rows` travels."""
    if ways not in (1, 2):
        raise ValueError(f"a ring has 1 or 2 ways round, not {ways}")
    half = rows // ways
    return [(+1, 0, half), (-1, half, rows - half)][:ways]


def circulate(panel: Array, ways: int, meet: Callable, total: Array) -> Array:
    """Fold `total = meet(total, part, row)` over the panels of all devices, ours first.

    panel: [m, ..], our rows of a matrix [M@x, ..]. Call it inside `jax.shard_map`.

    Each `part` holds the rows of that matrix from number `row` on.
    """
    size, rank = lax.axis_size("x"), lax.axis_index("x")
    m, routes = panel.shape[0], lanes(panel.shape[0], ways)

    def use(turn, parts, total):
        for part, (step, first, _) in zip(parts, routes, strict=True):
            total = meet(total, part, (rank - step * turn) % size * m + first)
        return total

    def hop(turn, carry):
        parts, total = carry
        steps = [step for step, _, _ in routes]
        after = list(map(shift, parts, ["x"] * ways, steps))
        return after, use(turn, parts, total)  # neither waits for the other

    parts = [panel[first : first + height] for _, first, height in routes]
    parts, total = lax.fori_loop(0, size - 1, hop, (parts, total))
    return use(size - 1, parts, total)


def collect(m: int, ways: int, part: Callable) -> Array:
    """Return the sum over all devices of what they hold for our m rows: [m, ..].

    Call it inside `jax.shard_map`. `part(row, height)` is what a device holds for the
    rows from number `row` on. Sums go round, grow at every device, end at their owner.
    """
    size, rank = lax.axis_size("x"), lax.axis_index("x")
    routes = lanes(m, ways)

    def mine(turn):
        for step, first, height in routes:
            yield part((rank - step * turn) % size * m + first, height)

    def hop(turn, totals):
        steps = [step for step, _, _ in routes]
        arrived = map(shift, totals, ["x"] * ways, steps)
        return [total + own for total, own in zip(arrived, mine(turn), strict=True)]

    return jnp.concatenate(lax.fori_loop(2, size + 1, hop, list(mine(1))))


@jax.jit(static_argnames="ways")
def ring_matmul(a: Array, b: Array, ways: int = 1) -> Array:
    """Multiply rows by rows: `a` and `c` stay, `b` travels.

    a: [M@x, K], b: [K@x, N] -> [M@x, N]

    Raises ValueError if x does not divide M and K, or `ways` is not 1 or 2.
    """
    [size] = mesh_sizes("x")
    check_product(a, b, size, size, 1)

    @jax.shard_map(
        in_specs=(jax.P("x", None), jax.P("x", None)), out_specs=jax.P("x", None)
    )
    def multiply(rows, panel):
        def meet(total, part, row):
            columns = lax.dynamic_slice_in_dim(rows, row, part.shape[0], axis=1)
            return total + product(columns, part)

        shape = rows.shape[0], panel.shape[1]
        zeros = jnp.zeros_like(rows, shape=shape, dtype=wide(a, b))
        return circulate(panel, ways, meet, zeros).astype(jnp.result_type(a, b))

    return multiply(a, b)


@jax.jit(static_argnames="ways")
def ag_matmul(a: Array, b: Array, ways: int = 1) -> Array:
    """Multiply rows by columns: `b` and `c` stay, `a` travels, as if gathered first.

    a: [M@x, K], b: [K, N@x] -> [M, N@x]

    Raises ValueError if x does not divide M and N, or `ways` is not 1 or 2.
    """
    [size] = mesh_sizes("x")
    check_product(a, b, size, 1, size)

    @jax.shard_map(
        in_specs=(jax.P("x", None), jax.P(None, "x")), out_specs=jax.P(None, "x")
    )
    def multiply(panel, columns):
        def meet(c, part, row):
            rows = product(part, columns).astype(c.dtype)
            return lax.dynamic_update_slice_in_dim(c, rows, row, axis=0)

        shape, dtype = (a.shape[0], columns.shape[1]), jnp.result_type(a, b)
        c = jnp.zeros_like(columns, shape=shape, dtype=dtype)
        return circulate(panel, ways, meet, c)

    return multiply(a, b)


@jax.jit(static_argnames="ways")
def matmul_rs(a: Array, b: Array, ways: int = 1) -> Array:
    """Multiply columns by rows: `a` and `b` stay, the sums `c` travel to their owners.

    a: [M, K@x], b: [K@x, N] -> [M@x, N]

    Raises ValueError if x does not divide M and K, or `ways` is not 1 or 2.
    """
    [size] = mesh_sizes("x")
    check_product(a, b, size, size, 1)

    @jax.shard_map(
        in_specs=(jax.P(None, "x"), jax.P("x", None)), out_specs=jax.P("x", None)
    )
    def multiply(columns, rows):
        def part(row, height):
            piece = lax.dynamic_slice_in_dim(columns, row, height)
            return product(piece, rows).astype(jnp.result_type(a, b))

        return collect(a.shape[0] // size, ways, part)

    return multiply(a, b)


def main():
    """Multiply two random matrices round a ring of every device there is."""
    count = jax.device_count()
    with jax.set_mesh(jax.make_mesh((count,), ("x",))):
        keys = jax.random.split(jax.random.key(0))
        shape = (64 * count, 64 * count)
        a, b = (
            jax.random.normal(key, shape, out_sharding=jax.P("x", None)) for key in keys
        )
        c = ring_matmul(a, b, ways=2)
        print(f"{jax.typeof(c)}  mean square {(c**2).mean():.1f}, expect {shape[1]}")


if __name__ == "__main__":
    main()
