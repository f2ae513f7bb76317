# SPDX-License-Identifier: MIT-0
"""A small model, trained in parallel: one definition, one table of specs, one step.

The model is a stack of blocks of two layers, x + tanh(x w1 + b1) w2 + b2. Where its
parameters lie is all that tells data parallel from tensor parallel training; only fully
sharded parameters need a loss of their own, which gathers one block at a time.

    x, y    [B@data, N]       a batch, and what the model should make of it
    w1, b1  [L, N, F] [L, F]  parameters of all L blocks, cut as a row of SPECS says
    w2, b2  [L, F, N] [L, N]
    state   (params, moments) parameters, and what the optimizer remembers of each

A device sends, in a step of W = L (2 N F + F + N) parameters, 4 bytes each, if D
devices lie along data and M along model, and beside the loss, one number:
    data     2 W (D - 1) / D, in one all-reduce
    tensor   2 (2 L - 1) (B / D) N (M - 1) / M, and the gradients as above, W / M or so
    sharded  (3 W - L N) (D - 1) / D: two gathers and one reduce-scatter

    JAX_NUM_CPU_DEVICES=8 python train.py

Copy this file alone: it needs JAX and Optax.
"""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

NAMES = "w1", "b1", "w2", "b2"
SPECS = {  # where each parameter lies: a row is a strategy, the mesh says how many
    "data": dict.fromkeys(NAMES, jax.P()),
    "tensor": {
        "w1": jax.P(None, None, "model"),
        "b1": jax.P(None, "model"),
        "w2": jax.P(None, "model", None),
        "b2": jax.P(),
    },
    "sharded": dict.fromkeys(NAMES, jax.P(None, "data")),
    "stages": dict.fromkeys(NAMES, jax.P("stage")),
}


def init(key: Array, blocks: int, width: int, hidden: int) -> dict[str, Array]:
    """Return random parameters of `blocks` blocks: w1, b1, w2 and b2."""
    first, second = jax.random.split(key)
    w1 = jax.random.normal(first, (blocks, width, hidden)) / math.sqrt(width)
    w2 = jax.random.normal(second, (blocks, hidden, width)) / math.sqrt(hidden)
    b1, b2 = jnp.zeros((blocks, hidden)), jnp.zeros((blocks, width))
    return {"w1": w1, "b1": b1, "w2": w2, "b2": b2}


def block(weights: dict[str, Array], x: Array) -> Array:
    """Return x + tanh(x w1 + b1) w2 + b2, which lies as `x` does.

    x: [B@data, N] -> [B@data, N]; w1: [N, F@model]; w2: [F@model, N]
    """
    hidden = jnp.tanh(x @ weights["w1"] + weights["b1"][None])
    # F may lie along `model`: the partial sums are added up, and the type says so
    sums = jnp.matmul(hidden, weights["w2"], out_sharding=jax.typeof(x).sharding)
    return x + sums + weights["b2"][None]


def predict(params: dict[str, Array], x: Array) -> Array:
    """Return `x` after all blocks of `params`: [B@data, N] -> [B@data, N]."""
    # unrolled, so that XLA joins the all-reduces of all blocks; and unstacked, for the
    # gradient of w[i] is as large as w
    for weights in zip(*map(jnp.unstack, params.values()), strict=True):
        x = block(dict(zip(params, weights, strict=True)), x)
    return x


def mse(answer: Array, y: Array) -> Array:
    """Return the mean square of `answer - y`."""
    return jnp.mean((answer - y) ** 2)


def loss(params: dict[str, Array], batch: tuple[Array, Array]) -> Array:
    """Return the loss of a batch, with parameters that lie whole or along `model`.

    Raises ValueError for a batch that does not fit the parameters or the mesh, and on
    Explicit axes for parameters that lie otherwise.
    """
    check_pair(params, batch)
    check_rows(params, "data", "tensor")
    params, (x, y) = promote(params, batch)
    return mse(predict(params, x), y)


@jax.checkpoint
def gathered(weights: dict[str, Array], x: Array) -> Array:
    """Apply a block of which each device along `data` holds a part of every array.

    Call it inside `jax.shard_map`. Its gradient gathers once more, rather than keep
    what was gathered, and scatters the sums over the batch.
    """
    gather = partial(lax.all_gather, axis_name="data", tiled=True)
    return block(jax.tree.map(gather, weights), x)


