# SPDX-License-Identifier: MIT-0
"""Padding: arrays whose shape no mesh divides.

A mesh splits an axis into equal blocks, so an axis of 13 cannot lie on 8 devices. Round
it up to 16, and keep a mask of the cells that hold data, for what comes after to use.

    x       [n, m]          any shape, on the host or on devices
    padded  [N@x, M@y]      the next multiples of the mesh axes; data first, then `fill`
    mask    bool[N@x, M@y]  True where `padded` holds data

Padding and mask need no message; a reduction sends what it would send anyway. `unpad`
is one all-gather for each axis it cuts. Each axis grows by less than one cell a device.

    JAX_NUM_CPU_DEVICES=8 python padding.py

Copy this file alone: it needs JAX and NumPy.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def place(x: Array, spec: jax.P) -> Array:
    """Lay `x` out by `spec` on the mesh in context, whatever the type of its axes.

    Call it inside `jax.jit`. Those that `spec` names are all Auto or all Explicit.
    """
    mesh = jax.sharding.get_abstract_mesh()
    auto = {*jax.tree.leaves(tuple(spec))} <= {*mesh.auto_axes}
    x = jax.reshard(x, jax.P() if auto else spec) if mesh.explicit_axes else x
    return lax.with_sharding_constraint(x, spec) if auto else x


def blocks(spec: jax.P, rank: int) -> tuple[int, ...]:
    """Return into how many blocks `spec` splits each axis of an array of `rank` axes.

    The mesh comes from the context. Raises ValueError without a mesh, for an axis that
    the mesh does not have, for Auto and Explicit axes together, and for a spec of more
    entries than axes.
    """
    mesh = jax.sharding.get_abstract_mesh()
    sizes, kinds = mesh.shape, dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    if not sizes:
        raise ValueError("no mesh in context: call it inside `with jax.set_mesh(mesh)`")
    if len(spec) > rank:
        raise ValueError(f"{spec} has {len(spec)} entries for an array of rank {rank}")
    entries = [(e,) if isinstance(e, str) else e or () for e in spec]
    unknown = {name for entry in entries for name in entry} - sizes.keys()
    if unknown:
        raise ValueError(f"{spec} names {sorted(unknown)}, the mesh has {list(sizes)}")
    if len({kinds[name] for entry in entries for name in entry}) > 1:
        raise ValueError(
            f"{spec} names mesh axes of two types: pass to `jax.make_mesh` as "
            "axis_types either Auto for all of them or Explicit for all"
        )
    counts = [math.prod(sizes[name] for name in entry) for entry in entries]
    return (*counts, *[1] * (rank - len(counts)))


def padded_shape(shape: tuple[int, ...], spec: jax.P) -> tuple[int, ...]:
    """Return `shape`, each axis rounded up to a multiple of its blocks."""
    counts = blocks(spec, len(shape))
    return tuple(-(-n // count) * count for n, count in zip(shape, counts, strict=True))


def widths(shape: tuple[int, ...], larger: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return how many cells go before and after each axis, as `np.pad` takes them."""
    return [(0, big - n) for n, big in zip(shape, larger, strict=True)]


def pad_to_mesh(x, spec: jax.P, fill=0) -> Array:
    """Append `fill` to `x` until the mesh divides it, and lay it out by `spec`.

    x: [n, m] -> [N@x, M@y], of the same dtype

    A NumPy array is padded on the host, and each device receives its block alone.
    """
    larger = padded_shape(np.shape(x), spec)
    if not isinstance(x, Array):
        padded = np.pad(x, widths(np.shape(x), larger), constant_values=fill)
        x = jax.device_put(padded, spec)
    return extend(x, larger, spec, fill)


@jax.jit(static_argnums=(1, 2))
def extend(x: Array, larger: tuple[int, ...], spec: jax.P, fill) -> Array:
    """Append `fill` to `x` up to the shape `larger`, and lay it out by `spec`."""
    padded = jnp.pad(x, widths(x.shape, larger), constant_values=fill)
    return place(padded, spec)


@jax.jit(static_argnums=(0, 1))
def valid_mask(shape: tuple[int, ...], spec: jax.P) -> Array:
    """Return which cells of a padded array hold data: `shape` -> bool[N@x, M@y]."""
    larger = padded_shape(shape, spec)
    mask = jnp.ones(larger, bool)
    for axis, n in enumerate(shape):
        mask &= lax.broadcasted_iota(int, larger, axis) < n
    return place(mask, spec)


def unpad(padded: Array, shape: tuple[int, ...]) -> Array:
    """Return the first cells of `padded`, `shape` of them: [N@x, M@y] -> [n, m].

    An axis that is cut comes back whole on every device, since the mesh does not divide
    what is left; the other axes keep their place. Raises ValueError if `padded` is no
    array, too small, or has another number of axes.
    """
    if not hasattr(padded, "shape"):
        raise ValueError(f"a {type(padded).__name__} is no array: pass one")
    if len(shape) != padded.ndim or any(map(int.__gt__, shape, padded.shape)):
        raise ValueError(f"cannot cut {shape} out of an array of shape {padded.shape}")
    spec = jax.typeof(padded).sharding.spec  # of Explicit axes; on Auto, XLA decides
    if any(spec):
        axes = zip(spec, shape, padded.shape, strict=True)
        entries = [entry if n == larger else None for entry, n, larger in axes]
        padded = jax.reshard(padded, jax.P(*entries))
    return padded[tuple(slice(n) for n in shape)]


def neutral(reduction: str, dtype):
    """Return the value that changes no result of `reduction` over `dtype`.

    `reduction` is sum, prod, any, all, max or min; softmax and logsumexp ask for "max".
    Raises ValueError for another one, and for an order that the dtype does not have.
    """
    dtype = np.dtype(dtype)
    constants = {"sum": 0, "any": 0, "prod": 1, "all": 1}
    if reduction in constants:
        return dtype.type(constants[reduction])
    if reduction not in ("max", "min") or jnp.issubdtype(dtype, jnp.complexfloating):
        raise ValueError(f"no neutral element is known for {reduction!r} over {dtype}")
    lowest, highest = extremes(dtype)
    return dtype.type(highest if reduction == "min" else lowest)


def extremes(dtype: np.dtype) -> tuple:
    """Return the lowest and the highest value of a real dtype, infinities included."""
    if np.issubdtype(dtype, np.bool_):
        return False, True
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).min, jnp.iinfo(dtype).max
    if np.isinf(dtype.type(np.inf)):
        return -np.inf, np.inf
    return jnp.finfo(dtype).min, jnp.finfo(dtype).max  # float8_e4m3fn has no infinity


def main():
    """Average rows that no mesh of several devices divides."""
    size = jax.device_count()
    x = np.arange(5 * size + 1, dtype=np.float32)
    with jax.set_mesh(jax.make_mesh((size,), ("x",))):
        padded, mask = pad_to_mesh(x, jax.P("x")), valid_mask(x.shape, jax.P("x"))
        mean = padded.mean(where=mask)
        np.testing.assert_allclose(mean, x.mean(), rtol=1e-6)
        np.testing.assert_array_equal(unpad(padded, x.shape), x)
        print(f"{len(x)} values as {jax.typeof(padded)}, mean {mean}")


if __name__ == "__main__":
    main()
