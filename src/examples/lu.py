# SPDX-License-Identifier: MIT-0
"""LU factors and linear solve of a matrix in blocks, which stays in its blocks.

A solve may eliminate the columns in any order, and the rows in the order that pivoting
wants. So each step takes a few columns and a few rows of every block: an ordinary block
layout, eliminated in that order, is the block-cyclic one that keeps all devices busy.

    a            [N@x, N@y]           the matrix, any N; X x Y = P devices
    lu           [N@x, N@y]           U and, below its diagonal, L, where a was
    permutation  int32[steps, width]  the rows of a in the order of elimination
    columns      int32[steps, width]  the columns in their order, known beforehand
    b, x         [N] or [N, K]        right-hand sides and solutions, on all devices

    a[permutation][:, columns] = L U  each taken as one list of N or more

A step gathers `width` columns along y, lets a tournament along x choose the pivot rows,
brings them to every device of their column, and updates what remains by one product.
N^2 / 2X words a device for the columns and 3 N^2 / Y for the rows, up to the factors
1 - 1/Y and 1 - 1/X, and width N (X - 1) for the tournaments; `cost` has the bytes.
`solve` eliminates [a | b], so that only U is left to solve with.

Sources: Grigori, Demmel and Xiang, CALU: A Communication Optimal LU Factorization
Algorithm, SIAM J. Matrix Anal. Appl. 32 (2011), https://doi.org/10.1137/100788926.
Choi, Dongarra, Ostrouchov, Petitet, Walker and Whaley, Design and Implementation of the
ScaLAPACK LU, QR, and Cholesky Factorization Routines, Sci. Program. 5 (1996).

    JAX_NUM_CPU_DEVICES=8 python lu.py

Copy this file alone: it needs JAX only.
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

WIDTH = 64  # of a panel: wide enough for fast products, narrow beside the matrix
STRIP = 32  # rows of U that are solved for at a time: products do the rest, and faster
TILE = 64  # rows of the product that are held at a time, while the cache has them
STAGES = 8  # windows that shrink towards the end, each with a loop of its own
BLOCKS = jax.P("x", "y")
DTYPES = "float32", "float64", "complex64", "complex128"

dot = functools.partial(jnp.dot, precision=lax.Precision.HIGHEST)
solve_triangle = lax.linalg.triangular_solve
solve_unit_lower = functools.partial(solve_triangle, lower=True, unit_diagonal=True)
count_up = functools.partial(jnp.arange, dtype=jnp.int32)  # with 64 bits or without


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Factors:
    """What `lu_factor` returns: `lu`, `permutation`, the size n of a, and (X, Y).

    If n is no multiple of the panels, every block ends with rows and columns of an
    identity, and their indices are n, n + 1, ...
    """

    lu: Array
    permutation: Array
    n: int = field(metadata={"static": True})
    mesh: tuple[int, int] = field(metadata={"static": True})


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
    """Return the sizes of these axes of the mesh in context, or raise ValueError."""
    mesh = mesh_with(*names)
    # XLA may abort between two types: Auto, Manual (inside `jax.shard_map`), Explicit
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


def plan(n: int) -> tuple[int, int]:
    """Return in how many steps, and how many columns a step, to eliminate n columns."""
    x, y = mesh_sizes("x", "y")
    unit = math.lcm(x, y)  # a panel takes as much of every block
    aim = min(max(n // 16, 4), WIDTH)
    width = aim // unit * unit or unit
    # a window is no lower than a panel is wide, and XLA cannot compile a lone step
    return max(ceil_div(n, width), x, 2), width


def windows(steps: int, x: int) -> list[tuple[int, int]]:
    """Return the first step of each window, and that of the next, with X = x.

    A window begins below the rows that all its steps have done with.
    """
    end = steps - x  # no lower than a panel is wide
    loops = min(STAGES, max(steps // 4, 1))  # of four steps or more
    cuts = [min(steps * i // loops, end) for i in range(loops)]
    return [(i, j) for i, j in itertools.pairwise([*cuts, steps]) if i < j]


def global_indices(n: int, axis_name: str) -> Array:
    """Return the indices of the rows (axis x) or columns (axis y) of each block.

    n -> int32[X or Y, size], size being that of a block with its padding; what pads a
    block comes last, with indices from n on
    """
    [parts], unit = mesh_sizes(axis_name), math.lcm(*mesh_sizes("x", "y"))
    indices, pads = jnp.split(count_up(math.prod(plan(n))), [n + -n % unit])
    return jnp.append(indices.reshape(parts, -1), pads.reshape(parts, -1), axis=1)


def elimination_order(n: int, axis_name: str) -> Array:
    """Return the rows (axis x) or columns (axis y) of each step: int32[steps, width].

    A step takes a slice of every block. The order of rows is that before pivoting.
    """
    table, (steps, width) = global_indices(n, axis_name), plan(n)
    return table.reshape(len(table), steps, -1).swapaxes(0, 1).reshape(steps, width)


def distribute(a: Array) -> Array:
    """Lay a matrix out in blocks; zeros fill it up if the mesh does not divide it."""
    unit = math.lcm(*mesh_sizes("x", "y"))
    return place(jnp.pad(a, [(0, -size % unit) for size in a.shape]), BLOCKS)


def fill_up(block: Array, n: int) -> Array:
    """Append rows and columns of an identity to a block, inside `jax.shard_map`."""
    if math.prod(plan(n)) == n:
        return block
    row = global_indices(n, "x")[lax.axis_index("x")][:, None]
    column = global_indices(n, "y")[lax.axis_index("y")][None]
    more = [(0, row.size - block.shape[0]), (0, column.size - block.shape[1])]
    one = (row == column) & (column >= n)
    return jnp.where(one, 1, jnp.pad(block, more))


# --------------------------------------------------------------- the pivot rows


def best(rows: Array, ids: Array, done: Array) -> tuple[Array, Array]:
    """Factor a panel with partial pivoting.

    rows: [m, width], ids: [m] -> the packed factors, [m, width], and the order of the
    rows in them, [m]; those with ids < done are out: they must come last, so that even
    zeros go before them
    """
    packed, _, order = lax.linalg.lu(jnp.where((ids >= done)[:, None], rows, 0))
    return packed, order


def tournament(rows: Array, ids: Array, done: Array) -> tuple[Array, Array, Array]:
    """Let the best rows of the devices along x compete; on one it is partial pivoting.

    rows: [m, width], ids: [m], those with ids < done first -> the packed factors of the
    winners, [width, width], in the order of their pivots, and their ids, [width], the
    same on all devices; and rows U^-1, the panel of L, [m, width]
    """
    out, width = (ids < done).sum(), rows.shape[1]
    rows, ids = jnp.roll(rows, -out, axis=0), jnp.roll(ids, -out)
    own, order = best(rows, ids, done)
    packed, winners = own[:width], order[:width]
    mine, ids = rows[winners], ids[winners]
    if lax.axis_size("x") > 1:
        # one message: float32 has all numbers up to 2^24
        named = jnp.append(mine, ids[:, None].astype(mine.dtype), axis=1)
        named = lax.all_gather(named, "x", tiled=True)
        ids = named[:, -1].real.astype(ids.dtype)
        last = jnp.argsort(ids < done, stable=True)
        packed, winners = best(named[last, :-1], ids[last], done)
        packed, ids = packed[:width], ids[last][winners[:width]]
    l_panel = lower_panel(own, packed)
    place = jnp.zeros_like(order).at[order].set(count_up(order.size))
    return packed, ids, l_panel[jnp.roll(place, out)]


def lower_panel(own: Array, packed: Array) -> Array:
    """Return L with L U = L' U', for the packed factors of U and of all of L' U'.

    own: [m, width], packed: [width, width] -> [m, width]

    L' (U' U^-1), and not (L' U') U^-1: the solve sees but U' and U, so that what it
    loses is as small beside U as a rounding. L' U' times an inverse of U would lose the
    digits that the smallest pivot of U costs.
    """
    width = len(packed)
    eye = jnp.eye(width, dtype=packed.dtype)
    lower = own.at[:width].set(jnp.tril(own[:width], -1) + eye)
    if lax.axis_size("x") == 1:
        return lower
    # a pivot 0 counts as 1, as in LAPACK: what is below it is 0 too
    upper = jnp.where((eye == 1) & (packed == 0), 1, packed)
    return dot(lower, solve_triangle(upper, jnp.triu(own[:width]), lower=False))


def displaced(winners: Array, done: Array, size: int) -> Array:
    """Return where each row from `done` on goes, when the winners take these places.

    ids int32[width] -> ids int32[width]: the old places of the winners from below, or
    `size` for a row that is itself a winner
    """
    top = done + count_up(winners.size)
    moves = (top[:, None] != winners[None]).all(axis=1)
    free = jnp.sort(jnp.where(winners > top[-1], winners, size))
    return jnp.where(moves, free[jnp.cumsum(moves) - 1], size)


def positions(axis_name: str, count: int, width: int) -> Array:
    """Tell when the rows (axis x) or columns (axis y) of a block are eliminated.

    -> int32[count], for the first `count` of them; inside `jax.shard_map`
    """
    share = width // lax.axis_size(axis_name)
    step, at = jnp.divmod(jnp.arange(count, dtype=jnp.int32), share)
    return step * width + lax.axis_index(axis_name) * share + at


def local_offsets(ids: Array, high: int, elsewhere: int) -> Array:
    """Return where in this block each of these rows lies, or `elsewhere`."""
    step, at = jnp.divmod(ids, ids.size)
    owner, offset = at // high, step * high + at % high
    return jnp.where(owner == lax.axis_index("x"), offset, elsewhere)


def swap_rows(block: Array, permutation: Array, winners: Array, done: Array):
    """Bring the rows of the top to the places of the winners, which go to the top.

    block: [m, n], in which the top stays as it was: a step overwrites it; permutation
    int32[steps, width]: the indices of all rows, in their new order
    """
    target = displaced(winners, done, permutation.size)
    high, order = len(block) // len(permutation), permutation.ravel()
    top = lax.dynamic_slice_in_dim(block, done // winners.size * high, high)
    top = lax.all_gather(top, "x", tiled=True)
    block = block.at[local_offsets(target, high, len(block))].set(top, mode="drop")
    old = lax.dynamic_slice_in_dim(order, done, winners.size)
    order = lax.dynamic_update_slice_in_dim(order, order[winners], done, 0)
    return block, order.at[target].set(old, mode="drop").reshape(permutation.shape)


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


def eliminate_below(block: Array, corner, l_panel: Array, u_rows: Array) -> Array:
    """Write the panel of L below the corner, and subtract L U beside it, tile by tile.

    block: [m, n], l_panel: [k, width] for the last k rows, u_rows: [width, l] for the
    last l columns -> [m, n]
    """
    m, k, skip = len(block), len(l_panel), block.shape[1] - u_rows.shape[1]
    tile, wide = min(TILE, k), l_panel.shape[1] // lax.axis_size("y")
    top, left = corner

    def update(turn, block):
        end = m - turn * tile
        start = jnp.maximum(end - tile, m - k)
        row = start + count_up(tile)[:, None]
        fresh = (row >= top) & (row < end)  # no row twice
        l_tile = lax.dynamic_slice_in_dim(l_panel, start - (m - k), tile)
        l_tile = jnp.where(fresh, l_tile, 0)
        old = lax.dynamic_slice(block, (start, skip), (tile, u_rows.shape[1]))
        new = old - dot(l_tile, u_rows)
        block = lax.dynamic_update_slice(block, new, (start, skip))
        new = lax.dynamic_slice_in_dim(l_tile, lax.axis_index("y") * wide, wide, axis=1)
        old = lax.dynamic_slice(block, (start, left), new.shape)
        new = jnp.where(fresh, new, old)
        return lax.dynamic_update_slice(block, new, (start, left))

    return lax.fori_loop(0, (m - top + tile - 1) // tile, update, block)


def store_upper(block: Array, corner, rows: Array, packed: Array) -> Array:
    """Write the own ones of the finished rows, [width, n], and of the head: [m, n]."""
    high, wide = (len(packed) // lax.axis_size(axis) for axis in "xy")
    row, column = lax.axis_index("x") * high, lax.axis_index("y") * wide
    rows = lax.dynamic_slice_in_dim(rows, row, high)
    block = lax.dynamic_update_slice_in_dim(block, rows, corner[0], 0)
    head = lax.dynamic_slice(packed, (row, column), (high, wide))
    return lax.dynamic_update_slice(block, head, corner)


def eliminate(first: int, step: Array, state: tuple[Array, Array]):
    """Take one step on a block of which `first` steps, at least, have been taken.

    state: the block [m, n], whose last columns may be right-hand sides, and the
    permutation int32[steps, width], the same on all devices
    """
    block, permutation = state
    width = permutation.shape[1]
    high, wide = (width // lax.axis_size(axis) for axis in "xy")
    top, left, done = step * high, step * wide, step * width
    up, skip = first * high, first * wide  # where the window begins

    panel = lax.dynamic_slice(block, (up, left), (len(block) - up, wide))
    panel = lax.all_gather(panel, "y", axis=1, tiled=True)
    ids = positions("x", len(block), width)[up:]
    packed, winners, l_panel = tournament(panel, ids, done)
    offsets = local_offsets(winners, high, len(block))
    winning = lax.psum(block.at[offsets].get(mode="fill", fill_value=0), "x")

    right = count_up(skip, block.shape[1])[None] >= left + wide
    u_rows = solve_rows(packed, jnp.where(right, winning[:, skip:], 0))
    block = eliminate_below(block, (top, left), l_panel, u_rows)
    block, permutation = swap_rows(block, permutation, winners, done)
    finished = jnp.where(right, u_rows, winning[:, skip:])
    finished = jnp.append(winning[:, :skip], finished, axis=1)
    return store_upper(block, (top, left), finished, packed), permutation


def eliminate_all(a: Array, sides: Array) -> tuple[Array, Array]:
    """Factor a matrix; whatever stands at its right goes through the same elimination.

    a: [N@x, N@y], sides: [N, K] -> [lu | y], [M@x, M + K@y], where each block of lu
    has one of y = L^-1 sides at its right; and the permutation. If y does not divide K,
    zeros fill up
    """
    n, (steps, _) = len(a), plan(len(a))

    @jax.shard_map(in_specs=(BLOCKS, BLOCKS, jax.P()), out_specs=(BLOCKS, jax.P()))
    def run(block, sides, order):
        block, order = fill_up(block, n), lax.pcast(order, ("x", "y"), to="varying")
        sides = jnp.pad(sides, ((0, len(block) - len(sides)), (0, 0)))
        state = jnp.append(block, sides, axis=1), order
        for first, last in windows(steps, lax.axis_size("x")):
            body = functools.partial(eliminate, first)
            state = lax.fori_loop(first, last, body, state)
        both, permutation = state
        return both, lax.pmax(permutation, ("x", "y"))  # for JAX: the same everywhere

    return run(distribute(a), distribute(sides), elimination_order(n, "x"))


# ------------------------------------------------------------------ what you call


def check_matrix(a: Array):
    """Raise ValueError unless `a` is a square matrix that LU can factor."""
    mesh_sizes("x", "y")
    if not isinstance(a, (Array, np.ndarray)):
        raise ValueError(f"a is a {type(a).__name__}: pass an array of JAX or NumPy")
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"a {a.shape} is no square matrix: pass [N, N]")
    if a.dtype.name not in DTYPES or not a.dtype.isnative:
        raise ValueError(f"{a.dtype} has no LU here: pass one of {', '.join(DTYPES)}")


def check_sides(b: Array, n: int):
    """Raise ValueError unless `b` holds right-hand sides of n equations."""
    if not isinstance(b, (Array, np.ndarray)):
        raise ValueError(f"b is a {type(b).__name__}: pass an array of JAX or NumPy")
    if b.ndim not in (1, 2) or b.shape[0] != n:
        raise ValueError(
            f"b {b.shape} does not fit {n} equations: pass [{n}] or [{n}, K]"
        )
    known = isinstance(b.dtype, np.dtype) and np.can_cast(b.dtype, np.complex128)
    if not (known and b.dtype.isnative):
        raise ValueError(f"b is {b.dtype}: pass one of {', '.join(DTYPES)}")


def common(*arrays: Array) -> jnp.dtype:
    """Return the type of a result, also where JAX shall promote nothing by itself."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*arrays)


