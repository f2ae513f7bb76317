# SPDX-License-Identifier: MIT-0
"""Conjugate gradients: solve A x = b by products with A alone, one message a step.

A is a function: it takes a block of a vector and returns the same block of the product,
and sends messages itself where it needs any. Everything here runs inside
`jax.shard_map`, where each device holds its block of every vector.

    b  [n, ..]    this device's block of the right-hand side; x, r, p have its shape
    axes          the mesh axes over which the blocks together make the vector

The textbook needs two inner products a step, the second after the first: the latency of
two all-reduces. The recurrence of Chronopoulos and Gear needs one, `s_step_cg` one in s
steps. A message of a few numbers costs its latency alone: count messages, not bytes.

    JAX_NUM_CPU_DEVICES=8 python cg.py

Copy this file alone: it needs JAX only. Sources: A. T. Chronopoulos and C. W. Gear, J.
Comput. Appl. Math. 25 (1989), 153; E. Carson, PhD thesis, Berkeley (2015), chapter 2.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

Axes = str | tuple[str, ...]


class Stop(NamedTuple):
    """When to stop: at a residual of `tol` times b, or after `maxiter` steps."""

    tol: float = 1e-5
    maxiter: int = 1000


STOP = Stop()


class Solution(NamedTuple):
    """A solution: `x` as `b`, and two numbers that are equal on all devices.

    `iterations` is how many steps were taken, `residual` the norm of b - A x by that of
    b, computed from this x in the end: so it may stay above `tol`, by about eps times
    the condition number. Where a number is NaN or infinite, or x out of the range of
    its type, it is NaN, infinite or 1. Its derivative is 0, which is that of the exact
    solution's.
    """

    x: Array
    iterations: Array
    residual: Array


def dots(axes: Axes, *pairs: tuple[Array, Array]) -> Array:
    """Return the inner products of pairs of vectors, all by one all-reduce.

    pairs: blocks [n, ..] -> [number of pairs], real, on every device.
    """
    return lax.psum(jnp.stack([jnp.vdot(a, b).real for a, b in pairs]), axes)


def check_problem(b: Array, axes: Axes, stop: Stop):
    """Raise ValueError unless b is floating point and the limits make sense."""
    if not (hasattr(b, "dtype") and jnp.issubdtype(b.dtype, jnp.inexact)):
        kind = getattr(b, "dtype", type(b).__name__)
        raise ValueError(f"b is {kind}: pass floating-point or complex numbers")
    if missing := [name for name in _axis_names(axes) if not _is_bound(name)]:
        raise ValueError(
            f"no axis {missing} here: call it inside `jax.shard_map`, over a mesh with "
            f"the axes {axes}"
        )
    if not all(number >= 0 for number in stop):
        raise ValueError(f"{stop}: pass numbers that are 0 or more")


def check_products(b: Array, **products: Callable):
    """Raise ValueError unless each returns a block like the one that it takes."""
    for name, product in products.items():
        out = jax.eval_shape(product, b)
        if (out.shape, out.dtype) != (b.shape, b.dtype):
            raise ValueError(
                f"{name} makes {out.dtype}{list(out.shape)} of "
                f"{b.dtype}{list(b.shape)}: return a block like the one that it takes"
            )


def check_powers(powers: Callable, b: Array, axes: Axes, s: int, stop: Stop):
    """Raise ValueError unless b is real, s at least 1 and all else makes sense."""
    check_problem(b, axes, stop)
    if s < 1 or jnp.iscomplexobj(b):
        raise ValueError(f"s = {s} for b of {b.dtype}: pass s >= 1 and real numbers")
    check_products(b, powers=lambda v: powers(jnp.stack([v, v]), 1)[1, 0])


def cg(
    matvec: Callable, b: Array, axes: Axes, precondition=lambda r: r, stop: Stop = STOP
) -> Solution:
    """Solve A x = b for a Hermitian positive definite A, with one all-reduce a step.

    b: [n, ..] -> x: [n, ..], blocks, floating-point or complex

    `matvec` maps a block of v to a block of A v; `precondition` a block of r to one of
    M r, with M near the inverse of A, Hermitian and positive definite. The derivative
    is another solution with the same A. Raises ValueError if b is of integers or a
    product unlike it. An indefinite A gives no error, but a residual that tells.
    """
    check_problem(b, axes, stop)
    check_products(b, matvec=matvec, precondition=precondition)

    def measured(r):
        # jit hides replicated arrays in them, which custom_linear_solve would make vary
        u = jax.jit(precondition)(r)
        w = jax.jit(matvec)(u)
        return u, w, *dots(axes, (r, u), (w, u), (r, r))

    def step(state):
        steps, _, x, r, p, s, u, w, new, delta, gamma, alpha = state
        beta = new / gamma
        alpha = new / (delta - beta * new / alpha)  # delta is not (p, s), but gives it
        keep, go = beta.astype(b.dtype), alpha.astype(b.dtype)
        p, s = u + keep * p, w + keep * s  # s is A p, by the same recurrence
        x, r = x + go * p, r - go * s
        *measures, square = measured(r)
        return steps + 1, square, x, r, p, s, *measures, new, alpha

    def run(b):
        zero = jnp.zeros_like(b)
        *measures, whole = measured(b)
        never = jnp.full_like(whole, jnp.inf)  # the gamma before: so beta = 0
        start = zero, b, zero, zero, *measures, never, jnp.ones_like(whole)
        steps, _, x, *_ = _loop(step, whole, start, stop)
        return x, steps

    return _solution(run, matvec, b, axes)


def s_step_cg(
    powers: Callable, b: Array, axes: Axes, s: int, stop: Stop = STOP
) -> Solution:
    """Solve A x = b for a positive definite A, with one all-reduce every `s` steps.

    b: [n, ..] -> x: [n, ..], blocks, floating-point

    `powers(v, s)` maps blocks [2, n, ..] of two vectors to [s + 1, 2, n, ..], their
    products with A^0 .. A^s: `powers_of(matvec)`, or better what exchanges once.
    Scale A and b so that the largest eigenvalue is about 1. Powers grow parallel, so a
    larger s may take more steps or never arrive: `residual` tells. Differentiated like
    `cg`. Raises ValueError if b is not real, if s < 1, or for a product unlike b.
    """
    check_powers(powers, b, axes, s, stop)
    size = 2 * (s + 1)  # the basis: p, A p, .. A^s p, r, A r, .. A^s r
    units = jnp.eye(size, dtype=b.dtype)
    shift = jnp.eye(size, k=-1, dtype=b.dtype).at[s + 1, s].set(0)  # A, in the basis

    def one(gram, x, r, p):
        square, product = r @ gram @ r, shift @ p
        along = p @ gram @ product
        alpha = _ratio(jnp.where(along <= 0, 0, square), along)  # nothing but rounding
        after = r - alpha * product
        return x + alpha * p, after, after + _ratio(after @ gram @ after, square) * p

    def step(state):
        steps, _, x, r, p = state
        basis = jnp.swapaxes(powers(jnp.stack([p, r]), s), 0, 1).reshape(size, -1)
        gram = lax.psum(basis @ basis.T, axes)
        start = 0 * units[0], units[s + 1], units[0]
        found = lax.fori_loop(0, s, lambda _, xrp: one(gram, *xrp), start)
        dx, r, p = (jnp.reshape(by @ basis, b.shape) for by in found)
        return steps + s, found[1] @ gram @ found[1], x + dx, r, p

    def run(b):
        (whole,) = dots(axes, (b, b))
        steps, _, x, *_ = _loop(step, whole, (jnp.zeros_like(b), b, b), stop)
        return x, steps

    return _solution(run, lambda v: powers(jnp.stack([v, v]), 1)[1, 0], b, axes)


def _axis_names(axes: Axes) -> tuple[str, ...]:
    return (axes,) if isinstance(axes, str) else tuple(axes)


def _is_bound(name: str) -> bool:
    """Return whether `name` is an axis over which this program may add up."""
    try:
        lax.axis_size(name)
    except NameError:
        return False
    return True


def _scale(b: Array, axes: Axes) -> Array:
    """Return a power of two near the largest element, so that no square overflows.

    The same on all devices; 1 for a vector of zeros, NaN for one that is not finite.
    """
    most = jnp.abs(b).max(initial=0)
    most = jnp.where(most < jnp.inf, most, jnp.inf)  # some a pmax drops NaN
    most = lax.pmax(lax.stop_gradient(most), axes)
    _, power = jnp.frexp(jnp.where((most > 0) & (most < jnp.inf), most, 1))
    scale = jnp.ldexp(jnp.ones_like(most), power - 1)
    return jnp.where(most < jnp.inf, scale, jnp.nan)


def _solution(run: Callable, matvec: Callable, b: Array, axes: Axes) -> Solution:
    """Solve by `run`, which solves for numbers around 1; measure what is left of b."""

    def solve(_, b):
        scale = _scale(b, axes)
        x, steps = run(b / scale.astype(b.dtype))
        report = lax.pcast((steps, scale), axes, to="varying")  # as x: one type
        return x * scale.astype(x.dtype), report

    x, (steps, scale) = lax.custom_linear_solve(
        jax.jit(matvec), b, solve, symmetric=True, has_aux=True
    )
    scale = scale.astype(b.dtype)
    # not finite, or 0, if x is out of range
    b, known = (lax.stop_gradient(v) / scale for v in (b, x))
    rest = b - lax.stop_gradient(matvec(known))
    square, whole = dots(axes, (rest, rest), (b, b))
    first = lax.axis_index(_axis_names(axes)) == 0
    steps = lax.psum(jnp.where(first, steps, 0), axes)  # for the type: all agree
    return Solution(x, steps, jnp.sqrt(_ratio(square, whole)))


def _loop(step: Callable, square: Array, start: tuple, stop: Stop):
    """Repeat `step` until the residual's square, in its state, is small enough."""
    limit = jnp.asarray(stop.tol, square.dtype) ** 2 * square

    def unfinished(state):
        return (state[1] > limit) & (state[0] < stop.maxiter)

    return lax.while_loop(unfinished, step, (0, square, *start))


