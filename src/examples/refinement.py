# SPDX-License-Identifier: MIT-0
"""Solve a x = b with factors of half the digits, and refine x to all of them.

Factors of float32 take half the bytes of those of float64. Their x has seven digits at
best; but what is left of b, computed in float64, is solved for once more, until what is
left is no more than rounding in float64 leaves. That works while the condition number
is below 10^7 or so; else a fallback solves in float64, and the result says so.

    a        [N@x, N@y]       float64 or complex128, any N
    b, x     [N] or [N, K]    right-hand sides and solutions, on all devices
             [N@x, K@y]       or in blocks, for `refine_blocks`
    factor   a -> solver      makes a solver of a matrix, such as by LU
    solver   solve, or two    solve(b): [N, K] -> [N, K], and for a^H the same;
                              one function is enough for a Hermitian matrix

A step is one solve, and one product with a, for which a device sends less than
2 N K / X words in a sum, and N K in a gather; in blocks N^2 / X words of a, and twice
N K / Y of x, and it holds no more than P-th parts of a, b and x. Steps end when
|b - a x| <= |a| |x| eps sqrt(N), of largest numbers and row sums, twice what LAPACK's
dsgesv asks; they are given up after 30, or when one does not halve what is left. Beside
a there is a copy scaled by a power of two, and one of half the digits.

Sources: Langou, Langou, Luszczek, Kurzak, Buttari and Dongarra, Exploiting the
Performance of 32 bit Floating Point Arithmetic in Obtaining 64 bit Accuracy, SC 2006,
https://doi.org/10.1109/SC.2006.30. Higham, Pranesh and Zounon, Squeezing a Matrix Into
Half Precision, with an Application to Solving Linear Systems, SIAM J. Sci. Comput. 41
(2019), https://doi.org/10.1137/18M1229511.

    JAX_NUM_CPU_DEVICES=8 python refinement.py

Copy this file alone: it needs JAX only.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

STEPS = 30
WIDTH = 128  # columns of a, at most, that a product in blocks brings together
HALF = {"float64": jnp.float32, "complex128": jnp.complex64}
HALF |= {"float32": jnp.float32, "complex64": jnp.complex64}  # for rougher factors
AXES = "x", "y"
Axes = tuple[str, str]
Solve = Callable[[Array], Array]
Solver = Solve | tuple[Solve, Solve]

dot = functools.partial(jnp.dot, precision=lax.Precision.HIGHEST)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Refined:
    """A solution, and how it was found; in words if it is printed.

    x           [N] or [N, K]
    steps       int32[]           solves with the factors of half the digits
    converged   bool[] or [K]     whether they were enough, for each right-hand side
    fell_back   bool[] or [K]     whether the fallback has solved for it instead
    exponent    int32[]           a was scaled by 2^-exponent, to be around 1

    If x is in blocks, `converged` and `fell_back` lie as its columns do, [K@y].
    """

    x: Array
    steps: Array
    converged: Array
    fell_back: Array
    exponent: Array
    half: str = dataclasses.field(metadata={"static": True})

    def __repr__(self) -> str:
        """Return what happened in words, or less while a program is traced."""
        if isinstance(self.steps, jax.core.Tracer | jax.ShapeDtypeStruct):
            return "Refined, of which only types are known"
        return "\n".join(in_lines(self))


def in_lines(refined: Refined) -> list[str]:
    """Return what happened, a sentence a line."""
    missed = int(np.sum(~np.asarray(refined.converged)))
    solves = f"{refined.steps} solve{'s' * int(refined.steps != 1)}"
    lines = [f"{solves} with factors of {refined.half}: converged."]
    if missed:
        of = f"{missed} of {np.size(refined.converged)} right-hand sides"
        lines[0] = f"{lines[0].rpartition(':')[0]}: {of} did not converge."
        fell_back = np.any(refined.fell_back)
        how = "Solved by the fallback." if fell_back else "There is no fallback."
        lines.append(how)
    if not -126 <= refined.exponent <= 127:
        power = -int(refined.exponent)
        lines.append(f"a was scaled by 2^{power}, since {refined.half} has no room.")
    if not np.isfinite(refined.x).all():
        lines.append("x is not finite.")
    return lines


# --------------------------------------------------------------- a in its blocks


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


def result_type(*arrays: Array) -> jnp.dtype:
    """Return the type of a result, also under strict promotion."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*arrays)


