# SPDX-License-Identifier: MIT-0
"""How good is the solution of a x = b? Error bounds for any solver, in words.

`assess` measures how far x is from solving the equations, and bounds how far it is from
their solution, for a matrix in blocks and whatever solves with it: LU, Cholesky, QR, a
code of your own. `condition` estimates a condition number.

    a            [N@x, N@y]       the matrix, any N
    b, x         [N] or [N, K]    right-hand sides and solutions, on all devices
                 [N@x, K@y]       or in blocks, for `assess_blocks`
    inverse      see below        what is known of a^-1

An error of x is at most the largest number of |a^-1| (|r| + (N + 1) u (|a| |x| + |b|)),
where r is b - a x in floating point and u half an eps. The inverse is met only by
solving: `Inverse(solver)` of norm_estimate.py estimates such norms from below, seldom
less than a third of them; `inverse.norms(w, by, N)` are those of 2^by |a^-1| w.

For two products with a, a device sends less than 2 N K / X words for a sum and N K for
a gather, each; a is copied once, scaled. In blocks it sends, for each, N^2 / X words of
a, and twice N K / Y of x, and holds no more than P-th parts of a, b and x.

Source: Arioli, Demmel and Duff, Solving Sparse Linear Systems with Sparse Backward
Error, SIAM J. Matrix Anal. Appl. 10 (1989), https://doi.org/10.1137/0610013; LAPACK's
gerfs.

    JAX_NUM_CPU_DEVICES=8 python accuracy.py

Copy this file alone: it needs JAX only, and an `Inverse` by norm_estimate.py.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

WIDTH = 128  # columns of a, at most, that a product in blocks brings together
DTYPES = "float32", "float64", "complex64", "complex128"
AXES = "x", "y"
Axes = tuple[str, str]

dot = functools.partial(jnp.dot, precision=lax.Precision.HIGHEST)


# ------------------------------------------------------------------ what is known


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False, eq=False)
class Report:
    """How good a solution is, in numbers, and in words if it is printed.

    backward        how much a and b must change, beside their norms, for x to be exact
    componentwise   the same, beside each of their numbers
    forward         a bound for the largest error of x, beside its largest number
    condition       how much more than a and b x may change: `|a| |a^-1|`, of row sums

    [] or [K], one for each right-hand side; `condition` is one for all. What cannot be
    known is NaN. Derivatives by these numbers are NaN: they have none.
    """

    backward: Array
    componentwise: Array
    forward: Array
    condition: Array
    n: int = field(metadata={"static": True})
    dtype: str = field(metadata={"static": True})

    @property
    def unit(self) -> float:
        """How much a number changes, at most, when it is rounded."""
        return float(jnp.finfo(self.dtype).eps) / 2

    @property
    def hpl(self) -> Array:
        """The residual as HPL, the benchmark, scales it: below 16 is a pass."""
        return self.backward / (self.n * self.unit)

    @property
    def digits(self) -> Array:
        """How many decimal digits of the largest number of x are sure, int32: [K]."""
        bound = jnp.maximum(self.forward, self.unit)
        sure = jnp.where(bound < 1, -jnp.log10(bound), 0)  # 0 for NaN, too
        return jnp.floor(sure).astype(jnp.int32)

    @property
    def worst(self) -> Array:
        """Which right-hand side has the largest bound, or NaN: int32[]."""
        return jnp.argmax(self.forward.ravel()).astype(jnp.int32)

    def __repr__(self) -> str:
        """Return it in words, or what it consists of while a program is traced."""
        if isinstance(self.forward, jax.core.Tracer | jax.ShapeDtypeStruct):
            return f"Report of [{self.n}], of which only types are known"
        return in_words(self)


def in_words(report: Report) -> str:
    """Return what a report says of the worst of its right-hand sides."""
    sides = np.size(report.forward)
    at = int(report.worst) if sides else 0
    several = f", {sides} right-hand sides; the worst is number {at}" * (sides != 1)
    head = f"{report.n} equation{'s' * (report.n != 1)} in {report.dtype}{several}."
    if not sides:
        return head
    numbers = report.backward, report.componentwise, report.forward
    backward, componentwise, forward = (float(np.ravel(v)[at]) for v in numbers)
    if np.isnan([backward, float(np.max(report.condition)), forward]).any():
        return f"{head}\nNaN came out, of a, b, x or a solve: no digit is sure."
    digits = int(np.ravel(report.digits)[at])
    sure = {0: "no digit is sure", 1: "1 digit is sure"}
    sure = sure.get(digits, f"{digits} digits are sure")
    rounded, condition = backward / report.unit, float(np.max(report.condition))
    return "\n".join(
        [
            head,
            f"Backward error {backward:.0e}, {rounded:.2g} roundings; "
            f"of each number {componentwise:.0e}.",
            f"Condition number about {condition:.0e}.",
            f"Forward error at most {forward:.0e}: {sure}.",
        ]
    )


# ---------------------------------------------------------------- a in its blocks


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


def abs_product(block: Array, part: Array) -> Array:
    """Return `|block| |part|`: [n, n'], [n', K] -> [n, K]."""
    return dot(jnp.abs(block), jnp.abs(part))


@jax.jit(static_argnames=("multiply", "axes"))
def blocks_times(multiply: Callable, a: Array, x: Array, axes: Axes) -> Array:
    """Return a x by `dot`, or `|a| |x|` by `abs_product`, and leave a in its blocks.

    a: [N@x, N@y], x: [N, K] -> [N, K] on all devices; zeros fill up what the mesh does
    not divide
    """
    rows, columns = axes
    more = -len(a) % math.lcm(*mesh_sizes(*axes))
    specs = jax.P(rows, columns), jax.P(columns)

    @jax.shard_map(in_specs=specs, out_specs=jax.P(rows), axis_names={*axes})
    def run(block, part):
        return lax.psum(multiply(block, part), columns)

    a = place(jnp.pad(a, [(0, more), (0, more)]), specs[0])
    x = place(jnp.pad(x, [(0, more), (0, 0)]), specs[1])
    return place(run(a, x), jax.P())[: len(x) - more]


@jax.jit(static_argnames=("multiply", "axes"))
def times_in_blocks(multiply: Callable, a: Array, x: Array, axes: Axes) -> Array:
    """Return a x by `dot`, or `|a| |x|` by `abs_product`, of blocks without rest.

    a: [N@x, N@y], x: [N@x, K@y] -> [N@x, K@y]. A step brings a strip of every block of
    columns of a together along y, and those rows of x along x.
    """
    rows, columns = axes

    @jax.shard_map(
        in_specs=(jax.P(*axes),) * 2, out_specs=jax.P(*axes), check_vma=False
    )
    def run(block, part):
        n, parts = block.shape[1], lax.axis_size(columns)
        wide = min(n, max(1, WIDTH // parts))
        first = jnp.arange(parts, dtype=jnp.int32)[:, None] * n

        def take(step, total):
            at = jnp.minimum(
                step * wide, n - wide
            )  # the last may begin before its turn
            strip = lax.dynamic_slice_in_dim(block, at, wide, axis=1)
            at = at + jnp.arange(wide, dtype=jnp.int32)
            strip = jnp.where((at >= step * wide)[None], strip, 0)  # no column twice
            panel = lax.all_gather(strip, columns, axis=1, tiled=True)
            at = (first + at[None]).ravel() - lax.axis_index(rows) * len(part)
            at = jnp.where(at < 0, len(part), at)
            here = part.at[at].get(mode="fill", fill_value=0)
            return total + multiply(panel, lax.psum(here, rows))

        nothing = multiply(block[:, :0], part[:0])
        return lax.fori_loop(0, -(-n // wide), take, nothing)

    return run(a, x)


@jax.jit
def norm_inf(a: Array) -> Array:
    """Return the largest sum of a row of `|a|`, or NaN: [N@x, N@y] -> []."""
    # all devices take the maximum: one that devices agree on may lose NaN
    return place(jnp.abs(a).sum(1), jax.P()).max()


def norm1(a: Array, axes: Axes = AXES) -> Array:
    """Return the largest sum of a column of `|a|`, or NaN: [N@x, N@y] -> [].

    Floating-point or complex, of 4 bytes a number or 8. Raises ValueError for what is
    no such square matrix, and for a mesh without these axes.
    """
    check_square(a, axes)
    return norm_inf(a.T)


# ------------------------------------------------------------ powers of two, exact


def exponent(x: Array, axis: int | None = None) -> Array:
    """Return the e with 2^e above the largest number; -10000 for zeros and what is not.

    [N, K] -> int32[], or int32[K] along axis 0
    """
    largest = jnp.abs(x).max(axis)
    good = jnp.isfinite(largest) & (largest > 0)
    return jnp.where(good, jnp.frexp(jnp.where(good, largest, 1))[1], -10_000)


def ldexp(x: Array, by: Array) -> Array:
    """Return x 2^by, in two halves, so that only what has no room is lost."""
    one = jnp.ones((), jnp.finfo(x.dtype).dtype)
    first, last = (jnp.ldexp(one, e).astype(x.dtype) for e in (by // 2, by - by // 2))
    return x * first * last


# ------------------------------------------------------------------ what you call


def check_square(a: Array, axes: Axes):
    """Raise ValueError unless `a` is a square matrix of numbers, on such a mesh."""
    mesh_sizes(*axes)
    if not isinstance(a, (Array, np.ndarray)):
        raise ValueError(f"a is a {type(a).__name__}: pass an array of JAX or NumPy")
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not a.size:
        raise ValueError(f"a {a.shape} is no square matrix: pass [N, N]")
    if a.dtype.name not in DTYPES:
        raise ValueError(f"a is {a.dtype}: pass one of {', '.join(DTYPES)}")


def check_columns(name: str, b: Array, n: int):
    """Raise ValueError unless `b` has a number, or K of them, for each equation."""
    if not isinstance(b, (Array, np.ndarray)):
        raise ValueError(f"{name} is a {type(b).__name__}: pass an array")
    if b.ndim not in (1, 2) or len(b) != n:
        raise ValueError(f"{name} {b.shape} does not fit a: pass [{n}] or [{n}, K]")
    if b.dtype.name not in DTYPES:
        raise ValueError(f"{name} is {b.dtype}: pass one of {', '.join(DTYPES)}")


def check_inverse(inverse, axes: Axes):
    """Raise ValueError unless this estimates norms, of vectors along these axes."""
    if not hasattr(inverse, "norms"):
        raise ValueError(
            f"a {type(inverse).__name__} tells no norms: pass Inverse(solver) of "
            "norm_estimate.py"
        )
    if tuple(inverse.axes) != axes:
        raise ValueError(
            f"the solver has right-hand sides along {inverse.axes}, not {axes}: pass "
            f"Inverse(solver, {axes})"
        )


@jax.custom_jvp
def nan_derivative(numbers, *inputs: Array):
    """Return these numbers; every derivative of them by the inputs is NaN."""
    del inputs
    return numbers


@nan_derivative.defjvp
def _nan_derivative_jvp(primals, tangents):
    change = sum(t.sum().real for t in tangents[1:]) * 0
    nan = jax.custom_derivatives.linear_call(
        lambda _, t: t * jnp.nan,
        lambda _, t: jnp.where(t == 0, 0, jnp.nan),  # 0 where nobody asks
        (),
        change,
    )
    return primals[0], jax.tree.map(lambda x: jnp.full_like(x, nan), primals[0])


def condition(a: Array, inverse, axes: Axes = AXES) -> Array:
    """Estimate the condition number `|a| |a^-1|` in the 1-norm, from below.

    a: [N@x, N@y], inverse: Inverse(solver) -> []; NaN or infinite where it gives that

    Its derivative is NaN. Raises ValueError for an `a` that `norm1` refuses, and for
    what does not solve.
    """
    check_square(a, axes)
    check_inverse(inverse, ())
    known = lax.stop_gradient(a)
    e = exponent(known)
    norm = inverse.transposed().norms(jnp.ones((len(a), 0), a.dtype), e)[1]
    return nan_derivative(norm1(ldexp(known, -e), axes) * norm, a)


def check_solution(a: Array, b: Array, x: Array, axes: Axes):
    """Raise ValueError unless these are equations and right-hand sides that fit."""
    check_square(a, axes)
    check_columns("b", b, len(a))
    check_columns("x", x, len(a))
    if b.shape != x.shape:
        raise ValueError(f"x {x.shape} is no solution for b {b.shape}: pass two alike")


def assess(a: Array, b: Array, x: Array, inverse, axes: Axes = AXES) -> Report:
    """Return how good the solution x of a x = b is, whoever found it.

    a: [N@x, N@y], b, x: [N] or [N, K], inverse: Inverse(solver) -> Report

    In the widest type of the three. The solver may be less exact than x; it is called
    with [N, (K + 1) t] columns, t = 4 or N, on all devices. Raises ValueError for an
    `a` that `norm1` refuses, for b and x that do not fit it, and for what does not
    solve.
    """
    check_solution(a, b, x, axes)
    check_inverse(inverse, ())
    dtype, sides = result_type(a, b, x), (len(a), math.prod(b.shape[1:]))
    known = [lax.stop_gradient(v).astype(dtype) for v in (a, b, x)]
    columns = [place(v.reshape(sides), jax.P()) for v in known[1:]]
    product = functools.partial(blocks_times, axes=axes)
    numbers = error_bounds([known[0], *columns], len(a), inverse, product)
    each = [v.reshape(b.shape[1:]) for v in numbers[:3]]
    return Report(*nan_derivative((*each, numbers[3]), a, b, x), len(a), x.dtype.name)


def assess_blocks(a: Array, b: Array, x: Array, inverse, axes: Axes = AXES) -> Report:
    """Return how good many solutions are, of which no device holds all.

    a: [N@x, N@y], b, x: [N@x, K@y], inverse: Inverse(solver, axes) -> Report, with
    numbers of [K@y], or of [K] on all devices if Y does not divide K

    As `assess` does, with a solver for blocks, such as lu_solve_blocks of inverse.py or
    cho_solve_blocks of definite.py, that is called with [N@x, (K + Y) t@y]. b and x may
    lie anywhere, and are laid out as above first; zeros fill up what the mesh does not
    divide. Call it inside `jax.jit`. Errors are those of `assess`.
    """
    check_solution(a, b, x, axes)
    check_inverse(inverse, axes)
    if b.ndim != 2:
        raise ValueError(f"b {b.shape} is no matrix: pass [N, K], or call assess")
    dtype, n = result_type(a, b, x), len(a)
    known = [lax.stop_gradient(v).astype(dtype) for v in (a, b, x)]
    known = [place(pad_columns(v, axes), jax.P(*axes)) for v in known]
    product = functools.partial(times_in_blocks, axes=axes)
    numbers = error_bounds(known, n, inverse, product)
    each = [unpad_vector(v, b.shape[1]) for v in numbers[:3]]
    return Report(*nan_derivative((*each, numbers[3]), a, b, x), n, x.dtype.name)


def pad_columns(v: Array, axes: Axes) -> Array:
    """Return a matrix with zeros, up to what the mesh divides."""
    units = mesh_sizes(*axes)
    more = [(0, -size % unit) for size, unit in zip(v.shape, units, strict=True)]
    return jnp.pad(v, more) if any(pad for _, pad in more) else v


def unpad_vector(v: Array, size: int) -> Array:
    """Return as many numbers: as they lie, or on all devices if there are more."""
    return v if len(v) == size else place(v, jax.P())[:size]


def error_bounds(known: list, n: int, inverse, product: Callable) -> tuple[Array, ...]:
    """Return the numbers of a report: three of [K], one of [].

    known: a [N@x, N@y], b and x [N, K], of n equations, and zeros where these are less.
    Scaled, so that no product overflows or underflows.
    """
    a, b, x = known
    of_a = jnp.maximum(exponent(a), -5000)
    of_x = jnp.maximum(exponent(x, 0), exponent(b, 0) - of_a)
    of_a, of_x = (jnp.where(e < -4000, 0, e) for e in (of_a, of_x))
    norms = functools.partial(inverse.norms, by=of_a, n=n)
    b, x = ldexp(b, -(of_a + of_x)[None]), ldexp(x, -of_x[None])
    return scaled_bounds([ldexp(a, -of_a), b, x], n, norms, product)


def ratio(small: Array, large: Array) -> Array:
    """Return small / large, 0 for 0 / 0, and NaN if either is not finite."""
    nothing = (small == 0) & (large == 0)
    quotient = jnp.where(nothing, 0, small / jnp.where(nothing, 1, large))
    return jnp.where(jnp.isfinite(small + large), quotient, jnp.nan)


def column_max(v: Array) -> Array:
    """Return the largest number of each column, or NaN: [N, K] -> [K], as it lies."""
    # a maximum that devices agree on may lose NaN
    return jnp.where(jnp.isnan(v).any(0), jnp.nan, v.max(0))


def scaled_bounds(known: list, n: int, norms, product: Callable) -> tuple[Array, ...]:
    """Return what `error_bounds` does, for numbers around 1: three of [K], a []."""
    a, b, x = known
    unit, norm = jnp.finfo(a.dtype).eps / 2, norm_inf(a)
    residual = jnp.abs(b - product(dot, a, x))
    size = product(abs_product, a, x) + jnp.abs(b)
    rounded = residual + (n + 1) * unit * size
    errors, inverse = norms(rounded.astype(a.dtype))
    largest = column_max(jnp.abs(x))
    backward = ratio(column_max(residual), norm * largest + column_max(jnp.abs(b)))
    forward = ratio(errors, largest)
    return backward, column_max(ratio(residual, size)), forward, norm * inverse


def main():
    """Solve ill-conditioned equations, and say how well, by a known inverse."""
    count = jax.device_count()
    with jax.set_mesh(jax.make_mesh((1, count), AXES)):
        i = jnp.arange(8 * count, dtype=jnp.float32)
        a = jnp.exp(-(((i[:, None] - i) / 4) ** 2)) + 1e-4 * jnp.eye(8 * count)
        size = jnp.abs(jnp.linalg.inv(a))

        def norms(w, by, n):
            return jnp.ldexp(dot(size, w).max(0), by), jnp.ldexp(size.sum(1).max(), by)

        b, known = dot(a, jnp.ones_like(i)), SimpleNamespace(norms=norms, axes=())
        x = jnp.linalg.solve(a, b)
        a = jax.device_put(a, jax.P(*AXES))
        print(jax.jit(lambda a, b, x: assess(a, b, x, known))(a, b, x))


if __name__ == "__main__":
    main()