def sharded_loss(params: dict[str, Array], batch: tuple[Array, Array]) -> Array:
    """Return the loss of a batch, with parameters that lie along `data`.

    w1: [L, N@data, F], and so on, or whole; raises ValueError as `loss` does, and where
    the mesh cannot cut the parameters.
    """
    check_pair(params, batch)
    check_specs(params, SPECS["sharded"])
    check_rows(params, "data", "sharded")
    params, batch = promote(params, batch)
    params = {name: laid(leaf, jax.P(None, "data")) for name, leaf in params.items()}

    @jax.shard_map(in_specs=(SPECS["sharded"], jax.P("data")), out_specs=jax.P())
    def mean(params, batch):
        x, y = batch
        # a loop, so that XLA holds one whole block at a time
        answer, _ = lax.scan(lambda x, w: (gathered(w, x), None), x, params)
        return lax.pmean(mse(answer, y), "data")

    return mean(params, batch)


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


laid = jax.jit(place, static_argnums=1)


def promote(params: dict[str, Array], batch: tuple[Array, Array]) -> tuple:
    """Return both in the one type that all numbers fit, the batch along `data`."""
    leaves = *params.values(), *batch
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(*leaves)
    params = {name: jnp.asarray(leaf, dtype) for name, leaf in params.items()}
    return params, tuple(
        laid(jnp.asarray(leaf, dtype), jax.P("data")) for leaf in batch
    )


def check_specs(params: dict[str, Array], specs: dict[str, jax.P]):
    """Raise ValueError unless the mesh in context can cut `params` as specified."""
    if params.keys() != specs.keys():
        raise ValueError(f"parameters {[*params]} need one spec each, not {[*specs]}")
    for name, spec in specs.items():
        if len(spec) > len(params[name].shape):
            raise ValueError(
                f"{name} has shape {params[name].shape}, too few for {spec}"
            )
        for n, entry in zip(params[name].shape, spec, strict=False):
            axes = (entry,) if isinstance(entry, str) else entry or ()
            if n % (parts := math.prod(mesh_sizes(*axes))):
                raise ValueError(
                    f"{name} has shape {params[name].shape}: {spec} cuts {n} in "
                    f"{parts}; take a multiple of {parts}"
                )


def check_rows(params: dict[str, Array], *rows: str):
    """Raise ValueError unless, on Explicit axes, `params` lie by one of these rows."""
    for name, leaf in params.items():
        spec = jax.typeof(leaf).sharding.spec
        if not any({*spec} <= {None} or equal(spec, SPECS[row][name]) for row in rows):
            raise ValueError(
                f"{name} lies by {spec}: lay it out by {SPECS[rows[-1]][name]}, or "
                "take Auto axes"
            )


def equal(spec: jax.P, other: jax.P) -> bool:
    """Return whether two specs mean the same: those after the last name are None."""
    longest = max(len(spec), len(other))
    first, second = ([*each, *[None] * (longest - len(each))] for each in (spec, other))
    return first == second


def check_pair(params: dict[str, Array], batch: tuple[Array, Array]):
    """Raise ValueError unless `batch` is one for these parameters and this mesh."""
    [parts] = mesh_sizes("data")
    check_blocks(params)
    n = params["w1"].shape[1]
    shapes = [getattr(part, "shape", type(part).__name__) for part in batch]
    if len(shapes) != 2 or any(shape != (shapes[0][0], n) for shape in shapes):
        raise ValueError(f"x and y should both be [B, {n}], not {shapes}")
    if shapes[0][0] % parts or not shapes[0][0]:
        raise ValueError(
            f"a batch of {shapes[0][0]} cannot be cut in {parts}: take a multiple of it"
        )
    if not all(jnp.issubdtype(part.dtype, jnp.floating) for part in batch):
        raise ValueError(
            f"x and y are {[str(part.dtype) for part in batch]}: pass floats"
        )


def check_blocks(params: dict[str, Array]):
    """Raise ValueError unless these are the parameters of some blocks, all floats."""
    shapes = {name: getattr(leaf, "shape", None) for name, leaf in params.items()}
    blocks, n, f = (*(shapes.get("w1") or ()), 0, 0, 0)[:3]
    wanted = {"w1": (blocks, n, f), "b1": (blocks, f)}
    wanted |= {"w2": (blocks, f, n), "b2": (blocks, n)}
    if shapes != wanted or 0 in shapes["w1"]:
        raise ValueError(
            f"parameters of shapes {shapes} are those of no model: pass w1 [L, N, F], "
            "b1 [L, F], w2 [L, F, N] and b2 [L, N]"
        )
    if not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in params.values()):
        raise ValueError("parameters must be floating-point numbers: cast them")