@jax.custom_jvp
def constant(tree):
    """Return what has no derivative here; refuse to be differentiated."""
    return tree


@constant.defjvp
def refuse_derivatives(primals, tangents):
    """Raise ValueError, before a loop without end would raise something obscure."""
    raise ValueError(
        "LU factors have no derivative here, and those of slogdet no second one: "
        "differentiate solve or slogdet, or pass lax.stop_gradient of the matrix"
    )


def lu_factor(a: Array) -> Factors:
    """Factor a square matrix with pivoting, while every block stays where it is.

    a: [N@x, N@y] -> Factors, lu: [M@x, M@y], M = steps x width >= N

    Floating-point or complex, of 4 bytes a number or 8. Pivoting is partial, as LAPACK
    does it, if x has size 1, and by tournament otherwise. A zero pivot stays in U, as
    in LAPACK. Raises ValueError for what is no such matrix, and under differentiation.
    """
    check_matrix(a)
    return factor(constant(a))


@jax.jit
def factor(a: Array) -> Factors:
    """Eliminate a alone: [N@x, N@y] -> Factors."""
    lu, permutation = eliminate_all(a, jnp.zeros((len(a), 0), a.dtype))
    return Factors(lu, permutation, len(a), tuple(mesh_sizes("x", "y")))


