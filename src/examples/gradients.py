# SPDX-License-Identifier: MIT-0
"""Gradients of a mean loss over a batch in blocks: one all-reduce a step, no more.

Each device differentiates by weights that are marked as its own, so that JAX sums
nothing on the way. Sums of losses, of weights and of gradients then cross the mesh
together, once, after the last microbatch.

    params    a tree of [..]               the same on every device along `axis`
    batch     a tree of [B@batch, ..]      examples
    batches   a tree of [T, B@batch, ..]   T microbatches
    weights   [B@batch] or [T, B@batch]    what each example counts; 0 for padding
    loss      (params, block) -> [b]       a number for each of b examples

Cost: one all-reduce of n + 2 words, n being the size of params: float32 for narrower
floats, otherwise their own type. The compiler sends types apart, so complex gradients
travel beside the two real sums. Nothing is sent where `axis` has size 1.

    JAX_NUM_CPU_DEVICES=8 python gradients.py

Copy this file alone: it needs JAX and NumPy.
"""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Axes = str | tuple[str, ...]


def accumulation_type(*arrays: Array) -> jnp.dtype:
    """Return the type to add up products in: float32 for narrower floats."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(*arrays)
    narrow = jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32
    return jnp.dtype(jnp.float32) if narrow else dtype


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


def parts(axis: Axes) -> int:
    """Return into how many parts `axis` cuts a batch on the mesh in context."""
    return math.prod(mesh_sizes(*np.atleast_1d(axis).tolist()))


def lay_along(x: Array, axis: int, *names: str) -> Array:
    """Lay an axis of `x` along mesh axes, if they are Explicit; leave others alone.

    Auto axes are left to `jax.shard_map`. The axes are all Auto or all Explicit.
    """
    mesh, before = jax.sharding.get_abstract_mesh(), jax.typeof(x).sharding.spec
    spec = [None if {*names} & {*np.atleast_1d(entry)} else entry for entry in before]
    spec[axis] = names
    return jax.reshard(x, jax.P(*spec)) if names[0] in mesh.explicit_axes else x


def check_params(params, axis: Axes):
    """Raise ValueError unless every leaf is a float, and whole along `axis`."""
    for path, leaf in jax.tree.leaves_with_path(params):
        aval = jax.typeof(leaf)
        held = {name for part in aval.sharding.spec for name in np.atleast_1d(part)}
        if not jnp.issubdtype(aval.dtype, jnp.inexact) or held & {*np.atleast_1d(axis)}:
            raise ValueError(
                f"params{jax.tree_util.keystr(path)} is {aval}: pass floating-point or "
                f"complex numbers, the same on every device along {axis!r}"
            )


def check_batches(batches, weights, axis: Axes):
    """Raise ValueError unless all arrays have the same [T, B], and `axis` cuts B."""
    shapes = {np.shape(leaf)[:2] for leaf in jax.tree.leaves((batches, weights))}
    count, sizes = parts(axis), max(shapes, default=())
    if len(shapes) != 1 or len(sizes) != 2 or 0 in sizes:
        raise ValueError(
            f"arrays that begin with {sorted(shapes)} are no batches: all must have "
            "the same number of microbatches, and of examples in each"
        )
    if sizes[1] % count:
        size = -(-sizes[1] // count) * count
        raise ValueError(
            f"a batch of {sizes[1]} cannot be cut into {count} parts: pad it to {size} "
            "examples, and pass weights that are 0 for those you added"
        )


def varying(x: Array, axis: Axes) -> Array:
    """Return `x`, varying along `axis`: its gradient is one of each device.

    The transpose is a sum, and XLA:CPU aborts over one of bfloat16 beside Auto axes.
    """
    return lax.pcast(x.astype(accumulation_type(x)), axis, to="varying").astype(x.dtype)


def totals(loss: Callable, params, block, weights) -> tuple:
    """Return the sums over a block of weighted losses and of weights, and the gradient.

    block: a tree of [b, ..], weights: [b], or None for ones -> [], [], a tree as params
    """
    size = jax.tree.leaves(block)[0].shape[0]

    def total(params):
        losses = loss(params, block)
        shape = getattr(losses, "shape", type(losses).__name__)
        if shape != (size,) or not jnp.issubdtype(losses.dtype, jnp.floating):
            raise ValueError(
                f"the loss of {size} examples has shape {shape}: return one "
                f"number for each, real, without a mean; shape {(size,)}"
            )
        scale = jnp.ones_like(losses) if weights is None else weights
        scale = scale.astype(accumulation_type(losses))
        return (scale * losses.astype(scale.dtype)).sum(), scale.sum()

    (value, weight), gradient = jax.value_and_grad(total, has_aux=True)(params)
    return value, weight, gradient


def on_auto_axes(f: Callable, params) -> Callable:
    """Return `f`, inside of which Explicit axes are Auto: a loss need not name them.

    f: (params, ..) -> [], [], a tree as params
    """
    names = jax.sharding.get_abstract_mesh().explicit_axes
    of_params = jax.tree.map(lambda x: jax.typeof(x).sharding.spec, params)
    specs = jax.P(), jax.P(), of_params
    if not set(names) & set(jax.tree.leaves([*map(tuple, jax.tree.leaves(specs))])):
        return f  # nothing is split along them; so it has derivatives of any order
    return jax.sharding.auto_axes(f, axes=names, out_sharding=specs)


@jax.jit(static_argnames=("loss", "axis"))
def accumulate(loss: Callable, params, batches, weights=None, axis: Axes = "batch"):
    """Return the mean loss over T microbatches and its gradient, with one all-reduce.

    params: a tree of [..], batches: a tree of [T, B@batch, ..], weights: [T, B@batch]
    or None for ones -> [], a tree as params, with its types and placement

    `loss(params, block)` returns one number for each example of a block, without a
    collective over `axis`. `axis` names the mesh axis, or axes, that split the batch;
    params may be split along others, whose axes are Auto within `loss`. Weights must be
    real, and not all 0. Raises ValueError for params that are split along `axis` or are
    no floats, and for a batch that `axis` does not divide.
    """
    check_batches(batches, weights, axis)
    check_params(params, axis)

    def run(params, batches, weights):
        own = jax.tree.map(partial(varying, axis=axis), params)
        sums_of = on_auto_axes(partial(totals, loss), params)

        def add(sums, microbatch):
            terms = sums_of(own, *microbatch)
            return jax.tree.map(lambda x, y: x + y.astype(x.dtype), sums, terms), None

        zeros = jax.tree.map(lambda x: jnp.zeros_like(x, accumulation_type(x)), own)
        double = any(jnp.finfo(x.dtype).bits == 64 for x in jax.tree.leaves(params))
        real = jnp.float64 if double else jnp.float32  # of one type with the gradient
        zero = lax.pcast(jnp.zeros((2,), real), axis, to="varying")
        sums, _ = lax.scan(add, (*zero, zeros), (batches, weights))
        value, weight, gradient = lax.psum(sums, axis)
        mean = jax.tree.map(
            lambda g, p: (g / weight.astype(g.dtype)).astype(p.dtype), gradient, params
        )
        return value / weight, mean

    names = np.atleast_1d(axis).tolist()
    data = jax.tree.map(lambda x: lay_along(x, 1, *names), (batches, weights))
    specs = jax.P(), jax.P(None, axis), jax.P(None, axis)
    mapped = jax.shard_map(run, in_specs=specs, out_specs=jax.P(), axis_names={*names})
    return mapped(params, *data)


@jax.jit(static_argnames=("loss", "axis"))
def value_and_grad(loss: Callable, params, batch, weights=None, axis: Axes = "batch"):
    """Return the mean loss over a batch and its gradient, with one all-reduce.

    params: a tree of [..], batch: a tree of [B@batch, ..], weights: [B@batch] or None
    for ones -> [], a tree as params, with its types and placement

    It is `accumulate` with one microbatch, and refuses what that refuses.
    """
    batches, weights = jax.tree.map(lambda x: x[None], (batch, weights))
    return accumulate(loss, params, batches, weights, axis)


def main():
    """Fit a line on every device there is, with four microbatches a step."""
    count = jax.device_count()
    x = np.random.default_rng(0).standard_normal((4, 16 * count, 2), np.float32)
    batches = x, x @ np.float32([2, -1]) + 3

    def loss(params, block):
        x, y = block
        return (x @ params["w"] + params["b"] - y) ** 2

    with jax.set_mesh(jax.make_mesh((count,), ("batch",))):
        batches = jax.device_put(batches, jax.P(None, "batch"))
        params = {"w": jnp.zeros(2), "b": jnp.zeros(())}
        for _ in range(60):
            value, gradient = accumulate(loss, params, batches)
            params = jax.tree.map(lambda p, g: p - 0.2 * g, params, gradient)
        w, b = params["w"].round(3).tolist(), float(params["b"].round(3))
        print(f"y = {w[0]:g} x0 + {w[1]:g} x1 + {b:g}, mean loss below {1e-6}")
        assert value < 1e-6


if __name__ == "__main__":
    main()
