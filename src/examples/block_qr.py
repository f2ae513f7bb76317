# SPDX-License-Identifier: MIT-0
"""QR factors and least squares of a matrix of any shape, all of it in blocks.

Reflectors make a triangle of the matrix, a panel of columns at a time, and one product
takes a panel's reflectors to the columns that are left. Columns are taken from all
blocks in turn, so that every device has a share in every step; rows stay where they
are, since the rows of r may come from any of them: those come from all blocks in turn.

    a     [M@x, N@y]   any M and N; X x Y = P devices; K = min(M, N)
    q     [M@x, K@y]   columns of length 1, at right angles, of any rank of a
    r     [K@x, N@y]   upper triangular, no negative number on its diagonal
    b, x  [M@x, L@y]   right-hand sides, and [N@x, L@y], the solutions of least squares

An axis of the mesh that divides a size splits it; of one that does not, all devices
have that side whole. Arguments may lie anywhere, and be of NumPy. Further axes of the
mesh are left alone. A batch takes `jax.vmap`, on Auto axes with its `spmd_axis_name`:
not along an Explicit axis.

A step gathers its panel along y, finds a reflector for each of its columns with one
all-reduce of two rows along x, and sums the panel's products with what is left along x.
For a tall a, and q with it, that is about 2 M N / X words of panels times 1 - 1/Y, and
(N / Y) (N + 2 width Y) of sums, times 2 - 2/X; N + 3 steps all-reduces, most of them
small. `cost` has the numbers. Beside a, q and r a device holds a panel and some rows:
no device holds one of them whole. For a tall matrix of few columns tsqr.py sends less.

Derivatives of either mode and any order, for M >= N and full rank, as in JAX.

Sources: Choi, Dongarra, Ostrouchov, Petitet, Walker and Whaley, Design and
Implementation of the ScaLAPACK LU, QR, and Cholesky Factorization Routines, Sci.
Program. 5 (1996). Joffrain, Low, Quintana-Orti, van de Geijn and Van Zee, Accumulating
Householder transformations, revisited, ACM Trans. Math. Softw. 32 (2006),
https://doi.org/10.1145/1141885.1141886.

    JAX_NUM_CPU_DEVICES=8 python block_qr.py

Copy this file alone: it needs JAX only.
"""

import functools
import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

WIDTH = 32  # columns a panel: more make fewer sums, and longer ones
STAGES = 4  # windows of the rows that are left, each with a loop of its own
AXES = "x", "y"
DTYPES = "float32", "float64", "complex64", "complex128"

dot = functools.partial(jnp.dot, precision=lax.Precision.HIGHEST)
count_up = functools.partial(jnp.arange, dtype=jnp.int32)  # with 64 bits or without
# under `vmap` JAX 0.12 says that what is mapped and what is not vary over other axes
shard_map = functools.partial(jax.shard_map, check_vma=False)


class Plan(NamedTuple):
    """How k columns are taken: `width` a step, on X x Y devices along two axes."""

    k: int
    width: int
    steps: int
    axes: tuple[str, str]
    sizes: tuple[int, int]

    @property
    def shares(self) -> tuple[int, int]:
        """Return how many rows and columns of each block a step takes."""
        return self.width // self.sizes[0], self.width // self.sizes[1]

    @property
    def blocks(self) -> jax.P:
        """Return the spec of a matrix in blocks."""
        return jax.P(*self.axes)


class Fit(NamedTuple):
    """What `lstsq_blocks` returns: the solutions, and how far columns are independent.

    x [N@x, L@y]; ratio float[], on all devices: of all columns of a, the least sine of
    the angle between one and those before it. It is 1 if all are at right angles, and
    about N roundings if some depend on others: then x means nothing.
    """

    x: Array
    ratio: Array


class Cost(NamedTuple):
    """What one device should send: bytes in all, and for each purpose."""

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


