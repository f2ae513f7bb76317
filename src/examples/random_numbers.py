# SPDX-License-Identifier: MIT-0
"""Random numbers: draws that need no message and do not move with the mesh.

A counter-based generator computes random number i from the key and i alone. So a
device draws its own block, if it knows where the block lies; and what must not depend
on the mesh takes its key from a place in the array, never from a device.

    key     key<fry>[]  one key, the same on all devices: `jax.random.key(seed)`
    shape   (N, M)      of the array; block (n, m), of one device's part
    tile    (t, u)      cells that are drawn with one key; a block is whole tiles
    draws   [N@x, M@y]  for the spec P("x", "y")

Cost: no message. `block_bits` takes one application of threefry for 32 bits, as
`jax.random.bits` does, and `sample` one or two more for each tile.

Source: Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3,
SC 2011, https://doi.org/10.1145/2063384.2063405.

    JAX_NUM_CPU_DEVICES=8 python random_numbers.py

Copy this file alone: it needs JAX and NumPy.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random


def check_key(key: Array):
    """Raise ValueError unless `key` is one typed key, not an array of them."""
    dtype = getattr(key, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        raise ValueError(
            f"{dtype or type(key).__name__}{list(np.shape(key))} is no typed key: pass "
            "jax.random.key(seed), or wrap the uint32 words of jax.random.PRNGKey "
            "with jax.random.wrap_key_data"
        )
    if key.shape:
        raise ValueError(
            f"{dtype}{list(key.shape)} holds {key.size} keys: pass one key"
        )


def check_threefry(key: Array):
    """Raise ValueError unless `key` is one whose numbers do not depend on the mesh."""
    check_key(key)
    if random.key_impl(key) != "threefry2x32":
        raise ValueError(f"{key.dtype} counts otherwise: pass a threefry2x32 key")


def names_of(spec: jax.P, ndim: int) -> list[tuple[str, ...]]:
    """Return the mesh axes that `spec` gives to each of `ndim` array axes.

    Raises ValueError if `spec` is longer than that, or the mesh in context lacks one.
    """
    if not isinstance(spec, jax.P):
        raise ValueError(f"{spec!r} is no spec: pass jax.P of the names of mesh axes")
    parts = [() if part is None else np.atleast_1d(part).tolist() for part in spec]
    sizes = jax.sharding.get_abstract_mesh().shape
    if missing := [name for names in parts for name in names if name not in sizes]:
        raise ValueError(
            f"no mesh axis {missing} in context: call it inside "
            f"`with jax.set_mesh(mesh)`, for a mesh that has the axes of {spec}"
        )
    if len(parts) > ndim:
        raise ValueError(f"{spec} places {len(parts)} axes, but the array has {ndim}")
    return [*map(tuple, parts), *[()] * (ndim - len(parts))]


def axis_size(names: tuple[str, ...]) -> int:
    """Return the number of devices along these axes of the mesh in context."""
    sizes = jax.sharding.get_abstract_mesh().shape
    return math.prod(sizes[name] for name in names)


def rank_along(names: tuple[str, ...]) -> Array | int:
    """Return this device's rank along mesh axes, counted as `lax.axis_index` counts.

    Raises ValueError outside a `jax.shard_map` over these axes.
    """
    manual = jax.sharding.get_abstract_mesh().manual_axes
    if missing := [name for name in names if name not in manual]:
        raise ValueError(f"call it inside a jax.shard_map over the mesh axes {missing}")
    return lax.axis_index(names) if names else 0


def per_device_key(key: Array, axes: str | tuple[str, ...]) -> Array:
    """Return another key on each device along `axes`, inside `jax.shard_map`.

    key: key<fry>[], the same on all devices -> key<fry>[]

    What is drawn with it depends on the number of devices. Raises ValueError for a raw
    uint32 key, and outside a `jax.shard_map` over `axes`.
    """
    check_key(key)
    (names,) = names_of(jax.P(axes), 1)
    return random.fold_in(key, rank_along(names))


def like_key(value, key: Array) -> Array:
    """Return a parameter of a sampler with the varying type of `key`.

    value: float32[..] -> float32[..]

    Inside `jax.shard_map` the loops of `jax.random.poisson` and `binomial` want
    parameters that vary over the same mesh axes as the key.
    """
    zero = jnp.zeros_like(random.key_data(key)[0], jnp.float32)
    return jnp.asarray(value, jnp.float32) + zero


# ------------------------------------------------- the block of a global draw


def block_bits(key: Array, shape: tuple[int, ...], spec: jax.P) -> Array:
    """Return this device's block of `jax.random.bits(key, (N, M))`, and draw no more.

    shape: (n, m), of the block -> uint32[n, m]

    Call it inside a `jax.shard_map` with the same `key` on all devices. Raises
    ValueError for other keys than threefry's, and if the array has over 2**32 cells.
    """
    check_threefry(key)
    names = names_of(spec, len(shape))
    counts = [axis_size(part) for part in names]
    if math.prod(shape) * math.prod(counts) > 2**32:
        raise ValueError("over 2**32 cells: fold an index into the key, draw in parts")

    number = jnp.zeros(shape, jnp.uint32)  # of each cell, in the order of the array
    for axis, (size, part, count) in enumerate(zip(shape, names, counts, strict=True)):
        along = lax.broadcasted_iota(jnp.uint32, shape, axis)
        first = jnp.uint32(rank_along(part)) * jnp.uint32(size)
        number = number * jnp.uint32(size * count % 2**32) + first + along

    def word(i):
        high, low = random.key_data(random.fold_in(key, i))
        return high ^ low

    return jax.vmap(word)(number.ravel()).reshape(shape)


def dropout(block: Array, key: Array, rate: float, spec: jax.P) -> Array:
    """Set a fraction `rate` of the cells to 0 and divide the others by `1 - rate`.

    block: [n, m] -> [n, m], floating-point or complex

    Inside a `jax.shard_map` whose blocks are laid out by `spec`, with the same `key` on
    all devices, cell by cell what `jax.random.bernoulli(key, np.float32(1 - rate),
    (N, M))` keeps. Raises ValueError unless 0 <= rate < 1, a number of Python.
    """
    if isinstance(rate, jax.core.Tracer):
        raise ValueError("the rate is traced: pass a number, outside of what is mapped")
    if not 0 <= rate < 1:
        raise ValueError(f"a rate of {rate} keeps nothing sensible: take 0 <= rate < 1")
    if not jnp.issubdtype(block.dtype, jnp.inexact):
        raise ValueError(f"{block.dtype} cannot be scaled: pass floating-point numbers")
    keep = np.float32(1 - rate)
    bits = block_bits(key, block.shape, spec) >> 9
    uniform = bits.astype(jnp.float32) * np.float32(2**-23)
    return jnp.where(uniform < keep, block / keep.astype(block.dtype), 0)


# ------------------------------------------------------------ a key for a tile


def check_sizes(sizes) -> tuple[int, ...]:
    """Return a shape as a tuple of ints, or raise ValueError."""
    numbers = sizes if isinstance(sizes, tuple | list) else [sizes]
    if not all(isinstance(n, int | np.integer) and n >= 0 for n in numbers):
        raise ValueError(
            f"{sizes!r} is no shape: pass a tuple of sizes such as (16, 64)"
        )
    return tuple(map(int, numbers))


def check_tiles(shape: tuple[int, ...], spec: jax.P, tile: tuple[int, ...]):
    """Raise ValueError unless `spec` cuts an array into blocks of whole tiles."""
    if len(tile) != len(shape) or min(tile, default=1) < 1:
        raise ValueError(f"tile {tile} is for no array of {len(shape)} axes, {shape}")
    for axis, names in enumerate(names_of(spec, len(shape))):
        count = axis_size(names)
        if shape[axis] % (count * tile[axis]):
            raise ValueError(
                f"axis {axis}: {shape[axis]} cells are no whole tiles of {tile[axis]} "
                f"on each of {count} devices: pass another tile, or a shape of "
                f"{math.ceil(shape[axis] / count / tile[axis]) * count * tile[axis]}"
            )


def tile_keys(key: Array, counts: tuple[int, ...], spec: jax.P) -> Array:
    """Return the keys of the tiles of this block, row by row, in `jax.shard_map`.

    counts: of tiles in the block along each axis -> key<fry>[tiles]

    The key of tile (i, j) is fold_in(fold_in(key, i), j), wherever the tile lies.
    """
    keys = key.reshape(1)
    fold = jax.vmap(jax.vmap(random.fold_in, (None, 0)), (0, None))
    for count, names in zip(counts, names_of(spec, len(counts)), strict=True):
        first, within = rank_along(names) * count, jnp.arange(count, dtype=jnp.int32)
        keys = fold(keys, first + within).ravel()
    return keys


def join_tiles(tiles: Array, ndim: int) -> Array:
    """Lay tiles side by side: [n / t, m / u, t, u, ..] -> [n, m, ..] if ndim is 2."""
    pairs = [(axis, axis + ndim) for axis in range(ndim)]
    order = [*sum(pairs, ()), *range(2 * ndim, tiles.ndim)]
    shape = [tiles.shape[i] * tiles.shape[j] for i, j in pairs]
    return tiles.transpose(order).reshape(*shape, *tiles.shape[2 * ndim :])


def sample(
    sampler: Callable,
    key: Array,
    shape: tuple[int, ...],
    spec: jax.P,
    tile: tuple[int, ...] | None = None,
) -> Array:
    """Draw an array whose values depend on `key` and `tile`, not on the mesh.

    sampler: (key, tile) -> tile.shape + event, such as `jax.random.gamma` with its
    parameters; the result: [N@x, M@y] + event, for the spec P("x", "y")

    Each tile has its own key, so no device waits for another, in whatever loop. A tile
    is a row if none is given. Keep the sampler: a new function compiles afresh. Raises
    ValueError if a block is not whole tiles, for other keys than threefry's, and if the
    sampler returns another shape.
    """
    shape = check_sizes(shape)
    tile = (shape and (1, *shape[1:])) if tile is None else check_sizes(tile)
    check_threefry(key)
    check_tiles(shape, spec, tile)
    one = jax.eval_shape(lambda key: sampler(key, tile), key)
    drawn = getattr(one, "shape", type(one).__name__)
    if not isinstance(drawn, tuple) or drawn[: len(tile)] != tile:
        raise ValueError(f"the sampler draws {drawn} where {tile} is asked for")
    return draw_tiles(sampler, key, shape, spec, tile)


@jax.jit(static_argnames=("sampler", "shape", "spec", "tile"))
def draw_tiles(sampler: Callable, key: Array, shape: tuple, spec: jax.P, tile: tuple):
    """Draw what `sample` returns, whose arguments are checked."""
    cuts = [axis_size(names) for names in names_of(spec, len(shape))]
    counts = tuple(n // t // cut for n, t, cut in zip(shape, tile, cuts, strict=True))

    @jax.shard_map(in_specs=jax.P(), out_specs=spec)
    def run(key):
        keys = tile_keys(key, counts, spec)
        tiles = jax.vmap(lambda key: sampler(key, tile))(keys)
        return join_tiles(tiles.reshape(counts + tiles.shape[1:]), len(tile))

    return run(key)


def gamma(key: Array, shape: tuple[int, ...]) -> Array:
    """Draw from the gamma distribution with the mean 2."""
    return random.gamma(key, 2.0, shape)


def main():
    """Draw on all devices what one device draws."""
    count = jax.device_count()
    draws = []
    for devices in jax.devices(), jax.devices()[:1]:
        with jax.set_mesh(jax.make_mesh((len(devices),), ("x",), devices=devices)):
            shape = (count, 512)
            draws.append(sample(gamma, random.key(0), shape, jax.P("x"), (1, 64)))
    same = np.array_equal(*map(np.asarray, draws))
    print(f"{jax.typeof(draws[0])}: {'what' if same else 'not what'} one device draws")


if __name__ == "__main__":
    main()