def gather_head(square: Array, part: Array, axes: tuple[str, str]):
    """Bring a square together, and add up what is beside it, by one sum over all.

    square: [high, wide], part: [high, K] -> [width, width], [width, K]
    """
    row, column = map(lambda axis, n: lax.axis_index(axis) * n, axes, square.shape)
    width = len(square) * lax.axis_size(axes[0])
    mine = jnp.zeros_like(part, shape=(width, width + part.shape[1]))
    mine = lax.dynamic_update_slice(mine, square, (row, column))
    mine = lax.dynamic_update_slice(mine, part, (row, jnp.full_like(row, width)))
    # flat, so that the layout which solving wants of the square stays with the square
    both = lax.psum(mine.ravel(), axes).reshape(mine.shape)
    return jnp.split(both, [width], axis=1)


def substitute(block: Array, b: Array, axes: tuple[str, str], lower: bool, unit: bool):
    """Solve with one of the triangles in `block`, a panel at a time.

    block: [m, n], its rows along axes[0], with other columns at its right or not;
    b: [steps, width, K] -> [steps, width, K]
    """
    steps, width, sides = b.shape
    high, wide = (width // lax.axis_size(axis) for axis in axes)
    first = lax.axis_index(axes[1]) * wide

    def take(i, x):
        step = i if lower else steps - 1 - i
        rows = lax.dynamic_slice(block, (step * high, 0), (high, steps * wide))
        mine = lax.dynamic_slice_in_dim(x, first, wide, axis=1)
        mine = mine.reshape(steps * wide, sides)
        square = lax.dynamic_slice_in_dim(rows, step * wide, wide, axis=1)
        square, sums = gather_head(square, dot(rows, mine), axes)
        now = solve_triangle(
            square, b[step] - sums, left_side=True, lower=lower, unit_diagonal=unit
        )
        return lax.dynamic_update_index_in_dim(x, now, step, 0)

    return lax.fori_loop(0, steps, take, jnp.zeros_like(b))


def put_back(x: Array, order: Array, n: int) -> Array:
    """Undo an order of elimination: [steps, width, K], [steps, width] -> [n, K]."""
    x = x.reshape(order.size, x.shape[-1])
    return jnp.zeros_like(x).at[order.ravel()].set(x)[:n]


def lu_solve(factors: Factors, b: Array, trans: int = 0) -> Array:
    """Solve a x = b, a^T x = b (trans=1) or a^H x = b (trans=2) with known factors.

    b: [N] or [N, K] -> x of the same shape, on all devices

    Raises ValueError for another b or trans, for factors of a mesh of other sizes, and
    for a derivative in the factors.
    """
    if not isinstance(factors, Factors):
        raise ValueError(f"{type(factors).__name__} given: pass what lu_factor returns")
    if (sizes := tuple(mesh_sizes("x", "y"))) != factors.mesh:
        raise ValueError(
            f"the factors were made on a mesh of {factors.mesh}, not of {sizes}: call "
            "lu_factor and lu_solve on the same one"
        )
    check_sides(b, factors.n)
    if trans not in (0, 1, 2):
        raise ValueError(f"trans is {trans}: pass 0, 1 or 2")
    return sweeps(constant(factors), b, trans)


@jax.jit(static_argnames="trans")
def sweeps(factors: Factors, b: Array, trans: int) -> Array:
    """Solve with both triangles: [N] or [N, K] -> the same."""
    n, rows = factors.n, factors.permutation
    columns = elimination_order(n, "y")
    before, after = (columns, rows) if trans else (rows, columns)
    dtype = common(factors.lu, b)

    @jax.shard_map(in_specs=(BLOCKS, jax.P()), out_specs=jax.P())
    def run(block, b):
        block, axes = block.astype(dtype), ("x", "y")
        if trans:
            block, axes = (block.conj() if trans == 2 else block).T, ("y", "x")
        x = substitute(block, b, axes, lower=True, unit=not trans)
        return substitute(block, x, axes, lower=False, unit=bool(trans))

    sides = place(b, jax.P()).astype(dtype).reshape(n, math.prod(b.shape[1:]))
    sides = jnp.pad(sides, ((0, rows.size - n), (0, 0)))[before]
    return put_back(run(factors.lu, sides), after, n).reshape(b.shape)


def multiply(a: Array, x: Array, trans: int) -> Array:
    """Return a x, or a^T x: [N@x, N@y], [N, K] -> [N, K], and leave a in place."""
    inner, outer = "xy" if trans else "yx"

    @jax.shard_map(in_specs=(BLOCKS, jax.P(inner)), out_specs=jax.P(outer))
    def run(block, part):
        return lax.psum(dot(block.T if trans else block, part), inner)

    a, n = distribute(a), len(x)
    x = jnp.pad(x, ((0, len(a) - n), (0, 0)))
    return place(run(a, place(x, jax.P(inner))), jax.P())[:n]


def bring_together(part: Array, steps: int, width: int, count: int) -> Array:
    """Bring a block of y of each device to all: [m, K/Y] -> [steps, width, count]."""
    row = positions("x", len(part), width)[:, None]
    column = lax.axis_index("y") * part.shape[1] + count_up(part.shape[1])
    mine = jnp.zeros_like(part, shape=(steps * width, count))
    mine = mine.at[row, column].set(part, mode="drop")
    return lax.psum(mine, ("x", "y")).reshape(steps, width, count)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _solve_and_factor(a: Array, b: Array, refine: int) -> tuple[Array, Factors]:
    """Eliminate [a | b], which saves one sweep, and solve with U: [N, K] -> [N, K]."""
    both, permutation = eliminate_all(a, b)
    columns = elimination_order(len(a), "y")

    @jax.shard_map(in_specs=BLOCKS, out_specs=(BLOCKS, jax.P()))
    def run(block):
        lu, y = jnp.split(block, [columns.size // lax.axis_size("y")], axis=1)
        y = bring_together(y, *columns.shape, b.shape[1])
        return lu, substitute(block, y, ("x", "y"), lower=False, unit=False)

    lu, x = run(both)
    factors = Factors(lu, permutation, len(a), tuple(mesh_sizes("x", "y")))
    x = put_back(x, columns, len(a))
    return (x + correction(factors, a, x, b, 0) if refine else x), factors


def correction(factors: Factors, a: Array, x: Array, b: Array, trans: int) -> Array:
    """Solve for the residual of x once more: [N, K] -> [N, K]."""
    return lu_solve(factors, b - multiply(a, x, trans), trans)


@_solve_and_factor.defjvp
def reuse_factors(refine, primals, tangents):
    """Solve a dx = db - da x. The factors, which `solve` drops, need no derivative."""
    (a, b), (da, db) = primals, tangents
    x, factors = _solve_and_factor(a, b, refine)
    fixed = lax.stop_gradient(a)

    def again(trans, _, b):
        x = lu_solve(factors, b, trans)
        return x + correction(factors, fixed, x, b, trans) if refine else x

    change = db - multiply(da, x, 0)
    solvers = functools.partial(again, 0), functools.partial(again, 1)
    dx = lax.custom_linear_solve(lambda x: multiply(a, x, 0), change, *solvers)
    return (x, factors), (dx, jax.custom_derivatives.zero_from_primal(factors))


def solve(a: Array, b: Array, *, refine: int = 0) -> Array:
    """Solve a x = b, as `jnp.linalg.solve` does, without gathering a.

    a: [N@x, N@y], b: [N] or [N, K] -> x of the shape of b, on all devices

    With `refine=1` the residual is solved for once more. Derivatives of either mode
    reuse the factors; `jax.vjp` serves where `jax.linear_transpose` does not. A
    singular matrix gives infinities or NaN. Raises ValueError for arrays that do not
    fit, other dtypes, and a mesh without x and y.
    """
    check_matrix(a)
    check_sides(b, len(a))
    if refine not in (0, 1):
        raise ValueError(f"refine is {refine}: pass 0 or 1")
    return solve_placed(a, b, refine)


@jax.jit(static_argnames="refine")
def solve_placed(a: Array, b: Array, refine: int) -> Array:
    """Give both one type and their places, and solve: [N] or [N, K] -> the same."""
    a = a.astype(common(a, b))
    sides = place((b[:, None] if b.ndim == 1 else b).astype(a.dtype), jax.P())
    # XLA cannot compile a shard_map of empty arrays alone
    x = _solve_and_factor(a, sides, refine)[0] if sides.size else sides
    return x.reshape(b.shape)


def diagonal(factors: Factors) -> Array:
    """Return the diagonal of U in the order of elimination, [steps width], whole."""
    steps, width = factors.permutation.shape

    @jax.shard_map(in_specs=BLOCKS, out_specs=jax.P(None, "x"))
    def run(block):
        row = positions("x", block.shape[0], width)[:, None]
        column = positions("y", block.shape[1], width)[None]
        own = jnp.where(row == column, block, 0).sum(1).reshape(steps, -1)
        return lax.psum(own, "y")

    return place(run(factors.lu), jax.P()).ravel()


def parity(permutation: Array) -> Array:
    """Return 1 for an even permutation, -1 for an odd one: int32[n] -> int32[].

    Of n elements in c cycles, n - c exchanges make it. Each element finds the least of
    its cycle by looking twice as far in every round.
    """
    n = permutation.size
    ahead, least = permutation, count_up(n)
    for _ in range(n.bit_length()):
        least, ahead = jnp.minimum(least, least[ahead]), ahead[ahead]
    return 1 - 2 * ((n - (least == count_up(n)).sum()) % 2)


def inverse_transposed(factors: Factors) -> Array:
    """Return the inverse of a^T, zeros where `distribute` fills up: [N@x, N@y].

    A step solves for a strip of every block of columns, as if they were sides.
    """

    def strip(ids):
        sides = (count_up(factors.n)[:, None] == ids[None]).astype(factors.lu.dtype)
        return distribute(sweeps(factors, sides, 1))

    @jax.shard_map(in_specs=jax.P(None, "x", "y"), out_specs=BLOCKS)
    def run(strips):
        wide = len(strips[0]) * lax.axis_size("x") // lax.axis_size("y")
        return jnp.moveaxis(strips, 0, 1).reshape(len(strips[0]), -1)[:, :wide]

    return run(lax.map(strip, elimination_order(factors.n, "y")))


def from_diagonal(factors: Factors) -> tuple[Array, Array]:
    """Return what `slogdet` does, from the factors."""
    u, columns = diagonal(factors), elimination_order(factors.n, "y")
    swaps = parity(factors.permutation.ravel()) * parity(columns.ravel())
    sign = swaps.astype(u.dtype) * jnp.sign(u).prod()
    return sign, jnp.where(sign == 0, -jnp.inf, jnp.log(jnp.abs(u)).sum())


@jax.custom_jvp
def sign_and_logarithm(a: Array) -> tuple[Array, Array]:
    """Return what `slogdet` does, with a derivative."""
    return from_diagonal(factor(a))


@sign_and_logarithm.defjvp
def add_up_the_inverse(primals, tangents):
    """Return trace(a^-1 da), of which the real part is the logarithm's."""
    factors = factor(constant(primals[0]))
    sign, logarithm = from_diagonal(factors)
    both = (inverse_transposed(factors) * distribute(tangents[0])).sum()
    turn = sign * (both - both.real.astype(both.dtype))
    return (sign, logarithm), (turn, both.real)


def slogdet(a: Array) -> tuple[Array, Array]:
    """Return the sign of the determinant, and the logarithm of its absolute value.

    a: [N@x, N@y] -> [], [], as `jnp.linalg.slogdet`; 0 and -inf for a singular one

    The first derivative takes the inverse, one panel of its columns after the other,
    and is NaN or infinite for a singular matrix; the second raises ValueError.
    """
    check_matrix(a)
    return jax.jit(sign_and_logarithm)(a)


def det(a: Array) -> Array:
    """Return the determinant of a square matrix: [N@x, N@y] -> []."""
    sign, logarithm = slogdet(a)
    return sign * jnp.exp(logarithm).astype(sign.dtype)


def add_up(collectives: list[tuple[str, str, int, int, int]]) -> Cost:
    """Add up what one device sends, where messages go round in rings.

    collectives: purpose, kind, devices, bytes that go round all of them, how many times
    """
    parts, counts = Counter(), Counter()
    for purpose, kind, size, whole, times in collectives:
        parts[purpose] += times * ceil_div(whole * (size - 1), size)
        counts[kind] += times if size > 1 else 0
    return Cost(parts.total(), +parts, +counts)


def cost(function: Callable, a: jax.ShapeDtypeStruct, b=None) -> Cost:
    """Predict what `lu_factor(a)` or `solve(a, b)` sends, for b of the type of a.

    a: [N@x, N@y], b: [N] or [N, K] on all devices of the mesh in context. What goes
    round is what all have in the end, and twice that for a sum.
    """
    if function not in (lu_factor, solve):
        raise ValueError(f"no cost is known of {function}: pass lu_factor or solve")
    (x, y), (steps, width) = mesh_sizes("x", "y"), plan(len(a))
    word, sides = a.dtype.itemsize, math.prod(b.shape[1:]) if function is solve else 0
    row = (steps * width + sides + -sides % math.lcm(x, y)) // y * word
    collectives = [
        ("panels", "all-gather", y, (steps - i) * width // x * width * word, end - i)
        for i, end in windows(steps, x)
    ]
    collectives += [
        ("tournaments", "all-gather", x, x * width * (width + 1) * word, steps),
        ("pivot rows", "all-reduce", x, 2 * width * row, steps),
        ("displaced rows", "all-gather", x, width * row, steps),
    ]
    last = [("permutation", "all-reduce", x * y, 2 * steps * width * 4, 1)]
    if function is solve:
        last = [("L^-1 b", "all-reduce", x * y, 2 * steps * width * sides * word, 1)]
        square = 2 * width * (width + sides) * word
        last += [("sweep", "all-reduce", x * y, square, steps)]
    return add_up(collectives + last)


def main():
    """Solve equations whose solution is all ones, on every device there is."""
    count = jax.device_count()
    x = max(i for i in range(1, math.isqrt(count) + 1) if count % i == 0)
    with jax.set_mesh(jax.make_mesh((x, count // x), ("x", "y"))):
        a = jax.random.normal(jax.random.key(0), (32 * count,) * 2, out_sharding=BLOCKS)
        b = multiply(a, jnp.ones((len(a), 1)), 0)
        error = jnp.abs(solve(a, b, refine=1) - 1).max()
        print(f"{jax.typeof(a)}  {'solved' if error < 0.01 else 'not solved'}")


if __name__ == "__main__":
    main()
