# SPDX-License-Identifier: MIT-0
"""The k largest numbers of rows that are cut: an operation with a rule for XLA.

XLA gathers what it has no rule for. `custom_partitioning` gives it one for `top_k`:
each device chooses among its own columns, and only these candidates are gathered.

    scores   [B@x, N@y]        any number of axes; the last may be split as well
    values   [B@x, k]          the k largest of each row, the largest first
    places   int32[B@x, k]     where they stand in the row; of equal values the first

Cost: nothing where rows are whole, else two all-gathers of k values and k places a row,
never the row.

    JAX_NUM_CPU_DEVICES=8 python top_k.py

Copy this file alone: it needs JAX and NumPy.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AbstractMesh, AxisType


def candidates(block: Array, k: int, axes: tuple[str, ...]) -> tuple[Array, Array]:
    """Return a block's k largest and their places in whole rows, cut along `axes`.

    block: [..., n] -> [..., min(k, n)] twice. Call it under `jax.shard_map`.
    """
    values, places = lax.top_k(block, min(k, block.shape[-1]))
    return values, places + lax.axis_index(axes) * block.shape[-1]


def choose(values: Array, places: Array, k: int) -> tuple[Array, Array]:
    """Return the k largest of all candidates: [..., c] twice -> [..., k] twice."""
    values, best = lax.top_k(values, k)
    return values, jnp.take_along_axis(places, best, axis=-1)


def merge(block: Array, k: int, axes: tuple[str, ...]) -> tuple[Array, Array]:
    """Return the k largest of whole rows, on every device along `axes`."""
    if not axes:
        return tuple(lax.top_k(block, k))
    pair = [
        lax.all_gather(mine, axes, axis=block.ndim - 1, tiled=True)
        for mine in candidates(block, k, axes)
    ]
    return choose(*pair, k)


def _partition(k, mesh, arguments, results):
    """Return how one device computes its part, and of which shardings."""
    if not mesh.axis_names:  # NumPy's under jit: whole, and JAX does not know where
        whole = tuple(result.sharding for result in results)
        return mesh, lambda row: merge(row, k, ()), whole, (arguments[0].sharding,)
    *batch, _ = results[0].sharding.spec
    taken = {name for part in batch for name in _axes_in(part)}
    along = _axes_in(arguments[0].sharding.spec[-1])
    axes = tuple(name for name in along if name not in taken)
    rows = jax.NamedSharding(mesh, jax.P(*batch, axes or None))
    chosen = jax.NamedSharding(mesh, jax.P(*batch, None))
    types = (AxisType.Manual,) * len(mesh.axis_names)
    manual = AbstractMesh(mesh.axis_sizes, mesh.axis_names, types)

    def on_one_device(block):
        with jax.sharding.use_abstract_mesh(manual):  # else that of the caller
            return merge(block, k, axes)

    return mesh, on_one_device, (chosen, chosen), (rows,)


def _axes_in(part) -> tuple[str, ...]:
    return part if isinstance(part, tuple) else (part,) if part else ()


@partial(custom_partitioning, static_argnums=(1,))
def split_top_k(scores: Array, k: int) -> tuple[Array, Array]:
    """Return `lax.top_k`, with a rule for Shardy: only for Auto axes."""
    return tuple(lax.top_k(scores, k))


split_top_k.def_partition(
    _partition, sharding_rule="... n -> ... k, ... k", need_replication_factors=("k",)
)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def top_k(scores: Array, k: int) -> tuple[Array, Array]:
    """Return the k largest of each row, and where they stand, the first if equal.

    scores: [..., N], split in any way -> [..., k] and int32[..., k], rows as before

    Works under Auto and Explicit axes, in `jax.shard_map`, `jax.vmap` and `jax.grad`
    (reverse mode). Under a `jax.shard_map` over some of the axes it gathers rows that
    others cut. Raises ValueError unless 1 <= k <= N, and for complex numbers.
    """
    n = jnp.shape(scores)[-1] if jnp.ndim(scores) else 0
    if not isinstance(k, int | np.integer) or not 1 <= k <= n:
        raise ValueError(f"k = {k} of {n} numbers a row: pass 1 <= k <= {n}")
    if jnp.iscomplexobj(scores):
        raise ValueError("complex numbers have no order: pass their absolute values")
    return _for_any_axes(jnp.asarray(scores), k)


def _for_any_axes(scores, k):
    """Call `split_top_k` where axes are Auto, for the length of the call if need be."""

    @custom_vmap
    def call(scores):
        *rows, along = jax.typeof(scores).sharding.spec
        split = partial(split_top_k, k=k)
        if jax.sharding.get_abstract_mesh().manual_axes:
            whole = jax.reshard(scores, jax.P(*rows, None)) if along else scores
            return tuple(lax.top_k(whole, k))
        return jax.sharding.auto_axes(split, out_sharding=jax.P(*rows, None))(scores)

    @call.def_vmap
    def _(_, batched, scores):
        return _for_any_axes(scores, k), (True, True)

    return call(scores)


def _top_k_forward(scores, k):
    values, places = top_k(scores, k)
    return (values, places), (scores, places)


def _top_k_backward(_, saved, cotangents):
    """Put each cotangent where its value stood: every column compares its place."""
    scores, places = saved
    columns = jnp.arange(scores.shape[-1], dtype=places.dtype)
    part = jax.typeof(scores).sharding.spec[-1]
    if part:
        columns = jax.reshard(columns, jax.P(part))
    hit = places[..., None] == jnp.expand_dims(columns, range(places.ndim))
    return (jnp.where(hit, cotangents[0][..., None], 0).sum(axis=-2),)


top_k.defvjp(_top_k_forward, _top_k_backward)


def main():
    """Find the largest numbers of a row that is cut."""
    count = 64 * jax.device_count()
    scores = np.random.default_rng(0).permutation(count).astype(np.float32)
    with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
        cut = jax.device_put(scores, jax.P("x"))
        values, _ = jax.jit(partial(top_k, k=3))(cut)
    print(f"the largest of {count}: {np.asarray(values, int).tolist()}")


if __name__ == "__main__":
    main()
