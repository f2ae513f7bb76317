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

Of a_ij and a_ji only the one that is below the diagonal in that order is read, as JAX
does with `symmetrize_input=False`; of an `a` that may be neither, pass the mean.

A step gathers `width` columns along y, factors their head on every device, and sums up
along x the rows of L that belong to the columns of a device. In the end a device has
sent about N^2 / 2X words for the columns and N^2 / Y for the rows, times 1 - 1/Y and
1 - 1/X (`cost` has the bytes), and done a P-th of N^3 / 6 multiplications, and more for
a small N: about twice as many for N = 1024, 1.5 times for 4096 (2 x 4 devices). Prefer
X <= Y. With products of bfloat16, which a machine does faster, the second term halves,
and L has two digits or three: `refine` of refinement.py brings the others back.

A derivative of c sends and works several times as much, and transposes a: where
neither X nor Y divides the other, XLA gathers it for that.

Where inputs may lie: anywhere, NumPy's too. They are laid out as above first, along the
two `axes` of the mesh that you name, both Auto or both Explicit. Other axes are left
alone, whatever their type, and what is not split over them is done on each. A batch on
one is for `jax.vmap(f, spmd_axis_name="z")`; if "z" is Auto, JAX gathers it otherwise.

Source: Choi, Dongarra, Ostrouchov, Petitet, Walker and Whaley, Design and
Implementation of the ScaLAPACK LU, QR, and Cholesky Factorization Routines, Sci.
Program. 5 (1996).

    JAX_NUM_CPU_DEVICES=8 python cholesky.py

