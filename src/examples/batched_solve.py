# SPDX-License-Identifier: MIT-0
"""Batched solve: many small linear systems, split over the devices system by system.

Independent systems need no message. But a loop that runs until the slowest system is
done compares all devices in every iteration; inside `jax.shard_map`, each its own.

    a           [B@batch, n, n]  one matrix for each system
    b, x        [B@batch, n]     right-hand sides and solutions
    iterations  int32[B@batch]   how many each system took

Cost: no message. Each device solves B / P of the systems, P being the size of the mesh
axis `batch`, and its loops end with the slowest of these.

Source: Hestenes and Stiefel, Methods of Conjugate Gradients for Solving Linear Systems,
J. Res. Natl. Bur. Stand. 49 (1952), https://doi.org/10.6028/jres.049.044.

    JAX_NUM_CPU_DEVICES=8 python batched_solve.py

Copy this file alone: it needs JAX and NumPy.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Axes = str | tuple[str, ...]


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


def parts(axis: Axes) -> int:
    """Return into how many parts `axis` cuts a batch on the mesh in context."""
    return math.prod(mesh_sizes(*np.atleast_1d(axis).tolist()))


def place(x: Array, spec: jax.P) -> Array:
    """Lay `x` out by `spec` on the mesh in context, whatever the type of its axes.

    Call it inside `jax.jit`. Those that `spec` names are all Auto or all Explicit.
    """
    mesh = jax.sharding.get_abstract_mesh()
    auto = {*jax.tree.leaves(tuple(spec))} <= {*mesh.auto_axes}
    x = jax.reshard(x, jax.P() if auto else spec) if mesh.explicit_axes else x
    return lax.with_sharding_constraint(x, spec) if auto else x


def check_batch(arrays: list[Array], axis: Axes):
    """Raise ValueError unless `axis` can cut the first axis of every array."""
    count = parts(axis)
    for array in arrays:
        size = array.shape[0] if array.ndim else 1
        if size % count or not array.ndim:
            raise ValueError(
                f"a batch of {size}, shape {array.shape}, cannot be cut into {count} "
                f"parts: pad it to {-(-size // count) * count}, see `pad_systems`"
            )


def check_systems(a: Array, b: Array):
    """Raise ValueError unless a [B, n, n] and b [B, n] are systems, one for one."""
    first, second = (getattr(x, "shape", type(x).__name__) for x in (a, b))
    if len(first) != 3 or first[1] != first[2] or second != first[:2]:
        raise ValueError(
            f"a {first} and b {second} are no batch of systems: pass arrays "
            "[B, n, n] and [B, n]"
        )


def promote_all(*arrays: Array) -> list[Array]:
    """Return all in the one type that holds them: float32 at least, or complex."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.promote_types(jnp.result_type(*arrays), jnp.float32)
    return [jnp.asarray(array, dtype) for array in arrays]


def independently(f: Callable, axis: Axes = "batch", shared: int = 0) -> Callable:
    """Return `f` for a whole batch, jitted, in which no device waits for another.

    f: arrays of one problem -> arrays; the result: [B@batch, ..] -> [B@batch, ..]

    `axis` names the mesh axis, or axes, that split the batch. The first `shared`
    arguments belong to all problems: each device has them whole. The result raises
    ValueError if that axis is missing, or does not divide every B. Keep the result:
    `independently(f)` compiles afresh each time.
    """

    @jax.jit
    def apply(*arrays):
        check_batch(jax.tree.leaves(arrays[shared:]), axis)
        batch, count = jax.P(axis), len(arrays) - shared
        specs = (jax.P(),) * shared + (batch,) * count
        every = jax.vmap(f, (None,) * shared + (0,) * count)
        laid = [
            jax.tree.map(lambda x, spec=spec: place(x, spec), array)
            for array, spec in zip(arrays, specs, strict=True)
        ]
        return jax.shard_map(every, in_specs=specs, out_specs=batch)(*laid)

    return apply


@jax.jit
def solve_batch(a: Array, b: Array) -> Array:
    """Solve every system, in the global view: XLA keeps each where it lies.

    a: [B@batch, n, n], b: [B@batch, n] -> [B@batch, n], float32 or wider

    Raises ValueError for other shapes.
    """
    check_systems(a, b)
    a, b = promote_all(a, b)
    return jnp.linalg.solve(a, b[..., None])[..., 0]


