# SPDX-License-Identifier: MIT-0
"""Collective matmul: one of three matrices travels while the other two stay.

On a mesh axis x of P devices a product of split matrices must move one of them. Round a
ring it moves panel by panel, each hop beside the product of the panel at hand, so that
a device holds two panels of the traveller, never the whole of it, and that product.

    ring_matmul   a  [M@x, K]   b  [K@x, N]   ->  c  [M@x, N]    b travels
    ag_matmul     a  [M@x, K]   b  [K, N@x]   ->  c  [M, N@x]    a travels
    matmul_rs     a  [M, K@x]   b  [K@x, N]   ->  c  [M@x, N]    c travels

Each device sends P - 1 panels, (P - 1) / P of the traveller: as much as an all-gather
or a reduce-scatter of it; `cost` gives the bytes. With `ways=2` half a panel goes each
way round: as many bytes in twice as many messages, over both directions of every link.

Words held beside operands and result, on three devices or more: ring_matmul 2 KN/P +
MN/P + 2 MK/P^2, ag_matmul 2 MK/P + MN/P^2, matmul_rs MN/P + MK/P^2; with `ways=2` at
most twice that. So for M much larger than K, b gathered (KN words) takes less room.

Source: Wang et al., Overlap Communication with Dependent Computation via Decomposition
in Large Deep Learning Models, ASPLOS 2023, https://doi.org/10.1145/3567955.3567959.

    JAX_NUM_CPU_DEVICES=8 python collective_matmul.py

Copy this file alone: it needs JAX only.
"""

from collections.abc import Callable
from numbers import Integral

import jax
import jax.numpy as jnp
from jax import Array, lax

ROWS, COLUMNS = jax.P("x", None), jax.P(None, "x")


def shift(x: Array, axis_name: str, step: int) -> Array:
    """Send `x` to the device `step` places further along the ring `axis_name`."""
    size = lax.axis_size(axis_name)
    return lax.ppermute(x, axis_name, [(i, (i + step) % size) for i in range(size)])


