# SPDX-License-Identifier: MIT-0
"""Check a gradient: compare it with the derivative along one random direction.

A gradient that a wrong collective makes eight times too large still points downhill,
and nothing fails. Forward mode transposes no collective, so that its derivative along
one direction shows any factor in the gradient.

    f          a tree of [..] -> real []
    params     a tree of [..], real or complex
    gradient   a tree of the same shapes, as `jax.grad(f)(params)` returns it

Cost: f is evaluated once, in forward mode, which sends what f sends, and as much again.

    JAX_NUM_CPU_DEVICES=8 python gradient_check.py

Copy this file alone: it needs JAX and NumPy.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def check_gradient(f: Callable, params, gradient, tolerance: float = 0.01):
    """Raise ValueError unless `gradient` is the slope of `f` in a random direction.

    f: a tree of [..] -> real []; params and gradient: trees of the same shapes. Raises
    ValueError for others, too, and inside `jax.jit`.

    It finds any factor, and a part that is missing if it is more than `tolerance` of
    the whole. At a minimum of `f` there is no slope to compare.
    """
    params, gradient = check_alike(params, gradient)
    rng = np.random.default_rng(0)

    def uphill(p, g):
        signs = jnp.where(g == 0, 1, jnp.sign(g)).conj().astype(p.dtype)
        return signs * jnp.asarray(rng.uniform(0.5, 1.5, np.shape(p)), p.dtype)

    direction = jax.tree.map(uphill, params, gradient)
    _, slope = jax.jvp(f, (params,), (direction,))

    def product(g, v):  # sums of float16 overflow
        wide = v.dtype if v.dtype.itemsize > 2 else jnp.float32
        return float((g.astype(wide) * v.astype(wide)).real.sum())

    products = jax.tree.map(product, gradient, direction)
    if np.shape(slope) or jnp.iscomplexobj(slope):
        raise ValueError(f"f returns {jax.typeof(slope)}: it must be one real number")
    claim, slope = sum(jax.tree.leaves(products)), float(slope)
    bound = tolerance * max(abs(claim), abs(slope))
    if not abs(claim - slope) <= bound < np.inf:
        raise ValueError(
            f"along a random direction f rises by {slope:.4g}, but the gradient says "
            f"{claim:.4g}: {np.divide(claim, slope or np.nan):.3g} times as much"
        )


def check_alike(params, gradient) -> tuple:
    """Return two trees of numbers as arrays; raise ValueError unless they are alike."""
    leaves = jax.tree.leaves((params, gradient))
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        raise ValueError("check a gradient outside `jax.jit`, where it has a value")
    params, gradient = jax.tree.map(jnp.asarray, (params, gradient))
    one, two = (jax.tree.map(jnp.shape, tree) for tree in (params, gradient))
    if one != two:
        raise ValueError(f"params are {one}, but their gradient is {two}")
    if not all(
        jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in map(jnp.asarray, leaves)
    ):
        raise ValueError(
            "params and gradient must be floating-point or complex numbers"
        )
    return params, gradient


def main():
    """Check a gradient over all devices, and one that is a sum too many."""
    count = jax.device_count()
    with jax.set_mesh(jax.make_mesh((count,), ("x",))):
        x = jnp.arange(1.0, 8 * count + 1, out_sharding=jax.P("x"))

        @jax.shard_map(out_specs=jax.P())
        def f(x):
            return lax.psum((x**2).sum(), "x")

        check_gradient(f, x, jax.grad(f)(x))
        try:
            check_gradient(f, x, 8 * jax.grad(f)(x))
        except ValueError as error:
            print(error)


if __name__ == "__main__":
    main()