Copy this file alone: it needs JAX only.
"""

import functools
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

WIDTH = 128  # of a panel: wide enough for fast products, narrow beside the matrix
TILE = 256  # rows or columns, at most, of what one product updates
STAGES = 4  # windows of shrinking height, each with a loop of its own
AXES = "x", "y"
DTYPES = "float32", "float64", "complex64", "complex128"
ROUNDED = {(real, few) for real in DTYPES[:2] for few in ("bfloat16", "float16")}

dot = functools.partial(jnp.dot, precision=lax.Precision.HIGHEST)
solve_triangle = lax.linalg.triangular_solve
# unchecked, as JAX cannot check what `jax.vmap` does with spmd_axis_name
on_devices = functools.partial(jax.shard_map, check_vma=False)


class Plan(NamedTuple):
    """How n indices are eliminated: `pieces` of `size`, in `steps`, a `strip` of each.

    The steps make `tiles`; pieces end with what pads them to steps x strip. Of these
    steps, `first` at least have been taken.
    """

    n: int
    axes: tuple[str, str]
    mesh: tuple[int, int]
    size: int
    tiles: int
    steps: int
    strip: int
    first: int = 0
    product: str | None = None  # the type that its factors are rounded to, if to any

    pieces = property(lambda self: math.lcm(*self.mesh))
    width = property(lambda self: self.pieces * self.strip)
    shares = property(lambda self: [self.width // size for size in self.mesh])
    blocks = property(lambda self: jax.P(*self.axes))
    order = property(lambda self: jnp.minimum(step_indices(self.pieces, self), self.n))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Factor:
    """What `cho_factor` returns: `c` as above, `a` itself, and `info`.

    info, int32[], is 0, or else k: in the order of elimination, the first k rows and
    columns of a are not positive definite, and the first k - 1 are. It is LAPACK's.
    """

    a: Array
    c: Array
    info: Array
    plan: Plan = field(metadata={"static": True})


class Cost(NamedTuple):
    """What one device should send, in bytes: in all, and for each purpose."""

    sent: int
    parts: dict[str, int]


# ---------------------------------------------------------------- the layout


def sizes_of(axes: tuple[str, str]) -> tuple[int, int]:
    """Return the sizes of two axes of the mesh in context, or raise ValueError."""
    mesh = jax.sharding.get_abstract_mesh()
    if isinstance(axes, str) or len({*axes}) != 2 or len(axes) != 2:
        raise ValueError(f"axes = {axes!r}: pass the names of two axes of the mesh")
    if missing := [name for name in axes if name not in mesh.shape]:
        raise ValueError(f"no mesh axis {missing} in context: use `jax.set_mesh(mesh)`")
    if mesh.manual_axes:
        raise ValueError("a call inside `jax.shard_map`: take it out, it has its own")
    if len({name in mesh.auto_axes for name in axes}) > 1:  # XLA may abort
        raise ValueError(f"axes {axes} of two types: make all Auto or all Explicit")
    return tuple(mesh.shape[name] for name in axes)


def plan_elimination(n: int, axes: tuple[str, str] = AXES) -> Plan:
    """Plan the elimination of n rows and columns on the mesh in context."""
    x, y = sizes_of(axes)
    pieces = math.lcm(x, y)
    size = max(1, -(-n // pieces))
    strip = max(1, min(WIDTH, n // 16) // pieces)
    steps = max(2, -(-size // strip))  # a loop of one step may crash XLA 0.12
    most = max(1, min(TILE * min(x, y) // (strip * pieces), steps // STAGES))
    tiles = -(-steps // most)
    steps = tiles * -(-steps // tiles)
    return Plan(n, tuple(axes), (x, y), size, tiles, steps, -(-size // steps))


def step_indices(pieces: int, plan: Plan) -> Array:
    """Return the indices of these pieces step by step, pieces x size for the padding.

    -> int32[steps, pieces strip]
    """
    at = jnp.arange(plan.steps * plan.strip, dtype=jnp.int32).reshape(plan.steps, 1, -1)
    index = jnp.arange(pieces, dtype=jnp.int32)[None, :, None] * plan.size + at
    return jnp.where(at < plan.size, index, pieces * plan.size).reshape(plan.steps, -1)


def order(n: int, axes: tuple[str, str] = AXES) -> Array:
    """Return the order in which n indices are eliminated: int32[steps, width].

    n stands where there is nothing but padding.
    """
    return plan_elimination(n, axes).order


def positions(axis_name: str, count: int, width: int) -> Array:
    """Return when the rows (axis x) or columns (axis y) of a block are eliminated.

    -> int32[count], for the first `count` of them; inside `jax.shard_map`
    """
    share = width // lax.axis_size(axis_name)
    step, at = jnp.divmod(jnp.arange(count, dtype=jnp.int32), share)
    return step * width + lax.axis_index(axis_name) * share + at


def in_steps(block: Array, plan: Plan) -> Array:
    """Sort a block of a by steps, and fill it up by zeros.

    [N / X, N / Y] -> [M / X, M / Y], inside `jax.shard_map`; nothing is sent
    """
    rows, columns = (step_indices(n // plan.size, plan).ravel() for n in block.shape)
    # not one transpose of six axes: a TPU pads the last, the strip, to 128
    sorted_rows = block.at[rows].get(mode="fill", fill_value=0)
    return sorted_rows.at[:, columns].get(mode="fill", fill_value=0)


def lower_half(block: Array, plan: Plan, padding: int) -> Array:
    """Put zeros above the diagonal of a block in steps, and `padding` where a ends."""
    row, column = map(positions, plan.axes, block.shape, [plan.width] * 2)
    ends = (row[:, None] == column[None]) & (plan.order.ravel()[row] == plan.n)[:, None]
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


def pad_square(a: Array, plan: Plan) -> Array:
    """Lay a matrix out in blocks; zeros fill it up if the mesh does not divide it."""
    more = plan.size * plan.pieces - len(a)
    return place(jnp.pad(a, (0, more)) if more else a, plan.blocks)


# ---------------------------------------------------------------- the elimination


def rows_of_columns(panel: Array, count: int, plan: Plan) -> Array:
    """Return, for each column of a block, the row of the panel at the same position.

    panel: [m, width], rows from step `first` on -> [count, width], inside
    `jax.shard_map`; a sum along x, to which each row comes from its owner
    """
    (x, y), high = plan.axes, plan.shares[0]
    step, at = jnp.divmod(positions(y, count, plan.width), plan.width)
    mine = at // high == lax.axis_index(x)
    return lax.psum(jnp.where(mine[:, None], panel[step * high + at % high], 0), x)


def update(block: Array, panel: Array, plan: Plan, step: Array) -> Array:
    """Subtract L L^H from what is left of the lower half of a block, tile by tile.

    block: [m, n]; panel: [k, width], the last rows of L -> [m, n]
    """
    high, wide = (size // plan.tiles for size in block.shape)
    above, before = len(block) - len(panel), plan.first * plan.shares[1]
    finished = (step + 1) // (plan.steps // plan.tiles)
    panel = panel.astype(plan.product or panel.dtype)  # also in what is sent
    across = rows_of_columns(panel, block.shape[1] - before, plan)

    def tile(j, i, block):
        left = lax.dynamic_slice_in_dim(panel, i * high - above, high)
        right = lax.dynamic_slice_in_dim(across, j * wide - before, wide)
        old = lax.dynamic_slice(block, (i * high, j * wide), (high, wide))
        product = dot(left, right.conj().T, preferred_element_type=block.dtype)
        return lax.dynamic_update_slice(block, old - product, (i * high, j * wide))

    def column(j, block):
        return lax.fori_loop(j, plan.tiles, functools.partial(tile, j), block)

    return lax.fori_loop(finished, plan.tiles, column, block)


def gather_strip(block: Array, plan: Plan, step: Array) -> tuple[Array, Array]:
    """Gather the columns of a step along y, and along x the head that they have.

    block: [m, n] -> panel [m', width], rows of this block, and head [width, width]
    """
    (x, y), (high, wide) = plan.axes, plan.shares
    up, top, left = plan.first * high, step * high, step * wide
    panel = lax.dynamic_slice(block, (up, left), (len(block) - up, wide))
    panel = lax.all_gather(panel, y, axis=1, tiled=True)
    head = lax.dynamic_slice_in_dim(panel, top - up, high)
    return panel, lax.all_gather(head, x, tiled=True)


def rows_below_head(panel: Array, plan: Plan, step: Array) -> Array:
    """Put zeros into the rows of a panel that are not below its head."""
    rows = jnp.arange(len(panel)) >= (step + 1 - plan.first) * plan.shares[0]
    return jnp.where(rows[:, None], panel, jnp.zeros_like(panel))


def write_strip(block: Array, panel: Array, head: Array, plan: Plan, step: Array):
    """Put a panel and its head back to where `gather_strip` took them: -> [m, n]."""
    (x, y), (high, wide) = plan.axes, plan.shares
    up, top, left = plan.first * high, step * high, step * wide
    head = lax.dynamic_slice_in_dim(head, lax.axis_index(x) * high, high)
    panel = lax.dynamic_update_slice_in_dim(panel, head, top - up, 0)
    mine = lax.dynamic_slice_in_dim(panel, lax.axis_index(y) * wide, wide, axis=1)
    return lax.dynamic_update_slice(block, mine, (up, left))


def right_solve(panel: Array, head: Array) -> Array:
    """Return the panel times the inverse of head^H, where head is a lower triangle."""
    return solve_triangle(head, panel, lower=True, transpose_a=True, conjugate_a=True)


def eliminate_strip(plan: Plan, step: Array, state):
    """Take one step: state is the block, and the first step that failed, and its head.

    Every device factors the same heads, so all know of a failure without a message.
    """
    block, failed, failed_head = state
    panel, head = gather_strip(block, plan, step)
    lower = lax.linalg.cholesky(head, symmetrize_input=False)
    now = jnp.isnan(lower).any() & (failed == plan.steps)
    failure = jnp.where(now, step, failed), jnp.where(now, head, failed_head)

    panel = rows_below_head(right_solve(panel, lower), plan, step)
    block = update(block, panel, plan, step)
    return write_strip(block, panel, lower, plan, step), *failure


def leading_minors(head: Array) -> Array:
    """Return how many pivots are positive before the first that is not: int32[1]."""

    def column(j, state):
        rest, count = state
        pivot, below = rest[j, j].real, rest[:, j]
        count = jnp.where((count == j) & (pivot > 0), count + 1, count)
        return rest - jnp.outer(below, below.conj()) / pivot.astype(rest.dtype), count

    # JAX lays out no number alone over the axis of a batch
    return lax.fori_loop(0, len(head), column, (head, jnp.zeros(1, int)))[1]


def lapack_info(failed: Array, head: Array, plan: Plan) -> Array:
    """Count the rows of a up to the pivot that failed, or return 0 if none did."""
    # by rounding, the count may take for positive what LAPACK did not
    at = failed * plan.width + jnp.minimum(leading_minors(head), plan.width - 1)
    row = plan.order.ravel() < plan.n  # of a, and not of the padding
    before = (jnp.arange(row.size) <= at) & (failed < plan.steps)
    return (row & before).sum(dtype=jnp.int32)


def half_tril(square: Array) -> Array:
    """Return the lower triangle, with half of the diagonal."""
    return jnp.tril(square) - jnp.diag(jnp.diagonal(square)) / 2


def differentiate_strip(plan: Plan, block: Array, step: Array, change: Array):
    """Take one step of the tangent of L: `block` is of L, `change` of a's tangent.

    [m, n], [m, n] -> [m, n]: what was of a's change is, step by step, of L's. The
    derivative of A = L L^H is A' = L' L^H + L L'^H; so L' = L phi(L^-1 A' L^-H).
    """
    panel, head = gather_strip(block, plan, step)
    panel_change, head_change = gather_strip(change, plan, step)

    half = half_tril(head_change)
    inner = solve_triangle(head, half + half.conj().T, left_side=True, lower=True)
    head_change = dot(head, half_tril(right_solve(inner, head)))

    panel = rows_below_head(panel, plan, step)
    panel_change = right_solve(panel_change - dot(panel, head_change.conj().T), head)
    panel_change = rows_below_head(panel_change, plan, step)
    columns = block.shape[1] - plan.first * plan.shares[1]
    across = rows_of_columns(panel, columns, plan)
    across_change = rows_of_columns(panel_change, columns, plan)
    rest = dot(panel_change, across.conj().T) + dot(panel, across_change.conj().T)
    change = change.at[-len(rest) :, -columns:].add(-rest)
    return write_strip(change, panel_change, head_change, plan, step)


# ------------------------------------------------------------------ what you call


def check_array(name: str, a: Array):
    """Raise ValueError unless this argument is an array of numbers."""
    kind = f"of {a.dtype}" if hasattr(a, "dtype") else f"a {type(a).__name__}"
    dtype = getattr(a, "dtype", object)
    if not (jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool):
        raise ValueError(f"{name} is {kind}: pass an array of numbers")


def check_hermitian(a: Array, product_dtype=None):
    """Raise ValueError unless `a` is a square matrix of a type that has a factor."""
    check_array("a", a)
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"a {a.shape} is no square matrix: pass [N, N]")
    if a.dtype.name not in DTYPES:
        raise ValueError(f"{a.dtype} has no factor here: pass one of {DTYPES}")
    if product_dtype and (a.dtype.name, jnp.dtype(product_dtype).name) not in ROUNDED:
        raise ValueError(f"{product_dtype} and {a.dtype}: round real a to bfloat16")


def check_right(factor: Factor, b: Array):
    """Raise ValueError unless `b` holds right-hand sides for a factor made here."""
    check_array("b", b)
    if not isinstance(factor, Factor):
        raise ValueError(f"no factor but {type(factor)}: pass what cho_factor returns")
    mesh, n = factor.plan.mesh, factor.plan.n
    if (sizes := sizes_of(factor.plan.axes)) != mesh:
        raise ValueError(f"a factor of a mesh of {mesh}, not of {sizes}: use that one")
    if b.ndim not in (1, 2) or b.shape[0] != n:
        raise ValueError(f"b {b.shape} does not fit a {n, n}: pass [{n}] or [{n}, K]")


def plan_windows(plan: Plan) -> list[tuple[int, Plan]]:
    """Return the plan of each window, and the step behind its last."""
    cuts = [plan.tiles * i // STAGES * plan.steps // plan.tiles for i in range(STAGES)]
    pairs = zip(cuts, (*cuts[1:], plan.steps), strict=True)
    return [(plan._replace(first=first), last) for first, last in pairs if first < last]


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
@jax.jit(static_argnums=1)
def lower_factor(a: Array, plan: Plan) -> tuple[Array, Array]:
    """Return c and info, in loops over a few windows: [N@x, N@y] -> [M@x, M@y], []."""

    @on_devices(in_specs=plan.blocks, out_specs=(plan.blocks, jax.P()))
    def run(block):
        block = lower_half(in_steps(block, plan), plan, padding=1)
        state = block, jnp.full(1, plan.steps), jnp.zeros([plan.width] * 2, block.dtype)
        for window, last in plan_windows(plan):
            step = functools.partial(eliminate_strip, window)
            state = lax.fori_loop(window.first, last, step, state)
        block, *failure = state
        info = lapack_info(*failure, plan)
        return jnp.where(info > 0, jnp.nan, block), info

    return run(pad_square(a, plan))


@lower_factor.defjvp
def _lower_factor_jvp(plan, primals, tangents):
    c, info = lower_factor(*primals, plan)
    none = jax.custom_derivatives.zero_from_primal(info)
    return (c, info), (change_of_factor(c, *tangents, plan), none)


@jax.jit(static_argnums=2)
def change_of_factor(c: Array, change: Array, plan: Plan) -> Array:
    """Return the tangent of c for that of a, step by step: [N@x, N@y] -> [M@x, M@y].

    As in JAX, what counts is the Hermitian part of the change.
    """

    @on_devices(in_specs=plan.blocks, out_specs=plan.blocks)
    def run(block, change):
        change = lower_half(in_steps(change, plan), plan, padding=0)
        for window, last in plan_windows(plan):
            # a gradient fetches what a step needs of c anew, and keeps nothing
            step = functools.partial(differentiate_strip, window, block)
            step = jax.checkpoint(step, prevent_cse=False)
            change = lax.fori_loop(window.first, last, step, change)
        return lower_half(change, plan, padding=0)

    change = pad_square(change, plan)
    return run(c, (change + place(change.conj().T, plan.blocks)) / 2)


def cho_factor(a: Array, *, axes=AXES, product_dtype=None) -> Factor:
    """Factor a Hermitian positive definite matrix, and leave its blocks in place.

    a: [N@x, N@y] -> Factor, c: [M@x, M@y], in steps, and zero above the diagonal in
    that order alone

    Floating-point or complex, of 4 bytes a number or 8; `axes` are your names for x and
    y. If a is not positive definite, c is NaN, and info says where. Derivatives of
    either mode go through c, by a pass over its steps. Numbers of a real `a` are
    rounded to `product_dtype`, such as "bfloat16", where L is multiplied by itself;
    sums stay in their type. Raises ValueError for what is no such matrix, for a mesh
    without these axes, inside `jax.shard_map`, and for a type that rounds nothing.
    """
    check_hermitian(a, product_dtype)
    plan = plan_elimination(len(a), axes)._replace(product=product_dtype)
    return Factor(a, *lower_factor(a, plan), plan)


def all_reduce_head(square: Array, part: Array, axes: tuple[str, str]):
    """Bring a square together, and add up what is beside it, by one sum over all.

    square: [high, wide], part: [high, K] -> [width, width], [width, K]
    """
    row, column = map(lambda axis, n: lax.axis_index(axis) * n, axes, square.shape)
    width = len(square) * lax.axis_size(axes[0])
    mine = jnp.zeros_like(part, shape=(width, width + part.shape[1]))
    mine = lax.dynamic_update_slice(mine, square, (row, column))
    mine = lax.dynamic_update_slice(mine, part, (row, jnp.full_like(row, width)))
    return jnp.split(lax.psum(mine, axes), [width], axis=1)


def solve_strips(block: Array, b: Array, axes: tuple[str, str], lower: bool) -> Array:
    """Solve with the triangle in `block`, a step at a time.

    block: [m, n], its rows along axes[0]; b: [steps, width, K] -> [steps, width, K]
    """
    steps, width, sides = b.shape
    high, wide = (width // lax.axis_size(axis) for axis in axes)

    def take(i, x):
        step = i if lower else steps - 1 - i
        strip = lax.dynamic_slice_in_dim(block, step * high, high)
        # and zeros, for what comes later
        known = lax.dynamic_slice_in_dim(x, lax.axis_index(axes[1]) * wide, wide, 1)
        sums = dot(strip, known.reshape(steps * wide, sides))
        head = lax.dynamic_slice_in_dim(strip, step * wide, wide, axis=1)
        head, sums = all_reduce_head(head, sums, axes)
        now = solve_triangle(head, b[step] - sums, left_side=True, lower=lower)
        return lax.dynamic_update_index_in_dim(x, now, step, 0)

    return lax.fori_loop(0, steps, take, jnp.zeros_like(b))


def solve_both(c: Array, b: Array, plan: Plan) -> Array:
    """Solve L L^H x = b, with the rows of b and x as those of a: [N, K] -> [N, K]."""

    @on_devices(in_specs=(plan.blocks, jax.P()), out_specs=jax.P())
    def run(block, b):
        x = solve_strips(block.astype(b.dtype), b, plan.axes, lower=True)
        block = block.astype(b.dtype).conj().T
        return solve_strips(block, x, plan.axes[::-1], lower=False)

    sides = b.at[plan.order].get(mode="fill", fill_value=0)
    return jnp.zeros_like(b).at[plan.order].set(run(c, sides), mode="drop")


def matvec(a: Array, x: Array, *, axes: tuple[str, str] = AXES) -> Array:
    """Return a x, and leave a in its place: [N@x, N@y], [N, K] -> [N, K]."""
    (row, column), plan = axes, plan_elimination(len(x), axes)

    @on_devices(in_specs=(plan.blocks, jax.P(column)), out_specs=jax.P(row))
    def run(block, part):
        return lax.psum(dot(block, part), column)

    a, n = pad_square(a, plan), len(x)
    x = place(jnp.pad(x, ((0, len(a) - n), (0, 0))), jax.P(column))
    return place(run(a, x), jax.P())[:n]


@jax.custom_jvp
def bind_factor(a: Array, c: Array) -> Array:
    """Return c; its tangent is that of `a`, so only `a` carries the derivative."""
    return c


@functools.partial(bind_factor.defjvp, symbolic_zeros=True)
def _bind_factor_jvp(primals, tangents):
    none = jax.custom_derivatives.SymbolicZero
    if isinstance(tangents[0], none) and not isinstance(tangents[1], none):
        raise ValueError("no derivative by c alone: differentiate by cho_factor's a")
    return primals[1], jnp.zeros_like(primals[1])


def cho_solve(factor: Factor, b: Array) -> Array:
    """Solve a x = b for a Hermitian positive definite a, given its factor.

    b: [N] or [N, K] -> x of the same shape, on all devices; the axes are the factor's

    Derivatives of either mode go to a and b, and reuse the factor. If a is not positive
    definite, x is NaN. Raises ValueError for a b that does not fit, for a factor from a
    mesh of other sizes, and if c has a derivative but a has none.
    """
    check_right(factor, b)
    return solve_by_sweeps(factor, b)


@jax.jit
def solve_by_sweeps(factor: Factor, b: Array) -> Array:
    """Return x of a x = b, given the factor of a: [N] or [N, K] -> as b."""
    c, plan = bind_factor(factor.a, factor.c), factor.plan
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(c, b)
    sides = place(b, jax.P()).astype(dtype)
    if not b.size:
        return sides
    x = lax.custom_linear_solve(
        lambda x: matvec(factor.a.astype(dtype), x, axes=plan.axes),
        sides[:, None] if b.ndim == 1 else sides,
        lambda _, b: solve_both(c, b, plan),
        lambda _, b: solve_both(c, b.conj(), plan).conj(),  # for a^T, which is conj(a)
    )
    return x.reshape(b.shape)


def cost(function, a: jax.ShapeDtypeStruct, *, axes=AXES, product_dtype=None) -> Cost:
    """Predict what `cho_factor(a)` sends on the mesh in context: [N@x, N@y] -> Cost.

    XLA:CPU widens a sum of bfloat16, and sends its rows of columns as float32.
    """
    if function is not cho_factor:
        raise ValueError(f"no cost is known of {function}: pass cho_factor")
    plan = plan_elimination(len(a), axes)
    (x, y), square = plan.mesh, plan.width**2 * a.dtype.itemsize
    left = sum((j - w.first) * (plan.steps - w.first) for w, j in plan_windows(plan))
    few = plan.width**2 * jnp.dtype(product_dtype or a.dtype).itemsize
    parts = {
        "panels": left * square * (y - 1) // (x * y),
        "rows of columns": 2 * left * few * (x - 1) // (x * y),
        "heads": plan.steps * square * (x - 1) // x,
    }
    return Cost(sum(parts.values()), parts)


def main():
    """Solve equations whose solution is all ones, on every device there is."""
    count = jax.device_count()
    x = max(i for i in range(1, math.isqrt(count) + 1) if count % i == 0)
    with jax.set_mesh(jax.make_mesh((x, count // x), AXES)):
        i = jnp.arange(32.0 * count)
        a = jax.jit(lambda i: place(jnp.exp(-jnp.abs(i[:, None] - i)), jax.P(*AXES)))(i)
        error = jnp.abs(cho_solve(cho_factor(a), a.sum(axis=1)) - 1).max()
        print(f"{jax.typeof(a)}  {'solved' if error < 1e-3 else 'not solved'}")


if __name__ == "__main__":
    main()
