# SPDX-License-Identifier: MIT-0
"""Right-hand sides in blocks, and the inverse, of a matrix whose LU factors are known.

Thousands of right-hand sides, or the N of an inverse, fit on no device. Here they stay
in blocks, as the matrix does: a step brings a panel of the factors to all devices of a
row, and its rows of the sides to all of a column, and one product does the rest.

    factors      with the fields below     what `lu_factor` of lu.py returns
    a            [N@x, N@y] or None        the matrix, for derivatives
    held         [M@x, M@y]                U and, below its diagonal, L
    permutation  int32[steps, width]       the rows of a in the order of elimination
    plan         named: steps, width, n, and `axes` and `sizes`, both of x and of y
    b, x         [N@x, K@y]                right-hand sides and solutions

Step s eliminates the s-th strip of each block: width / X rows and width / Y columns. A
device sends, for each of the two triangles, 5 N^2 / 8X words of panels, times 1 - 1/Y,
and 2 N (K / Y + width) of sides, times 1 - 1/X. It holds no more than some P-th parts.

b may lie anywhere, and be of NumPy: it is laid out as above first. Other axes of the
mesh are left alone; a batch on one of them takes `jax.vmap(..., spmd_axis_name="z")`.

Derivatives of either mode and any order go to a and b, with the same factors.

Source: Choi, Dongarra, Ostrouchov, Petitet, Walker and Whaley, Design and
Implementation of the ScaLAPACK LU, QR, and Cholesky Factorization Routines, Sci.
Program. 5 (1996).

    JAX_NUM_CPU_DEVICES=8 python inverse.py

Copy this file alone: it needs JAX only.
"""

import functools
import itertools
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

STAGES = 4  # windows of the rows that are left, each with a loop of its own

dot = functools.partial(jnp.dot, precision=lax.Precision.HIGHEST)
count_up = functools.partial(jnp.arange, dtype=jnp.int32)  # with 64 bits or without
# under `vmap` JAX 0.12 says that what is mapped and what is not vary over other axes
shard_map = functools.partial(jax.shard_map, check_vma=False)


class Plan(NamedTuple):
    """How n columns were eliminated: `width` a step, on X x Y devices of two axes."""

    steps: int
    width: int
    n: int
    axes: tuple[str, str]
    sizes: tuple[int, int]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Factors:
    """The factors of a matrix by lu.py, or whatever has these fields."""

    a: Array | None
    held: Array
    permutation: Array
    plan: Plan = field(metadata={"static": True})


class Triangles(NamedTuple):
    """What `unpack` returns: a[rows][:, columns] = lower upper."""

    rows: Array
    columns: Array
    lower: Array
    upper: Array


# ---------------------------------------------------------------- the layout


def place(x: Array, spec: jax.P) -> Array:
    """Lay `x` out by `spec` on the mesh in context, whatever the type of its axes.

    Call it inside `jax.jit`. Those that `spec` names are all Auto or all Explicit.
    """
    mesh = jax.sharding.get_abstract_mesh()
    auto = {*jax.tree.leaves(tuple(spec))} <= {*mesh.auto_axes}
    x = jax.reshard(x, jax.P() if auto else spec) if mesh.explicit_axes else x
    return lax.with_sharding_constraint(x, spec) if auto else x


def round_up(size: int, unit: int) -> int:
    """Return a size rounded up to a multiple of a unit."""
    return size + -size % unit


def pad_to_blocks(b: Array, plan: Plan) -> Array:
    """Lay a matrix out in blocks; zeros fill it up if the mesh does not divide it."""
    more = [(0, -size % math.lcm(*plan.sizes)) for size in b.shape]
    return place(jnp.pad(b, more), jax.P(*plan.axes))


def unpad_blocks(a: Array, shape: tuple[int, int], plan: Plan) -> Array:
    """Drop what filled up; an axis of the mesh that divides no more holds all."""
    parts = zip(shape, plan.axes, plan.sizes, strict=True)
    spec = jax.P(*(name if n % size == 0 else None for n, name, size in parts))
    return a if a.shape == shape else place(a, spec)[: shape[0], : shape[1]]


def column_ids(plan: Plan) -> Array:
    """Return the columns of each step, those that fill up last: int32[steps, width]."""
    whole, count = plan.steps * plan.width, plan.sizes[1]
    ids, pads = jnp.split(count_up(whole), [round_up(plan.n, math.lcm(*plan.sizes))])
    table = jnp.append(ids.reshape(count, -1), pads.reshape(count, -1), axis=1)
    table = table.reshape(count, plan.steps, -1).swapaxes(0, 1)
    return table.reshape(plan.steps, plan.width)


