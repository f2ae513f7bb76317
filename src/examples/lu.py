# SPDX-License-Identifier: MIT-0
"""LU factors, solution and determinant of a matrix that stays in its blocks.

A solve may eliminate the columns in any order, and the rows in the order that pivoting
wants. So each step takes a few columns and a few rows of every block: an ordinary block
layout, eliminated in that order, is the block-cyclic one that keeps all devices busy.

    a            [N@x, N@y]           the matrix, any N; X x Y = P devices
    lu           [M@x, M@y]           U and, below its diagonal, L; M = steps x width
    permutation  int32[steps, width]  the rows of a in the order of elimination
    columns      int32[steps, width]  the columns in their order, known beforehand
    b, x         [N] or [N, K]        right-hand sides and solutions, on all devices

    a[permutation][:, columns] = L U  each taken as one list of M >= N

`axes` names the two mesh axes x and y. Arguments may lie anywhere, and be of NumPy:
they are laid out as above first. Other axes of the mesh are left alone. For a batch on
one of them take `jax.vmap(..., spmd_axis_name="z")`: nothing is sent along it if it is
Auto; if it is Explicit, XLA gathers panels along it, to call LAPACK with all of them.

A step gathers `width` columns along y, lets a tournament along x choose the pivot rows,
brings them to every device of their column, and updates what remains by one product.
N^2 / 2X words a device for the columns and 3 N^2 / Y for the rows, up to the factors
1 - 1/Y and 1 - 1/X, and width N (X - 1) for the tournaments; `cost` has the bytes.

Derivatives of either mode and any order go to a, with the same factors; `lu` itself has
none, and says so.

Sources: Grigori, Demmel and Xiang, CALU: A Communication Optimal LU Factorization
Algorithm, SIAM J. Matrix Anal. Appl. 32 (2011), https://doi.org/10.1137/100788926.
Choi, Dongarra, Ostrouchov, Petitet, Walker and Whaley, Design and Implementation of the
ScaLAPACK LU, QR, and Cholesky Factorization Routines, Sci. Program. 5 (1996).

    JAX_NUM_CPU_DEVICES=8 python lu.py

Copy this file alone: it needs JAX only.
"""

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

WIDTH = 64  # of a panel: wide enough for fast products, narrow beside the matrix
STRIP = 32  # rows of U that are solved for at a time: products do the rest, and faster
TILE = 64  # rows of the product that are held at a time, while the cache has them
STAGES = 8  # windows that shrink towards the end, each with a loop of its own
AXES = "x", "y"
DTYPES = "float32", "float64", "complex64", "complex128"

dot = functools.partial(jnp.dot, precision=lax.Precision.HIGHEST)
solve_triangle = lax.linalg.triangular_solve
solve_unit_lower = functools.partial(solve_triangle, lower=True, unit_diagonal=True)
count_up = functools.partial(jnp.arange, dtype=jnp.int32)  # with 64 bits or without
# under `vmap` JAX 0.12 says that what is mapped and what is not vary over other axes
shard_map = functools.partial(jax.shard_map, check_vma=False)


class Plan(NamedTuple):
    """How n columns are eliminated: `width` a step, on X x Y devices along two axes."""

    steps: int
    width: int
    n: int
    axes: tuple[str, str] = AXES
    sizes: tuple[int, int] = (1, 1)

    @property
    def shares(self) -> tuple[int, int]:
        """Return how many rows and columns of each block a step takes."""
        return self.width // self.sizes[0], self.width // self.sizes[1]

    @property
    def blocks(self) -> jax.P:
        """Return the spec of a matrix in blocks."""
        return jax.P(*self.axes)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Factors:
    """What `lu_factor` returns: a, so that derivatives reach it, and its factors.

    `lu` as above; `permutation`; `plan`, with the size n of a and the mesh. If n is no
    multiple of the panels, every block ends with rows and columns of an identity, and
    their indices are n, n + 1, ...
    """

    a: Array | None
    held: Array  # lu, which the derivatives of a do not reach
    permutation: Array
    plan: Plan = dataclasses.field(metadata={"static": True})

    @property
    def lu(self) -> Array:
        """Return the packed factors, [M@x, M@y], which have no derivative."""
        return nondiff((self.a, self.held))[1]

    def alone(self) -> "Factors":
        """Return the factors without a, whose memory is then free, or may be donated.

        They solve as before, and have no derivative but that in the right-hand side.
        """
        return dataclasses.replace(self, a=None, held=self.lu)


