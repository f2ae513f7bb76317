# SPDX-License-Identifier: MIT-0
"""An opaque operation: singular values by NumPy on the host, block by block.

XLA gathers what it does not understand, such as a callback to the host. Inside
`jax.shard_map` each device passes its own block to it.

    a        [B@batch, m, n]   matrices, with min(m, n) singular values each

Cost: `singular_values` sends nothing.

    JAX_NUM_CPU_DEVICES=8 python opaque.py

Copy this file alone: it needs JAX and NumPy.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax


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
    a = jnp.asarray(a)  # of a dtype and a mesh that JAX knows
    *batch, m, n = a.shape
    shapes = (*batch, m, min(m, n)), (*batch, min(m, n)), (*batch, min(m, n), n)
    results = [jax.ShapeDtypeStruct(shape, a.dtype) for shape in shapes]

    def call(a):
        a = np.asarray(a)
        fine = np.isfinite(a).all((-2, -1), keepdims=True)  # NumPy raises for others
        u, s, vh = np.linalg.svd(np.where(fine, a, 0), full_matrices=False)
        parts = zip((u, s, vh), (fine, fine[..., 0], fine), strict=True)
        return [np.where(known, part, np.nan).astype(a.dtype) for part, known in parts]

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


def main():
    """Find the singular values of a batch of matrices, and compare their squares."""
    count = jax.device_count()
    a = np.random.default_rng(0).standard_normal((count, 8, 8)).astype(np.float32)
    with jax.set_mesh(jax.make_mesh((count,), ("batch",))):
        s = singular_values(jax.device_put(a, jax.P("batch")))
        right = np.allclose((s**2).sum(1), (a**2).sum((1, 2)), rtol=1e-4)
    print(f"singular values {jax.typeof(s)}: {'right' if right else 'wrong'}")


if __name__ == "__main__":
    main()