def batch_as(x: Array, to: Array) -> Array:
    """Return x, batched by `vmap` as `to` is: gathers want both alike."""
    return x + 0 * jnp.isnan(to.ravel()[0]).astype(x.dtype)


def offsets(ids: Array, part: Array, axis: str) -> Array:
    """Return where in its part of b a device has these rows: beyond it, if nowhere."""
    at = ids - lax.axis_index(axis) * len(part)
    return jnp.where(at < 0, at + 2**30, at)  # no two alike


def local_rows(part: Array, ids: Array, axis: str) -> Array:
    """Return these rows of b if they lie here, and zeros: [m, k], [w] -> [w, k]."""
    return part.at[offsets(ids, part, axis)].get(mode="fill", fill_value=0)


def put_rows(part: Array, ids: Array, rows: Array, axis: str) -> Array:
    """Write those rows of b that belong here: [m, k], [w], [w, k] -> [m, k]."""
    at = part.at[offsets(ids, part, axis)]
    return at.set(rows, mode="drop", unique_indices=True)


def gather_panel(block: Array, step: Array, plan: Plan) -> Array:
    """Bring the columns of a step together, along y: [m, n] -> [m, width]."""
    wide = plan.width // plan.sizes[1]
    panel = lax.dynamic_slice_in_dim(block, step * wide, wide, axis=1)
    return lax.all_gather(panel, plan.axes[1], axis=1, tiled=True)


# --------------------------------------------------------------- the solutions