class Matrix(NamedTuple):
    """A matrix in its blocks, [N@x, N@y], and the names of the axes that it lies on."""

    a: Array
    axes: Axes

    across = 1  # the axis along which a row is added up

    def transposed(self) -> "Matrix":
        """Return a^T, whose blocks lie where they were."""
        return Matrix(self.a.T, self.axes[::-1])

    def lay_out(self, x: Array) -> Array:
        """Lay right-hand sides out as `matvec` takes them: [N, K] on all devices."""
        return place(x, jax.P())

    def matvec(self, x: Array) -> Array:
        """Return a x: [N, K] -> [N, K] on all devices; zeros fill up the blocks."""
        rows, columns = self.axes
        more = -len(x) % math.lcm(*mesh_sizes(*self.axes))
        specs = jax.P(rows, columns), jax.P(columns)

        @jax.shard_map(in_specs=specs, out_specs=jax.P(rows), axis_names={*self.axes})
        def run(block, part):
            return lax.psum(dot(block, part), columns)

        a = place(jnp.pad(self.a, [(0, more), (0, more)]), specs[0])
        x = place(jnp.pad(x, [(0, more), (0, 0)]), specs[1])
        return place(run(a, x), jax.P())[: len(x) - more]


class Blocks(NamedTuple):
    """A matrix in its blocks, or the transpose of one, for right-hand sides in blocks.

    No block moves but strip by strip, so that a device holds P-th parts and a panel.
    """

    a: Array
    axes: Axes
    trans: bool = False

    across = property(lambda self: 0 if self.trans else 1)

    def transposed(self) -> "Blocks":
        """Return a^T, whose blocks lie where they were."""
        return self._replace(trans=not self.trans)

    def lay_out(self, x: Array) -> Array:
        """Lay right-hand sides out: [N@x, K@y]; zeros fill up what does not divide."""
        units = mesh_sizes(*self.axes)
        more = [(0, -size % unit) for size, unit in zip(x.shape, units, strict=True)]
        x = jnp.pad(x, more) if any(pad for _, pad in more) else x
        return place(x, jax.P(*self.axes))

    def matvec(self, x: Array) -> Array:
        """Return a x, or a^T x: [N@x, K@y] -> the same; none is gathered."""
        multiply = functools.partial(add_strip, self.axes, self.trans)
        # a gradient brings panels together anew, and keeps none
        multiply = jax.checkpoint(multiply, prevent_cse=False)
        blocks = jax.P(*self.axes)

        @jax.shard_map(in_specs=(blocks, blocks), out_specs=blocks, check_vma=False)
        def run(block, part):
            steps = -(-block.shape[1] // strip_width(block, self.axes))
            turn = functools.partial(multiply, (block, part))
            return lax.fori_loop(0, steps, turn, jnp.zeros_like(part))

        return run(self.lay_out(self.a), x)


def strip_width(block: Array, axes: Axes) -> int:
    """Return how many columns of each block a step takes."""
    return min(block.shape[1], max(1, WIDTH // lax.axis_size(axes[1])))


def add_strip(axes: Axes, trans: bool, pair: tuple, step: Array, total: Array):
    """Add a product with a strip of each block of columns, or with its transpose.

    pair: a block of a, [m, n], and one of x, [m, k]; total: [m, k] -> [m, k]
    """
    (rows, columns), (block, part) = axes, pair
    n, wide = block.shape[1], strip_width(block, axes)
    at = jnp.minimum(step * wide, n - wide)  # the last may begin before its turn
    strip = lax.dynamic_slice_in_dim(block, at, wide, axis=1)
    at = at + jnp.arange(wide, dtype=jnp.int32)
    strip = jnp.where((at >= step * wide)[None], strip, 0)  # no column twice
    panel = lax.all_gather(strip, columns, axis=1, tiled=True)
    first = jnp.arange(lax.axis_size(columns), dtype=jnp.int32) * n
    at = (first[:, None] + at[None]).ravel() - lax.axis_index(rows) * len(part)
    at = jnp.where(at < 0, len(part), at)
    if trans:
        return total.at[at].add(lax.psum(dot(panel.T, part), rows), mode="drop")
    here = part.at[at].get(mode="fill", fill_value=0)
    return total + dot(panel, lax.psum(here, rows))


def column_max(v: Array) -> Array:
    """Return the largest number of each column, or NaN: [N, K] -> [K], as it lies."""
    # a maximum that devices agree on may lose NaN
    return jnp.where(jnp.isnan(v).any(0), jnp.nan, v.max(0))


def exponent_of(x: Array, axis: int | None = None) -> Array:
    """Return the e with 2^e above the largest number, or 0: [N, K] -> [], or [K]."""
    largest = jnp.abs(x).max(axis)
    good = jnp.isfinite(largest) & (largest > 0)
    return jnp.where(good, jnp.frexp(jnp.where(good, largest, 1))[1], 0)


def ldexp(x: Array, by: Array) -> Array:
    """Return x 2^by, in two halves, so that only what has no room is lost."""
    one = jnp.ones((), jnp.finfo(x.dtype).dtype)
    first, last = (jnp.ldexp(one, e).astype(x.dtype) for e in (by // 2, by - by // 2))
    return x * first * last


# -------------------------------------------------------------------- refinement


class Progress(NamedTuple):
    """Where refinement stands: x, what is left of b, both [N, K], and of each of K."""

    x: Array
    left: Array
    size: Array
    good: Array
    stuck: Array
    steps: Array


def solve_half(matrix: Matrix | Blocks, solve: Solve, b: Array) -> Array:
    """Solve in half the digits, with each column scaled to be around 1."""
    by = exponent_of(b, 0)[None]
    x = solve_unpadded(matrix, solve, ldexp(b, -by).astype(HALF[b.dtype.name]))
    return ldexp(x.astype(b.dtype), by)


def unpad_rows(b: Array, n: int, axes: Axes) -> Array:
    """Return n rows: as they lie, or along y alone if there are more."""
    return b if len(b) == n else place(b, jax.P(None, *axes[1:]))[:n]


def solve_unpadded(matrix: Matrix | Blocks, solve: Solve, b: Array) -> Array:
    """Solve for the rows that are of the matrix, and lay x out as b lies."""
    b = unpad_rows(b, len(matrix.a), matrix.axes)
    x = solve(b)
    if jnp.shape(x) != b.shape:
        raise ValueError(f"solve returned {jnp.shape(x)}: {b.shape} went in")
    return matrix.lay_out(x)


def select_columns(columns: Array, new: Array, old: Array) -> Array:
    """Return `new` in these columns, else `old`: bool[K], [N, K] twice -> [N, K]."""
    # of one row nothing would be broadcast, and `where` wants all to lie alike
    return jnp.where(columns[None] & jnp.ones_like(new, bool), new, old)


def correct(
    matrix: Matrix | Blocks, solve: Solve, limit: Array, b: Array, now: Progress
):
    """Correct x once, where that is still needed, and keep what has become better."""
    x = now.x + solve_half(matrix, solve, now.left)
    left = b - matrix.matvec(x)
    size = column_max(jnp.abs(left))
    active = ~(now.good | now.stuck)
    better = active & (size < now.size)
    x, left = (select_columns(better, *pair) for pair in ((x, now.x), (left, now.left)))
    size_now = jnp.where(better, size, now.size)
    good = size_now <= column_max(jnp.abs(x)) * limit
    stuck = now.stuck | active & ~good & ~(size <= now.size / 2)
    return Progress(x, left, size_now, good, stuck, now.steps + 1)


def iterate_corrections(matrix: Matrix | Blocks, solve: Solve, b: Array) -> Progress:
    """Correct x until all columns are good or stuck, `STEPS` times at most: [N, K]."""
    sums = jnp.abs(matrix.a).sum(matrix.across)
    norm = place(sums, jax.P()).max()
    limit = norm * jnp.finfo(b.dtype).eps * math.sqrt(len(matrix.a))
    of_b = column_max(jnp.abs(b))
    none, sizes = jnp.zeros_like(of_b, bool), jnp.full_like(of_b, jnp.inf)
    start = Progress(jnp.zeros_like(b), b, sizes, of_b == 0, none, jnp.int32(0))
    return lax.while_loop(
        lambda now: ~(now.good | now.stuck).all() & (now.steps < STEPS),
        functools.partial(correct, matrix, solve, limit, b),
        start,
    )


def solve_refined(
    matrix: Matrix | Blocks, solve: Solve, otherwise: Solve | None, b: Array
):
    """Refine, or solve otherwise: [N, K] -> x, and steps, converged, fell_back."""
    by = exponent_of(b, 0)[None]
    done = iterate_corrections(matrix, solve, ldexp(b, -by))
    x, missed = ldexp(done.x, by), ~done.good
    if otherwise is not None:
        exact = lax.cond(missed.any(), otherwise, lambda _: x, b)
        x = select_columns(missed, exact, x)
    return x, (done.steps, done.good, missed & (otherwise is not None))


# ---------------------------------------------------------------- what you call


def solve_pair(solver: Solver) -> tuple[Solve, Solve]:
    """Return solve and solve for a^T, or raise ValueError."""
    pair = (solver, solver) if callable(solver) else solver
    if not (isinstance(pair, tuple) and len(pair) == 2 and all(map(callable, pair))):
        raise ValueError(
            f"a {type(solver).__name__} solves nothing: pass a function of b, or two, "
            "(solve, solve_transposed)"
        )
    return pair[0], lambda b: pair[1](b.conj()).conj()


def check_equations(a: Array, b: Array, axes: Axes):
    """Raise ValueError unless these are equations in floating-point numbers."""
    mesh_sizes(*axes)
    for name, v in ("a", a), ("b", b):
        if not isinstance(v, (Array, np.ndarray)):
            raise ValueError(f"{name} is a {type(v).__name__}: pass an array")
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not a.size:
        raise ValueError(f"a {a.shape} is no square matrix: pass [N, N]")
    if b.ndim not in (1, 2) or len(b) != len(a):
        raise ValueError(f"b {b.shape} does not fit a {a.shape}: pass {len(a)} rows")
    if a.dtype.name not in HALF or result_type(a, b).name not in HALF:
        raise ValueError(f"a is {a.dtype}, b {b.dtype}: pass {' or '.join(HALF)}")


def refine(
    a: Array,
    b: Array,
    factor: Callable[[Array], Solver],
    fallback: Callable[[Array], Solver] | None = None,
    axes: Axes = AXES,
) -> Refined:
    """Solve a x = b in float64 with factors in float32, or complex128 in complex64.

    a: [N@x, N@y], b: [N] or [N, K] -> Refined, x of the shape of b, on all devices

    `factor` gets a, scaled by a power of two, in half the digits; `fallback` gets it in
    all of them, in a branch that runs only if one right-hand side did not converge (and
    always under `vmap`), and solves for those that did not; without one, x is then what
    refinement left. Of float32 there is no half: its `factor` gets float32, and may
    round inside, as cho_factor with `product_dtype="bfloat16"` does. Derivatives of
    either mode, and second ones, reuse the factors. Raises ValueError for other types
    and shapes, for a mesh without these axes, and for what does not solve.
    """
    check_equations(a, b, axes)
    sides = jnp.asarray(b).reshape(len(a), math.prod(b.shape[1:]))
    refined = refine_matrix(Matrix(a, axes), sides, factor, fallback)
    good, fell_back = (
        v.reshape(b.shape[1:]) for v in (refined.converged, refined.fell_back)
    )
    x = place(refined.x.reshape(b.shape), jax.P())
    return dataclasses.replace(refined, x=x, converged=good, fell_back=fell_back)


def refine_blocks(
    a: Array,
    b: Array,
    factor: Callable[[Array], Solver],
    fallback: Callable[[Array], Solver] | None = None,
    axes: Axes = AXES,
) -> Refined:
    """Refine the solutions for many right-hand sides, of which no device holds all.

    a: [N@x, N@y], b: [N@x, K@y] -> Refined, x as b, converged and fell_back [K@y]

    As `refine` does, with solvers for blocks, such as lu_solve_blocks of inverse.py
    makes of factors. b may lie anywhere, and is laid out as above first. If X does
    not divide N, or Y not K, zeros fill them up, and what comes back is on all devices.
    Call it inside `jax.jit`. Derivatives and errors are those of `refine`.
    """
    check_equations(a, b, axes)
    if b.ndim != 2:
        raise ValueError(f"b {b.shape} is no matrix: pass [N, K], or call refine")
    return refine_matrix(Blocks(a, axes), jnp.asarray(b), factor, fallback)


def refine_matrix(matrix: Matrix | Blocks, b: Array, factor, fallback) -> Refined:
    """Return the refined x of a x = b, for b [N, K] as the matrix lays it out."""
    a, shape = matrix.a, b.shape
    dtype, by = result_type(a, b), exponent_of(lax.stop_gradient(a))
    a = ldexp(jnp.asarray(a).astype(dtype), -by)
    matrix, known = matrix._replace(a=a), matrix._replace(a=lax.stop_gradient(a))
    solvers = solve_pair(factor(known.a.astype(HALF[dtype.name])))

    def solve(transposed, b):
        def otherwise(b):
            return solve_unpadded(known, solve_pair(fallback(known.a))[transposed], b)

        operand = known.transposed() if transposed else known
        return solve_refined(operand, solvers[transposed], fallback and otherwise, b)

    x, found = lax.custom_linear_solve(
        matrix.matvec,
        ldexp(matrix.lay_out(b.astype(dtype)), -by),
        lambda _, b: solve(False, b),
        lambda _, b: solve(True, b),
        has_aux=True,
    )
    steps, good, fell_back = found
    if x.shape != shape:
        x = place(x, jax.P())[: shape[0], : shape[1]]
        good, fell_back = (place(v, jax.P())[: shape[1]] for v in (good, fell_back))
    return Refined(x, steps, good, fell_back, by, HALF[dtype.name].__name__)


def main():
    """Solve in two ways what float32 can do, and what it cannot."""
    count = jax.device_count()
    with jax.enable_x64(True), jax.set_mesh(jax.make_mesh((1, count), AXES)):
        i = jnp.arange(8.0 * count)
        for small in 1e-3, 1e-12:
            a = jnp.exp(-(((i[:, None] - i[None]) / 4) ** 2))
            a = jax.device_put(a + small * jnp.eye(len(i)), jax.P(*AXES))
            b = Matrix(a, AXES).matvec(jnp.ones((len(i), 1)))
            print(jax.jit(lambda a, b: refine(a, b, dense, dense))(a, b))


def dense(a: Array) -> Solve:
    """Make a solver of a Hermitian matrix, on all devices."""
    factor = jax.scipy.linalg.cho_factor(place(a, jax.P()))
    return functools.partial(jax.scipy.linalg.cho_solve, factor)


if __name__ == "__main__":
    main()