def with_auto_axes(f: Callable, specs) -> Callable:
    """Return `f`, within which XLA chooses the shardings on Explicit axes, too.

    specs: of what `f` returns; axes that are Auto are no part of a type.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if not mesh.explicit_axes:
        return f

    def typed(spec):
        axes = {*jax.tree.leaves(tuple(spec))}
        return jax.P() if axes & {*mesh.auto_axes} else spec

    return jax.sharding.auto_axes(f, out_sharding=jax.tree.map(typed, specs))


def jit_in_place(init: Callable, specs) -> Callable:
    """Return `init` compiled so that each device makes only its part of the tree.

    On Explicit axes `out_shardings` alone would make each array whole, then cut it.
    """
    return jax.jit(with_auto_axes(init, specs), out_shardings=specs)


def state_specs(params: dict[str, Array], optimizer, specs: dict[str, jax.P]):
    """Return the specs of a state: a moment lies as the parameter that it belongs to.

    params: arrays, or the shapes that `jax.eval_shape` returns.

    An array belongs to the parameter whose path ends its own. If its shape ends as the
    parameter's does (it may hold several), it is cut like it; everything else, a count
    or the sums of rows that stand for a moment, is whole on every device.
    """
    shapes = {path: leaf.shape for path, leaf in jax.tree.leaves_with_path(params)}
    known = dict(jax.tree.leaves_with_path(specs))

    def spec_of(path, leaf):
        ends = [path[n:] for n in range(len(path)) if path[n:] in shapes]
        if not ends:
            return jax.P()
        more = leaf.ndim - len(shapes[ends[0]])
        alike = more >= 0 and leaf.shape[more:] == shapes[ends[0]]
        return jax.P(*[None] * more, *known[ends[0]]) if alike else jax.P()

    moments = jax.eval_shape(optimizer.init, params)
    return specs, jax.tree.map_with_path(spec_of, moments)


def create(make: Callable, optimizer, specs: dict[str, jax.P]) -> Callable:
    """Return the compiled function of a key that makes a state where it belongs.

    make: key -> params; specs: a row of SPECS. Raises ValueError unless the mesh in
    context can cut the parameters so, and its axes are of one type.
    """
    axes = jax.sharding.get_abstract_mesh().axis_names
    mesh_sizes(*(name for name in ("data", "model") if name in axes))  # of one type
    params = jax.eval_shape(make, jax.random.key(0))
    check_specs(params, specs)

    def start(key):
        params = make(key)
        return params, optimizer.init(params)

    return jit_in_place(start, state_specs(params, optimizer, specs))


def train_step(loss: Callable, optimizer, state) -> Callable:
    """Return the compiled step: (state, batch) -> (state, loss before it).

    loss: (params, batch) -> number; state: one that lies as it is to stay, arrays or
    shapes with shardings. The step reuses the memory of the state that it is given: go
    on with the one that it returns. Raises ValueError for a state that is on no mesh.
    """
    there = [getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(state)]
    if not all(isinstance(sharding, jax.NamedSharding) for sharding in there):
        raise ValueError("the state is on no mesh: make it by `create`, or place it")
    shardings = jax.tree.unflatten(jax.tree.structure(state), there)
    optimizer = optax.with_extra_args_support(optimizer)

    def update(state, batch, value, gradient):
        params, moments = state
        more = {"value": value, "grad": gradient, "value_fn": lambda p: loss(p, batch)}
        updates, moments = optimizer.update(gradient, moments, params, **more)
        return optax.apply_updates(params, updates), moments

    @jax.jit(donate_argnums=0, out_shardings=(shardings, None))
    def step(state, batch):
        value, gradient = jax.value_and_grad(loss)(state[0], batch)
        # an optimizer says nowhere how what it computes should lie
        specs = jax.tree.map(lambda sharding: sharding.spec, shardings)
        there = with_auto_axes(update, specs)
        return there(state, batch, value, gradient), value

    return step


def main():
    """Train on every device there is: data parallel, then fully sharded."""
    count = jax.device_count()
    key, *keys = jax.random.split(jax.random.key(0), 3)
    optimizer = optax.adam(1e-2)
    with jax.set_mesh(jax.make_mesh((count, 1), ("data", "model"))):
        x, y = (jax.random.normal(k, (8 * count, 16)) for k in keys)
        batch = jax.device_put((x, jnp.sin(y)), jax.P("data"))
        for strategy, cost in ("data", loss), ("sharded", sharded_loss):
            start = create(lambda k: init(k, 2, 16, 64), optimizer, SPECS[strategy])
            state = start(key)
            step = train_step(cost, optimizer, state)
            losses = []
            for _ in range(20):
                state, value = step(state, batch)
                losses.append(float(value))
            print(f"{strategy:8}{losses[0]:.3f} -> {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
