# SPDX-License-Identifier: MIT-0
"""Solve, invert, take the determinant: from a Cholesky factor in blocks, in blocks.

Thousands of right-hand sides are a matrix, and so is an inverse: neither fits a device.
So they lie in blocks as the factor does, and the columns of a factor pass by.

    factor  of cholesky.py    `a`, [N@x, N@y], its factor `c` in steps, and their `plan`
    b, x    [N@x, K@y]        right-hand sides and solutions
    order   [steps, width]    the rows of b in the order of elimination

A step of a sweep gathers `width` columns of L along y. Forwards it gathers the rows of
b along x, solves with their head, and takes the product off all rows below; backwards
a sum along x brings what those below take off. A device sends about N^2 / 2X words for
L in each sweep, and N K / Y of b forwards, twice that backwards, up to 1 - 1/Y and
1 - 1/X; it does a P-th of N^2 K multiplications, and holds its blocks and a strip.
Derivatives of any order use the factor again, and a product of blocks.

Where inputs may lie: anywhere, NumPy's too. They are laid out as above first, along the
axes of the factor, both Auto or both Explicit. Other axes are left alone, as by
cho_factor. If lcm(X, Y) does not divide N, or Y does not divide K, zeros fill up the
blocks, and what is returned is on all devices, since no sharding of JAX is uneven.

Source: Golub and Van Loan, Matrix Computations, 4th edition (2013), 3.1 and 4.2; for
the derivative of a determinant: Petersen and Pedersen, The Matrix Cookbook (2012), 2.1.

    JAX_NUM_CPU_DEVICES=8 python definite.py

Copy this file alone: it needs JAX and NumPy, and a factor by cholesky.py.
"""

import functools
import itertools
import math
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

STAGES = 4  # windows of shrinking height, each with a loop of its own

dot = functools.partial(jnp.dot, precision=lax.Precision.HIGHEST)
solve_triangle = lax.linalg.triangular_solve
# unchecked, as JAX cannot check what `jax.vmap` does with spmd_axis_name
on_devices = functools.partial(jax.shard_map, check_vma=False)


class Window(NamedTuple):
    """Steps from `first` on: each has `high` rows of a block of c, `wide` columns."""

    axes: tuple[str, str]
    high: int
    wide: int
    first: int
    last: int


class Cost(NamedTuple):
    """What one device should send, in bytes: in all, and for each purpose."""

    sent: int
    parts: dict[str, int]


# --------------------------------------------------------------------- block level


def positions(axis_name: str, count: int, width: int) -> Array:
    """Return when the rows (axis x) or columns (axis y) of a block are eliminated.

    -> int32[count], for the first `count` of them; inside `jax.shard_map`
    """
    share = width // lax.axis_size(axis_name)
    step, at = jnp.divmod(jnp.arange(count, dtype=jnp.int32), share)
    return step * width + lax.axis_index(axis_name) * share + at


def rows_by_step(order: Array, axis_name: str, size: int, n: int) -> Array:
    """Return where in a block of `size` its rows are, step by step; `size` for none."""
    count = order.size // lax.axis_size(axis_name)
    row = order.ravel()[positions(axis_name, count, order.shape[1])]
    return jnp.where(row < n, row - lax.axis_index(axis_name) * size, size)


