# SPDX-License-Identifier: MIT-0
"""Eigenvalues and eigenvectors of a Hermitian matrix in blocks, which stays in blocks.

Reflectors make the matrix tridiagonal, a column at a time. What solves that is given
as an argument (secular.py shares its work among all devices), and reflectors turn its
eigenvectors back.

    a       [N@x, N@y]      Hermitian, any N; X x Y = P devices, any number
    w       [N]             eigenvalues in ascending order, on all devices
    v       [N@x, N@y]      eigenvectors in its columns: a v = v w
    s       [M@x, M@y]      a in `pieces` = lcm(X, Y) pieces, each filled up by zeros
    d, e    [M]             diagonal and subdiagonal of the tridiagonal matrix
    q       [M@(x,y), M]    its eigenvectors, whole rows on each device

Rows and columns are taken from all pieces in turn, so that every device has a share in
every step. Vectors of length N lie on all devices, matrices in blocks. A column reads
what is left of the block once, for the product of the matrix and a vector, and sends
that by a sum along y and a gather along x. In all that is about 2 N^2 words a device in
2 N collectives, and 8 N^3 / 3P multiplications; beside its block a device holds about
3 N^2 / P words and a hundred rows, with a `tridiagonal` that does no worse. If `pieces`
does not divide N, every device first gathers all of a. Below N = 1024 or so LAPACK on
every device (`jnp.linalg.eigh`) is as fast.

The tridiagonal problem has no default: what solves it in parts is a file of its own,
and what this file has is short, and holds the whole on each device.

Errors are small beside the norm of a: small eigenvalues have no digits of their own.

Sources: Dongarra, Hammarling and Sorensen, Block reduction of matrices to condensed
forms for eigenvalue computations, J. Comput. Appl. Math. 27 (1989). Auckenthaler and
others, Parallel solution of partial symmetric eigenvalue problems from electronic
structure calculations, Parallel Computing 37 (2011).

    JAX_NUM_CPU_DEVICES=8 python eigh.py

Copy this file alone: it needs JAX and NumPy.
"""

import functools
import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

WIDTH = 16  # columns a panel: fewer cost more updates, more cost longer corrections
GROUP = 128  # reflectors that are applied at once
STAGES = 8  # windows that shrink towards the end, each with a loop of its own
DTYPES = "float32", "float64", "complex64", "complex128"
Axes = tuple[str, str]

dot = functools.partial(jnp.dot, precision=lax.Precision.HIGHEST)
count_up = functools.partial(jnp.arange, dtype=jnp.int32)  # with 64 bits or without


class Plan(NamedTuple):
    """How n indices are cut: in turn from `pieces`, `width` a panel, `size` in all."""

    axes: Axes
    n: int
    pieces: int
    width: int
    size: int


# ---------------------------------------------------------------- the layout


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


