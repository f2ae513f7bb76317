# SPDX-License-Identifier: MIT-0
"""Singular values: all of a tall matrix, and the first few of any matrix.

A tall matrix has the singular values of its triangle: a = q r and r = u' s vh, so a =
(q u') s vh. Of any matrix a few products with random vectors show the directions in
which it stretches most; in these the matrix is narrow, and solved as a tall one.

    a    [N@x, K]     tall, N >= K, for `svd` and `svdvals`
    a    [N@x, M@y]   of any shape, for `randomized_svd`
    u    [N@x, k]     left singular vectors; k = K for a tall matrix
    s    [k]          singular values, the largest first, on all devices
    vh   [k, M@y]     right singular vectors, conjugated; [K, K] for a tall matrix

A QR of a tall matrix is all that `svd` and `svdvals` send. That of this file gathers
the triangles of all devices, (P - 1) K^2 words a device; `qr=` takes another, as that
of tsqr.py, which sends log2 P K^2. With L = k + more random vectors, a product sends
(1 - 1/X) M L / Y words and (1 - 1/Y) N L / X; there are 2 + 2 `powers` of them, and as
many QR, of rows on all devices.

Sources: Chan, An Improved Algorithm for Computing the Singular Value Decomposition, ACM
Trans. Math. Softw. 8 (1982), https://doi.org/10.1145/355984.355990. Halko, Martinsson
and Tropp, Finding Structure with Randomness, SIAM Review 53 (2011), algorithm 4.4,
https://doi.org/10.1137/090771806.

    JAX_NUM_CPU_DEVICES=8 python svd.py

Copy this file alone: it needs JAX and NumPy.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

DTYPES = "float32", "float64", "complex64", "complex128"
Axes = str | tuple[str, ...]

dot = functools.partial(jnp.dot, precision=lax.Precision.HIGHEST)
shard_map = functools.partial(jax.shard_map, check_vma=False)  # equal, as qr's r is


class Sketch(NamedTuple):
    """What `randomized_svd` draws, and how often it multiplies.

    `key` of `jax.random` decides the random vectors, on any mesh alike; there are
    `more` than k of them. Each of `powers` multiplies by a a^H once more, which divides
    small singular values from large ones by their squares.
    """

    key: Array
    more: int = 10
    powers: int = 2


class Approximation(NamedTuple):
    """The first singular values and vectors, and how much they leave of the matrix.

    `error` is the Frobenius norm of a - u s vh, computed from all its elements. No
    singular value of a differs from its s by more, and those that are not in s are not
    larger. The least that any matrix of rank k leaves is the root of the sum of the
    squares of those.
    """

    u: Array
    s: Array
    vh: Array
    error: Array


class Cost(NamedTuple):
    """What one device should send: bytes in all, for each purpose; collectives."""

    sent: int
    parts: dict[str, int]
    counts: dict[str, int]


# --------------------------------------------------------------------- block level


def factor_tangents(u: Array, s: Array, vh: Array, change: Array, axis: Axes):
    """Return the tangents of `u`, `s` and `vh` for that of `a`; all rows along `axis`.

    u, change: [n, K], s: [K], vh: [K, K] -> as u, s, vh, inside `jax.shard_map`
    """
    moved = dot(change, vh.conj().T)
    inner = lax.psum(dot(u.conj().T, moved), axis)
    one, row = jnp.eye(len(s), dtype=s.dtype), s[None]
    gaps = (row + row.T) * (row - row.T)
    near = (1 / (gaps + one) - one).astype(u.dtype)  # infinite for two equal values
    row = row.astype(u.dtype)
    right, left = row * inner, row.T * inner
    phase = one.astype(u.dtype) * (inner - inner.conj().T) / 2 / row
    across = near * (right + right.conj().T) + phase
    back = near * (left + left.conj().T)
    du = (moved - dot(u, inner)) / row + dot(u, across)
    return du, jnp.diagonal(inner).real, dot(back.conj().T, vh)


def value_tangents(u: Array, vh: Array, change: Array, axis: Axes) -> Array:
    """Return the tangents of the singular values alone, which divide by no gap: [K]."""
    moved = dot(change, vh.conj().T)
    return lax.psum((u.conj() * moved).sum(0).real, axis)


def packed_qr(a: Array) -> tuple[Array, Array]:
    """Factor a matrix on one device: [n, K] -> [n, min(n, K)], [min(n, K), K]."""
    # raw: JAX's own r fails for a batch along an Explicit axis (select, JAX 0.12)
    packed, taus = jnp.linalg.qr(a, mode="raw")
    q = lax.linalg.householder_product(packed.T[:, : len(taus)], taus)
    return q, jnp.triu(packed.T[: len(taus)])


def gather_qr(block: Array, axis: Axes) -> tuple[Array, Array]:
    """Factor [n, K], the rows of a device: all triangles are gathered, and factored.

    Returns the rows of q [n, K], and r [K, K], equal on all devices.
    """
    q, r = packed_qr(block)
    share, r = packed_qr(lax.all_gather(r, axis, tiled=True))
    count = q.shape[1]
    share = lax.dynamic_slice_in_dim(share, lax.axis_index(axis) * count, count)
    return dot(q, share), r


def random_rows(key: Array, first: Array, shape: tuple[int, int], dtype) -> Array:
    """Return rows of random numbers; a row depends on its number, not on the mesh."""
    rows = first + jnp.arange(shape[0], dtype=jnp.int32)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows)
    return jax.vmap(lambda one: jax.random.normal(one, shape[1:], dtype))(keys)


def gather_devices(part: Array, axes: Axes, count: int) -> Array:
    """Bring rows [n, L] of all devices along `axes` together; keep the first ones."""
    return lax.all_gather(part, axes, tiled=True)[:count] if axes else part


def scatter_sum(rows: Array, axes: Axes) -> Array:
    """Add up [n, L] over devices; each keeps some rows, zeros fill up the last."""
    if not axes:
        return rows
    rows = jnp.pad(rows, ((0, -len(rows) % lax.axis_size(axes)), (0, 0)))
    return lax.psum_scatter(rows, axes, tiled=True)


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


def pad_axes(a: Array, rows: Axes, columns: Axes = ()) -> Array:
    """Split rows and columns over mesh axes; zeros fill up what does not divide."""
    sizes = (math.prod(mesh_sizes(*names)) for names in (rows, columns))
    ends = [(0, -n % size) for n, size in zip(a.shape, sizes, strict=True)]
    return place(jnp.pad(a, ends) if sum(sum(ends, ())) else a, jax.P(rows, columns))


def unpad_axis(x: Array, axis: int, count: int) -> Array:
    """Drop rows or columns of zeros; what no mesh axis divides then is everywhere."""
    if x.shape[axis] == count:
        return x
    return lax.slice_in_dim(place(x, jax.P()), 0, count, axis=axis)


def mesh_order(axis: Axes) -> tuple[str, ...]:
    """Return names of mesh axes in its order, as a QR wants them; or ValueError."""
    names = (axis,) if isinstance(axis, str) else tuple(axis)
    mesh = mesh_with(*names)
    if {*names} & {*mesh.manual_axes} or len({*names}) < len(names):
        raise ValueError(f"axis = {axis!r}: pass each once, and outside `shard_map`")
    return tuple(sorted(names, key=mesh.axis_names.index))


def check_numbers(a: Array, tall: bool) -> Array:
    """Return `a`, or raise ValueError unless it is a matrix, and tall if it must be."""
    a = a if hasattr(a, "dtype") else np.asarray(a)
    if a.dtype.name not in DTYPES:
        raise ValueError(f"a is of {a.dtype}: pass an array of one of {DTYPES}")
    if a.ndim != 2 or not a.size or (tall and len(a) < a.shape[1]):
        wide = "tall: pass [N, K], N >= K" if tall else "a matrix: pass [N, M]"
        raise ValueError(f"a {a.shape} is not {wide}")
    return a


def tall_qr(a: Array, axis: Axes) -> tuple[Array, Array]:
    """Factor [N@axis, K], N a multiple of the devices: q [N@axis, K], r [K, K]."""
    specs = {"in_specs": jax.P(axis), "out_specs": (jax.P(axis), jax.P())}
    return shard_map(functools.partial(gather_qr, axis=axis), **specs)(a)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def factors(a: Array, qr: Callable, axis: Axes) -> tuple[Array, Array, Array]:
    """Factor [N@axis, K], N a multiple of the devices, as `svd` does."""
    q, r = qr(a, axis)
    u, s, vh = jnp.linalg.svd(r, full_matrices=False)
    return dot(q, u), s, vh


@factors.defjvp
def _factors_jvp(qr, axis, primals, tangents):
    u, s, vh = factors(*primals, qr, axis)
    rows, whole = jax.P(axis), jax.P()
    specs = {"in_specs": (rows, whole, whole, rows), "out_specs": (rows, whole, whole)}
    run = shard_map(functools.partial(factor_tangents, axis=axis), **specs)
    return (u, s, vh), run(u, s, vh, *tangents)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def values(a: Array, qr: Callable, axis: Axes) -> Array:
    """Return the singular values of [N@axis, K]; q is never made."""
    return jnp.linalg.svd(qr(a, axis)[1], compute_uv=False)


@values.defjvp
def _values_jvp(qr, axis, primals, tangents):
    u, s, vh = factors(*primals, qr, axis)
    specs = (jax.P(axis), jax.P(), jax.P(axis))
    run = functools.partial(value_tangents, axis=axis)
    return s, shard_map(run, in_specs=specs, out_specs=jax.P())(u, vh, *tangents)


def svd(
    a: Array, axis: Axes = "x", qr: Callable = tall_qr
) -> tuple[Array, Array, Array]:
    """Return u, s and vh of a tall matrix, a = u s vh, the largest of s first.

    a: [N@axis, K], N >= K -> u: [N@axis, K], s: [K], vh: [K, K], these on all devices

    Floating-point or complex, of any rank; its derivatives are those of
    `jnp.linalg.svd`: of u and vh they are not finite where two values are equal or one
    is 0. If several axes split the rows, it is in the order of the mesh; if they do not
    divide N, u is on all devices. Raises ValueError for what is not tall, and for a
    mesh without `axis`.
    """
    return tall_svd(check_numbers(a, tall=True), qr, mesh_order(axis))


@jax.jit(static_argnames=("qr", "axis"))
def tall_svd(a: Array, qr: Callable, axis: Axes) -> tuple[Array, Array, Array]:
    """Return u, s and vh, for any N: [N@axis, K] -> [N@axis, K], [K], [K, K]."""
    u, s, vh = factors(pad_axes(a, axis), qr, axis)
    return unpad_axis(u, 0, len(a)), s, vh


def svdvals(a: Array, axis: Axes = "x", qr: Callable = tall_qr) -> Array:
    """Return the singular values of a tall matrix, the largest first.

    a: [N@axis, K], N >= K -> s: [K] on all devices

    Its derivative is finite for any a: of equal values, that of some vectors that
    belong to them. Raises ValueError as `svd` does.
    """
    return tall_values(check_numbers(a, tall=True), qr, mesh_order(axis))


@jax.jit(static_argnames=("qr", "axis"))
def tall_values(a: Array, qr: Callable, axis: Axes) -> Array:
    """Return the singular values, for any N: [N@axis, K] -> [K]."""
    return values(pad_axes(a, axis), qr, axis)


def randomized_svd(
    a: Array,
    k: int,
    sketch: Sketch,
    axes: tuple[Axes, Axes] = ("x", "y"),
    qr: Callable = tall_qr,
) -> Approximation:
    """Return the first k singular values and vectors of any matrix, nearly.

    a: [N@x, M@y] -> u: [N@x, k], s: [k], vh: [k, M@y], error: a number on all devices

    `axes` are those that split the rows and the columns; () is none. Values that decay
    slowly beyond the k-th want more `powers`; `error` tells. Sizes that do not divide
    leave u or vh on all devices. Raises ValueError for what is no matrix, no sketch,
    other keys than threefry's, a k that it has not, axes of two types, and for a
    derivative: it has none.
    """
    a = check_numbers(a, tall=False)
    if not isinstance(sketch, Sketch):
        raise ValueError("the sketch is no Sketch: pass Sketch(jax.random.key(0))")
    if (kind := jax.random.key_impl(sketch.key)) != "threefry2x32":
        raise ValueError(f"{kind} numbers depend on the mesh: pass a threefry2x32 key")
    if not 1 <= k <= min(a.shape) or min(sketch[1:]) < 0:
        raise ValueError(
            f"k = {k} of {a.shape}, {sketch.more} more, {sketch.powers} powers: pass "
            f"k from 1 to {min(a.shape)}, and numbers that are not negative"
        )
    rows, columns = map(mesh_order, axes)
    mesh_sizes(*mesh_order(rows + columns))
    counts = k, min(k + sketch.more, *a.shape), sketch.powers
    return search(a, sketch.key, counts, qr, (rows, columns))


def refuse_derivative(*_):
    """Raise ValueError: an iteration that stops early has no derivative of its own."""
    raise ValueError(
        "randomized_svd has no derivative: differentiate the real part of u^H a v, "
        "with u and v from `jax.lax.stop_gradient`, for that of s"
    )


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4))
def search(a: Array, key: Array, counts: tuple, qr: Callable, axes) -> Approximation:
    """Return the first k of u, s and vh by subspace iteration: [N@x, M@y]."""
    (k, many, powers), (n, m) = counts, a.shape
    every, a = mesh_order(axes[0] + axes[1]), pad_axes(a, *axes)
    multiply, multiply_adjoint = both_products(axes, every)
    q, _ = qr(first_product(a, key, many, axes), every)
    for _ in range(powers):
        w, _ = qr(multiply_adjoint(a, q), every)
        q, _ = qr(multiply(a, w), every)
    w, r = qr(multiply_adjoint(a, q), every)
    v, s, uh = jnp.linalg.svd(r)  # q^H a = (w r)^H = uh^H s (w v)^H
    parts = dot(q, uh.conj().T[:, :k]), dot(w, v[:, :k])
    u, vh, error = compare_blocks(a, *parts, s[:k], axes)
    return Approximation(unpad_axis(u, 0, n), s[:k], unpad_axis(vh, 1, m), error)


search.defjvp(refuse_derivative)
search = jax.jit(search, static_argnames=("counts", "qr", "axes"))


def first_product(a: Array, key: Array, many: int, axes) -> Array:
    """Multiply a by random vectors: [N@x, M@y] -> [N@(x,y), many], zeros between."""
    rows, columns = axes

    @shard_map(
        in_specs=(jax.P(rows, columns), jax.P()),
        out_specs=jax.P(mesh_order(rows + columns)),
    )
    def run(a, key):
        low = a.shape[1] * lax.axis_index(columns) if columns else 0
        real = jnp.finfo(a.dtype).dtype
        vectors = random_rows(key, low, (a.shape[1], many), real).astype(a.dtype)
        return scatter_sum(dot(a, vectors), columns)

    return run(a, key)


def both_products(axes, every: Axes) -> tuple[Callable, Callable]:
    """Return a z and a^H y as functions of a, and of rows split over all devices.

    The rows of z are in another order than the columns of a: to no QR does it matter.
    """
    (rows, columns), part = axes, jax.P(every)
    specs = {"in_specs": (jax.P(rows, columns), part), "out_specs": part}

    @shard_map(**specs)
    def ahead(a, z):
        return scatter_sum(dot(a, gather_devices(z, rows, a.shape[1])), columns)

    @shard_map(**specs)
    def multiply_adjoint(a, y):
        return scatter_sum(dot(a.conj().T, gather_devices(y, columns, len(a))), rows)

    return ahead, multiply_adjoint


def compare_blocks(
    a: Array, u: Array, v: Array, s: Array, axes
) -> tuple[Array, Array, Array]:
    """Return u [N@x, k], vh [k, M@y] and the norm of a - u s vh, all of it."""
    (rows, columns), part = axes, jax.P(mesh_order(axes[0] + axes[1]))
    block, whole = jax.P(rows, columns), jax.P()
    after = jax.P(rows), jax.P(None, columns), whole

    @shard_map(in_specs=(block, part, part, whole), out_specs=after)
    def run(a, u, v, s):
        u, v = gather_devices(u, columns, len(a)), gather_devices(v, rows, a.shape[1])
        size = jnp.where(s[0] > 0, s[0], 1)  # so that no square overflows
        rest = (a - dot(u * s[None].astype(u.dtype), v.conj().T)) / size.astype(a.dtype)
        square = lax.psum((rest * rest.conj()).real.sum(), rows + columns)
        return u, v.conj().T, size * jnp.sqrt(square)

    return run(a, u, v, s)


def cost_of_svd(a: jax.ShapeDtypeStruct, axis: Axes = "x") -> Cost:
    """Predict what `svd(a)` sends, by the QR of this file: [N@axis, K] -> Cost.

    That of `svdvals` is the part "triangles". A QR of another file has its own.
    """
    (n, k), size = a.shape, math.prod(mesh_sizes(*mesh_order(axis)))
    rows = math.ceil(n / size)
    sent = [("triangles", "all-gather", size, min(rows, k) * size * k)]
    if n % size:
        sent.append(("u to all", "all-gather", size, rows * size * k))
    return cost_of_messages(sent, a.dtype.itemsize)


def cost_of_search(
    a: jax.ShapeDtypeStruct, k: int, sketch: Sketch, axes=("x", "y")
) -> Cost:
    """Predict what `randomized_svd` sends, by the QR of this file, as the mesh divides.

    a: [N@x, M@y], of which each axis has a multiple of its devices
    """
    (n, m), many = a.shape, min(k + sketch.more, *a.shape)
    x, y = (math.prod(mesh_sizes(*mesh_order(names))) for names in axes)
    ahead, back = 1 + sketch.powers, 1 + sketch.powers  # products with a, and a^H
    rows, columns = math.ceil(n / x / y) * y, math.ceil(m / x / y) * x
    sent = ahead * [("products", "reduce-scatter", y, rows * many)]
    sent += (ahead - 1) * [("products", "all-gather", x, columns * many)]
    sent += back * [("products", "all-gather", y, rows * many)]
    sent += back * [("products", "reduce-scatter", x, columns * many)]
    for some in ahead * [rows // y] + back * [columns // x]:
        sent.append(("triangles", "all-gather", x * y, min(some, many) * x * y * many))
    sent.append(("vectors", "all-gather", y, rows * k))
    sent.append(("vectors", "all-gather", x, columns * k))
    word = a.dtype.itemsize
    norm = jnp.finfo(a.dtype).bits // 8 / word  # one real number, there and back
    return cost_of_messages([*sent, ("error", "all-reduce", x * y, 2 * norm)], word)


def cost_of_messages(sent: list[tuple[str, str, int, float]], word: int) -> Cost:
    """Add up messages: purpose, kind, devices, and the words that go round them all."""
    parts, counts = Counter(), Counter()
    for purpose, kind, size, words in sent:
        parts[purpose] += math.ceil(words * word * (size - 1) / size)
        counts[kind] += size > 1
    return Cost(parts.total(), dict(+parts), dict(+counts))


def main():
    """Find the singular values of a matrix of rank three with noise on all devices."""
    count = jax.device_count()
    with jax.set_mesh(jax.make_mesh((count, 1), ("x", "y"))):
        keys = jax.random.split(jax.random.key(0), 4)
        n, m = 8 * count, 40
        left, right, noise = map(jax.random.normal, keys, ((n, 3), (3, m), (n, m)))
        a = jax.device_put(left @ right + 1e-3 * noise, jax.P("x", "y"))
        found = randomized_svd(a, 3, Sketch(keys[3]))
        left_over = jnp.sqrt(jnp.sum(svdvals(a.T if n < m else a)[3:] ** 2))
        close = abs(float(found.error / left_over) - 1) < 1e-2
        print(f"{jax.typeof(found.u)}  as near as rank three can be: {close}")


if __name__ == "__main__":
    main()
