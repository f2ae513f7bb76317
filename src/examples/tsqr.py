# SPDX-License-Identifier: MIT-0
"""QR and least squares of a tall matrix whose rows are split over devices.

Each device factors its own rows. Then pairs of devices exchange their triangles and
factor the two together, pairs of pairs do the same, and after log2 P rounds all have r.

    a       [N@x, K]     tall, N >= K, any N; or [N@(x,y), K]
    q       [N@x, K]     columns of length 1, at right angles to each other
    r       [K, K]       upper triangular, no negative number on its diagonal
    block   [n, K]       one device's rows
    share   [K, K]       what one device's rows of q are of its own orthogonal factor

A device sends K^2 words in each of log2 P rounds. If P is no power of two, the excess
ranks send theirs to others first, and get their shares and r last: 3 K^2 words more. N
does not matter. A gather of all triangles would be P - 1 steps and (P - 1) K^2 words.
Where a device has fewer than K rows, these are gathered: fewer words than that.
Derivatives take q and r, and one sum of K^2 words.

Input of NumPy, or that lies otherwise, is laid out as above first. Further axes of the
mesh hold copies, or a batch: `jax.vmap`, and with Auto axes its `spmd_axis_name`; along
an Explicit axis take derivatives inside the `vmap`.

Source: Demmel, Grigori, Hoemmen and Langou, Communication-optimal Parallel and
Sequential QR and LU Factorizations, SIAM J. Sci. Comput. 34 (2012),
https://doi.org/10.1137/080731992.

    JAX_NUM_CPU_DEVICES=8 python tsqr.py

Copy this file alone: it needs JAX only.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import Array, lax

DTYPES = "float32", "float64", "complex64", "complex128"
Axes = str | tuple[str, ...]

dot = functools.partial(jnp.dot, precision=lax.Precision.HIGHEST)
solve_triangle = lax.linalg.triangular_solve
# no type can say that all triangles are equal, and a sum for the type would cost
shard_map = functools.partial(jax.shard_map, check_vma=False)


# --------------------------------------------------------------------- block level


def small_qr(a: Array) -> tuple[Array, Array]:
    """Factor a tall matrix on one device: [n, K] -> [n, K], [K, K], as `qr` does."""
    # raw: JAX's own r fails for a batch along an Explicit axis (select, JAX 0.12)
    packed, taus = jnp.linalg.qr(a, mode="raw")
    q = lax.linalg.householder_product(packed.T, taus)
    r = jnp.triu(packed.T[: a.shape[1]])
    sign = jnp.where(jnp.diagonal(r).real < 0, -1, 1).astype(a.dtype)
    return q * sign[None], r * sign[:, None]


def factor_pair(r: Array, theirs: Array, above: Array) -> tuple[Array, Array]:
    """Factor two triangles in one; `above` is whether `r` is the upper one.

    r, theirs: [K, K], on all devices -> the rows [K, K] of the factor that belong to
    `r`, the new triangle [K, K], the same on both devices to the last bit
    """
    # a `where` would spread `above` over a batch, which may lie on an axis of its own
    upper, lower = lax.select(above, r, theirs), lax.select(above, theirs, r)
    q, r = small_qr(jnp.concatenate([upper, lower]))
    return lax.select(above, *jnp.split(q, 2)), r


def factor_on_all(block: Array, axis: Axes) -> tuple[Array, Array]:
    """Factor few rows on every device, as `qr` does: [n, K] -> [n, K], [K, K]."""
    q, r = small_qr(lax.all_gather(block, axis, tiled=True))
    first = lax.axis_index(axis) * len(block)
    return lax.dynamic_slice_in_dim(q, first, len(block)), r


def butterfly(r: Array, axis: Axes) -> tuple[Array, Array]:
    """Factor the triangles of all devices in pairs, pairs of pairs, and so on.

    r: [K, K] -> share [K, K], and r [K, K], inside `jax.shard_map`; r is equal on all
    devices to the last bit, since all of a pair factor the same two triangles
    """
    size, rank = lax.axis_size(axis), lax.axis_index(axis)
    paired = 1 << size.bit_length() - 1  # a power of two
    fold = [(paired + i, i) for i in range(size - paired)]  # the excess ranks
    unfold = [(rank, excess) for excess, rank in fold]
    share = jnp.eye(len(r), dtype=r.dtype)
    if fold:  # from here on the share of the excess rank is kept below the own one
        share, r = small_qr(jnp.concatenate([r, lax.ppermute(r, axis, fold)]))
    for bit in (1 << i for i in range(paired.bit_length() - 1)):
        pairs = [(i, i ^ bit) for i in range(paired)]
        mine, r = factor_pair(r, lax.ppermute(r, axis, pairs), rank & bit == 0)
        share = dot(share, mine)
    if fold:
        share, excess = jnp.split(share, 2)
        theirs = lax.ppermute(jnp.concatenate([excess, r]), axis, unfold)
        both = jnp.concatenate([share, r])
        share, r = jnp.split(lax.select(rank < paired, both, theirs), 2)
    return share, r


def differential(q: Array, r: Array, change: Array, axis: Axes) -> tuple[Array, Array]:
    """Return the derivatives of q and r as `a` changes; all rows along `axis`.

    q, change: [n, K], r: [K, K] -> [n, K], [K, K], inside `jax.shard_map`
    """
    change = solve_triangle(r, change)
    inner = lax.psum(dot(q.conj().T, change), axis)
    lower = jnp.tril(inner, -1)
    diagonal = jnp.diagonal(inner)
    rotation = lower - lower.conj().T + jnp.diag((diagonal - diagonal.conj()) / 2)
    return change + dot(q, rotation - inner), dot(inner - rotation, r)


# ------------------------------------------------------------------ what you call


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


def pad_rows(a: Array, axis: Axes) -> Array:
    """Split the rows of `a` over `axis`, with rows of zeros if they do not divide."""
    more = -len(a) % math.prod(mesh_sizes(*axis))
    ends = (0, more), *[(0, 0)] * (a.ndim - 1)
    return place(jnp.pad(a, ends) if more else a, jax.P(axis))


def check_array(name: str, a: Array):
    """Raise ValueError unless this argument is an array of numbers."""
    kind = f"of {a.dtype}" if hasattr(a, "dtype") else f"a {type(a).__name__}"
    dtype = getattr(a, "dtype", object)
    if not (jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool):
        raise ValueError(f"{name} is {kind}: pass an array of numbers")


def check_tall(a: Array):
    """Raise ValueError unless `a` is a tall matrix of a type that has a QR."""
    check_array("a", a)
    if a.ndim != 2 or a.shape[0] < a.shape[1] or not a.size:
        raise ValueError(f"a {a.shape} is not tall: pass [N, K], N >= K")
    if a.dtype.name not in DTYPES:
        raise ValueError(f"{a.dtype} has no QR here: pass one of {DTYPES}")


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def tree_qr(a: Array, axis: Axes) -> tuple[Array, Array]:
    """Factor [N@axis, K], N a multiple of the devices, as `qr` does."""
    rows = jax.P(axis)

    @shard_map(in_specs=rows, out_specs=(rows, jax.P()))
    def run(block):
        if len(block) < block.shape[1]:  # no triangle: q would lose its right angles
            return factor_on_all(block, axis)
        q, r = small_qr(block)
        share, r = butterfly(r, axis)
        return dot(q, share), r

    return run(a)


@tree_qr.defjvp
def _tree_qr_jvp(axis, primals, tangents):
    q, r = tree_qr(*primals, axis)
    rows = jax.P(axis)
    specs = {"in_specs": (rows, jax.P(), rows), "out_specs": (rows, jax.P())}
    run = shard_map(functools.partial(differential, axis=axis), **specs)
    return (q, r), run(q, r, *tangents)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def best_fit(a: Array, b: Array, axis: Axes) -> Array:
    """Return x [K, M] of a [N@axis, K] and b [N@axis, M], both filled up with zeros."""
    return fit(*tree_qr(a, axis), b, axis)


def fit(q: Array, r: Array, b: Array, axis: Axes) -> Array:
    """Solve r x = q^H b: [N@axis, K], [K, K], [N@axis, M] -> [K, M]."""

    @shard_map(in_specs=(jax.P(axis), jax.P(), jax.P(axis)), out_specs=jax.P())
    def run(q, r, b):
        inner = lax.psum(dot(q.conj().T, b), axis)
        return solve_triangle(r, inner, left_side=True)

    return run(q, r, b)


@best_fit.defjvp
def _best_fit_jvp(axis, primals, tangents):
    """Differentiate a^H (a x - b) = 0: what Q and R do with a does not matter."""
    q, r = tree_qr(primals[0], axis)
    x, rows = fit(q, r, primals[1], axis), jax.P(axis)

    @shard_map(in_specs=(rows, rows, rows, jax.P(), jax.P()), out_specs=jax.P())
    def run(known, change, q, r, x):
        (a, b), (da, db) = known, change
        parts = dot(q.conj().T, db - dot(da, x)), dot(da.conj().T, b - dot(a, x))
        along, across = lax.psum(parts, axis)
        across = solve_triangle(r.conj().T, across, left_side=True, lower=True)
        return solve_triangle(r, along + across, left_side=True)

    return x, run(primals, tangents, q, r, x)


def axis_names(axis: Axes) -> tuple[str, ...]:
    """Return the names of mesh axes in its order, or raise ValueError for others."""
    names = (axis,) if isinstance(axis, str) else tuple(axis)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"axis = {axis!r}: pass the name of a mesh axis, or several")
    mesh = mesh_with(*names)
    if inside := [name for name in names if name in mesh.manual_axes]:
        raise ValueError(f"inside shard_map over {inside}: pass blocks to `butterfly`")
    known = mesh.axis_names
    return tuple(sorted(names, key=known.index))  # JAX permutes in no other order


def qr(a: Array, axis: Axes = "x") -> tuple[Array, Array]:
    """Factor a tall matrix: a = q r, r upper triangular with a diagonal >= 0.

    a: [N@axis, K], N >= K -> q: [N@axis, K], r: [K, K] on all devices

    Floating-point or complex, of 4 bytes a number or 8, of any rank; derivatives want
    full rank. Several axes split the rows in the order of the mesh. If they do not
    divide N, q is on all devices. Raises ValueError for what is no such matrix, for a
    mesh without `axis`, and inside a `jax.shard_map` over it.
    """
    axis = axis_names(axis)
    check_tall(a)
    return tall_factor(a, axis)


@jax.jit(static_argnames="axis")
def tall_factor(a: Array, axis: tuple[str, ...]) -> tuple[Array, Array]:
    """Return q and r, for any N >= K: [N@axis, K] -> [N@axis, K], [K, K]."""
    q, r = tree_qr(pad_rows(a, axis), axis)
    return (q if len(q) == len(a) else place(q, jax.P())[: len(a)]), r


def lstsq(a: Array, b: Array, axis: Axes = "x") -> Array:
    """Return the x that makes the norm of a x - b least, for a tall `a` of full rank.

    a: [N@axis, K], b: [N@axis] or [N@axis, M] -> x: [K] or [K, M] on all devices

    Where columns depend on each other, x is large or not finite, and nothing else says
    so: then look at the diagonal of r, by `qr`. Raises ValueError for an `a` that `qr`
    refuses, and a b that does not fit it.
    """
    axis = axis_names(axis)
    check_tall(a)
    check_array("b", b)
    if b.ndim not in (1, 2) or len(b) != len(a):
        raise ValueError(f"b {b.shape} does not fit a {a.shape}: pass {len(a)} rows")
    return least_squares(a, b, axis)


@jax.jit(static_argnames="axis")
def least_squares(a: Array, b: Array, axis: tuple[str, ...]) -> Array:
    """Return x of least squares, any N >= K: [N@axis, K], [N@axis, ..] -> [K, ..]."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(a, b)
    columns = b[:, None] if b.ndim == 1 else b
    placed = (pad_rows(array.astype(dtype), axis) for array in (a, columns))
    return best_fit(*placed, axis).reshape(a.shape[1:] + b.shape[1:])


def main():
    """Fit a cubic to samples of one, on every device there is."""
    with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
        n = 100 * jax.device_count()
        t = jnp.arange(n, out_sharding=jax.P("x")) / n
        a = jnp.stack([t**0, t, t**2, t**3], axis=1)
        x = lstsq(a, 1 - 2 * t + 4 * t**3)
        print(f"{jax.typeof(a)}  {[round(float(number), 1) for number in x]}")


if __name__ == "__main__":
    main()
