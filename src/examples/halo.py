# SPDX-License-Identifier: MIT-0
"""Halo exchange: a stencil on a grid that is split over devices.

A stencil reads the neighbours of every cell. At the edge of a block they lie on another
device, so each device first borrows a border from the blocks around its own, the halo.

    grid    [N@x, M@y]          the global array, split over mesh axes x and y
    block   [n, m]              one device's part: n = N / X, m = M / Y
    padded  [n + 2w, m + 2w]    the block inside a halo of width w, 1 <= w <= n, m

The exchange along x comes first, and what then goes along y holds the corners already.
A device sends 4 messages with 2w m + 2w (n + 2w) cells; none along an axis of size 1.
A halo of width w lasts for w steps: 1 / w of the messages, more cells to compute.

    JAX_NUM_CPU_DEVICES=8 python halo.py

Copy this file alone: it needs JAX only.
"""

import contextlib
from numbers import Integral

import jax
import jax.numpy as jnp
from jax import Array, lax

BLOCKS = jax.P("x", "y")


def shift(x: Array, axis_name: str, step: int) -> Array:
    """Send `x` to the device `step` places further along the ring `axis_name`."""
    size = lax.axis_size(axis_name)
    return lax.ppermute(x, axis_name, [(i, (i + step) % size) for i in range(size)])


def shift_open(x: Array, axis_name: str, step: int) -> Array:
    """Send `x` `step` places along the open line `axis_name`; zeros where none came."""
    size = lax.axis_size(axis_name)
    route = [(i, i + step) for i in range(size) if 0 <= i + step < size]
    return lax.ppermute(x, axis_name, route) if route else jnp.zeros_like(x)


def check_width(n: int, width: int):
    """Raise ValueError unless a block of `n` cells can fill a halo of `width`."""
    if not isinstance(width, Integral) or not 1 <= width <= n:
        raise ValueError(
            f"a block of {n} cells cannot fill a halo of {width}: take a width from "
            f"1 to {n}, or cut the grid into fewer blocks"
        )


def ring_size(axis_name: str | tuple[str, ...]) -> int:
    """Return the size of a mesh axis to send along, or raise ValueError for no axis."""
    with contextlib.suppress(NameError):
        return lax.axis_size(axis_name)
    raise ValueError(f"no axis {axis_name!r} here: call it inside `jax.shard_map`")


def edges(block: Array, axis: int, width: int) -> tuple[Array, Array]:
    """Return the first and the last `width` cells along `axis`, or raise ValueError."""
    if not -block.ndim <= axis < block.ndim:
        raise ValueError(f"a block {block.shape} has no axis {axis}")
    if jax.typeof(block).sharding.spec[axis] is not None:
        raise ValueError(
            f"{jax.typeof(block)} is itself cut along axis {axis}: name all its axes "
            "in `axis_names` of `jax.shard_map`"
        )
    n = block.shape[axis]
    check_width(n, width)
    first = lax.slice_in_dim(block, 0, width, axis=axis)
    return first, lax.slice_in_dim(block, n - width, n, axis=axis)


def exchange(block: Array, axis_name: str, axis: int, width: int = 1) -> Array:
    """Extend `block` along `axis` by `width` cells of either neighbour, on a ring.

    block: [.., n, ..] -> [.., n + 2 width, ..]

    The last device is a neighbour of the first: the grid is periodic. Call it inside
    `jax.shard_map`. Raises ValueError unless 1 <= width <= n.
    """
    ring_size(axis_name)  # or refuse
    first, last = edges(block, axis, width)
    before, after = shift(last, axis_name, +1), shift(first, axis_name, -1)
    return jnp.concatenate([before, block, after], axis)


def exchange_open(
    block: Array, axis_name: str, axis: int, width: int = 1, value=0
) -> Array:
    """Extend `block` along `axis` by `width` cells of either neighbour, on a line.

    block: [.., n, ..] -> [.., n + 2 width, ..]

    Beyond the ends of the grid lies `value`, a scalar. Call it inside `jax.shard_map`.
    Raises ValueError unless 1 <= width <= n.
    """
    end, rank = ring_size(axis_name) - 1, lax.axis_index(axis_name)
    first, last = edges(block, axis, width)
    check_scalar("value", value, block.dtype)
    value = jnp.asarray(value).astype(block.dtype)
    before = jnp.where(rank == 0, value, shift_open(last, axis_name, +1))
    after = jnp.where(rank == end, value, shift_open(first, axis_name, -1))
    return jnp.concatenate([before, block, after], axis)


def surround(block: Array, width: int = 1) -> Array:
    """Put a periodic halo around `block`, corners included, inside `jax.shard_map`.

    block: [n, m, ..] -> [n + 2 width, m + 2 width, ..]
    """
    return exchange(exchange(block, "x", 0, width), "y", 1, width)


def surround_open(block: Array, width: int = 1, value=0) -> Array:
    """Put a halo around `block` that is `value` beyond the grid, in `jax.shard_map`.

    block: [n, m, ..] -> [n + 2 width, m + 2 width, ..]
    """
    rows = exchange_open(block, "x", 0, width, value)
    return exchange_open(rows, "y", 1, width, value)