class Cost(NamedTuple):
    """What one device should send: bytes in all, for each purpose; collectives."""

    sent: int
    parts: dict[str, int]
    counts: dict[str, int]


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


def ceil_div(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)


def plan(n: int, axes: tuple[str, str] = AXES) -> Plan:
    """Return in how many steps, and how many columns a step, to eliminate n columns.

    Raises ValueError unless the mesh in context has these two axes, of one type.
    """
    if len({*axes}) != 2 or len(axes) != 2:
        raise ValueError(f"axes {axes}: pass the names of two axes of the mesh")
    x, y = mesh_sizes(*axes)
    if {*axes} & {*jax.sharding.get_abstract_mesh().manual_axes}:
        raise ValueError(f"inside a shard_map over {axes}: call this outside of it")
    unit = math.lcm(x, y)  # a panel takes as much of every block
    aim = min(max(n // 16, 4), WIDTH)
    width = aim // unit * unit or unit
    # a window is no lower than a panel is wide, and XLA cannot compile a lone step
    return Plan(max(ceil_div(n, width), x, 2), width, n, tuple(axes), (x, y))


def windows(plan: Plan) -> list[tuple[int, int]]:
    """Return the first step of each window, and that of the next.

    A window begins below the rows that all its steps have done with.
    """
    steps, end = plan.steps, plan.steps - plan.sizes[0]  # no lower than a panel is wide
    loops = min(STAGES, max(steps // 4, 1))  # of four steps or more
    cuts = [min(steps * i // loops, end) for i in range(loops)]
    return [(i, j) for i, j in itertools.pairwise([*cuts, steps]) if i < j]


def indices(plan: Plan, along: int) -> Array:
    """Return the indices of the rows (along 0) or columns (1) of each block.

    -> int32[X or Y, size], size being that of a block with its padding; what pads a
    block comes last, with indices from n on
    """
    parts, unit = plan.sizes[along], math.lcm(*plan.sizes)
    ids, pads = jnp.split(count_up(plan.steps * plan.width), [plan.n + -plan.n % unit])
    return jnp.append(ids.reshape(parts, -1), pads.reshape(parts, -1), axis=1)


def elimination_order(n: int, axis_name: str, axes: tuple[str, str] = AXES) -> Array:
    """Return the rows (axis x) or columns (axis y) of each step: int32[steps, width].

    A step takes a slice of every block. The order of rows is that before pivoting.
    """
    return order_of(plan(n, axes), axes.index(axis_name))


def order_of(plan: Plan, along: int) -> Array:
    """Return the rows (along 0) or columns (1) of each step: int32[steps, width]."""
    table = indices(plan, along).reshape(plan.sizes[along], plan.steps, -1)
    return table.swapaxes(0, 1).reshape(plan.steps, plan.width)


def pad(a: Array, plan: Plan) -> Array:
    """Lay a matrix out in blocks; zeros fill it up if the mesh does not divide it."""
    more = [(0, -size % math.lcm(*plan.sizes)) for size in a.shape]
    return place(jnp.pad(a, more), plan.blocks)


def pad_identity(block: Array, plan: Plan) -> Array:
    """Append rows and columns of an identity to a block, inside `jax.shard_map`."""
    row = indices(plan, 0)[lax.axis_index(plan.axes[0])][:, None]
    column = indices(plan, 1)[lax.axis_index(plan.axes[1])][None]
    more = [(0, row.size - block.shape[0]), (0, column.size - block.shape[1])]
    one = (row == column) & (column >= plan.n)
    return jnp.where(one, jnp.ones_like(block, shape=()), jnp.pad(block, more))


# --------------------------------------------------------------- the pivot rows


def factor_panel(rows: Array, ids: Array, done: Array) -> tuple[Array, Array]:
    """Factor a panel with partial pivoting.

    rows: [m, width], ids: [m] -> the packed factors, [m, width], and the order of the
    rows in them, [m]; those with ids < done are out: they must come last, so that even
    zeros go before them
    """
    packed, _, order = lax.linalg.lu(jnp.where((ids >= done)[:, None], rows, 0))
    return packed, order


def tournament(rows: Array, ids: Array, done: Array, plan: Plan):
    """Let the best rows of the devices along x compete; on one it is partial pivoting.

    rows: [m, width], ids: [m], those with ids < done first -> the packed factors of the
    winners, [width, width], in the order of their pivots, and their ids, [width], the
    same on all devices; and rows U^-1, the panel of L, [m, width]
    """
    out, width = (ids < done).sum(), rows.shape[1]
    rows, ids = jnp.roll(rows, -out, axis=0), jnp.roll(ids, -out)
    own, order = factor_panel(rows, ids, done)
    packed, winners = own[:width], order[:width]
    mine, ids = rows[winners], ids[winners]
    if plan.sizes[0] > 1:
        # one message: float32 has all numbers up to 2^24
        rows_and_ids = jnp.append(mine, ids[:, None].astype(mine.dtype), axis=1)
        rows_and_ids = lax.all_gather(rows_and_ids, plan.axes[0], tiled=True)
        ids = rows_and_ids[:, -1].real.astype(ids.dtype)
        last = jnp.argsort(ids < done, stable=True)
        packed, winners = factor_panel(rows_and_ids[last, :-1], ids[last], done)
        packed, ids = packed[:width], ids[last][winners[:width]]
    l_panel = lower_panel(own, packed, plan)
    return packed, ids, l_panel[jnp.roll(jnp.argsort(order), out)]


def lower_panel(own: Array, packed: Array, plan: Plan) -> Array:
    """Return L with L U = L' U', for the packed factors of U and of all of L' U'.

    own: [m, width], packed: [width, width] -> [m, width]

    L' (U' U^-1), and not (L' U') U^-1: the solve sees but U' and U, so that what it
    loses is as small beside U as a rounding. L' U' times an inverse of U would lose the
    digits that the smallest pivot of U costs.
    """
    width = len(packed)
    eye = jnp.eye(width, dtype=packed.dtype)
    lower = own.at[:width].set(jnp.tril(own[:width], -1) + eye)
    if plan.sizes[0] == 1:
        return lower
    # a pivot 0 counts as 1, as in LAPACK: what is below it is 0 too
    upper = jnp.where((eye == 1) & (packed == 0), 1, packed)
    return dot(lower, solve_triangle(upper, jnp.triu(own[:width]), lower=False))


def displaced_positions(winners: Array, done: Array, size: int) -> Array:
    """Return where each row from `done` on goes, when the winners take these places.

    ids int32[width] -> ids int32[width]: the old places of the winners from below, or
    `size` for a row that is itself a winner
    """
    top = done + count_up(winners.size)
    moves = (top[:, None] != winners[None]).all(axis=1)
    free = jnp.sort(jnp.where(winners > top[-1], winners, size))
    return jnp.where(moves, free[jnp.cumsum(moves) - 1], size)


def block_positions(plan: Plan, along: int, count: int) -> Array:
    """Return when the rows (along 0) or columns (1) of a block are eliminated.

    -> int32[count], for the first `count` of them; inside `jax.shard_map`
    """
    share, rank = plan.shares[along], lax.axis_index(plan.axes[along])
    step, at = jnp.divmod(count_up(count), share)
    return step * plan.width + rank * share + at


def local_offsets(ids: Array, plan: Plan, elsewhere: int) -> Array:
    """Return where in this block each of these rows lies, or `elsewhere`."""
    high, _ = plan.shares
    step, at = jnp.divmod(ids, plan.width)
    owner, offset = at // high, step * high + at % high
    return jnp.where(owner == lax.axis_index(plan.axes[0]), offset, elsewhere)


def swap_rows(block: Array, order: Array, winners: Array, done: Array, plan: Plan):
    """Bring the rows of the top to the places of the winners, which go to the top.

    block: [m, n], in which the top stays as it was: a step overwrites it; order
    int32[steps width]: the indices of all rows, in their new order
    """
    target = displaced_positions(winners, done, order.size)
    high, _ = plan.shares
    top = lax.dynamic_slice_in_dim(block, done // plan.width * high, high)
    top = lax.all_gather(top, plan.axes[0], tiled=True)
    block = block.at[local_offsets(target, plan, len(block))].set(top, mode="drop")
    old = lax.dynamic_slice_in_dim(order, done, plan.width)
    order = lax.dynamic_update_slice_in_dim(order, order[winners], done, 0)
    return block, order.at[target].set(old, mode="drop")


# ---------------------------------------------------------------- the elimination


def solve_rows(packed: Array, rows: Array) -> Array:
    """Solve with the unit lower triangle of `packed`, strip by strip.

    packed: [width, width], rows: [width, l] -> [width, l]
    """
    solved = rows[:0]
    for first in range(0, len(rows), STRIP):
        strip = slice(first, first + STRIP)
        rest = rows[strip] - dot(packed[strip, :first], solved)
        # transposed, which makes no copies for LAPACK
        rest = solve_unit_lower(packed[strip, strip], rest.T, transpose_a=True)
        solved = jnp.append(solved, rest.T, axis=0)
    return solved


def eliminate_below(block: Array, step: Array, l_panel: Array, u_rows: Array, plan):
    """Write the panel of L below the corner, and subtract L U beside it, tile by tile.

    block: [m, n], l_panel: [k, width] for the last k rows, u_rows: [width, l] for the
    last l columns -> [m, n]
    """
    m, k, skip = len(block), len(l_panel), block.shape[1] - u_rows.shape[1]
    tile, (high, wide) = min(TILE, k), plan.shares
    top, left = step * high, step * wide
    right = count_up(skip, block.shape[1])[None] >= left + wide

    def update(turn, block):
        end = m - turn * tile
        start = jnp.maximum(end - tile, m - k)
        row = start + count_up(tile)[:, None]
        fresh = (row >= top) & (row < end)  # no row twice
        l_tile = lax.dynamic_slice_in_dim(l_panel, start - (m - k), tile)
        old = lax.dynamic_slice(block, (start, skip), (tile, u_rows.shape[1]))
        # not by zeros in a factor: 0 times NaN would reach what is done with
        new = jnp.where(fresh & right, old - dot(l_tile, u_rows), old)
        block = lax.dynamic_update_slice(block, new, (start, skip))
        new = own_slice(l_tile, 1, plan)
        old = lax.dynamic_slice(block, (start, left), new.shape)
        new = jnp.where(fresh, new, old)
        return lax.dynamic_update_slice(block, new, (start, left))

    return lax.fori_loop(0, (m - top + tile - 1) // tile, update, block)


def batch_as(x: Array, to: Array) -> Array:
    """Return x, batched by `vmap` as `to` is: gathers want both alike."""
    return x + 0 * jnp.isnan(to.ravel()[0]).astype(x.dtype)


def own_slice(panel: Array, along: int, plan: Plan) -> Array:
    """Return the own rows (along 0) or columns (1) of what all have of a step."""
    share, rank = plan.shares[along], lax.axis_index(plan.axes[along])
    return lax.dynamic_slice_in_dim(panel, rank * share, share, axis=along)


def eliminate(first: int, plan: Plan, step: Array, state: tuple[Array, Array]):
    """Take one step on a block of which `first` steps, at least, have been taken.

    state: the block [m, n], and the order int32[steps width], the same on all devices
    """
    (block, order), (high, wide) = state, plan.shares
    top, left, done = step * high, step * wide, step * plan.width
    up, skip = first * high, first * wide  # where the window begins

    panel = lax.dynamic_slice(block, (up, left), (len(block) - up, wide))
    panel = lax.all_gather(panel, plan.axes[1], axis=1, tiled=True)
    ids = batch_as(block_positions(plan, 0, len(block))[up:], block)
    packed, winners, l_panel = tournament(panel, ids, done, plan)
    offsets = local_offsets(winners, plan, len(block))
    winning = block.at[offsets].get(mode="fill", fill_value=0)
    winning = lax.psum(winning, plan.axes[0])

    right = count_up(skip, block.shape[1])[None] >= left + wide
    u_rows = solve_rows(packed, jnp.where(right, winning[:, skip:], 0))
    block = eliminate_below(block, step, l_panel, u_rows, plan)
    block, order = swap_rows(block, order, winners, done, plan)
    finished = jnp.where(right, u_rows, winning[:, skip:])
    finished = jnp.append(winning[:, :skip], finished, axis=1)
    finished = lax.dynamic_update_slice(finished, own_slice(packed, 1, plan), (0, left))
    mine = own_slice(finished, 0, plan)
    return lax.dynamic_update_slice_in_dim(block, mine, top, 0), order


@jax.jit(static_argnames="plan")
def eliminate_all(a: Array, plan: Plan) -> tuple[Array, Array]:
    """Factor a matrix: [N@x, N@y] -> lu [M@x, M@y] and the order of its rows."""

    @shard_map(in_specs=(plan.blocks, jax.P()), out_specs=(plan.blocks, jax.P()))
    def run(block, order):
        block = pad_identity(block, plan)
        state = block, batch_as(order.ravel(), block)
        for first, last in windows(plan):
            body = functools.partial(eliminate, first, plan)
            state = lax.fori_loop(first, last, body, state)
        block, order = state
        return block, order.reshape(plan.steps, plan.width)

    return run(pad(a, plan), order_of(plan, 0))


# ------------------------------------------------------------------ the solutions


def substitute_both(lu: Array, permutation: Array, b: Array, trans: int, plan: Plan):
    """Solve with both triangles: [M@x, M@y], [N, ...] on all devices -> the same."""

    @shard_map(in_specs=(plan.blocks, jax.P(), jax.P()), out_specs=jax.P())
    def run(block, b, permutation):
        columns = order_of(plan, 1)
        before, after = (columns, permutation) if trans else (permutation, columns)
        block = block.T if trans else block
        before, after = batch_as(before, permutation), batch_as(after, permutation)
        more = (0, before.size - plan.n), (0, 0)
        b = batch_as(jnp.pad(b, more), permutation)[before]
        x = substitute(block, b, plan, trans, lower=True)
        x = substitute(block, x, plan, trans, lower=False)
        x = x.reshape(after.size, x.shape[-1])
        return x[jnp.argsort(after.ravel())][: plan.n]

    sides = b[:, None] if b.ndim == 1 else b
    return run(lu.astype(b.dtype), sides, permutation).reshape(b.shape)


def substitute(block: Array, b: Array, plan: Plan, trans: int, lower: bool) -> Array:
    """Solve with one of the triangles in `block`, a panel at a time.

    block: [m, n], of lu or of its transpose; b: [steps, width, K] -> [steps, width, K]
    """
    order = (1, 0) if trans else (0, 1)
    axes, (high, wide) = ([each[i] for i in order] for each in (plan.axes, plan.shares))
    options = {"lower": lower, "unit_diagonal": lower != bool(trans)}
    triangle = functools.partial(solve_triangle, left_side=True, **options)
    rank, first = lax.axis_index(axes[0]) * high, lax.axis_index(axes[1]) * wide

    def take(i, x):
        step = i if lower else plan.steps - 1 - i
        rows = lax.dynamic_slice_in_dim(block, step * high, high)
        known = lax.dynamic_slice_in_dim(x, first, wide, axis=1)
        sums = dot(rows, known.reshape(block.shape[1], -1))
        square = lax.dynamic_slice_in_dim(rows, step * wide, wide, axis=1)
        # one sum brings the square together and adds up what is beside it
        both = jnp.zeros_like(sums, shape=(plan.width, plan.width + sums.shape[1]))
        both = lax.dynamic_update_slice(both, square, (rank, first))
        both = lax.dynamic_update_slice(both, sums, (rank, 0 * rank + plan.width))
        # flat, so that the layout which solving wants of the square stays with it
        both = lax.psum(both.ravel(), axes).reshape(both.shape)
        square, sums = jnp.split(both, [plan.width], axis=1)
        now = triangle(square, b[step] - sums)
        return lax.dynamic_update_index_in_dim(x, now, step, 0)

    return lax.fori_loop(0, plan.steps, take, jnp.zeros_like(b))


def matvec_blocks(a: Array, x: Array, trans: int, plan: Plan) -> Array:
    """Return a x, or a^T x, and leave a in place: [N@x, N@y], [N, ...] -> [N, ...]."""
    inner, outer = plan.axes if trans else plan.axes[::-1]

    @shard_map(in_specs=(plan.blocks, jax.P(inner)), out_specs=jax.P(outer))
    def run(block, part):
        return lax.psum(dot(block.T if trans else block, part), inner)

    a, n = pad(a, plan), len(x)
    x = jnp.pad(x, [(0, len(a) - n), *[(0, 0)] * (x.ndim - 1)])
    return place(run(a, place(x, jax.P(inner))), jax.P())[:n]


# ------------------------------------------------------------------ what you call


def check_matrix(a: Array, axes: tuple[str, str] = AXES) -> Plan:
    """Return how to eliminate `a`; raise ValueError if it is no matrix to factor."""
    plan(0, axes)  # the mesh is looked at first
    if not isinstance(a, (Array, np.ndarray)):
        raise ValueError(f"a is a {type(a).__name__}: pass an array of JAX or NumPy")
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"a {a.shape} is no square matrix: pass [N, N]")
    if a.dtype.name not in DTYPES or not a.dtype.isnative:
        raise ValueError(f"{a.dtype} has no LU here: pass one of {', '.join(DTYPES)}")
    return plan(len(a), axes)


def check_sides(b: Array, n: int):
    """Raise ValueError unless `b` holds right-hand sides of n equations."""
    if not isinstance(b, (Array, np.ndarray)):
        raise ValueError(f"b is a {type(b).__name__}: pass an array of JAX or NumPy")
    if b.ndim not in (1, 2) or b.shape[0] != n:
        fits = f"pass [{n}] or [{n}, K]"
        raise ValueError(f"b {b.shape} does not fit {n} equations: {fits}")
    known = isinstance(b.dtype, np.dtype) and np.can_cast(b.dtype, np.complex128)
    if not (known and b.dtype.isnative):
        raise ValueError(f"b is {b.dtype}: pass one of {', '.join(DTYPES)}")


def check_factors(factors: Factors):
    """Raise ValueError unless these are factors, of a mesh like that in context."""
    if not isinstance(factors, Factors):
        raise ValueError(f"{type(factors).__name__} given: pass what lu_factor returns")
    made, sizes = factors.plan.sizes, plan(factors.plan.n, factors.plan.axes).sizes
    if sizes != made:
        raise ValueError(
            f"the factors were made on a mesh of {made}, not of {sizes}: call "
            "lu_factor and what takes its factors on the same one"
        )


def result_type(*arrays: Array) -> jnp.dtype:
    """Return the type of a result, also under strict promotion."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*arrays)


@jax.custom_jvp
def nondiff(tree):
    """Return the tree itself; a derivative of it raises ValueError."""
    return tree


@nondiff.defjvp
def refuse_derivatives(primals, tangents):
    """Raise ValueError, before a loop without end would raise something obscure."""
    raise ValueError(
        "LU factors have no derivative here: differentiate what lu_solve or slogdet "
        "make of them, or pass lax.stop_gradient of the matrix"
    )


def lu_factor(a: Array, axes: tuple[str, str] = AXES) -> Factors:
    """Factor a square matrix with pivoting, while every block stays where it is.

    a: [N@x, N@y] -> Factors, lu: [M@x, M@y], M = steps x width >= N

    Floating-point or complex, of 4 bytes a number or 8. Pivoting is partial, as LAPACK
    does it, if x has size 1, and by tournament otherwise. A zero pivot stays in U, as
    in LAPACK: `first_zero_pivot` finds it. Raises ValueError for what is no such
    matrix, for a mesh without these axes, and for a derivative of `lu`.
    """
    return factor(a, check_matrix(a, axes))


def factor(a: Array, plan: Plan) -> Factors:
    """Eliminate a, which its factors keep: [N@x, N@y] -> Factors."""
    return Factors(a, *eliminate_all(lax.stop_gradient(a), plan), plan)


def lu_solve(factors: Factors, b: Array, trans: int = 0) -> Array:
    """Solve a x = b, a^T x = b (trans=1) or a^H x = b (trans=2) with known factors.

    b: [N] or [N, K] -> x of the same shape, on all devices

    Derivatives of either mode go to a and to b, and reuse the factors. Raises
    ValueError for another b or trans, and for factors of a mesh of other sizes.
    """
    check_factors(factors)
    check_sides(b, factors.plan.n)
    if trans not in (0, 1, 2):
        raise ValueError(f"trans is {trans}: pass 0, 1 or 2")
    return solve_whole(factors, b, trans)


@jax.jit(static_argnames=("trans", "refine"))
def solve_whole(factors: Factors, b: Array, trans: int, refine: int = 0) -> Array:
    """Solve for sides on all devices, with derivatives: [N] or [N, K] -> the same."""
    if trans == 2:
        return solve_whole(factors, b.conj(), 1, refine).conj()
    plan, lu, a = factors.plan, nondiff(factors.held), factors.a
    sides = place(b, jax.P()).astype(result_type(lu, b))

    def matvec(trans, x):  # without a, nobody asks for it
        return x if a is None else matvec_blocks(a.astype(x.dtype), x, trans, plan)

    def solve_once(trans, _, b):
        substitute_sides = functools.partial(substitute_both, lu, factors.permutation)
        x = substitute_sides(b, trans, plan)
        return x + substitute_sides(b - matvec(trans, x), trans, plan) if refine else x

    both = (functools.partial(solve_once, each) for each in (trans, 1 - trans))
    product = functools.partial(matvec, trans)
    # XLA cannot compile a shard_map of empty arrays alone
    return lax.custom_linear_solve(product, sides, *both) if b.size else sides


def solve(a: Array, b: Array, *, refine: int = 0, axes: tuple[str, str] = AXES):
    """Solve a x = b, as `jnp.linalg.solve` does, without gathering a.

    a: [N@x, N@y], b: [N] or [N, K] -> x of the shape of b, on all devices

    With `refine=1` the residual is solved for once more. Derivatives of either mode
    reuse the factors; `jax.vjp` serves where `jax.linear_transpose` does not. A
    singular matrix gives infinities or NaN. Raises ValueError for arrays that do not
    fit, other dtypes, and a mesh without these axes.
    """
    plan_of_a = check_matrix(a, axes)
    check_sides(b, len(a))
    if refine not in (0, 1):
        raise ValueError(f"refine is {refine}: pass 0 or 1")
    return factor_and_solve(a, b, refine, plan_of_a)


@jax.jit(static_argnames=("refine", "plan"))
def factor_and_solve(a: Array, b: Array, refine: int, plan: Plan) -> Array:
    """Give both one type, and solve: [N] or [N, K] -> the same."""
    return solve_whole(factor(a.astype(result_type(a, b)), plan), b, 0, refine)


def diagonal(lu: Array, plan: Plan) -> Array:
    """Return the diagonal of U in the order of elimination, [steps width], whole."""

    @shard_map(in_specs=plan.blocks, out_specs=jax.P(None, plan.axes[0]))
    def run(block):
        row = block_positions(plan, 0, block.shape[0])[:, None]
        column = block_positions(plan, 1, block.shape[1])[None]
        own = jnp.where(row == column, block, 0).sum(1).reshape(plan.steps, -1)
        return lax.psum(own, plan.axes[1])

    return place(run(lu), jax.P()).ravel()


@jax.jit
def first_zero_pivot(factors: Factors) -> Array:
    """Return the column of a in which elimination found no pivot but 0 or NaN.

    -> int32[], the first in the order of elimination; -1 if there is none
    """
    check_factors(factors)
    u = diagonal(lax.stop_gradient(factors.held), factors.plan)
    bad, columns = ~(jnp.abs(u) > 0), order_of(factors.plan, 1).ravel()
    return jnp.where(bad.any(), columns[bad.argmax()], -1)


def parity(permutation: Array) -> Array:
    """Return 1 for an even permutation, -1 for an odd one: int32[n] -> int32[].

    Of n elements in c cycles, n - c exchanges make it. Each element finds the least of
    its cycle by looking twice as far in every round.
    """
    n = permutation.size
    ahead, least = permutation, batch_as(count_up(n), permutation)
    for _ in range(n.bit_length()):
        least, ahead = jnp.minimum(least, least[ahead]), ahead[ahead]
    return 1 - 2 * ((n - (least == count_up(n)).sum()) % 2)


def inverse_transposed(factors: Factors) -> Array:
    """Return the inverse of a^T, zeros where `pad` fills up: [N@x, N@y].

    A step solves for a strip of every block of columns, as if they were sides.
    """
    plan = factors.plan

    def strip(ids):
        sides = count_up(plan.n)[:, None] == ids[None]
        return pad(solve_whole(factors, sides.astype(factors.held.dtype), 1), plan)

    @shard_map(in_specs=jax.P(None, *plan.axes), out_specs=plan.blocks)
    def run(strips):
        wide = len(strips[0]) * plan.sizes[0] // plan.sizes[1]
        return jnp.moveaxis(strips, 0, 1).reshape(len(strips[0]), -1)[:, :wide]

    return run(lax.map(strip, order_of(plan, 1)))


@jax.custom_jvp
def sign_and_logarithm(factors: Factors) -> tuple[Array, Array]:
    """Return the sign and the logarithm of |det a|, from factors: -> [], []."""
    u, columns = diagonal(factors.held, factors.plan), order_of(factors.plan, 1)
    swaps = parity(factors.permutation.ravel()) * parity(columns.ravel())
    sign = swaps.astype(u.dtype) * jnp.sign(u).prod()
    return sign, jnp.where(sign == 0, -jnp.inf, jnp.log(jnp.abs(u)).sum())


@sign_and_logarithm.defjvp
def slogdet_jvp(primals, tangents):
    """Return trace(a^-1 da), of which the real part is the logarithm's."""
    (factors,), (change,) = primals, tangents
    sign, logarithm = sign_and_logarithm(factors)
    both = (inverse_transposed(factors) * pad(change.a, factors.plan)).sum()
    turn = sign * (both - both.real.astype(both.dtype))
    return (sign, logarithm), (turn, both.real)


def lu_slogdet(factors: Factors) -> tuple[Array, Array]:
    """Return what `slogdet` does, of a matrix whose factors are known."""
    check_factors(factors)
    known = dataclasses.replace(factors, held=nondiff(factors.held))
    return jax.jit(sign_and_logarithm)(known)


def slogdet(a: Array, axes: tuple[str, str] = AXES) -> tuple[Array, Array]:
    """Return the sign of the determinant, and the logarithm of its absolute value.

    a: [N@x, N@y] -> [], [], as `jnp.linalg.slogdet`; 0 and -inf for a singular one

    A derivative takes the inverse, in blocks, from the same factors, and is NaN or
    infinite for a singular matrix.
    """
    return lu_slogdet(lu_factor(a, axes))


def det(a: Array, axes: tuple[str, str] = AXES) -> Array:
    """Return the determinant of a square matrix: [N@x, N@y] -> []."""
    sign, logarithm = slogdet(a, axes)
    return sign * jnp.exp(logarithm).astype(sign.dtype)


def cost_of_collectives(collectives: list[tuple[str, str, int, int, int]]) -> Cost:
    """Add up what one device sends, where messages go round in rings.

    collectives: purpose, kind, devices, bytes that go round all of them, how many times
    """
    parts, counts = Counter(), Counter()
    for purpose, kind, size, whole, times in collectives:
        parts[purpose] += times * ceil_div(whole * (size - 1), size)
        counts[kind] += times if size > 1 else 0
    return Cost(parts.total(), +parts, +counts)


def cost(function: Callable, a: jax.ShapeDtypeStruct, b=None, axes=AXES) -> Cost:
    """Predict what `lu_factor(a)` or `solve(a, b)` sends, for b of the type of a.

    a: [N@x, N@y], b: [N] or [N, K] on all devices of the mesh in context. What goes
    round is what all have in the end, and twice that for a sum.
    """
    if function not in (lu_factor, solve):
        raise ValueError(f"no cost is known of {function}: pass lu_factor or solve")
    way = plan(len(a), axes)
    steps, width, (x, y), word = way.steps, way.width, way.sizes, a.dtype.itemsize
    row = steps * width // y * word
    collectives = [
        ("panels", "all-gather", y, (steps - i) * width // x * width * word, end - i)
        for i, end in windows(way)
    ]
    collectives += [
        ("tournaments", "all-gather", x, x * width * (width + 1) * word, steps),
        ("pivot rows", "all-reduce", x, 2 * width * row, steps),
        ("displaced rows", "all-gather", x, width * row, steps),
    ]
    if function is solve:
        square = 2 * width * (width + math.prod(b.shape[1:])) * word
        collectives += [("sweeps", "all-reduce", x * y, square, 2 * steps)]
    return cost_of_collectives(collectives)


def main():
    """Solve equations whose solution is all ones, on every device there is."""
    count = jax.device_count()
    x = max(i for i in range(1, math.isqrt(count) + 1) if count % i == 0)
    with jax.set_mesh(jax.make_mesh((x, count // x), AXES)):
        blocks = jax.P(*AXES)
        a = jax.random.normal(jax.random.key(0), (32 * count,) * 2, out_sharding=blocks)
        b = matvec_blocks(a, jnp.ones((len(a), 1)), 0, plan(len(a)))
        error = jnp.abs(solve(a, b, refine=1) - 1).max()
        print(f"{jax.typeof(a)}  {'solved' if error < 0.01 else 'not solved'}")


if __name__ == "__main__":
    main()
