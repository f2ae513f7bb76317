# SPDX-License-Identifier: MIT-0
"""Cholesky factor of a matrix in blocks, which stays in its blocks, and its use.

Unknowns may be eliminated in any order, as long as rows and columns go in the same one.
So all indices are cut into as many pieces as fit both axes of the mesh, and each step
takes a strip of every piece: every device has a share in every step.

    a       [N@x, N@y]        Hermitian, positive definite, any N; X x Y = P devices
    c       [M@x, M@y]        its factor L, in steps: M = steps x width >= N
    order   [steps, width]    the rows and columns of a in the order of elimination
    b, x    [N] or [N, K]     right-hand sides and solutions, on all devices

    a[order][:, order] = L L^H, where order is taken as one list

Of a_ij and a_ji only the one that is below the diagonal in that order is read.

A step gathers `width` columns along y, factors their head on every device, and sums up
along x the rows of L that belong to the columns of a device. In the end a device has
sent about N^2 / 2X words for the columns and N^2 / Y for the rows, times 1 - 1/Y and
1 - 1/X (`cost` has the bytes), and done a P-th of N^3 / 6 multiplications, and more for
a small N: about twice as many for N = 1024, 1.5 times for 4096 (2 x 4 devices). Prefer
X <= Y. A derivative of c sends and works several times as much, and transposes a: where
neither X nor Y divides the other, XLA gathers it for that.

Input of NumPy, or that lies otherwise, is laid out as above first.

Source: Choi, Dongarra, Ostrouchov, Petitet, Walker and Whaley, Design and
Implementation of the ScaLAPACK LU, QR, and Cholesky Factorization Routines, Sci.
Program. 5 (1996).

    JAX_NUM_CPU_DEVICES=8 python cholesky.py

Copy this file alone: it needs JAX only.
"""

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

WIDTH = 128  # of a panel: wide enough for fast products, narrow beside the matrix
TILE = 256  # rows or columns, at most, of what one product updates
STAGES = 4  # windows of shrinking height, each with a loop of its own
BLOCKS = jax.P("x", "y")
DTYPES = "float32", "float64", "complex64", "complex128"

dot = functools.partial(jnp.dot, precision=lax.Precision.HIGHEST)
solve_triangle = lax.linalg.triangular_solve


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Factor:
    """What `cho_factor` returns: `c` as above, `a` itself, and the mesh's X and Y."""

    a: Array
    c: Array
    mesh: tuple[int, int] = field(metadata={"static": True})


class Cost(NamedTuple):
    """What one device should send, in bytes: in all, and for each purpose."""

    sent: int
    parts: dict[str, int]


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


def ceil_div(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)


class Plan(NamedTuple):
    """How n indices are eliminated: `pieces` of `size`, in `steps`, a `strip` of each.

    The steps make `tiles`; pieces end with what pads them to steps x strip.
    """

    pieces: int
    size: int
    tiles: int
    steps: int
    strip: int