def relax(padded: Array, rate: float, steps: int = 1) -> Array:
    """Take Euler steps of the heat equation, each of which uses up one layer of halo.

    padded: [n + 2 steps, m + 2 steps] -> [n, m]
    """
    padded = jnp.asarray(padded)
    rate = jnp.asarray(rate).astype(padded.dtype)
    for _ in range(steps):
        cells = padded[1:-1, 1:-1]
        north, south = padded[:-2, 1:-1], padded[2:, 1:-1]
        west, east = padded[1:-1, :-2], padded[1:-1, 2:]
        padded = cells + rate * (north + south + west + east - 4 * cells)
    return padded


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


def check_scalar(name: str, number, dtype: jnp.dtype):
    """Raise ValueError unless this is one number that fits into a grid of `dtype`."""
    if jnp.ndim(number):
        raise ValueError(f"{name} has the shape {jnp.shape(number)}: pass one number")
    if jnp.iscomplexobj(number) and not jnp.issubdtype(dtype, jnp.complexfloating):
        raise ValueError(f"{name} is complex and the grid {dtype}: pass a real one")


def place(x: Array, spec: jax.P) -> Array:
    """Lay `x` out by `spec` on the mesh in context, whatever the type of its axes.

    Call it inside `jax.jit`. Those that `spec` names are all Auto or all Explicit.
    """
    mesh = jax.sharding.get_abstract_mesh()
    auto = {*jax.tree.leaves(tuple(spec))} <= {*mesh.auto_axes}
    x = jax.reshard(x, jax.P() if auto else spec) if mesh.explicit_axes else x
    return lax.with_sharding_constraint(x, spec) if auto else x


def check_grid(grid: Array, steps: int, width: int):
    """Raise ValueError unless these steps can be taken on this grid in blocks."""
    kind = jax.typeof(grid) if isinstance(grid, Array) else type(grid).__name__
    if getattr(grid, "ndim", 0) != 2 or not jnp.issubdtype(grid.dtype, jnp.inexact):
        raise ValueError(
            f"{kind} is no grid of heat: pass two axes of floats, real or complex"
        )
    if not isinstance(steps, Integral) or steps < 0:
        raise ValueError(f"{steps} steps cannot be taken: pass 0 or more")
    for name, size, count in zip("NM", grid.shape, mesh_sizes("x", "y"), strict=True):
        if size % count:
            raise ValueError(
                f"{name} = {size} cannot be cut into {count} parts: take a grid of "
                f"{-(-size // count) * count}"
            )
        check_width(size // count, width)


@jax.jit(static_argnames=("steps", "width"))
def diffuse(grid: Array, steps: int, rate: float = 0.2, width: int = 1) -> Array:
    """Advance the heat equation on a periodic grid, `width` steps for each exchange.

    grid: [N@x, M@y] -> [N@x, M@y], floating-point or complex

    `rate` is D dt / h^2, without unit; the scheme is stable up to 1/4. Raises
    ValueError if the mesh does not divide the grid, or a block is smaller than `width`.
    """
    check_grid(grid, steps, width)
    check_scalar("rate", rate, grid.dtype)

    @jax.shard_map(in_specs=(BLOCKS, jax.P()), out_specs=BLOCKS)
    def run(block, rate):
        def advance(_, block):
            return relax(surround(block, width), rate, width)

        block = lax.fori_loop(0, steps // width, advance, block)
        rest = steps % width
        return relax(surround(block, rest), rate, rest) if rest else block

    return run(place(grid, BLOCKS), place(jnp.asarray(rate), jax.P()))


@jax.jit(static_argnames="steps")
def diffuse_open(grid: Array, steps: int, rate: float = 0.2, value=0) -> Array:
    """Advance the heat equation on a grid whose surroundings are kept at `value`.

    grid: [N@x, M@y] -> [N@x, M@y], floating-point or complex

    `rate` as in `diffuse`; `value` a scalar. Raises ValueError if the mesh does not
    divide the grid.
    """
    check_grid(grid, steps, 1)
    check_scalar("rate", rate, grid.dtype)
    check_scalar("value", value, grid.dtype)

    @jax.shard_map(in_specs=(BLOCKS, jax.P(), jax.P()), out_specs=BLOCKS)
    def run(block, rate, value):
        def step(_, block):
            return relax(surround_open(block, 1, value), rate)

        return lax.fori_loop(0, steps, step, block)

    numbers = (place(jnp.asarray(number), jax.P()) for number in (rate, value))
    return run(place(grid, BLOCKS), *numbers)


def main():
    """Let a hot half of a grid cool on every device there is."""
    count = jax.device_count()
    with jax.set_mesh(jax.make_mesh((count, 1), ("x", "y"))):
        after = diffuse(jnp.ones((8 * count, 64)).at[:, 32:].set(0), 100, width=2)
        print(f"{jax.typeof(after)}  mean {after.mean():.3f}  spread {after.std():.3f}")


if __name__ == "__main__":
    main()