def plan_pieces(n: int, axes: Axes) -> Plan:
    """Plan the work for n rows and columns on the mesh in context."""
    x, y = mesh_sizes(*axes)
    pieces = math.lcm(x, y)
    width = pieces * max(1, min(WIDTH, n // 8) // pieces)
    return Plan(axes, n, pieces, width, n + -n % math.lcm(width, pieces * x, x * y))


def shard_map_axes(plan: Plan, **specs):
    """Return `jax.shard_map` over both axes alone, blocks in and out if not told."""
    blocks = {"in_specs": jax.P(*plan.axes), "out_specs": jax.P(*plan.axes)}
    specs = {"axis_names": {*plan.axes}, **blocks, **specs}
    return functools.partial(jax.shard_map, **specs)


def rows_of_pieces(plan: Plan) -> Array:
    """Return the row of a at each row of s, and n, n + 1, ... where s is filled up.

    Each piece has as many rows of a, or one less: where rows are taken from pieces in
    turn, those that fill up come last.
    """
    at, piece = count_up(plan.size // plan.pieces)[None], count_up(plan.pieces)[:, None]
    least, longer = divmod(plan.n, plan.pieces)
    there = at < least + (piece < longer).astype(jnp.int32)
    index = piece * least + jnp.minimum(piece, longer) + at
    beyond = plan.n - 1 + jnp.cumsum(~there.ravel(), dtype=jnp.int32)
    return jnp.where(there.ravel(), index.ravel(), beyond)


def map_pieces(block: Array, plan: Plan, change) -> Array:
    """Change the pieces of a block, rows and columns, inside `jax.shard_map`.

    change: [pieces, old, n] -> [pieces, new, n]
    """
    for axis in plan.axes:
        cut = block.reshape(plan.pieces // lax.axis_size(axis), -1, block.shape[1])
        block = change(cut).reshape(-1, block.shape[1]).T
    return block


def split_pieces(a: Array, plan: Plan) -> Array:
    """Cut a matrix into pieces, and append zeros to each: [N, N] -> [M@x, M@y]."""
    if plan.n % plan.pieces == 0:
        ends = (0, 0), (0, (plan.size - plan.n) // plan.pieces), (0, 0)
        run = functools.partial(
            map_pieces, plan=plan, change=lambda v: jnp.pad(v, ends)
        )
        return shard_map_axes(plan)(run)(place(a, jax.P(*plan.axes)))
    a, index = place(a, jax.P()), rows_of_pieces(plan)
    a = a.at[index].get(mode="fill", fill_value=0)
    return place(a.at[:, index].get(mode="fill", fill_value=0), jax.P(*plan.axes))


def merge_pieces(v: Array, plan: Plan) -> Array:
    """Leave out what fills up: [M@x, M@y] -> [N@x, N@y], or whole along an axis."""
    if plan.n % plan.pieces == 0:
        size = plan.n // plan.pieces
        run = functools.partial(map_pieces, plan=plan, change=lambda v: v[:, :size])
        return shard_map_axes(plan)(run)(v)
    at = jnp.argsort(rows_of_pieces(plan))[: plan.n]
    sizes = zip(plan.axes, mesh_sizes(*plan.axes), strict=True)
    fits = [None if plan.n % size else name for name, size in sizes]
    return place(place(v, jax.P())[at][:, at], jax.P(*fits))


def adjoint(block: Array, plan: Plan) -> Array:
    """Return the own block of the adjoint: three messages of a block at most.

    [M/X, M/Y] -> [M/X, M/Y], inside `jax.shard_map`
    """
    x, y = plan.axes
    names = [name for name in mesh_with(x, y).axis_names if name in plan.axes]
    rank = np.arange(lax.axis_size(plan.axes)).reshape([*map(lax.axis_size, names)])
    rank = rank if names[0] == x else rank.T  # JAX permutes in the order of the mesh
    columns = lax.all_to_all(block, y, 0, 1, tiled=True).conj().T
    # columns in the order of blocks along x go to the order of blocks along y
    turns = [*zip(rank.ravel(), rank.T.ravel(), strict=True)]
    columns = lax.ppermute(columns, tuple(names), turns)
    return lax.all_to_all(columns, x, 0, 1, tiled=True)


def hermitian_part(s: Array, plan: Plan) -> Array:
    """Return (s + s^H) / 2: [M@x, M@y] -> [M@x, M@y]."""
    return shard_map_axes(plan)(lambda block: (block + adjoint(block, plan)) / 2)(s)


def cyclic_part(v: Array, axis: str, pieces: int) -> Array:
    """Return the own, cyclic part of whole vectors: [..., m] -> [..., m / size]."""
    size = lax.axis_size(axis)
    cut = v.reshape(*v.shape[:-1], -1, size, pieces // size)
    cut = lax.dynamic_index_in_dim(cut, lax.axis_index(axis), v.ndim)
    return cut.reshape(*v.shape[:-1], -1)


def gather_cyclic(mine: Array, axis: str, pieces: int) -> Array:
    """Bring the parts of vectors together, in turn: [k, m / size] -> [k, m]."""
    cut = mine.reshape(len(mine), -1, 1, pieces // lax.axis_size(axis))
    return lax.all_gather(cut, axis, axis=2, tiled=True).reshape(len(mine), -1)


def to_cyclic(block: Array, axis: str, pieces: int) -> Array:
    """Return the rows of a block in cyclic order: one of each piece after the other."""
    cut = block.reshape(pieces // lax.axis_size(axis), -1, block.shape[1])
    return cut.swapaxes(0, 1).reshape(block.shape)


# ------------------------------------------------- from the matrix to a tridiagonal one


def reflector(a: Array, r: Array):
    """Return v, tau, beta: (1 - tau v v^H)^H a is beta in row r + 1, then 0."""
    at, last = count_up(a.size), a.size - 1
    unit = jnp.maximum(jnp.abs(jnp.where(at > r, a, 0)).max(), jnp.finfo(a.dtype).tiny)
    a = a / unit.astype(a.dtype)  # squares do not underflow
    alpha = a[jnp.minimum(r + 1, last)]
    rest = jnp.where(at > r + 1, jnp.abs(a) ** 2, 0).sum()
    norm = jnp.sqrt(jnp.abs(alpha) ** 2 + rest)
    none = ((rest == 0) & (alpha.imag == 0)) | (r >= last)
    beta = jnp.where(none, alpha.real, jnp.where(alpha.real > 0, -norm, norm))
    wide = beta.astype(a.dtype)
    tau = jnp.where(none, 0, (wide - alpha) / jnp.where(none, 1, wide))
    v = jnp.where(at > r + 1, a / jnp.where(none, 1, alpha - wide), 0)
    return jnp.where(none, 0, jnp.where(at == r + 1, 1, v)), tau, beta * unit


def trailing_matvec(
    window: Array, rows: Array, columns: Array, v: Array, plan: Plan
) -> Array:
    """Return the trailing matrix, as this panel changes it, times v: [m] -> [m]."""
    v = cyclic_part(v, plan.axes[1], plan.pieces)
    change = dot(columns.conj(), v)[:, ::-1].ravel()
    product = lax.psum(dot(window, v) - dot(change, stack_pairs(rows)), plan.axes[1])
    return gather_cyclic(product[None], plan.axes[0], plan.pieces)[0]


def stack_pairs(pairs: Array) -> Array:
    """Put all v and w of a panel below each other: [width, 2, m] -> [2 width, m]."""
    return pairs.reshape(-1, pairs.shape[-1])


def reduce_column(plan: Plan, left: tuple, first: Array, pairs: tuple, i: Array):
    """Reduce column i of a panel; `left` is what is left of s, and the panel.

    Returns the pairs v, w with those of this column, and its d, e and tau.
    """
    (window, panel), (x, y), pieces = left, plan.axes, plan.pieces
    r = first + i
    here = lax.dynamic_index_in_dim(pairs[0], r, 2, keepdims=False)[:, ::-1]
    a = panel[i] - dot(here.ravel().conj(), stack_pairs(pairs[0]))
    v, tau, beta = reflector(a, r)
    w = trailing_matvec(window, *pairs[1:], v, plan)
    w = jnp.where(count_up(v.size) > r, w, 0) * tau
    w -= tau.conj() * dot(v.conj(), w) / 2 * v
    new = jnp.stack([v, w])
    new = new, cyclic_part(new, x, pieces), cyclic_part(new, y, pieces)
    put = functools.partial(lax.dynamic_update_index_in_dim, index=i, axis=0)
    return tuple(map(put, pairs, new)), (a[r].real, beta, tau)


def reduce_panel(plan: Plan, window: Array, p: Array):
    """Put reflectors in the place of the columns of panel p of a window.

    Returns the window, and d, e and tau of these columns.
    """
    (x, y), width = plan.axes, plan.width
    wide = width // lax.axis_size(y)
    panel = lax.dynamic_slice_in_dim(window, p * wide, wide, 1)
    panel = gather_cyclic(gather_cyclic(panel, y, plan.pieces).T, x, plan.pieces)

    # v and w for all rows, the own rows, the own columns: s - v w^H - w v^H is left
    shapes = [(width, 2, k) for k in (panel.shape[1], *window.shape)]
    pairs = tuple(jnp.zeros_like(window, shape=shape) for shape in shapes)
    column = functools.partial(reduce_column, plan, (window, panel), p * width)
    (_, rows, columns), found = lax.scan(column, pairs, count_up(width))
    window -= dot(stack_pairs(rows).T, stack_pairs(columns[:, ::-1]).conj())
    mine = cyclic_part(rows[:, 0].T, y, plan.pieces)
    return lax.dynamic_update_slice_in_dim(window, mine, p * wide, 1), found


def panel_windows(panels: int) -> list[tuple[int, int]]:
    """Cut a number of panels into windows: [(first, last), ...]."""
    count = min(STAGES, max(panels // 4, 1))  # of four panels or more
    return [*itertools.pairwise(panels * i // count for i in range(count + 1))]


def tridiagonalize(block: Array, plan: Plan) -> tuple:
    """Reduce a block, rows and columns in turn, to: reflectors, d, e, tau."""
    window, done, found = block, [], []
    for first, last in panel_windows(plan.size // plan.width):
        run = functools.partial(reduce_panel, plan)
        window, some = lax.scan(run, window, count_up(last - first))
        wide = plan.width * (last - first)
        high, wide = (wide // lax.axis_size(axis) for axis in plan.axes)
        # zeros above the window, too: a wider panel is turned back by more rows
        above = len(block) - len(window), 0
        done.append(jnp.pad(window[:, :wide], (above, (0, 0))))
        found.append(some)
        window = window[high:, wide:]
    found = (jnp.concatenate(parts).ravel() for parts in zip(*found, strict=True))
    return jnp.concatenate(done, axis=1), *found


def back_transform(block: Array, tau: Array, q: Array, plan: Plan) -> Array:
    """Apply the reflectors, the last ones first, to the columns of q: [M/X, K/Y]."""
    group = min(GROUP, plan.size // 8) // plan.width or 1
    width = plan.width * math.gcd(group, plan.size // plan.width)
    high, wide = (width // lax.axis_size(axis) for axis in plan.axes)

    def step(rows, p):
        v = lax.dynamic_slice_in_dim(block[-len(rows) :], p * wide, wide, 1)
        v = gather_cyclic(v, plan.axes[1], plan.pieces)
        inner = jnp.append(dot(v.conj().T, v), dot(v.conj().T, rows), axis=1)
        inner = lax.psum(inner, plan.axes[0])
        t = lax.dynamic_slice_in_dim(tau, p * width, width)
        upper = jnp.triu(inner[:, :width], 1) + jnp.diag(1 / jnp.where(t == 0, 1, t))
        change = lax.linalg.triangular_solve(upper, inner[:, width:], left_side=True)
        return rows - dot(v, change), None

    for first, last in reversed(panel_windows(plan.size // width)):
        turns = first + count_up(last - first)
        rows, _ = lax.scan(step, q[first * high :], turns, reverse=True)
        q = jnp.concatenate([q[: first * high], rows])
    return q


# ---------------------------------------------------------- the tridiagonal problem


def solve_on_each(d: Array, e: Array, axes: Axes) -> tuple[Array, Array]:
    """Solve a tridiagonal problem on every device, and keep the own rows.

    d, e: [M] -> w: [M], q: [M/P, M], inside `jax.shard_map`
    """
    w, q = jnp.linalg.eigh(jnp.diag(d) + jnp.diag(e[:-1], 1) + jnp.diag(e[:-1], -1))
    rows = d.size // lax.axis_size(axes)
    return w, lax.dynamic_slice_in_dim(q, lax.axis_index(axes) * rows, rows)


ON_EACH = solve_on_each, lambda *problem: solve_on_each(*problem)[0]


# ---------------------------------------------------------- the whole, and derivatives


def normalize(block: Array, plan: Plan) -> tuple[Array, Array]:
    """Divide a block by the largest number in all: [m, n] -> [m, n], []; or by NaN."""
    unit = jnp.abs(block).max(initial=jnp.finfo(block.dtype).tiny)
    wrong = lax.psum(jnp.any(~jnp.isfinite(block)).astype(jnp.int32), plan.axes)
    unit = jnp.where(wrong > 0, jnp.nan, lax.pmax(unit, plan.axes))
    return block / unit.astype(block.dtype), unit


def scale_and_reduce(block: Array, plan: Plan):
    """Reduce a block of s: reflectors, tau, d and e, and the unit of these."""
    block, unit = normalize(block, plan)
    for axis in plan.axes:
        block = to_cyclic(block, axis, plan.pieces).T
    block, d, e, tau = tridiagonalize(block, plan)
    norm = (jnp.abs(d) + jnp.abs(e) + jnp.abs(jnp.roll(e, 1))).max()
    beyond = 2 * norm + (norm == 0).astype(norm.dtype)  # what fills up comes last
    return block, tau, jnp.where(count_up(plan.size) < plan.n, d, beyond), e, unit


def replicate(w: Array, plan: Plan) -> Array:
    """Return w, equal on all devices, in pieces, with a type that is replicated."""
    first = lax.axis_index(plan.axes) == 0
    return lax.psum(jnp.where(first, w[rows_of_pieces(plan)], 0), plan.axes)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def eigenpairs(s: Array, plan: Plan, solvers: tuple) -> tuple[Array, Array]:
    """Solve a Hermitian problem, all in pieces: [M@x, M@y] -> [M], [M@x, M@y]."""
    x, y = plan.axes

    @shard_map_axes(plan, out_specs=(jax.P(), jax.P(x, y)))
    def run(block):
        block, tau, d, e, unit = scale_and_reduce(block, plan)
        w, q = solvers[0](d, e, plan.axes)
        q = q[:, rows_of_pieces(plan)].astype(block.dtype)
        q = lax.all_to_all(q, y, 1, 0, tiled=True)
        high = lax.axis_size(x)  # from rows one after the other to rows in turn
        q = q.reshape(-1, high, plan.pieces // high, q.shape[1])
        q = lax.all_to_all(q, x, 1, 0).reshape(-1, q.shape[-1])
        q = back_transform(block, tau, q, plan)
        q = q.reshape(-1, plan.pieces // high, q.shape[1])
        return replicate(w * unit, plan), q.swapaxes(0, 1).reshape(-1, q.shape[-1])

    return run(s)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def eigenvalues(s: Array, plan: Plan, solvers: tuple) -> Array:
    """Solve for eigenvalues alone: [M@x, M@y] -> [M], in pieces."""

    @shard_map_axes(plan, out_specs=jax.P())
    def run(block):
        _, _, d, e, unit = scale_and_reduce(block, plan)
        return replicate(solvers[1](d, e, plan.axes) * unit, plan)

    return run(s)


def broadcast_piece(block: Array, axis: str, i: Array, dim: int, pieces: int) -> Array:
    """Return piece i of rows (dim 0) or columns (dim 1), on all along an axis."""
    own = pieces // lax.axis_size(axis)
    wide = block.shape[dim] // own
    cut = lax.dynamic_slice_in_dim(block, i % own * wide, wide, dim)
    return lax.psum(jnp.where(lax.axis_index(axis) == i // own, cut, 0), axis)


def multiply_pieces(a: Array, b: Array, plan: Plan) -> Array:
    """Return a b, a piece at a time: [M@x, M@y] twice -> [M@x, M@y]."""
    x, y = plan.axes

    @shard_map_axes(plan)
    def run(a, b):
        @functools.partial(jax.checkpoint, prevent_cse=False)
        def add(total, i):  # a gradient sends pieces anew, and keeps none
            left = broadcast_piece(a, y, i, 1, plan.pieces)
            return total + dot(left, broadcast_piece(b, x, i, 0, plan.pieces)), None

        return lax.scan(add, jnp.zeros_like(b), count_up(plan.pieces))[0]

    return run(a, b)


def eigenvalue_tangents(v: Array, moved: Array) -> Array:
    """Return the real diagonal of v^H moved: [M@x, M@y] twice -> [M]."""
    return place((v.conj() * moved).real.sum(0), jax.P())


def divide_by_gaps(inner: Array, w: Array, plan: Plan) -> Array:
    """Divide by w_j - w_i, and put 0 where i = j or a has ended: as `inner`."""
    both = jnp.stack([w, rows_of_pieces(plan).astype(w.dtype)])
    (wi, i), (wj, j) = (place(both, jax.P(None, axis)) for axis in plan.axes)
    i, j = i[:, None], j[None]
    none = (i == j) | (jnp.maximum(i, j) >= plan.n)
    gaps = jnp.where(none, 1, wj[None] - wi[:, None]).astype(inner.dtype)
    return jnp.where(none, 0, inner / gaps)


@eigenpairs.defjvp
def eigenpairs_jvp(plan, solvers, primals, tangents):
    """Return dw = diag(v^H ds v) and dv = v (F o v^H ds v), F_ij = 1 / (w_j - w_i)."""
    w, v = eigenpairs(*primals, plan, solvers)
    moved = multiply_pieces(*tangents, v, plan)
    rows = shard_map_axes(plan)(functools.partial(adjoint, plan=plan))(v)
    inner = divide_by_gaps(multiply_pieces(rows, moved, plan), w, plan)
    return (w, v), (eigenvalue_tangents(v, moved), multiply_pieces(v, inner, plan))


@eigenvalues.defjvp
def eigenvalues_jvp(plan, solvers, primals, tangents):
    """Return dw = diag(v^H ds v), for which it computes the vectors."""
    w, v = eigenpairs(*primals, plan, solvers)
    return w, eigenvalue_tangents(v, multiply_pieces(*tangents, v, plan))


# ------------------------------------------------------------------ what you call


def check_eigenproblem(a: Array, axes: Axes) -> Axes:
    """Return the names of two axes, or raise ValueError for what has no eigenvalues."""
    axes = tuple(axes)
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ValueError(f"axes = {axes}: pass the names of two axes of the mesh")
    mesh_sizes(*axes)
    if {*axes} & {*jax.sharding.get_abstract_mesh().manual_axes}:
        raise ValueError(f"axes {axes} are those of a `jax.shard_map`: call it outside")
    if not hasattr(a, "dtype") or a.dtype.name not in DTYPES:
        kind = getattr(a, "dtype", type(a).__name__)
        raise ValueError(f"a is of {kind}: pass an array of one of {DTYPES}")
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not a.size:
        raise ValueError(f"a {a.shape} is no square matrix: pass [N, N], or `jax.vmap`")
    return axes


def hermitian_pieces(a: Array, axes: Axes) -> tuple[Array, Plan]:
    """Return s, for (a + a^H) / 2, and the plan: [N, N] -> [M@x, M@y]."""
    plan = plan_pieces(len(a), check_eigenproblem(a, axes))
    return hermitian_part(split_pieces(a, plan), plan), plan


def order_values(w: Array, plan: Plan) -> Array:
    """Return eigenvalues in ascending order, from pieces: [M] -> [N]."""
    return w[jnp.argsort(rows_of_pieces(plan))[: plan.n]]


@jax.jit(static_argnames=("tridiagonal", "axes"))
def eigh(a: Array, tridiagonal: tuple, axes: Axes = ("x", "y")):
    """Return eigenvalues and eigenvectors of (a + a^H) / 2, as `jnp.linalg.eigh` does.

    a: [N@x, N@y] -> w: [N] in ascending order on all devices, v: [N@x, N@y]

    Floating-point or complex, of 4 bytes a number or 8, anywhere; it is laid out in
    blocks first. An axis that does not divide N does not cut v. The phase of a vector
    is any. If a number is not finite, all results are NaN. Derivatives of either mode
    and any order; those of v are not finite where two eigenvalues are equal, as in JAX,
    and large where they nearly are. `tridiagonalize` solves what the reduction leaves:
    IN_PAIRS of secular.py shares the work, and holds 2 M^2 / P words a device; ON_EACH
    of this file holds M^2 on each. Raises ValueError for what is no such matrix, a mesh
    without these axes, and inside a `jax.shard_map` over them.
    """
    s, plan = hermitian_pieces(a, axes)
    w, v = eigenpairs(s, plan, tridiagonal)
    return order_values(w, plan), merge_pieces(v, plan)


@jax.jit(static_argnames=("tridiagonal", "axes"))
def eigvalsh(a: Array, tridiagonal: tuple, axes: Axes = ("x", "y")) -> Array:
    """Return the eigenvalues alone, all else as `eigh`: [N@x, N@y] -> [N].

    No reflector is turned back, no vector made; a derivative does that.
    """
    s, plan = hermitian_pieces(a, axes)
    return order_values(eigenvalues(s, plan, tridiagonal), plan)


def main():
    """Find the frequencies of a chain of springs, on every device there is."""
    count = jax.device_count()
    x = max(i for i in range(1, math.isqrt(count) + 1) if count % i == 0)
    with jax.set_mesh(jax.make_mesh((x, count // x), ("x", "y"))):
        n = 16 * count
        chain = 2.0 * jnp.eye(n) - jnp.eye(n, k=1) - jnp.eye(n, k=-1)
        w, v = eigh(chain, ON_EACH)
        known = 2 - 2 * jnp.cos(jnp.pi * (jnp.arange(n) + 1) / (n + 1))
        error = jnp.maximum(
            jnp.abs(w - known), jnp.abs(w - eigvalsh(chain, ON_EACH))
        ).max()
        print(f"{jax.typeof(v)}  {'solved' if error < 1e-4 else 'not solved'}")


if __name__ == "__main__":
    main()
