# SPDX-License-Identifier: MIT-0
"""How large is an inverse that nobody has? Norms of it, estimated by solving.

A solve multiplies by the inverse. So its 1-norm is found by trying: four columns at
once, then the signs of what came out, solved with a^H, name the columns of the inverse
that promise most. The same for K norms beside each other, each with weights of its own.

    solver     solve, or a pair     solve(b): [N, L] -> [N, L], and for a^H the same;
                                    one function is enough for a Hermitian matrix
    weights    [N, K]               numbers w >= 0: the largest of |a^-1| w is estimated
    x, y       [N, K t]             t columns that are tried for each of them

Without `axes` all of these are on all devices. With the two names of `axes`, all lie in
blocks, [N@x, K@y], and no device ever has more than its part: of the columns that are
tried t / P of N K numbers, beside what the solver takes. It sends, a round and for each
of its norms, about 10 t^2 numbers along x, and 2 t for each device there.

An estimate is a lower bound, seldom less than a third of the norm, after 2 to 5 rounds
of a solve for each side. The columns tried first are random, and the same on any mesh.

Source: Higham and Tisseur, A Block Algorithm for Matrix 1-Norm Estimation, SIAM J.
Matrix Anal. Appl. 21 (2000), https://doi.org/10.1137/S0895479899356080.

    JAX_NUM_CPU_DEVICES=8 python norm_estimate.py

Copy this file alone: it needs JAX only.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

COLUMNS = 4  # that an estimate tries at once: more are surer, and cost more solves
ROUNDS = 5  # of an estimate, at most
Solve = Callable[[Array], Array]
Solver = Solve | tuple[Solve, Solve]
Axes = tuple[str, str] | tuple[()]

# unchecked, as JAX cannot check what `jax.vmap` does with spmd_axis_name
on_devices = functools.partial(jax.shard_map, check_vma=False)


class Grid(NamedTuple):
    """How columns lie: t for each norm, of n numbers, over these mesh axes or none."""

    n: int
    t: int
    axes: Axes = ()

    @property
    def rows(self) -> str | tuple[()]:
        """Return the mesh axis along which the n numbers of a column lie."""
        return self.axes[:1]

    @property
    def columns(self) -> str | tuple[()]:
        """Return the mesh axis along which the norms lie."""
        return self.axes[1:]


class Search(NamedTuple):
    """Where an estimate stands, of K norms, with t columns for each.

    x       [N@x, K t@y]   the columns that are tried next
    signs   [N@x, K t@y]   of the products before
    tried   bool[N@x, K@y] columns of an identity that are done with
    unit    int32[K t@y]   which columns of an identity x are, or -1
    sizes   [K t@y]        the norms of the products of x
    norm    [K@y]          the largest norm of a product so far
    going   bool[K@y]
    round   int32[]
    more    bool[]         whether another round may find a larger norm
    """

    x: Array
    signs: Array
    tried: Array
    unit: Array
    sizes: Array
    norm: Array
    going: Array
    round: Array
    more: Array


# ------------------------------------------------------------------ block level


def place(x: Array, spec: jax.P) -> Array:
    """Lay `x` out by `spec` on the mesh in context, whatever the type of its axes.

    Call it inside `jax.jit`. Those that `spec` names are all Auto or all Explicit.
    """
    mesh = jax.sharding.get_abstract_mesh()
    auto = {*jax.tree.leaves(tuple(spec))} <= {*mesh.auto_axes}
    x = jax.reshard(x, jax.P() if auto else spec) if mesh.explicit_axes else x
    return lax.with_sharding_constraint(x, spec) if auto else x


def local_indices(axis: tuple[str, ...], size: int) -> Array:
    """Return which rows, or columns, a block of this size has: int32[size]."""
    first = lax.axis_index(axis) * size if axis else 0
    return first + jnp.arange(size, dtype=jnp.int32)


def max_or_nan(v: Array, axis: tuple[str, ...]) -> Array:
    """Return the largest along the first axis, or NaN: all gather it, and agree."""
    # a maximum that devices agree on may lose NaN
    return (lax.all_gather(v.max(0), axis) if axis else v).max(0)


def random_signs(grid: Grid, round: Array, like: Array) -> Array:
    """Return numbers 1 and -1, the same on any mesh: a hash of where each stands.

    like: [n, k, t] -> the same; the last of the k has number -1 on all devices, as
    `append_ones` appends it there
    """
    row = local_indices(grid.rows, len(like))
    column = jnp.append(local_indices(grid.columns, like.shape[1] - 1), jnp.int32(-1))
    at = (column[None] * grid.n + row[:, None])[..., None] * grid.t
    at += jnp.arange(grid.t, dtype=jnp.int32)[None, None]
    mixed = (at.astype(jnp.uint32) + 1) * jnp.uint32(0x9E3779B9)
    mixed += round.astype(jnp.uint32) * jnp.uint32(0x85EBCA6B)
    for by in 15, 13:
        mixed = (mixed ^ mixed >> jnp.uint32(by)) * jnp.uint32(0xC2B2AE35)
    signs = 1 - 2 * (mixed >> jnp.uint32(31)).astype(jnp.int32)
    return signs.astype(like.dtype)


def mask_rows(grid: Grid, x: Array) -> Array:
    """Return x, [n, k, t], with zeros below its n rows, as [n, k t]."""
    inside = local_indices(grid.rows, len(x)) < grid.n
    return jnp.where(inside[:, None, None], x, 0).reshape(len(x), -1)


def initial_search(grid: Grid, like: Array) -> Search:
    """Begin with a column of ones and with random signs: [n, k] -> Search."""
    n, k = like.shape
    empty = jnp.zeros((n, k, grid.t), like.dtype)
    x = random_signs(grid, jnp.int32(ROUNDS), empty).at[:, :, 0].set(1) / grid.n
    none, norm = jnp.zeros((n, k), bool), jnp.zeros((k,), jnp.abs(like).dtype)
    return Search(
        mask_rows(grid, x),
        empty.reshape(n, -1),
        none,
        jnp.full((k * grid.t,), -1, jnp.int32),
        jnp.zeros((k * grid.t,), norm.dtype),
        norm,
        jnp.ones((k,), bool),
        jnp.int32(0),
        jnp.array(True),
    )


def parallel_columns(grid: Grid, u: Array, v: Array) -> Array:
    """Return which columns of signs are parallel: [n, k, t], twice -> bool[k, t, t]."""
    inner = jnp.einsum("nki,nkj->kij", u.conj(), v, precision="highest")
    inner = jnp.abs(lax.psum(inner, grid.rows))
    return inner >= grid.n * (1 - 8 * jnp.finfo(v.dtype).eps)


def update_signs(grid: Grid, y: Array, now: Search) -> Search:
    """Return the search with the norms and signs of products y, [n, k t], of now.x.

    A column of signs that is parallel to one before it becomes random signs.
    """
    y, before = (v.reshape(len(y), -1, grid.t) for v in (y, now.signs))
    size = jnp.abs(y)
    signs = jnp.where(y == 0, 1, y / jnp.where(y == 0, 1, size).astype(y.dtype))
    signs = mask_rows(grid, signs).reshape(y.shape)
    first = jnp.triu(parallel_columns(grid, signs, signs), 1)  # to one before itself
    parallel = (parallel_columns(grid, before, signs) | first).any(1)
    signs = jnp.where(parallel[None], random_signs(grid, now.round, y), signs)
    sizes = lax.psum(size.sum(0), grid.rows).ravel()
    return now._replace(signs=mask_rows(grid, signs), sizes=sizes)


def next_columns(grid: Grid, z: Array, now: Search) -> Search:
    """Choose the columns of an identity for which z, [n, k t], is largest."""
    slope = jnp.abs(z.reshape(len(z), -1, grid.t)).max(2)
    row, k = local_indices(grid.rows, len(z)), slope.shape[1]
    sizes, unit = (v.reshape(k, grid.t) for v in (now.sizes, now.unit))
    new, best = sizes.max(1), sizes.argmax(1, keepdims=True)
    grew = ~(new <= now.norm)  # NaN, too
    norm = jnp.where(now.going & grew, new, now.norm)
    at = jnp.take_along_axis(unit, best, 1).T
    reached = lax.psum(jnp.where(row[:, None] == at, slope, 0).sum(0), grid.rows)
    top = (reached >= max_or_nan(slope, grid.rows)) & (now.round > 0)
    tried = now.tried | (row[:, None, None] == unit[None]).any(2)
    promise = jnp.where(tried, -1, jnp.where(row[:, None] < grid.n, slope, -2))
    unit = top_rows(grid, promise.T, row)
    x = (row[:, None, None] == unit[None]).astype(z.dtype).reshape(z.shape)
    going = now.going & grew & ~top & jnp.isfinite(norm)
    more = lax.psum(going.any().astype(jnp.int32), grid.columns) > 0
    turn = now.round + 1
    more = more & (turn < ROUNDS)
    return Search(x, now.signs, tried, unit.ravel(), now.sizes, norm, going, turn, more)


def top_rows(grid: Grid, promise: Array, row: Array) -> Array:
    """Return the rows of the t largest numbers of each line: [k, n] -> int32[k, t]."""
    values, ids = lax.top_k(promise, min(grid.t, len(row)))
    ids = row[ids]
    if grid.rows:
        values, ids = (
            lax.all_gather(v, grid.rows, axis=1, tiled=True) for v in (values, ids)
        )
    return jnp.take_along_axis(ids, lax.top_k(values, grid.t)[1], 1)


def append_ones(grid: Grid, weights: Array) -> Array:
    """Repeat each column t times, and append t columns of ones: -> [n, (k + 1) t]."""
    ones = jnp.ones_like(weights, shape=(len(weights), 1))
    w = jnp.append(weights, ones, 1)
    return mask_rows(grid, jnp.repeat(w[:, :, None], grid.t, axis=2))


def split_norms(grid: Grid, norms: Array) -> tuple[Array, Array]:
    """Undo `append_ones`: [k + 1] -> [k], and the largest of the last ones, []."""
    return norms[:-1], max_or_nan(norms[-1:], grid.columns)


# ------------------------------------------------------------------ the estimate


def map_blocks(function: Callable, grid: Grid, out, *arrays) -> Array | Search:
    """Call a function of blocks: on each device, or on whole arrays.

    Matrices lie in blocks, [N@x, K@y], vectors along y; `out` is the spec of what
    comes back.
    """
    run = functools.partial(function, grid)
    if not grid.axes:
        return run(*arrays)
    specs = jax.P(), jax.P(grid.axes[1]), jax.P(*grid.axes)
    ins = jax.tree.map(lambda v: specs[jnp.ndim(v)], arrays)
    return on_devices(run, in_specs=ins, out_specs=out)(*arrays)


def specs_of(axes: Axes) -> Search:
    """Return the specs of a search in blocks."""
    matrix, vector = jax.P(*axes), jax.P(*axes[1:])
    return Search(*[matrix] * 3, *[vector] * 4, jax.P(), jax.P())


def next_search(forward: Solve, backward: Solve, grid: Grid, now: Search) -> Search:
    """Try the columns, and find those of an identity that promise most."""
    specs = specs_of(grid.axes)
    now = map_blocks(update_signs, grid, specs, forward(now.x), now)
    return map_blocks(next_columns, grid, specs, backward(now.signs), now)


def estimate_norms(forward: Solve, backward: Solve, like: Array, grid: Grid) -> Array:
    """Estimate the 1-norms of K operators, from below, in `ROUNDS` rounds or fewer.

    forward: all of them at once, t columns of each, [N@x, K t@y] -> the same; backward:
    their conjugate transposes; like: [N@x, K@y] -> [K@y]. N may be more than
    grid.n: the rows beyond are zeros. The last norm of each device is of the same
    operator.
    """
    turn = functools.partial(next_search, forward, backward, grid)
    first = map_blocks(initial_search, grid, specs_of(grid.axes), like)
    return lax.while_loop(lambda now: now.more, turn, first).norm


# ------------------------------------------------------------------ an inverse


def solver_pair(solver: Solver) -> tuple[Solve, Solve]:
    """Return solve and solve for a^H, or raise ValueError."""
    pair = (solver, solver) if callable(solver) else solver
    if not (isinstance(pair, tuple) and len(pair) == 2 and all(map(callable, pair))):
        raise ValueError(
            f"a {type(solver).__name__} solves nothing: pass a function of b, or two, "
            "(solve, solve_transposed)"
        )
    return pair


def ldexp(x: Array, by: Array) -> Array:
    """Return x 2^by, in two halves, so that only what has no room is lost."""
    one = jnp.ones((), jnp.finfo(x.dtype).dtype)
    first, last = (jnp.ldexp(one, e).astype(x.dtype) for e in (by // 2, by - by // 2))
    return x * first * last


def without_derivatives(solve: Solve, sides: Array) -> Solve:
    """Return a solve for such right-hand sides; no derivative goes through it."""
    solve, known = jax.closure_convert(solve, sides)
    known = jax.tree.map(lax.stop_gradient, known)
    return lambda b: solve(b, *known)


def unpad_rows(b: Array, n: int, axes: Axes) -> Array:
    """Return n rows: as they lie, or along y alone if there are more."""
    return b if len(b) == n else place(b, jax.P(None, *axes[1:]))[:n]


def solve_columns(solve: Solve, by: Array, grid: Grid, v: Array) -> Array:
    """Solve with a 2^-by: half the shift before, and half after: [N@x, L@y], too."""
    more, spec = len(v) - grid.n, jax.P(*grid.axes)
    b = unpad_rows(ldexp(v, by // 2), grid.n, grid.axes)
    x = solve(b)
    if jnp.shape(x) != b.shape:
        raise ValueError(f"solve returned {jnp.shape(x)}: {b.shape} went in")
    x = ldexp(x.astype(v.dtype), by - by // 2)
    return place(jnp.pad(x, [(0, more), (0, 0)]) if more else x, spec)


@dataclass(frozen=True)
class Inverse:
    """The inverse of a matrix for which there is a solver.

    axes: those along which right-hand sides of the solver lie in blocks, [N@x, K@y]; or
    none, if they are on all devices
    """

    solver: Solver
    axes: Axes = ()

    def norms(self, weights: Array, by: Array = 0, n: int = 0) -> tuple[Array, Array]:
        """Estimate the largest number of `2^by |a^-1| w` for each column w >= 0.

        weights: [N, K] -> [K], and [], which is that for ones. On all devices; or
        [N@x, K@y] -> [K@y], N no less than n: zeros may fill it up. It is the 1-norm
        of diag(w) a^-H; for ones that of row sums. Derivatives are zero. Raises
        ValueError for what does not solve.
        """
        n = n or len(weights)
        grid = Grid(n, min(COLUMNS, n), tuple(self.axes))
        by, spec = jnp.asarray(by, jnp.int32), jax.P(*grid.axes)
        w = map_blocks(append_ones, grid, spec, place(lax.stop_gradient(weights), spec))
        solve, transposed = (
            functools.partial(solve_columns, each, by, grid)
            for each in self.solvers(w, grid)
        )
        like = map_blocks(lambda grid, w: w[:, :: grid.t], grid, spec, w)
        norms = estimate_norms(
            lambda x: w * transposed(x), lambda x: solve(w * x), like, grid
        )
        out = jax.P(*grid.axes[1:]), jax.P()
        return map_blocks(split_norms, grid, out, norms)

    def solvers(self, w: Array, grid: Grid) -> list[Solve]:
        """Return both solvers, for columns such as w, and for no derivative."""
        sides = unpad_rows(w, grid.n, grid.axes)
        return [without_derivatives(each, sides) for each in solver_pair(self.solver)]

    def transposed(self) -> "Inverse":
        """Return the inverse of a^H: the 1-norm of a^-1 is that of its rows."""
        return Inverse(solver_pair(self.solver)[::-1], self.axes)


def main():
    """Estimate the norm of an inverse, and compute it."""
    count = jax.device_count()
    with jax.set_mesh(jax.make_mesh((1, count), ("x", "y"))):
        i = jnp.arange(8.0 * count)
        a = jnp.exp(-(((i[:, None] - i) / 4) ** 2)) + 1e-2 * jnp.eye(8 * count)
        solve = functools.partial(
            jax.scipy.linalg.cho_solve, jax.scipy.linalg.cho_factor(a)
        )
        found = jax.jit(lambda w: Inverse(solve).norms(w)[1])(jnp.ones((len(i), 0)))
        truth = jnp.abs(jnp.linalg.inv(a)).sum(1).max()
        print(f"estimate / norm of the inverse: {found / truth:.2f}")


if __name__ == "__main__":
    main()