def plan_elimination(n: int) -> Plan:
    """Plan the elimination of n rows and columns on the mesh in context."""
    x, y = mesh_sizes("x", "y")
    pieces = math.lcm(x, y)
    size = ceil_div(n, pieces)
    strip = max(1, min(WIDTH, n // 16) // pieces)
    steps = max(2, ceil_div(size, strip))  # a loop of one step may crash XLA 0.12
    most = max(1, min(TILE * min(x, y) // (strip * pieces), steps // STAGES))
    tiles = ceil_div(steps, most)
    steps = tiles * ceil_div(steps, tiles)
    return Plan(pieces, size, tiles, steps, ceil_div(size, steps))


def strips(pieces: int, plan: Plan) -> Array:
    """Return the indices of these pieces step by step, pieces x size for the padding.

    -> int32[steps, pieces strip]
    """
    at = jnp.arange(plan.steps * plan.strip, dtype=jnp.int32).reshape(plan.steps, 1, -1)
    index = jnp.arange(pieces, dtype=jnp.int32)[None, :, None] * plan.size + at
    index = jnp.where(at < plan.size, index, pieces * plan.size)
    return index.reshape(plan.steps, -1)


def order(n: int) -> Array:
    """Return the indices in the order of elimination, n where nothing but padding is.

    n -> int32[steps, width], the same for rows and columns
    """
    plan = plan_elimination(n)
    return jnp.minimum(strips(plan.pieces, plan), n)


def positions(axis_name: str, count: int, width: int) -> Array:
    """Tell when the rows (axis x) or columns (axis y) of a block are eliminated.

    -> int32[count], for the first `count` of them; inside `jax.shard_map`
    """
    share = width // lax.axis_size(axis_name)
    step, at = jnp.divmod(jnp.arange(count, dtype=jnp.int32), share)
    return step * width + lax.axis_index(axis_name) * share + at


def in_steps(block: Array, n: int) -> Array:
    """Sort a block of a by steps, and fill it up by zeros.

    [N / X, N / Y] -> [M / X, M / Y], inside `jax.shard_map`; nothing is sent
    """
    plan = plan_elimination(n)
    rows, columns = (strips(size // plan.size, plan).ravel() for size in block.shape)
    # not one transpose of six axes: a TPU pads the last, the strip, to 128
    sorted_rows = block.at[rows].get(mode="fill", fill_value=0)
    return sorted_rows.at[:, columns].get(mode="fill", fill_value=0)


def lower_half(block: Array, n: int, padding: int) -> Array:
    """Put zeros above the diagonal of a block in steps, and `padding` where a ends."""
    plan = plan_elimination(n)
    row, column = (
        positions(axis, count, plan.pieces * plan.strip)
        for axis, count in zip("xy", block.shape, strict=True)
    )
    beyond = order(n).ravel()[row] == n
    ends = (row[:, None] == column[None]) & beyond[:, None]
    whole = jnp.where(ends, jnp.asarray(padding, block.dtype), block)
    return jnp.where(row[:, None] < column[None], jnp.zeros_like(whole), whole)


def place(x: Array, spec: jax.P) -> Array:
    """Lay `x` out by `spec` on the mesh in context, whatever the type of its axes.

    Call it inside `jax.jit`. Those that `spec` names are all Auto or all Explicit.
    """
    mesh = jax.sharding.get_abstract_mesh()
    auto = {*jax.tree.leaves(tuple(spec))} <= {*mesh.auto_axes}
    x = jax.reshard(x, jax.P() if auto else spec) if mesh.explicit_axes else x
    return lax.with_sharding_constraint(x, spec) if auto else x


def in_blocks(a: Array) -> Array:
    """Lay a matrix out in blocks; zeros fill it up if the mesh does not divide it."""
    more = -len(a) % math.lcm(*mesh_sizes("x", "y"))
    return place(jnp.pad(a, (0, more)) if more else a, BLOCKS)


# ---------------------------------------------------------------- the elimination


def rows_of_columns(panel: Array, first: int, count: int) -> Array:
    """Fetch, for each column of a block, the row of the panel with the same position.

    panel: [m, width], rows from step `first` on -> [count, width], inside
    `jax.shard_map`; a sum along x, to which each row comes from its owner
    """
    width, rank = panel.shape[1], lax.axis_index("x")
    high, wide = (width // lax.axis_size(axis) for axis in "xy")
    step, at = jnp.divmod(positions("y", first * wide + count, width), width)
    step, at = step[first * wide :], at[first * wide :]
    row = (step - first) * high + at % high
    return lax.psum(jnp.where((at // high == rank)[:, None], panel[row], 0), "x")


def update(block: Array, after: Array, panel: Array, across: Array, tiles: int):
    """Subtract L L^H from what is left of the lower half of a block, tile by tile.

    block: [m, n], in so many tiles each way, `after` of them finished; panel:
    [k, width], the last rows of L, across: [l, width], its last columns -> [m, n]
    """
    high, wide = (size // tiles for size in block.shape)
    above, before = len(block) - len(panel), block.shape[1] - len(across)

    def tile(i, j, block):
        left = lax.dynamic_slice_in_dim(panel, i * high - above, high)
        right = lax.dynamic_slice_in_dim(across, j * wide - before, wide)
        old = lax.dynamic_slice(block, (i * high, j * wide), (high, wide))
        new = old - dot(left, right.conj().T)
        return lax.dynamic_update_slice(block, new, (i * high, j * wide))

    def column(j, block):
        return lax.fori_loop(j, tiles, lambda i, block: tile(i, j, block), block)

    return lax.fori_loop(after, tiles, column, block)


def fetch(block: Array, first: int, width: int, step: Array) -> tuple[Array, Array]:
    """Fetch the columns of a step, from that of step `first` on, and their head.

    block: [m, n] -> panel [m', width], rows of this block, and head [width, width]
    """
    high, wide = (width // lax.axis_size(axis) for axis in "xy")
    up, top, left = first * high, step * high, step * wide
    panel = lax.dynamic_slice(block, (up, left), (len(block) - up, wide))
    panel = lax.all_gather(panel, "y", axis=1, tiled=True)
    head = lax.dynamic_slice_in_dim(panel, top - up, high)
    return panel, lax.all_gather(head, "x", tiled=True)


def below(panel: Array, first: int, step: Array) -> Array:
    """Put zeros into the rows of a panel that are not below its head."""
    high = panel.shape[1] // lax.axis_size("x")
    rows = (first * high + jnp.arange(len(panel)) >= (step + 1) * high)[:, None]
    return jnp.where(rows, panel, jnp.zeros_like(panel))


def store(block: Array, panel: Array, head: Array, first: int, step: Array) -> Array:
    """Put a panel and its head back into the block that `fetch` took them from."""
    high, wide = (len(head) // lax.axis_size(axis) for axis in "xy")
    up, top, left = first * high, step * high, step * wide
    head = lax.dynamic_slice_in_dim(head, lax.axis_index("x") * high, high)
    panel = lax.dynamic_update_slice_in_dim(panel, head, top - up, 0)
    mine = lax.dynamic_slice_in_dim(panel, lax.axis_index("y") * wide, wide, axis=1)
    return lax.dynamic_update_slice(block, mine, (up, left))


def divide(panel: Array, head: Array) -> Array:
    """Return the panel times the inverse of head^H, where head is a lower triangle."""
    return solve_triangle(head, panel, lower=True, transpose_a=True, conjugate_a=True)


def eliminate_strip(first: int, plan: Plan, step: Array, block: Array) -> Array:
    """Take one step on a block of which `first` steps, at least, have been taken."""
    width = plan.pieces * plan.strip
    panel, head = fetch(block, first, width, step)
    head = lax.linalg.cholesky(head, symmetrize_input=False)
    panel = below(divide(panel, head), first, step)
    columns = block.shape[1] - first * width // lax.axis_size("y")
    across = rows_of_columns(panel, first, columns)
    after = (step + 1) // (plan.steps // plan.tiles)
    block = update(block, after, panel, across, plan.tiles)
    return store(block, panel, head, first, step)


def phi(square: Array) -> Array:
    """Leave out what is above the diagonal, and half of the diagonal itself."""
    return jnp.tril(square) - jnp.diag(jnp.diagonal(square)) / 2


def change_strip(first: int, plan: Plan, step: Array, block: Array, change: Array):
    """Take one step of how L changes: `block` is of L, `change` of a's change.

    [m, n], [m, n] -> [m, n]: what was of a's change is, step by step, of L's. The
    derivative of A = L L^H is A' = L' L^H + L L'^H; so L' = L phi(L^-1 A' L^-H).
    """
    width = plan.pieces * plan.strip
    panel, head = fetch(block, first, width, step)
    panel_change, head_change = fetch(change, first, width, step)

    half = phi(head_change)
    inner = solve_triangle(head, half + half.conj().T, left_side=True, lower=True)
    head_change = dot(head, phi(divide(inner, head)))

    panel = below(panel, first, step)
    panel_change = divide(panel_change - dot(panel, head_change.conj().T), head)
    panel_change = below(panel_change, first, step)
    columns = block.shape[1] - first * width // lax.axis_size("y")
    across, across_change = (
        rows_of_columns(each, first, columns) for each in (panel, panel_change)
    )
    rest = dot(panel_change, across.conj().T) + dot(panel, across_change.conj().T)
    change = change.at[-len(rest) :, -columns:].add(-rest)
    return store(change, panel_change, head_change, first, step)


# ------------------------------------------------------------------ what you call


def check_array(name: str, a: Array):
    """Raise ValueError unless this argument is an array of numbers."""
    kind = f"of {a.dtype}" if hasattr(a, "dtype") else f"a {type(a).__name__}"
    dtype = getattr(a, "dtype", object)
    if not (jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool):
        raise ValueError(f"{name} is {kind}: pass an array of numbers")


def check_hermitian(a: Array):
    """Raise ValueError unless `a` is a square matrix of a type that has a factor."""
    check_array("a", a)
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"a {a.shape} is no square matrix: pass [N, N]")
    if not a.size:
        raise ValueError(f"a {a.shape} is empty: pass [N, N] with N of 1 or more")
    if a.dtype.name not in DTYPES:
        raise ValueError(f"{a.dtype} has no factor here: pass one of {DTYPES}")


def check_right(factor: Factor, b: Array):
    """Raise ValueError unless `b` holds right-hand sides for a factor made here."""
    check_array("b", b)
    if not isinstance(factor, Factor):
        kind = type(factor).__name__
        raise ValueError(f"a {kind} is no factor: pass what cho_factor returns")
    if (sizes := tuple(mesh_sizes("x", "y"))) != factor.mesh:
        raise ValueError(
            f"the factor was made on a mesh of {factor.mesh}, not of {sizes}: call "
            "cho_factor and cho_solve on the same one"
        )
    n = len(factor.a)
    if b.ndim not in (1, 2) or b.shape[0] != n:
        raise ValueError(f"b {b.shape} does not fit a {n, n}: pass [{n}] or [{n}, K]")


def stretches(plan: Plan) -> list[tuple[int, int]]:
    """Return the first step of each window, and the one behind its last."""
    cuts = [plan.tiles * i // STAGES for i in range(STAGES + 1)]
    steps = [cut * plan.steps // plan.tiles for cut in cuts]
    return [(first, last) for first, last in itertools.pairwise(steps) if first < last]


@jax.custom_jvp
@jax.jit
def lower_factor(a: Array) -> Array:
    """Return c, in loops over a few windows: [N@x, N@y] -> [M@x, M@y]."""
    n = len(a)
    plan = plan_elimination(n)

    @jax.shard_map(in_specs=BLOCKS, out_specs=BLOCKS)
    def run(block):
        block = lower_half(in_steps(block, n), n, padding=1)
        for first, last in stretches(plan):
            step = functools.partial(eliminate_strip, first, plan)
            block = lax.fori_loop(first, last, step, block)
        failed = lax.psum(jnp.isnan(block).any().astype(jnp.int32), ("x", "y"))
        return jnp.where(failed > 0, jnp.nan, block)

    return run(in_blocks(a))


@lower_factor.defjvp
def _change(primals, tangents):
    c = lower_factor(*primals)
    return c, change_of_factor(c, *tangents)


@jax.jit
def change_of_factor(c: Array, change: Array) -> Array:
    """Return how c changes as a does, a pass over the steps: [N@x, N@y] -> [M@x, M@y].

    As in JAX, what counts is the Hermitian part of the change.
    """
    n = len(change)
    plan = plan_elimination(n)

    @jax.shard_map(in_specs=(BLOCKS, BLOCKS), out_specs=BLOCKS)
    def run(block, change):
        change = lower_half(in_steps(change, n), n, padding=0)
        for first, last in stretches(plan):
            step = functools.partial(change_strip, first, plan)
            # a gradient fetches what a step needs of c anew, and keeps nothing
            step = jax.checkpoint(step, prevent_cse=False)
            turn = functools.partial(lambda step, i, x: step(i, block, x), step)
            change = lax.fori_loop(first, last, turn, change)
        return lower_half(change, n, padding=0)

    change = in_blocks(change)
    return run(c, (change + place(change.conj().T, BLOCKS)) / 2)


def cho_factor(a: Array) -> Factor:
    """Factor a Hermitian positive definite matrix, and leave its blocks in place.

    a: [N@x, N@y] -> Factor, c: [M@x, M@y], zero above the diagonal

    Floating-point or complex, of 4 bytes a number or 8. If a is not positive definite,
    c is NaN. Derivatives of either mode go through c, by a pass over its steps. Raises
    ValueError for what is no such matrix, and for a mesh without x and y.
    """
    sizes = tuple(mesh_sizes("x", "y"))
    check_hermitian(a)
    return Factor(a, lower_factor(a), sizes)


def sweep(block: Array, b: Array, axes: tuple[str, str], lower: bool) -> Array:
    """Solve with the triangle in `block`, a step at a time.

    block: [m, n], its rows along axes[0]; b: [steps, width, K] -> [steps, width, K]
    """
    rows, columns = axes
    steps, width, sides = b.shape
    high, wide = width // lax.axis_size(rows), width // lax.axis_size(columns)
    left = lax.axis_index(columns) * wide

    def take(i, x):
        step = i if lower else steps - 1 - i
        strip = lax.dynamic_slice_in_dim(block, step * high, high)
        known = lax.dynamic_slice_in_dim(x, left, wide, axis=1)  # and zeros
        sums = lax.psum(dot(strip, known.reshape(steps * wide, sides)), columns)
        sums = lax.all_gather(sums, rows, tiled=True)
        head = lax.dynamic_slice_in_dim(strip, step * wide, wide, axis=1)
        head = lax.all_gather(head, rows, tiled=True)
        head = lax.all_gather(head, columns, axis=1, tiled=True)
        now = solve_triangle(head, b[step] - sums, left_side=True, lower=lower)
        return lax.dynamic_update_index_in_dim(x, now, step, 0)

    return lax.fori_loop(0, steps, take, jnp.zeros_like(block, shape=b.shape))


def both_sweeps(c: Array, b: Array) -> Array:
    """Solve L L^H x = b, with the rows of b and x as those of a: [N, K] -> [N, K]."""
    before = order(len(b))

    @jax.shard_map(in_specs=(BLOCKS, jax.P()), out_specs=jax.P())
    def run(block, b):
        block = block.astype(b.dtype)
        x = sweep(block, b, ("x", "y"), lower=True)
        x = sweep(block.conj().T, x, ("y", "x"), lower=False)
        first = lax.axis_index("x") + lax.axis_index("y") == 0
        return lax.psum(jnp.where(first, x, 0), ("x", "y"))

    sides = b.at[before].get(mode="fill", fill_value=0)
    return jnp.zeros_like(b).at[before].set(run(c, sides), mode="drop")


def times(a: Array, x: Array) -> Array:
    """Return a x, and leave a in its place: [N@x, N@y], [N, K] -> [N, K]."""

    @jax.shard_map(in_specs=(BLOCKS, jax.P("y")), out_specs=jax.P("x"))
    def run(block, part):
        return lax.psum(dot(block, part), "y")

    a, n = in_blocks(a), len(x)
    x = place(jnp.pad(x, ((0, len(a) - n), (0, 0))), jax.P("y"))
    return place(run(a, x), jax.P())[:n]


@jax.custom_jvp
def factor_of(a: Array, c: Array) -> Array:
    """Return c, whose change says nothing that the change of a does not say."""
    del a
    return c


@functools.partial(factor_of.defjvp, symbolic_zeros=True)
def _follows(primals, tangents):
    none = jax.custom_derivatives.SymbolicZero
    if isinstance(tangents[0], none) and not isinstance(tangents[1], none):
        raise ValueError(
            "cho_solve has no derivative by c alone: differentiate by the a that "
            "cho_factor was given"
        )
    return primals[1], jnp.zeros_like(primals[1])


def cho_solve(factor: Factor, b: Array) -> Array:
    """Solve a x = b for a Hermitian positive definite a, given its factor.

    b: [N] or [N, K] -> x of the same shape, on all devices

    Derivatives of either mode go to a and b, and reuse the factor. If a is not positive
    definite, x is NaN. Raises ValueError for a b that does not fit, for a factor from a
    mesh of other sizes, and if c has a derivative but a has none.
    """
    check_right(factor, b)
    return solve_by_sweeps(factor.a, factor.c, b)


@jax.jit
def solve_by_sweeps(a: Array, c: Array, b: Array) -> Array:
    """Do what `cho_solve` says: [N@x, N@y], [M@x, M@y], [N] or [N, K] -> as b."""
    c = factor_of(a, c)
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(a, b)
    sides = place(b, jax.P()).astype(dtype)
    sides = sides[:, None] if b.ndim == 1 else sides
    x = lax.custom_linear_solve(
        lambda x: times(a.astype(dtype), x),
        sides,
        lambda _, b: both_sweeps(c, b),
        lambda _, b: both_sweeps(c, b.conj()).conj(),  # for a^T, which is conj(a)
    )
    return x.reshape(b.shape)


def cost(function: Callable, a: jax.ShapeDtypeStruct) -> Cost:
    """Predict what `cho_factor(a)` sends on the mesh in context: [N@x, N@y] -> Cost."""
    if function is not cho_factor:
        raise ValueError(f"no cost is known of {function}: pass cho_factor")
    (x, y), plan = mesh_sizes("x", "y"), plan_elimination(len(a))
    square = (plan.pieces * plan.strip) ** 2 * a.dtype.itemsize
    left = sum((last - i) * (plan.steps - i) for i, last in stretches(plan))
    parts = {
        "panels": left * square * (y - 1) // (x * y),
        "rows of columns": 2 * left * square * (x - 1) // (x * y),
        "heads": plan.steps * square * (x - 1) // x,
        "failure": ceil_div(2 * 4 * (x * y - 1), x * y),
    }
    return Cost(sum(parts.values()), parts)


def main():
    """Solve equations whose solution is all ones, on every device there is."""
    count = jax.device_count()
    x = max(i for i in range(1, math.isqrt(count) + 1) if count % i == 0)
    with jax.set_mesh(jax.make_mesh((x, count // x), ("x", "y"))):
        n = 32 * count
        i = jnp.arange(n, dtype=jnp.float32)
        a = jax.jit(lambda i: place(jnp.exp(-jnp.abs(i[:, None] - i)), BLOCKS))(i)
        b = jax.jit(times)(a, jnp.ones((n, 1)))
        error = jnp.abs(cho_solve(cho_factor(a), b) - 1).max()
        print(f"{jax.typeof(a)}  {'solved' if error < 1e-3 else 'not solved'}")


if __name__ == "__main__":
    main()