def stages(steps: int) -> list[tuple[int, int]]:
    """Return the first step of each window, and the one behind its last."""
    cuts = [steps * i // STAGES for i in range(STAGES + 1)]
    return [(i, j) for i, j in itertools.pairwise(cuts) if i < j]


def embed_rows(part: Array, top: Array, plan: Plan) -> Array:
    """Return the own rows of a step among those of others, zeros: -> [width, k]."""
    high = plan.width // plan.sizes[0]
    mine = lax.dynamic_slice_in_dim(part, top, high)
    empty = jnp.zeros_like(mine, shape=(plan.width, mine.shape[1]))
    rank = lax.axis_index(plan.axes[0])
    return lax.dynamic_update_slice_in_dim(empty, mine, rank * high, 0)


def take_step(
    kind: tuple[int, int], rows: tuple[int, int], given: tuple, i: Array, state
):
    """Take a step with the first or the second triangle, of a or (trans = 1) of a^T.

    rows: the first that the step may need, and the one behind the last; given: held,
    [m, n], the orders of rows and columns, the plan; state: x, [m, k] in the order of
    elimination, and b, [l, k] in its own. The first takes the rows of b as they come,
    the second leaves those of the solution in their places.
    """
    (second, trans), (low, up), (block, orders, plan), (x, b) = kind, rows, given, state
    step = plan.steps - 1 - i if second else i
    lower = second == trans  # L solves first, and L^T last
    (axis, _), high, ids = (
        plan.axes,
        plan.width // plan.sizes[0],
        orders[1 - lower][step],
    )
    panel, at = gather_panel(block[low:up], step, plan), count_up(low, up) // high
    square = embed_rows(panel, step * high - low, plan)
    sides = embed_rows(x, step * high, plan)
    panel = jnp.where((at > step if lower else at < step)[:, None], panel, 0)
    sides = sides if second else sides + local_rows(b, ids, axis)
    sides = sides - dot(panel.T, x[low:up]) if trans else sides
    both = lax.psum(jnp.append(square, sides, axis=1), axis)
    square, sides = jnp.split(both, [plan.width], axis=1)
    options = {"lower": lower, "unit_diagonal": lower, "transpose_a": bool(trans)}
    now = lax.linalg.triangular_solve(square, sides, left_side=True, **options)
    left = x[low:up] if trans else x[low:up] - dot(panel, now)
    x = lax.dynamic_update_slice_in_dim(x, left, low, 0)
    mine = lax.dynamic_slice_in_dim(now, lax.axis_index(axis) * high, high)
    x = lax.dynamic_update_slice_in_dim(x, mine, step * high, 0)
    return x, put_rows(b, ids, now, axis) if second else b


def solve_triangles(held: Array, permutation: Array, b: Array, trans: int, plan: Plan):
    """Solve with both triangles: [M@x, M@y], [N@x, K@y] -> [N@x, K@y]."""
    spec, high = jax.P(*plan.axes), plan.width // plan.sizes[0]

    @shard_map(in_specs=(spec, spec, jax.P()), out_specs=spec)
    def run(block, b, permutation):
        orders = permutation, batch_as(column_ids(plan), permutation)
        given, b = (block, orders, plan), batch_as(b, permutation)
        state = jnp.zeros_like(b, shape=(len(block), b.shape[1])), b
        for second, (first, last) in itertools.product((0, 1), stages(plan.steps)):
            ends = (plan.steps - last, plan.steps - first) if second else (first, last)
            low, up = (ends[0], plan.steps) if second == trans else (0, ends[1])
            rows = low * high, up * high
            take = functools.partial(take_step, (second, trans), rows, given)
            state = lax.fori_loop(first, last, take, state)
        return state[1]

    return run(held.astype(b.dtype), b, permutation)


def multiply_blocks(a: Array, x: Array, trans: int, plan: Plan) -> Array:
    """Return a x, or a^T x: [N@x, N@y], [N@x, K@y] -> [N@x, K@y]; none is gathered."""
    spec, (axis, _) = jax.P(*plan.axes), plan.axes

    @shard_map(in_specs=(spec, spec), out_specs=spec)
    def run(block, x):
        order = batch_as(column_ids(plan), block)
        more = order.size // plan.sizes[1] - block.shape[1]
        block = jnp.pad(block, ((0, 0), (0, more)))

        @jax.checkpoint  # a gradient keeps no panels, but brings them together again
        def take(step, block, x, out):
            panel, ids = gather_panel(block, step, plan), order[step]
            if trans:
                return put_rows(out, ids, lax.psum(dot(panel.T, x), axis), axis)
            return out + dot(panel, lax.psum(local_rows(x, ids, axis), axis))

        def turn(step, out):
            return take(step, block, x, out)

        return lax.fori_loop(0, plan.steps, turn, jnp.zeros_like(x))

    return run(pad_to_blocks(a, plan), x)


@jax.custom_jvp
def nondiff(tree):
    """Return the tree itself; a derivative of it raises ValueError."""
    return tree


@nondiff.defjvp
def refuse_factors(primals, tangents):
    """Raise ValueError: a derivative by the triangles is none by the matrix."""
    raise ValueError(
        "LU factors have no derivative here: differentiate by the matrix they are of"
    )


def linear_solve(factors: Factors, b: Array, trans: int) -> Array:
    """Solve, with derivatives in a and b: [N@x, K@y] -> [N@x, K@y], both filled up."""
    if trans == 2:
        return linear_solve(factors, b.conj(), 1).conj()
    a, plan, permutation = factors.a, factors.plan, factors.permutation
    held = nondiff(factors.held)

    def product(x):  # without a, nobody asks for it
        return x if a is None else multiply_blocks(a.astype(x.dtype), x, trans, plan)

    def solver(trans, _, b):
        return solve_triangles(held, permutation, b, trans, plan)

    both = (functools.partial(solver, each) for each in (trans, 1 - trans))
    return lax.custom_linear_solve(product, b, *both)


# ------------------------------------------------------------------ what you call


def check_lu(factors: Factors):
    """Raise ValueError unless these are factors, of the mesh in context."""
    if not all(hasattr(factors, name) for name in Factors.__dataclass_fields__):
        raise ValueError(
            f"a {type(factors).__name__} has no factors: pass lu_factor(a)"
        )
    shape, plan = jax.sharding.get_abstract_mesh().shape, factors.plan
    if (sizes := tuple(shape.get(name) for name in plan.axes)) != plan.sizes:
        raise ValueError(
            f"the factors were made on axes {plan.axes} of {plan.sizes} devices, which "
            f"have {sizes} here: set the mesh of the factors"
        )


@jax.jit(static_argnames="trans")
def solve_sides(factors: Factors, b: Array, trans: int) -> Array:
    """Give b its type and its place, and solve: [N@x, K@y] -> [N@x, K@y]."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(factors.held, b)
    x = pad_to_blocks(b.astype(dtype), factors.plan)
    x = linear_solve(factors, x, trans) if b.size else x
    return unpad_blocks(x, b.shape, factors.plan)


def lu_solve_blocks(factors: Factors, b: Array, trans: int = 0) -> Array:
    """Solve a x = b, a^T x = b (trans=1) or a^H x = b (trans=2) with known factors.

    b: [N@x, K@y] -> x: [N@x, K@y]; along an axis that does not divide N or K, whole

    Derivatives of either mode go to a and to b. Raises ValueError for what are no
    factors or no matrix of N rows, for another trans, and for a mesh of other sizes.
    """
    check_lu(factors)
    n = factors.plan.n
    if not isinstance(b, (Array, np.ndarray)) or b.ndim != 2 or len(b) != n:
        shape = getattr(b, "shape", type(b).__name__)
        raise ValueError(f"b {shape} does not fit {n} equations: pass [{n}, K]")
    known = isinstance(b.dtype, np.dtype) and np.can_cast(b.dtype, np.complex128)
    if not (known and b.dtype.isnative):
        raise ValueError(f"b is {b.dtype}: pass floating-point or complex numbers")
    if trans not in (0, 1, 2):
        raise ValueError(f"trans is {trans}: pass 0, 1 or 2")
    return solve_sides(factors, b, trans)


def inv(factors: Factors) -> Array:
    """Return the inverse of the matrix whose factors these are.

    -> [N@x, N@y]; on all devices along axes that do not divide N

    Derivatives of either mode go to a. A singular matrix gives infinities or NaN.
    """
    check_lu(factors)
    return invert(factors)


@jax.jit
def invert(factors: Factors) -> Array:
    """Solve for an identity, which is made in blocks: -> [N@x, N@y]."""
    plan = factors.plan
    size = round_up(plan.n, math.lcm(*plan.sizes))

    @shard_map(in_specs=(), out_specs=jax.P(*plan.axes))
    def identity():
        row, column = (
            lax.axis_index(name) * (size // count) + count_up(size // count)
            for name, count in zip(plan.axes, plan.sizes, strict=True)
        )
        return (row[:, None] == column[None]).astype(factors.held.dtype)

    x = linear_solve(factors, identity(), 0) if size else identity()
    return unpad_blocks(x, (plan.n, plan.n), plan)


def sort_rows(block: Array, along: int, plan: Plan) -> Array:
    """Bring rows (along 0), or columns of a transpose (1), into their order: [m, n]."""
    axis, share = plan.axes[along], plan.width // plan.sizes[along]

    def take(step, out):
        rows = lax.dynamic_slice_in_dim(block, step * share, share)
        rows = lax.all_gather(rows, axis, tiled=True)
        ids = batch_as(step * plan.width + count_up(plan.width), block)
        return put_rows(out, ids, rows, axis)

    return lax.fori_loop(0, plan.steps, take, block)


def unpack(factors: Factors) -> Triangles:
    """Return the triangles themselves, in the order of elimination, in blocks.

    -> rows int32[M], columns int32[M], lower [M@x, M@y], upper [M@x, M@y], where
    a[rows][:, columns] = lower upper; numbers from N on are those of an identity.
    Raises ValueError under differentiation: pivots jump.
    """
    check_lu(factors)
    return triangles_of(factors)


@jax.jit
def triangles_of(factors: Factors) -> Triangles:
    """Sort rows and columns, a step at a time, and take the triangles apart."""
    plan, spec = factors.plan, jax.P(*factors.plan.axes)

    @shard_map(in_specs=spec, out_specs=(spec, spec))
    def run(block):
        block = sort_rows(sort_rows(block, 0, plan).T, 1, plan).T
        row, column = (
            lax.axis_index(name) * size + count_up(size)
            for name, size in zip(plan.axes, block.shape, strict=True)
        )
        below = row[:, None] - column[None]
        lower = jnp.where(below > 0, block, (below == 0).astype(block.dtype))
        return lower, jnp.where(below <= 0, block, 0)

    _, held = nondiff((factors.a, factors.held))
    order = factors.permutation.ravel(), column_ids(plan).ravel()
    return Triangles(*order, *run(held))


def main():
    """Invert a matrix that is made from its factors, on every device there is."""
    count = jax.device_count()
    x = max(i for i in range(1, math.isqrt(count) + 1) if count % i == 0)
    sizes = x, count // x
    with jax.set_mesh(jax.make_mesh(sizes, ("x", "y"))):
        width = 2 * math.lcm(*sizes)
        plan = Plan(8, width, 8 * width, ("x", "y"), sizes)
        # without what fills up, rows are numbered as columns are, on the axes exchanged
        rows, columns = column_ids(plan._replace(sizes=sizes[::-1])), column_ids(plan)
        held = 0.1 * jax.random.normal(jax.random.key(0), (plan.n, plan.n))
        held = held.at[rows.ravel(), columns.ravel()].set(1)
        factors = Factors(None, jax.device_put(held, jax.P("x", "y")), rows, plan)
        inverse, (rows, columns, *pair) = inv(factors), unpack(factors)
        lower, upper = map(np.asarray, pair)
        sorted_inverse = np.asarray(inverse)[np.asarray(columns)][:, np.asarray(rows)]
        error = abs(sorted_inverse @ lower @ upper - np.eye(plan.n)).max()
        print(f"{jax.typeof(inverse)}  {'inverted' if error < 1e-3 else 'wrong'}")


if __name__ == "__main__":
    main()
