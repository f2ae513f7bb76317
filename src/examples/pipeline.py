# SPDX-License-Identifier: MIT-0
"""A pipeline: the layers of a model on different devices, batches passing through.

Each stage holds its own layers. A batch is cut into microbatches, and what a stage has
made of one goes to the next stage while it works on the following one: GPipe's
schedule, as one program for all devices. The gradient runs through it backwards.

    params   [L@stage, ..]     every array holds a part for each layer, in order
    x, y     [B@data, ..]      a batch, cut in M microbatches on every device
    piece    [B / (D M), ..]   one microbatch on one device; it has the same shape and
                               type after each stage

With S stages a step takes M + S - 1 turns forward and as many back, and a device sends
one piece in each. A stage idles in (S - 1) / (M + S - 1) of its turns. Gradients are
added up along `data` once, after the last turn.

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
    """Return which microbatch each stage works on at each turn: [M + S - 1, S], int.

    -1 means that it has none. Raises ValueError unless there is at least one of each.
    """
    if stages < 1 or microbatches < 1:
        raise ValueError(
            f"{stages} stages and {microbatches} microbatches: take 1 each"
        )
    turns, ranks = np.ogrid[: microbatches + stages - 1, :stages]
    pieces = turns - ranks
    return np.where((pieces >= 0) & (pieces < microbatches), pieces, -1)


def shift_open(x: Array, axis_name: str, step: int) -> Array:
    """Send `x` `step` places along the open line `axis_name`; zeros where none came."""
    size = lax.axis_size(axis_name)
    route = [(i, i + step) for i in range(size) if 0 <= i + step < size]
    return lax.ppermute(x, axis_name, route) if route else jnp.zeros_like(x)


def flow(stage: Callable, params, pieces: Array) -> Array:
    """Pass all pieces through all stages; the last one returns what came out.

    pieces: [M, b, ..] -> [M, b, ..]; on the other stages what comes back is of no use

    `stage(params, piece)` returns a piece of the same shape. Call it inside
    `jax.shard_map`, with `params` and `pieces` varying along `stage`.
    """
    rank, size = lax.axis_index("stage"), lax.axis_size("stage")
    last = pieces.shape[0] - 1

    def turn(piece, number):
        arrived = shift_open(piece, "stage", +1)
        # an idle stage works on some piece or other, so that it never divides by zero
        fresh = pieces[jnp.minimum(number, last)]
        piece = stage(params, jnp.where(rank == 0, fresh, arrived))
        return piece, piece

    turns = jnp.arange(last + size)
    return lax.scan(turn, pieces[0], turns)[1][size - 1 :]


def mesh_sizes(*names: str) -> list[int]:
    """Return the sizes of these axes of the mesh in context, or raise ValueError."""
    sizes = jax.sharding.get_abstract_mesh().shape
    if missing := [name for name in names if name not in sizes]:
        raise ValueError(
            f"no mesh axis {missing} in context: call it inside "
            f"`with jax.set_mesh(mesh)`, for a mesh with the axes {names}"
        )
    return [sizes[name] for name in names]


def check_pipeline(params, batch, microbatches: int):
    """Raise ValueError unless the mesh in context can cut the layers and the batch."""
    stages, parts = mesh_sizes("stage", "data")
    schedule(stages, microbatches)
    for leaf in jax.tree.leaves(params):
        if not leaf.shape or leaf.shape[0] % stages:
            raise ValueError(
                f"parameters {leaf.shape} cannot be cut into {stages} stages: their "
                f"first axis must be the layers, a multiple of {stages}"
            )
    for leaf in jax.tree.leaves(batch):
        if not leaf.shape or leaf.shape[0] % (parts * microbatches):
            raise ValueError(
                f"a batch {leaf.shape} cannot be cut into {parts} parts of "
                f"{microbatches} microbatches: take a multiple of "
                f"{parts * microbatches}"
            )


def pipelined(stage: Callable, cost: Callable, microbatches: int) -> Callable:
    """Return the loss of a pipeline: (params, (x, y)) -> number.

    params: [L@stage, ..] each; x, y: [B@data, ..]

    `stage(params, piece)` applies those layers that it is given; `cost(answer, y)`, a
    mean over its rows, is taken of a device's whole part of the batch at the last
    stage. The loss raises ValueError if the mesh cannot cut its arguments.
    """

    def loss(params, batch):
        check_pipeline(params, batch, microbatches)

        @jax.shard_map(in_specs=(jax.P("stage"), jax.P("data")), out_specs=jax.P())
        def run(params, batch):
            # copies that vary before the loop: their sum along data comes after it
            params = lax.pcast(params, "data", to="varying")
            x, y = lax.pcast(batch, "stage", to="varying")
            answer = flow(stage, params, x.reshape(microbatches, -1, *x.shape[1:]))
            value = cost(answer.reshape(x.shape), y)
            end = lax.axis_index("stage") == lax.axis_size("stage") - 1
            mine = jnp.where(end, value, 0) / lax.axis_size("data")
            return lax.psum(mine, ("stage", "data"))

        return run(params, batch)

    return loss


def main():
    """Descend with as many stages as there are devices, one layer on each."""
    count = jax.device_count()

    def stage(params, piece):
        for w in params:
            piece = piece + jnp.tanh(piece @ w)
        return piece

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
    print(f"idle {idle:.0%} of the turns, loss {losses[0]:.3f} -> {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
