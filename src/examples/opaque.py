# SPDX-License-Identifier: MIT-0
"""Opaque operations: two that XLA cannot split, each made to run block by block.

What XLA does not understand it gathers. `singular_values` asks NumPy on the host, under
`jax.shard_map`; `top_k` teaches XLA the rule of an operation, by `custom_partitioning`.

    a        [B@batch, m, n]   matrices, with min(m, n) singular values each
    scores   [B@x, N@y]        any number of axes; the last may be split as well
    values   [B@x, k]          the k largest of each row, the largest first
    places   int32[B@x, k]     where they stand in the row; of equal values the first

Cost: `singular_values` sends nothing. `top_k` sends nothing where rows are whole, else
two all-gathers of k values and k places a row, never the row.

    JAX_NUM_CPU_DEVICES=8 python opaque.py

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

# ------------------------------------------------------ on the host, by shard_map


def check_real_matrices(a: Array):
    """Raise ValueError unless `a` is an array of matrices, float32 or float64."""
    dtype, shape = getattr(a, "dtype", type(a).__name__), getattr(a, "shape", ())
    if len(shape) < 2 or dtype not in (np.float32, np.float64):
        raise ValueError(
            f"{dtype}{list(shape)} is no batch of matrices: pass [B, m, n], float32"
        )


def place(x: Array, spec: jax.P) -> Array:
    """Lay `x` out by `spec` on the mesh in context, whatever the type of its axes.

    Call it inside `jax.jit`. Those that `spec` names are all Auto or all Explicit.
    """
    mesh = jax.sharding.get_abstract_mesh()
    auto = {*jax.tree.leaves(tuple(spec))} <= {*mesh.auto_axes}
    x = jax.reshard(x, jax.P() if auto else spec) if mesh.explicit_axes else x
    return lax.with_sharding_constraint(x, spec) if auto else x


def numpy_svd(a: Array) -> list[Array]:
    """Return the thin SVD that NumPy finds on the host: XLA sees a black box.

    a: [..., m, n] -> [..., m, r], [..., r], [..., r, n], with r = min(m, n)

    A matrix that holds an infinity or no number has NaN for results. Raises ValueError
    for another dtype than float32 and float64, and for fewer axes than two. A `jax.jit`
    around it takes arrays of JAX: of NumPy's it does not know where results lie.
    """
    check_real_matrices(a)
    *batch, m, n = a.shape
    shapes = (*batch, m, min(m, n)), (*batch, min(m, n)), (*batch, min(m, n), n)
    results = [jax.ShapeDtypeStruct(shape, a.dtype) for shape in shapes]

    def call(a):
        a = np.asarray(a)
        fine = np.isfinite(a).all((-2, -1), keepdims=True)  # NumPy raises for others
        u, s, vh = np.linalg.svd(np.where(fine, a, 0), full_matrices=False)
        parts = zip((u, s, vh), (fine, fine[..., 0], fine), strict=True)
        return [np.where(known, part, np.nan).astype(a.dtype) for part, known in parts]

    a = jnp.asarray(a)  # where JAX knows the mesh of what comes back
    return jax.pure_callback(call, results, a, vmap_method="broadcast_all")


def block_svd(block: Array) -> tuple[Array, Array, Array]:
    """Return the thin SVD of a device's own matrices, from `numpy_svd`."""
    zero = jnp.zeros_like(block, shape=())  # varies with the block: a callback forgets
    return tuple(part + zero for part in numpy_svd(block))


@jax.custom_vjp
def block_singular_values(block: Array) -> Array:
    """Return the singular values of a device's own matrices: [b, m, n] -> [b, r]."""
    return block_svd(block)[1]


def _forward(block):
    u, s, vh = block_svd(block)
    return s, (u, vh)


def _backward(vectors, ds):
    u, vh = vectors
    return ((u * ds[..., None, :]) @ vh,)


block_singular_values.defvjp(_forward, _backward)


@partial(jax.jit, static_argnames="axis")
def singular_values(a: Array, axis: str = "batch") -> Array:
    """Return the singular values of every matrix, found on the host of its device.

    a: [B@batch, m, n], float32 or float64 -> [B@batch, min(m, n)]

    Raises ValueError for another shape or dtype, or a batch that `axis` cannot cut.
    """
    sizes = jax.sharding.get_abstract_mesh().shape
    if axis not in sizes:
        raise ValueError(f"no mesh axis {axis!r} in context: set a mesh that has it")
    check_real_matrices(a)
    if a.ndim != 3:
        raise ValueError(
            f"{a.dtype}{list(a.shape)} is no batch of matrices: pass [B, m, n]"
        )
    if a.shape[0] % sizes[axis]:
        raise ValueError(
            f"a batch of {a.shape[0]} cannot be cut into {sizes[axis]} parts: pad it"
        )
    batch = jax.P(axis)
    by_block = jax.shard_map(block_singular_values, in_specs=batch, out_specs=batch)
    return by_block(place(a, batch))


# ------------------------------------------------- in XLA, by custom_partitioning


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
    """Say how one device computes its part, and of which shardings."""
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
    """Put what came back where its number came from; every column looks for itself."""
    scores, places = saved
    columns = jnp.arange(scores.shape[-1], dtype=places.dtype)
    part = jax.typeof(scores).sharding.spec[-1]
    if part:
        columns = jax.reshard(columns, jax.P(part))
    hit = places[..., None] == jnp.expand_dims(columns, range(places.ndim))
    return (jnp.where(hit, cotangents[0][..., None], 0).sum(axis=-2),)


top_k.defvjp(_top_k_forward, _top_k_backward)


def main():
    """Find the largest numbers of rows that are cut, and compare with NumPy."""
    count = jax.device_count()
    scores = np.random.default_rng(0).permutation(64 * count).astype(np.float32)
    with jax.set_mesh(jax.make_mesh((count,), ("batch",))):
        cut = jax.device_put(scores, jax.P("batch"))
        values, _ = jax.jit(partial(top_k, k=3))(cut)
        matrices = jax.device_put(scores.reshape(count, 8, 8), jax.P("batch"))
        s = singular_values(matrices)
        right = np.allclose(s**2 @ np.ones(8), (matrices**2).sum((1, 2)))
    print(f"the largest of {64 * count}: {np.asarray(values, int).tolist()}")
    print(f"singular values {jax.typeof(s)}: {'' if right else 'not '}right")


if __name__ == "__main__":
    main()