def plan_panels(k: int, axes: tuple[str, str] = AXES) -> Plan:
    """Plan the steps for k columns on the mesh in context, or raise ValueError."""
    if len({*axes}) != 2 or len(axes) != 2:
        raise ValueError(f"axes {axes}: pass the names of two axes of the mesh")
    sizes = mesh_sizes(*axes)
    if {*axes} & {*jax.sharding.get_abstract_mesh().manual_axes}:
        raise ValueError(f"inside a shard_map over {axes}: call this outside of it")
    unit = math.lcm(*sizes)
    width = min(max(k // 16, 4), WIDTH) // unit * unit or unit
    return Plan(k, width, ceil_div(k, width), tuple(axes), tuple(sizes))


def stages(steps: int) -> list[tuple[int, int]]:
    """Return the first step of each window, and the one behind its last."""
    cuts = [steps * i // STAGES for i in range(STAGES + 1)]
    return [(i, j) for i, j in itertools.pairwise(cuts) if i < j]


def pad_blocks(a: Array, plan: Plan) -> Array:
    """Lay a matrix out in blocks; zeros fill it up if the mesh does not divide it."""
    more = zip(a.shape, plan.sizes, strict=True)
    return place(jnp.pad(a, [(0, -n % size) for n, size in more]), plan.blocks)


def unpad_blocks(a: Array, shape: tuple[int, int], plan: Plan) -> Array:
    """Drop what filled up; an axis of the mesh that divides no more holds all."""
    parts = zip(shape, plan.axes, plan.sizes, strict=True)
    spec = jax.P(*(name if n % size == 0 else None for n, name, size in parts))
    return a if a.shape == shape else place(a, spec)[: shape[0], : shape[1]]


def cyclic_indices(count: int, axis: str) -> Array:
    """Return the numbers of the own rows, or columns, of a matrix taken in turn."""
    return count_up(count) * lax.axis_size(axis) + lax.axis_index(axis)


def redistribute(rows: Array, axis: str, to_cyclic: bool) -> Array:
    """Deal rows out in turn, if they lie in blocks, or back: [n, k] -> [n, k].

    Of n rows a device, each gets ceil(n / size) from each other, or one less.
    """
    size, rank, n = lax.axis_size(axis), lax.axis_index(axis), len(rows)
    if size == 1 or not rows.size:
        return rows
    other, slot = count_up(size)[:, None], count_up(ceil_div(n, size))[None]
    # row number `at` of the block at `home` goes to `guest`, where it is number `place`
    home, guest = (rank, other) if to_cyclic else (other, rank)
    at = (guest - home * n) % size + slot * size
    local = at if to_cyclic else (home * n + at) // size
    sent = rows.at[jnp.where(at < n, local, n).ravel()].get(mode="fill", fill_value=0)
    came = lax.all_to_all(sent, axis, 0, 0, tiled=True)
    index = cyclic_indices(n, axis) if to_cyclic else rank * n + count_up(n)
    sender = index // n if to_cyclic else index % size
    return came[sender * slot.size + index % n // size]


def redistribute_columns(block: Array, axis: str, to_cyclic: bool) -> Array:
    """Deal columns out in turn, or back: [m, n] -> [m, n]."""
    return redistribute(block.T, axis, to_cyclic).T


def gather_rows(block: Array, step: Array, plan: Plan) -> Array:
    """Bring the rows of a step together, along x: [m, n] in turn -> [width, n]."""
    mine = lax.dynamic_slice_in_dim(block, step * plan.shares[0], plan.shares[0])
    every = lax.all_gather(mine[:, None], plan.axes[0], axis=1, tiled=True)
    return every.reshape(plan.width, block.shape[1])


def gather_columns(block: Array, step: Array, plan: Plan) -> Array:
    """Bring the columns of a step together, along y: [m, n] in turn -> [m, width]."""
    mine = lax.dynamic_slice_in_dim(block, step * plan.shares[1], plan.shares[1], 1)
    every = lax.all_gather(mine[:, :, None], plan.axes[1], axis=2, tiled=True)
    return every.reshape(len(block), plan.width)


def cyclic_share(rows: Array, axis: str) -> Array:
    """Return every size-th of the rows of a step, from the own rank on."""
    cut = rows.reshape(-1, lax.axis_size(axis), *rows.shape[1:])
    return lax.dynamic_index_in_dim(cut, lax.axis_index(axis), 1, keepdims=False)


def pad_steps(block: Array, plan: Plan) -> Array:
    """Append zeros to a block, so that every step finds its share of it."""
    least = (plan.steps * share for share in plan.shares)
    sizes = zip(least, block.shape, strict=True)
    return jnp.pad(block, [(0, max(want - size, 0)) for want, size in sizes])


# ------------------------------------------------------------------ the reflectors


def reflector_of(alpha: Array, rest: Array, there: Array) -> tuple[Array, ...]:
    """Return tau, beta and scale: (1 - tau v v^H) (alpha, a) is (beta, 0).

    rest: the square of a's norm; v is (1, scale a). Where nothing is `there` to be
    reflected, or so little that squares underflow, tau and scale are 0.
    """
    small, size = jnp.finfo(rest.dtype), jnp.abs(alpha)
    none = (rest < small.tiny / small.eps) | ~there
    norm = jnp.where(none, 1, jnp.sqrt(size**2 + rest)).astype(alpha.dtype)
    size = size.astype(alpha.dtype)
    turn = jnp.where(size.real > small.tiny, alpha / size, 1)
    beta = jnp.where(none, alpha, -turn * norm)
    tau = jnp.where(none, 0, 1 + size / norm)
    return tau, beta, jnp.where(none, 0, 1 / jnp.where(none, 1, alpha - beta))


def reflect_column(panel: Array, row: Array, first: Array, plan: Plan, j: Array):
    """Put a reflector in the place of column j of a panel, and apply it to the others.

    panel: [m, width], row: int32[m, 1], the numbers of its rows -> panel, tau, beta
    """
    c, old = first + j, lax.dynamic_slice_in_dim(panel, j, 1, 1)
    pivot, below = row == c, jnp.where(row > c, old, 0)
    inner = dot(below[:, 0].conj(), panel)
    both = jnp.stack([inner, jnp.where(pivot, panel, 0).sum(0)])
    inner, at_pivot = lax.psum(both, plan.axes[0])
    tau, beta, scale = reflector_of(at_pivot[j], inner[j].real, c < plan.k)

    change = tau * (at_pivot + scale.conj() * inner)
    change = jnp.where(count_up(plan.width) > j, change, 0)[None]
    v = below * scale
    panel = panel - jnp.where(pivot, 1, v) * jnp.where(row < c, 0, change)
    mine = jnp.where(pivot, beta, jnp.where(row > c, v, old))
    return lax.dynamic_update_slice_in_dim(panel, mine, j, 1), tau, beta


def reflect_panel(panel: Array, row: Array, step: Array, plan: Plan):
    """Reduce a panel: [m, width] -> [m, width], and of each column tau and a sign.

    The panel then holds r and, below its diagonal, what the reflectors are without the
    ones on theirs. Columns are divided by powers of two, so that squares neither
    overflow nor underflow.
    """
    first = step * plan.width
    left = row >= first
    sizes = jnp.maximum(jnp.abs(panel.real), jnp.abs(panel.imag))
    peak = lax.pmax(jnp.where(left, sizes, 0).max(0), plan.axes[0])
    limit = jnp.finfo(panel.dtype)
    power = jnp.clip(jnp.frexp(peak)[1] - 1, limit.minexp, limit.maxexp - 1)
    unit = jnp.ldexp(jnp.ones_like(peak), power).astype(panel.dtype)[None]
    panel = jnp.where(left, panel / unit, panel)

    def column(panel, j):
        panel, *found = reflect_column(panel, row, first, plan, j)
        return panel, found

    panel, (tau, beta) = lax.scan(column, panel, count_up(plan.width))
    in_r = left & (row <= first + count_up(plan.width)[None])
    size = jnp.abs(beta).astype(beta.dtype)
    sign = jnp.where(size == 0, 1, beta / jnp.where(size == 0, 1, size))
    return jnp.where(in_r, panel * unit, panel), tau, sign


def reflectors(panel: Array, row: Array, tau: Array, step: Array, plan: Plan) -> Array:
    """Return the reflectors of a reduced panel, zeros where there is none."""
    c = step * plan.width + count_up(plan.width)[None]
    lower = jnp.where(row > c, panel, (row == c).astype(panel.dtype))
    return jnp.where((row < c) | (tau == 0)[None], 0, lower)


def reflect(v: Array, tau: Array, rows: Array, adjoint: bool, axis: str) -> Array:
    """Apply the product of reflectors, or its adjoint, to all rows along an axis.

    v: [m, width], tau: [width], rows: [m, n] -> [m, n]
    """
    inner = lax.psum(dot(v.conj().T, jnp.append(v, rows, axis=1)), axis)
    gram, inner = jnp.split(inner, [len(tau)], axis=1)
    upper = jnp.triu(gram, 1) + jnp.diag(1 / jnp.where(tau == 0, 1, tau))
    how = {"left_side": True, "transpose_a": adjoint, "conjugate_a": adjoint}
    return rows - dot(v, lax.linalg.triangular_solve(upper, inner, **how))


def take_panel(start: int, plan: Plan, state: tuple, step: Array):
    """Take one step on a window: what is left of a block, `start` steps on.

    state: [m, n] -> the same, and tau, sign: [width]
    """
    window, ((_, wide), (x, y)) = state, (plan.shares, plan.axes)
    left = (step - start) * wide
    row = start * plan.width + cyclic_indices(len(window), x)[:, None]
    panel = gather_columns(window, step - start, plan)
    panel, tau, sign = reflect_panel(panel, row, step, plan)
    v = reflectors(panel, row, tau, step, plan)
    later = count_up(window.shape[1])[None] >= left + wide
    # what is not later may hold infinities, which are no business of the others
    changed = reflect(v, tau, jnp.where(later, window, 0), True, x)
    window = jnp.where(later, changed, window)
    mine = cyclic_share(panel.T, y).T
    return lax.dynamic_update_slice_in_dim(window, mine, left, 1), (tau, sign)


def reduce_block(block: Array, plan: Plan) -> tuple[Array, Array, Array]:
    """Reduce a block, rows and columns in turn: -> reflectors and r, tau, sign."""
    found = []
    for start, end in stages(plan.steps):
        top, left = (start * share for share in plan.shares)
        take = functools.partial(take_panel, start, plan)
        turns = start + count_up(end - start)
        window, some = lax.scan(take, block[top:, left:], turns)
        block = block.at[top:, left:].set(window)
        found.append(some)
    return block, *map(jnp.concatenate, zip(*found, strict=True))


def orthogonal_block(block: Array, tau: Array, sign: Array, plan: Plan) -> Array:
    """Make the own block of q of the reflectors, the last first: [m, n] -> [m, k]."""
    x, y = plan.axes
    row = cyclic_indices(len(block), x)[:, None]
    column = cyclic_indices(plan.steps * plan.shares[1], y)[None]
    own_sign = cyclic_share(sign.reshape(-1, 1), y).T
    q = jnp.where(row == column, own_sign, 0)
    for start, end in reversed(stages(plan.steps)):
        top, left = (start * share for share in plan.shares)
        held = block[top:, left : end * plan.shares[1]]

        def take(rows, step, start=start, held=held, row=row[top:]):
            panel = gather_columns(held, step - start, plan)
            v = reflectors(panel, row, tau[step], step, plan)
            return reflect(v, tau[step], rows, False, x), None

        turns = start + count_up(end - start)
        rows, _ = lax.scan(take, q[top:, left:], turns, reverse=True)
        q = q.at[top:, left:].set(rows)
    return q


def triangle_block(block: Array, sign: Array, plan: Plan) -> Array:
    """Return the own block of r, rows and columns in turn: [m, n] -> [k, n]."""
    x, y = plan.axes
    block = block[: plan.steps * plan.shares[0]]
    row = cyclic_indices(len(block), x)[:, None]
    column = cyclic_indices(block.shape[1], y)[None]
    r = block * cyclic_share(sign.reshape(-1, 1), x).conj()
    real = r.real.astype(r.dtype)
    return jnp.where(row < column, r, jnp.where(row == column, real, 0))


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
@jax.jit(static_argnums=1)
def factor_in_blocks(a: Array, plan: Plan) -> tuple[Array, Array]:
    """Return q and r, in blocks: [M@x, N@y] -> [M@x, K@y], [K@x, N@y]."""
    (m, n), (x, y), k = a.shape, plan.axes, plan.k
    uneven = bool(m % plan.sizes[0])  # then zeros must be the last rows of all

    @shard_map(in_specs=plan.blocks, out_specs=(plan.blocks, plan.blocks))
    def run(block):
        high, wide = block.shape
        few = [ceil_div(k, size) for size in plan.sizes]
        block = redistribute(block, x, True) if uneven else block
        block = pad_steps(redistribute_columns(block, y, True), plan)
        block, tau, sign = reduce_block(block, plan)
        q = orthogonal_block(block, tau, sign, plan)[:high, : few[1]]
        q = redistribute(q, x, False) if uneven else q
        r = triangle_block(block, sign, plan)[: few[0], :wide]
        r = redistribute_columns(redistribute(r, x, False), y, False)
        return redistribute_columns(q, y, False), r

    q, r = run(pad_blocks(a, plan))
    return unpad_blocks(q, (m, k), plan), unpad_blocks(r, (k, n), plan)


def check_block_matrix(a: Array):
    """Raise ValueError unless `a` is a matrix of a type that has a QR."""
    if not hasattr(a, "dtype") or a.ndim != 2 or not a.size:
        shape = getattr(a, "shape", f"a {type(a).__name__}")
        raise ValueError(f"a is {shape}: pass an array [M, N], M and N > 0")
    if a.dtype.name not in DTYPES:
        raise ValueError(f"{a.dtype} has no QR here: pass one of {DTYPES}")


def qr_blocks(a: Array, axes: tuple[str, str] = AXES) -> tuple[Array, Array]:
    """Factor a matrix of any shape in blocks: a = q r, r with a diagonal >= 0.

    a: [M@x, N@y] -> q: [M@x, K@y], r: [K@x, N@y], K = min(M, N)

    Floating-point or complex, of 4 bytes a number or 8, of any rank. `axes` are your
    names for x and y. Derivatives want M >= N and full rank. Raises ValueError for what
    is no such matrix, for a mesh without these axes, and for a derivative if M < N.
    """
    plan = plan_panels(0, axes)  # the mesh is looked at first
    check_block_matrix(a)
    return factor_in_blocks(a, plan_panels(min(a.shape), plan.axes))


# ---------------------------------------------------------- products and solutions


def rows_to_cyclic(block: Array, plan: Plan) -> Array:
    """Deal the rows of a block out in turn, zeros last: [n, l] -> [steps high, l]."""
    more = plan.steps * plan.shares[0] - len(block)
    return jnp.pad(redistribute(block, plan.axes[0], True), ((0, more), (0, 0)))


def columns_to_cyclic(block: Array, plan: Plan) -> Array:
    """Deal its columns out in turn, zeros last: [m, n] -> [m, steps wide]."""
    more = plan.steps * plan.shares[1] - block.shape[1]
    block = redistribute_columns(block, plan.axes[1], True)
    return jnp.pad(block, ((0, 0), (0, more)))


def triangle_to_cyclic(r: Array, plan: Plan) -> Array:
    """Deal rows and columns of r out in turn, and fill it up by an identity."""
    r = columns_to_cyclic(rows_to_cyclic(r, plan), plan)
    row, column = cyclic_grid(r, plan)
    return jnp.where((row == column) & (row >= plan.k), 1, r)


def cyclic_grid(block: Array, plan: Plan) -> tuple[Array, Array]:
    """Return the numbers of the rows and columns of a block in turn: [m, 1], [1, n]."""
    row, column = map(cyclic_indices, block.shape, plan.axes)
    return row[:, None], column[None]


def loop_steps(take, start: Array, plan: Plan, backwards: bool = False) -> Array:
    """Go through the steps; a gradient keeps no panels, but gathers them again."""
    take = jax.checkpoint(take)

    def turn(i, state):
        return take(plan.steps - 1 - i if backwards else i, state)

    return lax.fori_loop(0, plan.steps, turn, start)


def cyclic_product(a: Array, b: Array, plan: Plan) -> Array:
    """Return a b, columns of a and rows of b in turn: [m, k], [k, n] -> [m, n]."""

    def take(step, total):
        return total + dot(gather_columns(a, step, plan), gather_rows(b, step, plan))

    return loop_steps(take, jnp.zeros_like(b, shape=(len(a), b.shape[1])), plan)


def cyclic_inner(a: Array, b: Array, plan: Plan) -> Array:
    """Return a^H b, its rows and the columns of a in turn: [m, k], [m, n] -> [k, n]."""
    (x, _), (high, _), n = plan.axes, plan.shares, b.shape[1]

    def take(step, done):
        sums = dot(gather_columns(a, step, plan).conj().T, b).reshape(high, -1, n)
        mine = lax.psum_scatter(sums, x, scatter_dimension=1)
        return lax.dynamic_update_slice_in_dim(done, mine, step * high, 0)

    return loop_steps(take, jnp.zeros_like(b, shape=(plan.steps * high, n)), plan)


def divide_by_triangle(b: Array, r: Array, plan: Plan) -> Array:
    """Solve x r = b, all columns and the rows of r in turn: [m, n] -> [m, n]."""
    _, column = cyclic_grid(r, plan)

    def take(step, b):
        rows = gather_rows(r, step, plan)
        head = gather_columns(rows, step, plan)
        now = lax.linalg.triangular_solve(head, gather_columns(b, step, plan))
        later = jnp.where(column >= (step + 1) * plan.width, rows, 0)
        mine = cyclic_share(now.T, plan.axes[1]).T
        place = step * plan.shares[1]
        return lax.dynamic_update_slice_in_dim(b - dot(now, later), mine, place, 1)

    return loop_steps(take, b, plan)


def cyclic_solve(r: Array, b: Array, adjoint: bool, plan: Plan) -> Array:
    """Solve r x = b or r^H x = b, all rows and columns of r in turn: [k, n] -> same."""
    (x, _), row = plan.axes, cyclic_grid(r, plan)[0]
    how = {"left_side": True, "transpose_a": adjoint, "conjugate_a": adjoint}

    def take(step, b):
        panel = gather_columns(r, step, plan)
        # not in one gather: what is transposed must not depend on both
        head, sides = gather_rows(panel, step, plan), gather_rows(b, step, plan)
        above = jnp.where(row < step * plan.width, panel, 0)
        if adjoint:
            sides = sides - lax.psum(dot(above.conj().T, b), x)
        now = lax.linalg.triangular_solve(head, sides, **how)
        b = b if adjoint else b - dot(above, now)
        place = step * plan.shares[0]
        return lax.dynamic_update_slice_in_dim(b, cyclic_share(now, x), place, 0)

    return loop_steps(take, b, plan, backwards=not adjoint)


def shard_map_blocks(plan: Plan, out: int = 1):
    """Return `jax.shard_map` from blocks to blocks, over these two axes."""
    specs = plan.blocks if out == 1 else (plan.blocks,) * out
    return shard_map(in_specs=plan.blocks, out_specs=specs)


def cyclic_differential(q: Array, r: Array, change: Array, plan: Plan):
    """Return the derivatives of q and r as a changes, all in turn: as q, as r."""
    change = divide_by_triangle(change, r, plan)
    inner = cyclic_inner(q, change, plan)
    other = cyclic_inner(change, q, plan)  # its adjoint, without an exchange
    row, column = cyclic_grid(inner, plan)
    upper = jnp.where(row < column, inner + other, (inner + other) / 2)
    upper = jnp.where(row > column, 0, upper)  # what turns q is left out
    product = functools.partial(cyclic_product, upper, plan=plan)
    return change - cyclic_product(q, upper, plan), product(r)


@factor_in_blocks.defjvp
def _factor_in_blocks_jvp(plan, primals, tangents):
    """Differentiate a = q r, where q may but turn and r stays a triangle."""
    q, r = factor_in_blocks(*primals, plan)
    if q.shape[0] < r.shape[1]:
        raise ValueError(f"a {primals[0].shape} is wide: its QR has no derivative here")

    @shard_map_blocks(plan, out=2)
    def run(q, r, change):
        (high, wide), (x, y) = r.shape, plan.axes
        q, change = columns_to_cyclic(q, plan), columns_to_cyclic(change, plan)
        change, dr = cyclic_differential(q, triangle_to_cyclic(r, plan), change, plan)
        dr = redistribute(dr[:high, :wide], x, False)
        return tuple(redistribute_columns(v, y, False) for v in (change[:, :wide], dr))

    changes = run(*(pad_blocks(each, plan) for each in (q, r, *tangents)))
    shapes = q.shape, r.shape
    cut = (unpad_blocks(*pair, plan) for pair in zip(changes, shapes, strict=True))
    return (q, r), tuple(cut)


@functools.partial(jax.custom_jvp, nondiff_argnums=(4,))
def fit_blocks(q: Array, r: Array, a: Array, b: Array, plan: Plan) -> Array:
    """Solve r x = q^H b; derivatives come from a and b, and what q and r do is known.

    [M@x, N@y], [N@x, N@y], [M@x, N@y], [M@x, L@y] -> [N@x, L@y]
    """

    @shard_map_blocks(plan)
    def run(q, r, b):
        sides = cyclic_inner(columns_to_cyclic(q, plan), b, plan)
        x = cyclic_solve(triangle_to_cyclic(r, plan), sides, False, plan)
        return redistribute(x[: len(r)], plan.axes[0], False)

    x = run(*(pad_blocks(each, plan) for each in (q, r, b)))
    return unpad_blocks(x, (plan.k, b.shape[1]), plan)


@fit_blocks.defjvp
def _fit_blocks_jvp(plan, primals, tangents):
    """Differentiate a^H (a x - b) = 0."""
    x = fit_blocks(*primals, plan)

    @shard_map_blocks(plan)
    def run(q, r, *given):
        a, b, da, db, x = given
        q, a, da = (columns_to_cyclic(each, plan) for each in (q, a, da))
        few, r, x = len(r), triangle_to_cyclic(r, plan), rows_to_cyclic(x, plan)
        along = cyclic_inner(q, db - cyclic_product(da, x, plan), plan)
        across = cyclic_inner(da, b - cyclic_product(a, x, plan), plan)
        change = along + cyclic_solve(r, across, True, plan)
        change = cyclic_solve(r, change, False, plan)[:few]
        return redistribute(change, plan.axes[0], False)

    given = *primals, *tangents[2:], x
    change = run(*(pad_blocks(each, plan) for each in given))
    return x, unpad_blocks(change, x.shape, plan)


def least_sine(r: Array) -> Array:
    """Return the least sine of the angle between a column and those before it."""
    peak = jnp.maximum(jnp.abs(r.real), jnp.abs(r.imag)).max(0)
    sizes = jnp.abs(r / jnp.where(peak == 0, 1, peak)[None].astype(r.dtype))
    n = r.shape[1]
    diagonal = jnp.where(count_up(n)[:, None] == count_up(n)[None], sizes, 0).sum(0)
    sines = diagonal / jnp.sqrt(jnp.where(peak == 0, 1, (sizes**2).sum(0)))
    return place(sines, jax.P()).min()  # over the devices, XLA:CPU's min drops NaN


@jax.jit(static_argnums=2)
def fit_and_ratio(a: Array, b: Array, plan: Plan) -> Fit:
    """Return x and ratio, in the one type that holds a and b: see `lstsq_blocks`."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(a, b)
    a, b = a.astype(dtype), b.astype(dtype)
    q, r = factor_in_blocks(a, plan)
    return Fit(fit_blocks(q, r, a, b, plan), least_sine(r))


def lstsq_blocks(a: Array, b: Array, axes: tuple[str, str] = AXES) -> Fit:
    """Return the x that makes the norm of each column of a x - b least, all in blocks.

    a: [M@x, N@y], M >= N, of full rank; b: [M@x, L@y] -> Fit, x: [N@x, L@y]

    Look at the `ratio` beside x: where it is about N roundings or less, columns of a
    depend on others, and x means nothing; NaN says as much. Derivatives of either mode
    and any order go to a and b. Raises ValueError for an `a` that `qr_blocks` refuses,
    or that is wide, and for a b that does not fit it.
    """
    plan = plan_panels(0, axes)
    check_block_matrix(a)
    if a.shape[0] < a.shape[1]:
        raise ValueError(f"a {a.shape} is wide: pass [M, N], M >= N")
    check_block_matrix(b)
    if len(b) != len(a):
        raise ValueError(f"b {b.shape} does not fit a {a.shape}: pass {len(a)} rows")
    return fit_and_ratio(a, b, plan_panels(a.shape[1], plan.axes))


def cost(function, a: jax.ShapeDtypeStruct, axes: tuple[str, str] = AXES) -> Cost:
    """Predict what `qr_blocks(a)` sends on the mesh in context, a: [M@x, N@y] -> Cost.

    Raises ValueError for another function, and for sizes that the mesh does not divide:
    these are brought together at the end, in a way that the compiler chooses.
    """
    if function is not qr_blocks:
        raise ValueError(f"no cost is known of {function}: pass qr_blocks")
    plan = plan_panels(min(a.shape), axes)
    (x, y), (high, wide), item = plan.sizes, plan.shares, a.dtype.itemsize
    if a.shape[0] % x or a.shape[1] % y or plan.k % math.lcm(x, y):
        raise ValueError(f"{x} x {y} devices do not divide {a.shape}: pass multiples")
    (m, n), few = (a.shape[0] // x, a.shape[1] // y), (plan.k // x, plan.k // y)
    sizes = (m, plan.steps * high), (n, plan.steps * wide)
    parts = {
        "panels": cost_of_panels(max(sizes[0]), plan) * (y - 1) // y * item,
        "products": cost_of_products(max(sizes[1]), plan) * (x - 1) * item // x,
        "columns": plan.steps * plan.width * cost_of_column(a.dtype, plan) // x,
        "dealing": ceil_div(few[0], x) * n * (x - 1) * item
        + (ceil_div(n, y) * (m + few[0]) + ceil_div(few[1], y) * m) * (y - 1) * item,
    }
    return Cost(sum(parts.values()), parts)


def cost_of_panels(rows: int, plan: Plan) -> int:
    """Return the words of all panels that are gathered, for r and for q."""
    left = ((end - i) * (rows - i * plan.shares[0]) for i, end in stages(plan.steps))
    return 2 * plan.width * sum(left)


def cost_of_products(columns: int, plan: Plan) -> int:
    """Return the words of an all-reduce of all products, if it sent each once a way."""
    both = columns + plan.steps * plan.shares[1] + 2 * plan.width
    left = (
        (end - i) * (both - 2 * i * plan.shares[1]) for i, end in stages(plan.steps)
    )
    return 2 * plan.width * sum(left)


def cost_of_column(dtype: jnp.dtype, plan: Plan) -> int:
    """Return the bytes of a column: two rows of the panel, and its largest number."""
    real = jnp.finfo(dtype).dtype.itemsize
    return 2 * (2 * plan.width * dtype.itemsize + real) * (plan.sizes[0] - 1)


def main():
    """Fit cosines to samples of one, on every device there is."""
    count = jax.device_count()
    x = max(i for i in range(1, math.isqrt(count) + 1) if count % i == 0)
    with jax.set_mesh(jax.make_mesh((x, count // x), AXES)):
        t = jnp.arange(8.0 * count)[:, None] / (8 * count)
        a = jnp.cos(jnp.pi * t * jnp.arange(2.0 * count))
        x, ratio = lstsq_blocks(a, a[:, count:] + a[:, :count])
        error = jnp.abs(x - jnp.eye(*x.shape) - jnp.eye(*x.shape, -count)).max()
        fitted = "fitted" if error < 1e-2 else "not fitted"
        print(f"{jax.typeof(x)}  {fitted}, least sine {float(ratio):.2f}")


if __name__ == "__main__":
    main()
