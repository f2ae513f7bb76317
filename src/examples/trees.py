# SPDX-License-Identifier: MIT-0
"""Trees of arrays: one layout for parameters, optimizer state and batches.

A model is a tree whose leaves have different ranks, so a single spec cannot fit it. A
tree of specs can: written by one rule for a batch, by the names of the leaves for a
model, and used to lay the tree out or, better, to create it where it belongs.

    tree      {"w": [n, m], "b": [m], ..}     arrays, or what jax.eval_shape returns
    specs     {"w": P("x"), "b": P(), ..}     one spec a leaf, or one for a whole branch
    placed    {"w": [N@x, m], "b": [m], ..}   the tree on the mesh in context

Nothing is sent between devices. A tree made by `sharded_init` is never whole on any.

    JAX_NUM_CPU_DEVICES=8 python trees.py

Copy this file alone: it needs JAX and NumPy.
"""

import math
import re
from collections import Counter
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType


def name_of(path) -> str:
    """Return the path of a leaf as one word, such as `layers/0/w`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def batch_specs(tree, axis):
    """Return a spec for each leaf: its first axis along the mesh axis `axis`.

    A scalar has no axis to split: it gets `P()`, a copy on every device.
    """
    return jax.tree.map(lambda x: jax.P(axis) if np.ndim(x) else jax.P(), tree)


def specs_by_path(tree, rules):
    """Return a spec for each leaf: that of the first rule whose pattern its path has.

    `rules` are pairs of a regular expression and a spec; `re.search` looks for the
    expression in paths such as `layers/0/w`. Raises ValueError for a leaf that no rule
    fits, and for a spec that does not fit its leaf.
    """

    def find(path, leaf):
        name = name_of(path)
        for pattern, spec in rules:
            if re.search(pattern, name):
                return spec
        raise ValueError(f"no rule fits {name}: add one, such as ({name!r}, P())")

    specs = jax.tree.map_with_path(find, tree)
    check(tree, specs)
    return specs


def check(tree, specs):
    """Raise ValueError, with its path, for a leaf that cannot be laid out as specified.

    A spec may have no more entries than its leaf has axes, and name only axes of the
    mesh in context whose sizes divide what they split.
    """
    sizes = jax.sharding.get_abstract_mesh().shape

    def look(path, leaf, spec):
        name, shape = name_of(path), np.shape(leaf)
        if len(spec) > len(shape):
            raise ValueError(f"{name} has rank {len(shape)}: {spec} is too long for it")
        for n, entry in zip(shape, spec, strict=False):
            axes = (entry,) if isinstance(entry, str) else entry or ()
            if unknown := [axis for axis in axes if axis not in sizes]:
                raise ValueError(
                    f"{name}: {spec} names {unknown}, not in {list(sizes)}"
                )
            if n % (count := math.prod(sizes[axis] for axis in axes)):
                raise ValueError(
                    f"{name} has shape {shape}: {spec} cuts {n} in {count}"
                )

    jax.tree.map_with_path(look, tree, specs)


def shard_tree(tree, specs):
    """Return `tree`, each leaf laid out by its spec on the mesh in context.

    `specs` may be a prefix of the tree: one spec then serves the whole branch. Raises
    ValueError for a spec that does not fit. Call it outside of `jax.jit`.
    """
    specs = jax.tree.broadcast(specs, tree)
    check(tree, specs)
    return jax.device_put(tree, specs)


def sharded_init(init: Callable, specs) -> Callable:
    """Return `init` compiled so that each device makes only its part of the tree.

    On Explicit axes `out_shardings` alone would make each array whole, then cut it;
    `auto_axes` leaves the layout within `init` to the compiler.
    """
    types = jax.sharding.get_abstract_mesh().axis_types
    if AxisType.Explicit in types:
        init = jax.sharding.auto_axes(init, out_sharding=specs)
    return jax.jit(init, out_shardings=specs)


def bytes_per_device(tree) -> int:
    """Return the bytes of the tree on the device that holds most of it.

    The leaves are arrays, or `jax.ShapeDtypeStruct`s with a sharding: nothing is read.
    """
    held = Counter()
    for leaf in jax.tree.leaves(tree):
        cells = math.prod(leaf.sharding.shard_shape(leaf.shape))
        for device in leaf.sharding.device_set:
            held[device] += cells * leaf.dtype.itemsize
    return max(held.values(), default=0)


def main():
    """Make a layer and its momentum on every device there is, a part on each."""

    def init(key):
        w = jax.random.normal(key, (64 * jax.device_count(), 32))
        params = {"w": w, "b": jnp.zeros(32)}
        return {"params": params, "momentum": jax.tree.map(jnp.zeros_like, params)}

    with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
        key = jax.random.key(0)
        rules = [("w$", jax.P("x")), ("b$", jax.P())]
        specs = specs_by_path(jax.eval_shape(init, key), rules)
        state = sharded_init(init, specs)(key)
        w = state["params"]["w"]
        assert abs(w.std() - 1) < 0.1
        print(f"{jax.typeof(w)}, {bytes_per_device(state)} bytes a device in all")


if __name__ == "__main__":
    main()
