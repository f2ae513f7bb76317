# SPDX-License-Identifier: MIT-0
"""A pipeline: the layers of a model on different devices, batches passing through.

Each stage holds its own layers. A batch is cut into microbatches, and what a stage has
made of one goes to the next stage while it works on the following one: GPipe's
schedule, as one program for all devices. The gradient runs through it backwards.

    params   [L@stage, ..]     every array holds a part for each layer, in order
    x, y     [B@data, ..]      a batch, cut in M microbatches on every device
    piece    [B / (D M), ..]   one microbatch on one device, an array or a tree; it has
                               the same shapes and types after each stage

With S stages a step takes M + S - 1 iterations forward and as many back, and a device
sends one piece in each. A stage idles in (S - 1) / (M + S - 1) of them. Gradients are
added up along `data` once, after the last iteration.

Source: Y. Huang et al., GPipe, NeurIPS 2019, arXiv:1811.06965.

    JAX_NUM_CPU_DEVICES=8 python pipeline.py

Copy this file alone: it needs JAX and NumPy.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def schedule(stages: int, microbatches: int) -> np.ndarray:
    """Return which microbatch each stage works on in each iteration: [M + S - 1, S].

    -1 means that it has none. Raises ValueError unless there is at least one of each.
    """
    if stages < 1 or microbatches < 1:
        raise ValueError(f"{stages} stages, {microbatches} microbatches: take 1 each")
    iterations, ranks = np.ogrid[: microbatches + stages - 1, :stages]
    pieces = iterations - ranks
    return np.where((pieces >= 0) & (pieces < microbatches), pieces, -1)


def shift_open(x: Array, axis_name: str, step: int) -> Array:
    """Send `x` `step` places along the open line `axis_name`; zeros where none came."""
    size = lax.axis_size(axis_name)
    route = [(i, i + step) for i in range(size) if 0 <= i + step < size]
    return lax.ppermute(x, axis_name, route) if route else jnp.zeros_like(x)


def flow(stage: Callable, params, pieces):
    """Pass all pieces through all stages; the last one returns what came out.

    pieces: a tree of [M, b, ..] -> the same; on the other stages it is of no use

    `stage(params, piece)` returns a piece of the same shapes and types. Call it inside
    `jax.shard_map`, with `params` and `pieces` varying along `stage`. Raises ValueError
    for a stage that returns something else.
    """
    rank, size = lax.axis_index("stage"), lax.axis_size("stage")
    last = jax.tree.leaves(pieces)[0].shape[0] - 1

    def take(number):
        return jax.tree.map(lambda leaf: leaf[number], pieces)

    def iterate(piece, number):
        arrived = jax.tree.map(lambda leaf: shift_open(leaf, "stage", +1), piece)
        # an idle stage works on some piece or other, so that it never divides by zero
        fresh = take(jnp.minimum(number, last))
        either = jax.tree.map(lambda a, b: jnp.where(rank == 0, a, b), fresh, arrived)
        piece = stage(params, either)
        return piece, piece

    check_stage(stage, params, take(0))
    made = lax.scan(iterate, take(0), jnp.arange(last + size))[1]
    return jax.tree.map(lambda leaf: leaf[size - 1 :], made)


def leaf_type(leaf) -> str:
    """Return the type of a leaf of a piece, with its sharding on Explicit axes."""
    names = {*(leaf.sharding.spec if leaf.sharding else ())} - {None}
    lying = f" by {leaf.sharding.spec}" if names else ""
    return f"{leaf.dtype}{list(leaf.shape)}{lying}"


def check_stage(stage: Callable, params, piece):
    """Raise ValueError unless a stage makes a piece of the same shapes and types."""
    before = jax.tree.map(leaf_type, jax.eval_shape(lambda piece: piece, piece))
    after = jax.tree.map(leaf_type, jax.eval_shape(stage, params, piece))
    if before != after:
        raise ValueError(f"a stage makes {after} of {before}: return what it takes")


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


def lay_along(x: Array, axis: int, *names: str) -> Array:
    """Lay an axis of `x` along mesh axes, if they are Explicit; leave others alone.

    Auto axes are left to `jax.shard_map`. The axes are all Auto or all Explicit.
    """
    mesh, before = jax.sharding.get_abstract_mesh(), jax.typeof(x).sharding.spec
    spec = [None if {*names} & {*np.atleast_1d(entry)} else entry for entry in before]
    spec[axis] = names
    return jax.reshard(x, jax.P(*spec)) if names[0] in mesh.explicit_axes else x


def check_pipeline(params, batch, microbatches: int):
    """Raise ValueError unless the mesh in context can cut the layers and the batch."""
    stages, copies = mesh_sizes("stage", "data")
    check_examples(batch, microbatches)
    schedule(stages, microbatches)
    for leaf in map(jnp.asarray, jax.tree.leaves(params)):
        if not leaf.shape or leaf.shape[0] % stages:
            raise ValueError(
                f"parameters {leaf.shape} cannot be cut into {stages} stages: their "
                f"first axis must be the layers, a multiple of {stages}"
            )
    for leaf in map(jnp.asarray, jax.tree.leaves(batch)):
        if not leaf.shape or leaf.shape[0] % (pieces := copies * microbatches):
            raise ValueError(
                f"a batch {leaf.shape} cannot be cut into {copies} parts of "
                f"{microbatches} microbatches: take a multiple of {pieces}"
            )


def check_examples(batch, microbatches: int):
    """Raise ValueError unless a batch is a pair, of arrays with one number of rows."""
    if not isinstance(microbatches, int | np.integer):
        raise ValueError(f"{microbatches} microbatches: take a whole number")
    rows = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(batch)}
    if not isinstance(batch, tuple | list) or len(batch) != 2 or len(rows) != 1:
        raise ValueError(
            f"a batch of {sorted(rows)} rows: pass (x, y), all with the same rows"
        )
    if rows == {(0,)}:
        raise ValueError("a batch of 0 rows has no mean: take one row at least")


def widen(x: Array) -> Array:
    """Return `x` in float32 if it is narrower: XLA:CPU aborts over sums of bfloat16."""
    return x.astype(jnp.float32) if x.dtype in (jnp.bfloat16, jnp.float16) else x


def vary(tree, axis: str):
    """Return copies that vary along `axis`; their gradients are added up, widened."""
    return jax.tree.map(
        lambda x: lax.pcast(widen(x), axis, to="varying").astype(x.dtype), tree
    )


def pipelined(stage: Callable, cost: Callable, microbatches: int) -> Callable:
    """Return the loss of a pipeline: (params, (x, y)) -> number.

    params: trees of [L@stage, ..]; x, y: trees of [B@data, ..]; all may lie along
    other mesh axes, too

    `stage(params, piece)` applies those layers that it is given; `cost(answer, y)`, a
    mean over its rows, is taken of a device's whole part of the batch at the last
    stage. The loss raises ValueError if the mesh cannot cut its arguments, and if stage
    or cost return something else.
    """

    def run(params, batch):
        # copies that vary before the loop: their sum along data comes after it
        params = vary(params, "data")
        x, y = vary(batch, "stage")
        pieces = jax.tree.map(
            lambda leaf: leaf.reshape(microbatches, -1, *leaf.shape[1:]), x
        )
        answer = flow(stage, params, pieces)
        answer = jax.tree.map(lambda a, leaf: a.reshape(leaf.shape), answer, x)
        value = cost(answer, y)
        if jnp.shape(value):
            raise ValueError(f"the cost has shape {value.shape}: return one number")
        end = lax.axis_index("stage") == lax.axis_size("stage") - 1
        mine = jnp.where(end, value, 0) / lax.axis_size("data")
        return lax.psum(widen(mine), ("stage", "data")).astype(mine.dtype)

    @jax.jit
    def loss(params, batch):
        check_pipeline(params, batch, microbatches)
        params = jax.tree.map(lambda leaf: lay_along(leaf, 0, "stage"), params)
        batch = jax.tree.map(lambda leaf: lay_along(leaf, 0, "data"), tuple(batch))
        specs, names = (jax.P("stage"), jax.P("data")), {"stage", "data"}
        loss = jax.shard_map(run, in_specs=specs, out_specs=jax.P(), axis_names=names)
        return loss(params, batch)

    return loss


def main():
    """Descend with as many stages as there are devices, one layer on each."""
    count = jax.device_count()

    def stage(params, piece):
        return piece + jnp.tanh(piece @ params[0])

    def cost(answer, y):
        return jnp.mean((answer - y) ** 2)

    with jax.set_mesh(jax.make_mesh((count, 1), ("stage", "data"))):
        params = jax.random.normal(jax.random.key(0), (count, 16, 16)) / 8
        params = jax.device_put(params, jax.P("stage"))
        x, y = jax.random.normal(jax.random.key(1), (2, 64, 16))
        slope = jax.jit(jax.value_and_grad(pipelined(stage, cost, 8)))
        losses = []
        for _ in range(20):
            value, gradient = slope(params, jax.device_put((x, y), jax.P("data")))
            params = params - 0.3 * gradient
            losses.append(float(value))
    idle = np.mean(schedule(count, 8) < 0)
    print(f"idle {idle:.0%} of the time, loss {losses[0]:.3f} -> {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