@jax.jit
def residuals(a: Array, x: Array, b: Array) -> Array:
    """Return `|a x - b|` of every system, on the device that solved it.

    a: [B@batch, n, n], x and b: [B@batch, n] -> [B@batch], float32 or wider
    """
    check_systems(a, b)
    check_systems(a, x)
    a, x, b = promote_all(a, x, b)
    far = jnp.abs((a @ x[..., None])[..., 0] - b)
    # in units of the largest, whose square may be too large, or too small, for the type
    unit = far.max(axis=-1, keepdims=True, initial=0)
    unit = jnp.where((unit > 0) & (unit < jnp.inf), unit, 1)
    return unit[:, 0] * jnp.linalg.norm(far / unit, axis=-1)


def pad_systems(a, b, axis: Axes = "batch") -> tuple[Array, Array]:
    """Append systems 1 x = 0 until the mesh axis divides the batch, and place it.

    a: [B, n, n], b: [B, n], on the host -> [N@batch, n, n], [N@batch, n]

    Each device receives its systems alone. Raises ValueError for other shapes, if the
    mesh has no such axis, and inside `jax.jit`, where nothing is on the host.
    """
    if isinstance(a, jax.core.Tracer) or isinstance(b, jax.core.Tracer):
        raise ValueError("arrays inside a transformation: pad them before `jax.jit`")
    a, b = np.asarray(a), np.asarray(b)
    check_systems(a, b)
    count, n = -len(a) % parts(axis), a.shape[1]
    ones = np.broadcast_to(np.eye(n, dtype=a.dtype), (count, n, n))
    zeros = np.zeros((count, n), b.dtype)
    padded = np.concatenate([a, ones]), np.concatenate([b, zeros])
    return jax.device_put(padded, jax.P(axis))


def descend(a: Array, b: Array, tolerance: float) -> tuple[Array, Array]:
    """Run conjugate gradients on one system: [n, n], [n] -> [n], int32[]."""
    # in units of the largest number, since squares of small ones are 0
    unit = jnp.abs(b).max(initial=0)
    unit = jnp.where(unit > 0, unit, 1).astype(b.dtype)
    b = b / unit

    def norm2(r):
        return jnp.vdot(r, r).real

    def unfinished(state):
        _, r, _, iterations = state
        far = norm2(r) > tolerance**2 * norm2(b)
        return far & (iterations < 10 * len(b))

    def iterate(state):
        x, r, p, iterations = state
        step = (norm2(r) / jnp.vdot(p, a @ p).real).astype(b.dtype)
        after = r - step * (a @ p)
        p_after = after + (norm2(after) / norm2(r)).astype(b.dtype) * p
        return x + step * p, after, p_after, iterations + 1

    iterations = jnp.zeros_like(norm2(b), dtype=jnp.int32)
    x, _, _, iterations = lax.while_loop(unfinished, iterate, (0 * b, b, b, iterations))
    return x * unit, iterations


def conjugate_gradients(a: Array, b: Array, tolerance: float = 1e-5):
    """Solve one Hermitian positive definite system; return `x` and its iterations.

    a: [n, n], b: [n] -> [n], int32[]. Batch it with `independently` or `jax.vmap`.

    It ends when `|a x - b| <= tolerance |b|`, or after 10 n iterations. Its gradient is
    that of the solution, found by a second run, not that of the loop. Raises ValueError
    for other shapes, and for a tolerance that nothing keeps.
    """
    first, second = (getattr(x, "shape", type(x).__name__) for x in (a, b))
    if len(first) != 2 or first != (*second, *second):
        raise ValueError(f"a {first} and b {second} are no system: pass [n, n] and [n]")
    if isinstance(tolerance, int | float) and not tolerance >= 0:
        raise ValueError(f"a tolerance of {tolerance}: take a number of at least 0")
    a, b = promote_all(a, b)

    def forward(_, b):
        return descend(a, b, tolerance)

    def transposed(_, b):  # the transpose of a Hermitian matrix is its conjugate
        x, iterations = descend(a, b.conj(), tolerance)
        return x.conj(), iterations

    return lax.custom_linear_solve(
        lambda x: a @ x, b, forward, transposed, has_aux=True
    )


def main():
    """Solve two systems a device and a few more, and say how far off they are."""
    count = 2 * jax.device_count() + 1
    q = np.random.default_rng(0).standard_normal((count, 16, 16), np.float32)
    a, b = q @ q.transpose(0, 2, 1) + 16 * np.eye(16, dtype="f4"), q[:, 0]
    with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("batch",))):
        a, b = pad_systems(a, b)
        x, _ = independently(conjugate_gradients)(a, b)
        solved = (residuals(a, x, b) < 1e-3).all()  # false for NaN, which max may drop
        print(f"{count} systems as {jax.typeof(x)}: {'not ' * bool(~solved)}solved")


if __name__ == "__main__":
    main()