def _ratio(a: Array, b: Array) -> Array:
    """Return a / b, and 0 where a is 0: at the solution there is nothing left to do."""
    return jnp.where(a == 0, 0, a / jnp.where(a == 0, 1, b))


def powers_of(matvec: Callable) -> Callable:
    """Return `powers` for `s_step_cg`: products of two vectors in sequence.

    The products take [n, ..]; what is returned takes [2, n, ..] and s, and returns
    [s + 1, 2, n, ..].
    """

    def powers(v, s):
        found = [v]
        for _ in range(s):
            found.append(jax.vmap(matvec)(found[-1]))
        return jnp.stack(found)

    return powers


def lanczos(matvec: Callable, v: Array, axes: Axes, steps: int) -> tuple[Array, Array]:
    """Return a small tridiagonal matrix whose outer eigenvalues are near those of A.

    v: [n, ..], a block of any vector -> diagonal [steps], beside it [steps - 1]

    One all-reduce a step. `A` is Hermitian. Without orthogonalisation an eigenvalue may
    appear more than once; the largest and the smallest are right. A v that is 0 or not
    finite gives NaN. Raises ValueError for no step or a vector of integers. Source: C.
    Lanczos, J. Res. Natl. Bur. Stand. 45 (1950), 255.
    """
    check_problem(v, axes, STOP)
    check_products(v, matvec=matvec)
    if steps < 1:
        raise ValueError(f"{steps} steps give no matrix: take 1 or more")

    def step(state, _):
        before, v, beta = state
        w = matvec(v) - beta.astype(v.dtype) * before
        product, square, one = dots(axes, (v, w), (w, w), (v, v))
        alpha = _ratio(product, one)  # rounding lets the norm of v drift from 1
        beta = jnp.sqrt(jnp.maximum(square - alpha * product, 0))  # |w - alpha v|
        after = _ratio(w - alpha.astype(v.dtype) * v, beta.astype(v.dtype))
        return (v, after, beta), (alpha, beta)

    v /= _scale(v, axes).astype(v.dtype)
    (square,) = dots(axes, (v, v))
    v /= jnp.sqrt(square).astype(v.dtype)
    state = jnp.zeros_like(v), v, jnp.zeros_like(square)
    _, (diagonal, beside) = lax.scan(step, state, length=steps)
    return diagonal, beside[:-1]


def main():
    """Solve a system with a diagonal matrix on all devices."""
    count = jax.device_count()
    with jax.set_mesh(jax.make_mesh((count,), ("x",))):
        spread = jax.device_put(jnp.linspace(1, 10, 8 * count), jax.P("x"))
        b = jax.device_put(jnp.ones(8 * count), jax.P("x"))

        @jax.jit
        @jax.shard_map(out_specs=Solution(jax.P("x"), jax.P(), jax.P()))
        def solve(spread, b):
            return cg(lambda v: spread * v, b, "x")

        x, iterations, _ = solve(spread, b)
        solved = (jnp.abs(spread * x - b) < 1e-4).all()  # false for NaN
        print(f"{jax.typeof(x)}  {iterations} steps  error below 1e-4: {solved}")


if __name__ == "__main__":
    main()
