# SPDX-License-Identifier: MIT-0
"""Conjugate gradients: solve A x = b by products with A alone, one message a step.

A is a function: it takes a block of a vector and returns the same block of the product,
and talks to other devices itself if it must. Everything here runs inside
`jax.shard_map`, where each device holds its block of every vector.

    b  [n, ..]    this device's block of the right-hand side; x, r, p have its shape
    axes          the mesh axes over which the blocks together make the vector

The textbook asks for two inner products a step, one after the other: two all-reduces.
The recurrence of Chronopoulos and Gear asks for them together, `s_step_cg` once in s
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
    b; `cg` takes it from its recurrence.
    """

    x: Array
    iterations: Array
    residual: Array


def dots(axes: Axes, *pairs: tuple[Array, Array]) -> Array:
    """Return the inner products of pairs of vectors, all by one all-reduce.

    pairs: blocks [n, ..] -> [number of pairs], real, on every device.
    """
    return lax.psum(jnp.stack([jnp.vdot(a, b).real for a, b in pairs]), axes)


def check_problem(b: Array, stop: Stop):
    """Raise ValueError unless b is a vector of fractions and the limits make sense."""
    if not jnp.issubdtype(b.dtype, jnp.inexact):
        raise ValueError(f"b is {b.dtype}: pass floating-point or complex numbers")
    if min(stop) < 0:
        raise ValueError(f"{stop}: pass numbers that are 0 or more")


def check_powers(b: Array, s: int, stop: Stop):
    """Raise ValueError unless b is real, s at least 1 and the limits make sense."""
    check_problem(b, stop)
    if s < 1 or jnp.iscomplexobj(b):
        raise ValueError(f"s = {s} for b of {b.dtype}: pass s >= 1 and real numbers")


def cg(
    matvec: Callable,
    b: Array,
    axes: Axes,
    precondition: Callable = lambda r: r,
    stop: Stop = STOP,
) -> Solution:
    """Solve A x = b for a Hermitian positive definite A, with one all-reduce a step.

    b: [n, ..] -> x: [n, ..], blocks, floating-point or complex

    `matvec` maps a block of v to a block of A v; `precondition` a block of r to one of
    M r, with M near the inverse of A, Hermitian and positive definite. It can be
    differentiated: the derivative is another solution with the same A. Raises
    ValueError if b is of integers. An A that is not positive definite gives no error.
    """
    check_problem(b, stop)

    def measured(r):
        # jit hides replicated arrays in them, which custom_linear_solve would make vary
        u = jax.jit(precondition)(r)
        w = jax.jit(matvec)(u)
        return u, w, *dots(axes, (r, u), (w, u), (r, r))

    def step(state):
        steps, _, x, r, p, s, u, w, new, delta, gamma, alpha = state
        beta = new / gamma
        alpha = new / (delta - beta * new / alpha)  # delta is not (p, s), but gives it
        p, s = u + beta * p, w + beta * s  # s is A p, by the same recurrence
        x, r = x + alpha * p, r - alpha * s
        *measures, square = measured(r)
        return steps + 1, square, x, r, p, s, *measures, new, alpha

    def run(_, b):
        zero = jnp.zeros_like(b)
        *measures, whole = measured(b)
        never = jnp.full_like(whole, jnp.inf)  # the gamma before: so beta = 0
        start = zero, b, zero, zero, *measures, never, jnp.ones_like(whole)
        steps, square, x, *_ = _loop(step, whole, start, stop)
        report = steps.astype(whole.dtype), jnp.sqrt(_ratio(square, whole))
        return x, lax.pcast(jnp.stack(report), axes, to="varying")  # as x: one type

    x, report = lax.custom_linear_solve(
        jax.jit(matvec), b, run, symmetric=True, has_aux=True
    )
    return Solution(x, *_agreed(report, axes))


def s_step_cg(
    powers: Callable, b: Array, axes: Axes, s: int, stop: Stop = STOP
) -> Solution:
    """Solve A x = b for a positive definite A, with one all-reduce every `s` steps.

    b: [n, ..] -> x: [n, ..], blocks, floating-point

    `powers(v, s)` maps blocks [2, n, ..] of two vectors to [s + 1, 2, n, ..], their
    products with A^0 .. A^s: `repeat(matvec)`, or better something that exchanges once.
    Scale A and b so that the largest eigenvalue is about 1. In float32 take s up to 4:
    beyond it, or for eigenvalues close together, the powers are parallel to within
    rounding, so `residual` is that of the result, not of the recurrence. Raises
    ValueError if b is not real or s < 1.
    """
    check_powers(b, s, stop)
    size = 2 * (s + 1)  # the basis: p, A p, .. A^s p, r, A r, .. A^s r
    units = jnp.eye(size, dtype=b.dtype)
    shift = jnp.eye(size, k=-1, dtype=b.dtype).at[s + 1, s].set(0)  # A, in the basis

    def one(gram, x, r, p):
        square, product = r @ gram @ r, shift @ p
        alpha = _ratio(square, p @ gram @ product)
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

    (whole,) = dots(axes, (b, b))
    steps, _, x, *_ = _loop(step, whole, (jnp.zeros_like(b), b, b), stop)
    rest = b - powers(jnp.stack([x, x]), 1)[1, 0]
    (square,) = dots(axes, (rest, rest))
    return Solution(x, steps, jnp.sqrt(_ratio(square, whole)))


def _agreed(report: Array, axes: Axes) -> tuple[Array, Array]:
    """Return steps and residual, which all devices know, as numbers of that type."""
    steps, residual = lax.pmax(lax.stop_gradient(report), axes)
    return steps.astype(int), residual


def _loop(step: Callable, square: Array, start: tuple, stop: Stop):
    """Repeat `step` until the residual's square, in its state, is small enough."""
    limit = stop.tol**2 * square

    def unfinished(state):
        return (state[1] > limit) & (state[0] < stop.maxiter)

    return lax.while_loop(unfinished, step, (0, square, *start))


def _ratio(a: Array, b: Array) -> Array:
    """Return a / b, and 0 where a is 0: at the solution there is nothing left to do."""
    return jnp.where(a == 0, 0, a / jnp.where(a == 0, 1, b))


def repeat(matvec: Callable) -> Callable:
    """Return `powers` for `s_step_cg`: products of two vectors, one after the other.

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
    appear more than once; the largest and the smallest are right. Raises ValueError for
    no step or a vector of integers. Source: C. Lanczos, J. Res. Natl. Bur. Stand. 45
    (1950), 255.
    """
    check_problem(v, STOP)
    if steps < 1:
        raise ValueError(f"{steps} steps give no matrix: take 1 or more")

    def step(state, _):
        before, v, beta = state
        w = matvec(v) - beta * before
        product, square, one = dots(axes, (v, w), (w, w), (v, v))
        alpha = _ratio(product, one)  # rounding lets the norm of v drift from 1
        beta = jnp.sqrt(jnp.maximum(square - alpha * product, 0))  # |w - alpha v|
        after = _ratio(w - alpha * v, beta)
        return (v, after, beta), (alpha, beta)

    (square,) = dots(axes, (v, v))
    state = jnp.zeros_like(v), v / jnp.sqrt(square), jnp.zeros_like(square)
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
        error = jnp.abs(spread * x - b).max()
        print(f"{jax.typeof(x)}  {iterations} steps  error below 1e-4: {error < 1e-4}")


if __name__ == "__main__":
    main()