def result_type(*arrays: Array) -> jnp.dtype:
    """Return the type of a result, also under strict promotion."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*arrays)


def product(a: Array, b: Array) -> Array:
    """Multiply two blocks: [m, k] x [k, n] -> [m, n]; narrow floats give float32."""
    dtype = result_type(a, b)
    narrow = jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32
    return jnp.dot(a, b, preferred_element_type=jnp.float32 if narrow else dtype)


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


def can_promote(dtype: jnp.dtype) -> bool:
    """Return whether JAX finds a common type for this one and another."""
    bits = jnp.finfo if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo
    return dtype == jnp.bool or bits(dtype).bits >= (16 if bits is jnp.finfo else 8)


def check_matrices(a: Array, b: Array):
    """Raise ValueError unless a [M, K] and b [K, N] have a product."""
    one, two = (getattr(x, "shape", type(x).__name__) for x in (a, b))
    if len(one) != 2 or len(two) != 2 or one[1] != two[0] or 0 in (*one, *two):
        raise ValueError(f"{one} x {two} is no product of two matrices, or is empty")


def check_types(a: Array, b: Array):
    """Raise ValueError unless numbers of a and b have a common type."""
    if a.dtype != b.dtype and not (can_promote(a.dtype) and can_promote(b.dtype)):
        raise ValueError(f"{a.dtype}, {b.dtype} have no common type: convert one")


def check_divisible(name: str, size: int, count: int):
    """Raise ValueError unless an axis can be cut into so many equal parts."""
    if more := -size % count:
        raise ValueError(
            f"{name} = {size} cannot be cut into {count} parts: pad it to {size + more}"
        )


def check_product(a: Array, b: Array, *counts: int):
    """Raise ValueError unless M, K and N of a [M, K] and b [K, N] can be cut so."""
    check_matrices(a, b)
    check_types(a, b)
    for name, size, count in zip("MKN", (*a.shape, b.shape[1]), counts, strict=True):
        check_divisible(name, size, count)


def split_rows(rows: int, ways: int) -> list[tuple[int, int, int]]:
    """Return `step, first, height` of the parts in which a panel of `rows` travels."""
    half = rows // ways
    return [(+1, 0, half), (-1, half, rows - half)][:ways]


def check_ring(a: Array, b: Array, ways: int, cut: str):
    """Raise ValueError unless a ring can cut those of M, K and N that `cut` names."""
    [size] = mesh_sizes("x")
    if not isinstance(ways, Integral) or ways not in (1, 2):
        raise ValueError(f"a ring has 1 or 2 ways round, not {ways}")
    check_product(a, b, *(size if name in cut else 1 for name in "MKN"))


def send_parts(parts: list[Array]) -> list[Array]:
    """Send the parts of a panel to the next device: the first east, the second west."""
    return [shift(part, "x", step) for part, step in zip(parts, (1, -1), strict=False)]


def circulate(panel: Array, ways: int, fold: Callable, total: Array) -> Array:
    """Return `total = fold(total, part, row)` over the panels of all devices.

    panel: [m, ..], this device's rows of a matrix [M@x, ..], which come first

    Each `part` holds the rows of that matrix from number `row` on. Call it inside
    `jax.shard_map`.
    """
    size, rank = lax.axis_size("x"), lax.axis_index("x")
    m, routes = len(panel), split_rows(len(panel), ways)

    def fold_all(i, parts, total):
        for part, (step, first, _) in zip(parts, routes, strict=True):
            total = fold(total, part, (rank - step * i) % size * m + first)
        return total

    def hop(i, carry):
        parts, total = carry
        # neither needs the other's result
        return send_parts(parts), fold_all(i, parts, total)

    parts = [panel[first : first + height] for _, first, height in routes]
    parts, total = lax.fori_loop(0, size - 1, hop, (parts, total))
    return fold_all(size - 1, parts, total)


def ring_reduce(m: int, ways: int, part: Callable) -> Array:
    """Return the sum over all devices of their parts of this device's rows: [m, ..].

    `part(row, height)` is what a device adds to the rows from number `row` on. Sums go
    round the ring, grow at every device and end at their owner. Call it inside
    `jax.shard_map`.
    """
    size, rank = lax.axis_size("x"), lax.axis_index("x")
    routes = split_rows(m, ways)

    def own(i):
        for step, first, height in routes:
            yield part((rank - step * i) % size * m + first, height)

    def hop(i, totals):
        return list(map(jnp.add, send_parts(totals), own(i)))

    return jnp.concatenate(lax.fori_loop(2, size + 1, hop, list(own(1))))


@jax.jit(static_argnames="ways")
def ring_matmul(a: Array, b: Array, ways: int = 1) -> Array:
    """Multiply rows by rows: `a` and `c` stay, `b` travels.

    a: [M@x, K], b: [K@x, N] -> [M@x, N]

    Raises ValueError if x does not divide M and K, or `ways` is not 1 or 2.
    """
    check_ring(a, b, ways, "MK")

    @jax.shard_map(in_specs=(ROWS, ROWS), out_specs=ROWS)
    def multiply(rows, panel):
        def fold(total, part, row):
            columns = lax.dynamic_slice_in_dim(rows, row, part.shape[0], axis=1)
            return total + product(columns, part)

        zeros = product(rows[:, :0], panel[:0])  # of the type of the sums
        return circulate(panel, ways, fold, zeros).astype(result_type(a, b))

    return multiply(place(a, ROWS), place(b, ROWS))


@jax.jit(static_argnames="ways")
def ag_matmul(a: Array, b: Array, ways: int = 1) -> Array:
    """Multiply rows by columns: `b` and `c` stay, `a` travels, as if gathered first.

    a: [M@x, K], b: [K, N@x] -> [M, N@x]

    Raises ValueError if x does not divide M and N, or `ways` is not 1 or 2.
    """
    check_ring(a, b, ways, "MN")

    @jax.shard_map(in_specs=(ROWS, COLUMNS), out_specs=COLUMNS)
    def multiply(panel, columns):
        def fold(c, part, row):
            rows = product(part, columns).astype(c.dtype)
            return lax.dynamic_update_slice_in_dim(c, rows, row, axis=0)

        shape = a.shape[0], columns.shape[1]
        c = jnp.zeros_like(columns, shape=shape, dtype=result_type(a, b))
        return circulate(panel, ways, fold, c)

    return multiply(place(a, ROWS), place(b, COLUMNS))


@jax.jit(static_argnames="ways")
def matmul_rs(a: Array, b: Array, ways: int = 1) -> Array:
    """Multiply columns by rows: `a` and `b` stay, the sums `c` travel to their owners.

    a: [M, K@x], b: [K@x, N] -> [M@x, N]

    Raises ValueError if x does not divide M and K, or `ways` is not 1 or 2.
    """
    check_ring(a, b, ways, "MK")

    @jax.shard_map(in_specs=(COLUMNS, ROWS), out_specs=ROWS)
    def multiply(columns, rows):
        def part(row, height):
            piece = lax.dynamic_slice_in_dim(columns, row, height)
            return product(piece, rows).astype(result_type(a, b))

        return ring_reduce(a.shape[0] // lax.axis_size("x"), ways, part)

    return multiply(place(a, COLUMNS), place(b, ROWS))


def cost(multiply: Callable, a: Array, b: Array) -> int:
    """Return the bytes that one device sends in `multiply(a, b)`, one way round or two.

    `multiply` is one of the three above, on the mesh in context.
    """
    [size], c = mesh_sizes("x"), jax.eval_shape(multiply, a, b)
    traveller = {ring_matmul: b, ag_matmul: a, matmul_rs: c}[multiply]
    return (size - 1) * traveller.size * traveller.dtype.itemsize // size


def main():
    """Multiply a random matrix by itself round a ring of every device there is."""
    n = 64 * jax.device_count()
    with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
        a = jax.random.normal(jax.random.key(0), (n, n), out_sharding=ROWS)
        c = ring_matmul(a, a, ways=2)
        print(f"{jax.typeof(c)}  mean square {(c**2).mean():.1f}, expect {n}")


if __name__ == "__main__":
    main()