def windows_of(order: Array, axes: tuple[str, str]) -> list[Window]:
    """Cut the steps of an elimination into a few windows."""
    steps, width = order.shape
    high, wide = (width // lax.axis_size(axis) for axis in axes)
    cuts = [steps * i // STAGES for i in range(STAGES + 1)]
    pairs = itertools.pairwise(cuts)
    return [Window(axes, high, wide, i, j) for i, j in pairs if i < j]


def gather_step(block: Array, window: Window, step: Array) -> tuple[Array, Array]:
    """Gather the columns of a step along y.

    block: [m, n] -> its rows of the head, [high, width], and the rows from `first` on,
    [m', width], with zeros unless they are below the head
    """
    high, wide, up = window.high, window.wide, window.first * window.high
    panel = lax.dynamic_slice(block, (up, step * wide), (len(block) - up, wide))
    panel = lax.all_gather(panel, window.axes[1], axis=1, tiled=True)
    head = lax.dynamic_slice_in_dim(panel, step * high - up, high)
    below = up + jnp.arange(len(panel)) >= (step + 1) * high
    return head, jnp.where(below[:, None], panel, jnp.zeros_like(panel))


def own_rows(x: Array, window: Window) -> Array:
    """Return the rows of a step that are of this device: [width, k] -> [high, k]."""
    start = lax.axis_index(window.axes[0]) * window.high
    return lax.dynamic_slice_in_dim(x, start, window.high)


def solve_forward(window: Window, block: Array, step: Array, sides: Array) -> Array:
    """Solve for the rows of a step by L, and take them off all below.

    block: [m, n], sides: [m, k] -> [m, k]
    """
    high, up = window.high, window.first * window.high
    head, panel = gather_step(block, window, step)
    mine = lax.dynamic_slice_in_dim(sides, step * high, high)
    both = lax.all_gather(jnp.append(head, mine, 1), window.axes[0], tiled=True)
    head, now = jnp.split(both, [len(both)], axis=1)
    now = solve_triangle(head, now, left_side=True, lower=True)
    sides = sides.at[up:].add(-dot(panel, now))
    own = own_rows(now, window)
    return lax.dynamic_update_slice_in_dim(sides, own, step * high, 0)


def solve_backward(window: Window, block: Array, step: Array, sides: Array) -> Array:
    """Solve for the rows of a step by L^H, all below being solved: as forwards."""
    high, up = window.high, window.first * window.high
    head, panel = gather_step(block, window, step)
    mine = lax.dynamic_slice_in_dim(sides, step * high, high)
    start = lax.axis_index(window.axes[0]) * high
    both = jnp.zeros_like(sides, shape=(head.shape[1], head.shape[1] + mine.shape[1]))
    both = lax.dynamic_update_slice_in_dim(both, jnp.append(head, mine, 1), start, 0)
    both = both.at[:, len(both) :].add(-dot(panel.conj().T, sides[up:]))
    head, now = jnp.split(lax.psum(both, window.axes[0]), [len(both)], axis=1)
    how = {"transpose_a": True, "conjugate_a": True}
    now = solve_triangle(head, now, left_side=True, lower=True, **how)
    own = own_rows(now, window)
    return lax.dynamic_update_slice_in_dim(sides, own, step * high, 0)


def add_product(window: Window, step: Array, state: tuple[Array, Array, Array]):
    """Add the product of the columns of a step with the rows of x in that step.

    state: a in steps, [m, n], x, [m, k], and the sum, [m, k]
    """
    block, x, total = state
    (x_axis, y_axis), high, wide = window.axes, window.high, window.wide
    panel = lax.dynamic_slice_in_dim(block, step * wide, wide, axis=1)
    panel = lax.all_gather(panel, y_axis, axis=1, tiled=True)
    rows = lax.dynamic_slice_in_dim(x, step * high, high)
    rows = lax.all_gather(rows, x_axis, tiled=True)
    return total + dot(panel, rows)


# ---------------------------------------------------------------- the global view


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


def pad_sides(b: Array, axes: tuple[str, str]) -> Array:
    """Lay sides out in blocks, filled up by zeros where their sizes do not divide."""
    x, y = mesh_sizes(*axes)
    more = -len(b) % math.lcm(x, y), -b.shape[1] % y
    b = jnp.pad(b, [(0, size) for size in more]) if any(more) else b
    return place(b, jax.P(*axes))


def pad_matrix(a: Array, axes: tuple[str, str]) -> Array:
    """Lay a matrix out in blocks, filled up by as many rows of zeros as columns."""
    more = -len(a) % math.lcm(*mesh_sizes(*axes))
    return place(jnp.pad(a, (0, more)) if more else a, jax.P(*axes))


def solve_windows(c: Array, b: Array, order: Array, n: int, axes) -> Array:
    """Solve L L^H x = b in blocks: [M@x, M@y], [N@x, K@y] -> [N@x, K@y]."""
    blocks = jax.P(*axes)

    @on_devices(in_specs=(blocks, blocks, jax.P()), out_specs=blocks)
    def run(block, b, order):
        block, windows = block.astype(b.dtype), windows_of(order, axes)
        rows = rows_by_step(order, axes[0], len(b), n)
        sides = b.at[rows].get(mode="fill", fill_value=0)
        for window in windows:
            turn = functools.partial(solve_forward, window, block)
            sides = lax.fori_loop(window.first, window.last, turn, sides)
        for window in reversed(windows):
            turn = functools.partial(reverse_step, window, block)
            sides = lax.fori_loop(window.first, window.last, turn, sides)
        return jnp.zeros_like(b).at[rows].set(sides, mode="drop")

    return run(c, b, order)


def reverse_step(window: Window, block: Array, turn: Array, sides: Array) -> Array:
    """Take the steps of a window from the last to the first."""
    return solve_backward(window, block, window.first + window.last - 1 - turn, sides)


def block_product(a: Array, x: Array, order: Array, n: int, axes) -> Array:
    """Return a x in blocks: [N@x, N@y], [N@x, K@y] -> [N@x, K@y]."""
    blocks = jax.P(*axes)

    @on_devices(in_specs=(blocks, blocks, jax.P()), out_specs=blocks)
    def run(block, x, order):
        rows = rows_by_step(order, axes[0], len(block), n)
        columns = rows_by_step(order, axes[1], block.shape[1], n)
        known = x.at[rows].get(mode="fill", fill_value=0)
        block = block.at[rows].get(mode="fill", fill_value=0)
        block = block.at[:, columns].get(mode="fill", fill_value=0)
        window = windows_of(order, axes)[0]
        # a gradient gathers what a step needs anew, and keeps nothing
        step = jax.checkpoint(functools.partial(add_product, window), prevent_cse=False)
        total = lax.fori_loop(
            0,
            len(order),
            lambda i, total: step(i, (block, known, total)),
            jnp.zeros_like(known),
        )
        return jnp.zeros_like(x).at[rows].add(total, mode="drop")

    return run(a, x, order)


@jax.custom_jvp
def bind_factor(a: Array, c: Array) -> Array:
    """Return c; its tangent is that of `a`, so only `a` carries the derivative."""
    return c


@functools.partial(bind_factor.defjvp, symbolic_zeros=True)
def _refuse_tangent_of_c(primals, tangents):
    zero = jax.custom_derivatives.SymbolicZero
    by_a, by_c = (not isinstance(each, zero) for each in tangents)
    if by_c and not by_a:
        raise ValueError("no derivative by c alone: differentiate by cho_factor's a")
    return primals[1], jnp.zeros_like(primals[1])


def solve_blocks(a: Array, c: Array, b: Array, order: Array, axes) -> Array:
    """Solve a x = b, all in blocks without rest: [N@x, K@y] -> [N@x, K@y]."""
    n, matrix = len(a), pad_matrix(a.astype(b.dtype), axes)
    return lax.custom_linear_solve(
        lambda x: block_product(matrix, x, order, n, axes),
        b,
        lambda _, b: solve_windows(c, b, order, n, axes),
        lambda _, b: solve_windows(c, b.conj(), order, n, axes).conj(),  # by conj(a)
    )


def inverse_blocks(a: Array, c: Array, order: Array, axes) -> Array:
    """Return the inverse of a in blocks, with zeros where these are filled up."""
    parts = mesh_sizes(*axes)
    size = len(a) + -len(a) % math.lcm(*parts)

    @on_devices(in_specs=(), out_specs=jax.P(*axes))
    def identity():
        row, column = (
            positions(axis, size // count, size)
            for axis, count in zip(axes, parts, strict=True)
        )
        return (row[:, None] == column[None]).astype(c.dtype)

    return solve_blocks(a, c, identity(), order, axes)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def log_determinant(a: Array, c: Array, order: Array, axes) -> Array:
    """Return the logarithm of the determinant: [N@x, N@y], [M@x, M@y] -> []."""

    @on_devices(in_specs=jax.P(*axes), out_specs=jax.P())
    def run(block):
        row, column = map(positions, axes, block.shape, [order.shape[1]] * 2)
        here = row[:, None] == column[None]
        pivots = jnp.where(here, block.real, 1)
        return 2 * lax.psum(jnp.log(pivots).sum(), axes)

    return run(c)


@log_determinant.defjvp
def _log_determinant_jvp(axes, primals, tangents):
    """Return the real part of the trace of a^-1 times the change of a."""
    inverse = inverse_blocks(*primals, axes)
    change = pad_matrix(tangents[0], axes)
    return log_determinant(*primals, axes), (inverse.conj() * change).real.sum()


# ------------------------------------------------------------------ what you call


def check_array(name: str, a: Array):
    """Raise ValueError unless this argument is an array of numbers."""
    kind = f"of {a.dtype}" if hasattr(a, "dtype") else f"a {type(a).__name__}"
    dtype = getattr(a, "dtype", object)
    if not (jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool):
        raise ValueError(f"{name} is {kind}: pass an array of numbers")


def parts_of(factor) -> tuple[Array, Array, Array, tuple[str, str]]:
    """Return a, c, the order and the axes of a factor made on this mesh, or raise."""
    if not all(hasattr(factor, name) for name in ("a", "c", "plan")):
        raise ValueError(f"no factor but {type(factor)}: pass what cho_factor returns")
    if mesh_with().manual_axes:
        raise ValueError("a call inside `jax.shard_map`: take it out, it has its own")
    plan = factor.plan
    if (sizes := tuple(mesh_sizes(*plan.axes))) != plan.mesh:
        raise ValueError(
            f"a factor of a mesh of {plan.mesh}, not of {sizes}: use that one"
        )
    return factor.a, factor.c, plan.order, plan.axes


def cho_solve_blocks(factor, b: Array) -> Array:
    """Solve a x = b for many right-hand sides, which no device holds whole.

    b: [N@x, K@y] -> x: [N@x, K@y], for the factor by cho_factor, which has the axes

    Derivatives of any order and mode go to a and b. If a is not positive definite, x is
    NaN. Raises ValueError for a b that does not fit, for a factor of a mesh of other
    sizes, inside `jax.shard_map`, and if c has a derivative but a has none.
    """
    *parts, axes = parts_of(factor)
    check_array("b", b)
    if b.ndim != 2 or len(b) != len(factor.a):
        raise ValueError(f"b {b.shape} does not fit: pass [{len(factor.a)}, K]")
    return solve_matrix(*parts, b, axes)


@jax.jit(static_argnums=4)
def solve_matrix(a: Array, c: Array, order: Array, b: Array, axes) -> Array:
    """Return x of a x = b, given the factor c of a: [N@x, K@y] -> [N@x, K@y]."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(c, b)
    if not b.size:
        return place(b, jax.P()).astype(dtype)
    sides = pad_sides(b.astype(dtype), axes)
    return unpad_matrix(solve_blocks(a, bind_factor(a, c), sides, order, axes), b.shape)


def unpad_matrix(x: Array, shape: tuple[int, int]) -> Array:
    """Return all but the filling: as it lies, or on all devices if there is any."""
    return x if x.shape == shape else place(x, jax.P())[: shape[0], : shape[1]]


@jax.jit
def cho_inv(factor) -> Array:
    """Return the inverse of the matrix of a factor: [N@x, N@y], as a.

    It is Hermitian up to rounding. Derivatives and errors are those of
    `cho_solve_blocks`.
    """
    a, c, order, axes = parts_of(factor)
    if not a.size:
        return a
    return unpad_matrix(inverse_blocks(a, bind_factor(a, c), order, axes), a.shape)


@jax.jit
def cho_logdet(factor) -> Array:
    """Return the logarithm of the determinant of the matrix of a factor: [].

    One message of one number. The derivative takes the inverse, in blocks, and has
    derivatives itself. NaN and errors as for `cho_solve_blocks`.
    """
    a, c, order, axes = parts_of(factor)
    return log_determinant(a, bind_factor(a, c), order, axes)


def cost(function, factor, b=None) -> Cost:
    """Predict what one of the three sends, on the mesh in context; derivatives apart.

    factor: by `jax.eval_shape(cho_factor, a)`; b: [N@x, K@y], of `cho_solve_blocks`
    """
    a, c, order, _ = parts_of(factor)
    if function is cho_logdet:
        devices, one = math.prod(factor.plan.mesh), c.dtype.type(0).real.itemsize
        return cost_of_parts({"a sum": round(2 * one * (devices - 1) / devices)})
    if function not in (cho_solve_blocks, cho_inv):
        raise ValueError(f"no cost is known of {function}: pass what solves or inverts")
    x, y = factor.plan.mesh
    more = -len(a) % math.lcm(x, y)
    sides = a.shape[1] + more if b is None else b.shape[1] + -b.shape[1] % y
    with jax.numpy_dtype_promotion("standard"):
        item = jnp.result_type(c, *() if b is None else (b,)).itemsize
    return cost_of_parts(solve_cost(order.shape, (x, y), sides // y, item))


def solve_cost(order: tuple[int, int], mesh, sides: int, item: int) -> dict[str, int]:
    """Add up the messages of `solve_windows`, with this many sides on a device."""
    (steps, width), (x, y) = order, mesh
    cuts = [steps * i // STAGES for i in range(STAGES + 1)]
    rows = sum((j - i) * (steps - i) for i, j in itertools.pairwise(cuts)) * width // x
    return {
        "L, twice": 2 * rows * (width // y) * (y - 1) * item,
        "b, forwards": steps * (width // x) * (width + sides) * (x - 1) * item,
        "x, backwards": steps * 2 * width * (width + sides) * (x - 1) // x * item,
    }


def cost_of_parts(parts: dict[str, int]) -> Cost:
    """Return these bytes, and their sum."""
    return Cost(sum(parts.values()), parts)


def main():
    """Solve with a known triangle, for as many right-hand sides as unknowns."""
    count = jax.device_count()
    x = max(i for i in range(1, math.isqrt(count) + 1) if count % i == 0)
    y = count // x
    width, steps = math.lcm(x, y), 8
    n = width * steps
    order = np.arange(n, dtype=np.int32).reshape(width, steps).T
    lower = 2 * np.eye(n, dtype=np.float32) - np.eye(n, k=-1, dtype=np.float32)
    rows, columns = (
        np.arange(n).reshape(steps, parts, -1).swapaxes(0, 1).ravel()
        for parts in (x, y)
    )
    a = np.empty_like(lower)
    a[np.ix_(order.ravel(), order.ravel())] = lower @ lower.T
    plan = SimpleNamespace(axes=("x", "y"), mesh=(x, y), order=order)
    with jax.set_mesh(jax.make_mesh((x, y), plan.axes)):
        c = jax.device_put(lower[rows][:, columns], jax.P(*plan.axes))
        factor = SimpleNamespace(a=a, c=c, plan=plan)
        solution = cho_solve_blocks(factor, a)
        error = np.abs(np.asarray(solution) - np.eye(n)).max()
        print(f"{jax.typeof(solution)}  {'solved' if error < 1e-4 else 'not solved'}")


if __name__ == "__main__":
    main()
