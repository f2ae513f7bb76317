# SPDX-License-Identifier: MIT-0
"""Trees of arrays: shardings for parameters, optimizer state and batches.

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
from jax import lax
from jax.sharding import AbstractMesh, AxisType


def name_of(path) -> str:
    """Return the path of a leaf as one string, such as `layers/0/w`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def label_of(path) -> str:
    """Return what messages call a leaf; a tree may be a single array."""
    return name_of(path) or "the array"


def batch_specs(tree, axis):
    """Return a spec for each leaf: its first axis along the mesh axis `axis`.

    A scalar has no axis to split: it gets `P()`, a copy on every device.
    """
    return jax.tree.map(lambda x: jax.P(axis) if np.ndim(x) else jax.P(), tree)


def fits(pattern: str, name: str) -> bool:
    """Return whether a regular expression matches whole parts at the end of a path.

    `0/w` fits `0/w` and `layers/0/w`, but neither `layers/10/w` nor `0/w/scale`; with
    `^` the expression must match the whole path.
    """
    starts = [0, *(i + 1 for i, letter in enumerate(name) if letter == "/")]
    return any(re.compile(pattern).fullmatch(name, start) for start in starts)


def specs_by_path(tree, rules):
    """Return a spec for each leaf: that of the rule whose pattern fits its path.

    `rules` are pairs of a regular expression and a spec; `fits` says which leaves are
    meant, in paths such as `layers/0/w`. Raises ValueError for a leaf that no rule
    fits or that two rules lay out differently, for a rule that fits no leaf, and for a
    spec that does not fit its leaf.
    """
    rules = read_rules(rules)
    unused = {pattern for pattern, _ in rules}

    def find(path, leaf):
        name = name_of(path)
        found = [rule for rule in rules if fits(rule[0], name)]
        unused.difference_update(pattern for pattern, _ in found)
        if not found:
            raise ValueError(f"no rule fits {name}: add one, such as ({name!r}, P())")
        if any(spec != found[0][1] for _, spec in found):
            raise ValueError(f"the rules for {name} contradict each other: {found}")
        return found[0][1]

    specs = jax.tree.map_with_path(find, tree)
    if unused:
        raise ValueError(f"{min(unused)!r} fits the end of no path: mend the rule")
    check(tree, specs)
    return specs


def read_rules(rules) -> list[tuple[str, jax.P]]:
    """Return the rules as a list; ValueError for one that is no pattern with a spec."""
    rules = [*rules]
    for rule in rules:
        if [*map(type, rule)] != [str, jax.P]:
            raise ValueError(f"{rule!r} is no rule: give a pattern and a jax.P")
        try:
            re.compile(rule[0])
        except re.error as error:
            raise ValueError(f"{rule[0]!r} is no regular expression: {error}") from None
    return rules


def check(tree, specs):
    """Raise ValueError, with its path, for a leaf that cannot be split as specified.

    A spec may have no more entries than its leaf has axes, and name only axes of the
    mesh in context, once each, whose sizes divide what they split.
    """
    sizes = jax.sharding.get_abstract_mesh().shape

    def look(path, leaf, spec):
        name, shape, entries = label_of(path), np.shape(leaf), axes_of(path, spec)
        if len(entries) > len(shape):
            raise ValueError(f"{name} has rank {len(shape)}: {spec} is too long for it")
        for n, axes in zip(shape, entries, strict=False):
            if n % (count := math.prod(sizes[axis] for axis in axes)):
                raise ValueError(
                    f"{name} has shape {shape}: {spec} cuts {n} in {count}"
                )

    jax.tree.map_with_path(look, tree, specs)


def axes_of(path, spec) -> list[tuple[str, ...]]:
    """Return which mesh axes split each axis of a leaf; ValueError if they cannot."""
    name, names = label_of(path), jax.sharding.get_abstract_mesh().axis_names
    if not names:
        raise ValueError("no mesh in context: call it inside `with jax.set_mesh(mesh)`")
    if not isinstance(spec, jax.P):
        raise ValueError(f"{name}: {spec!r} is no spec; write one, such as jax.P('x')")
    if jax.P.UNCONSTRAINED in tuple(spec) or spec.unreduced or spec.reduced:
        raise ValueError(f"{name}: {spec} does not say where each element belongs")
    entries = [(entry,) if isinstance(entry, str) else entry or () for entry in spec]
    axes = sum(entries, ())
    if unknown := [axis for axis in axes if axis not in names]:
        raise ValueError(f"{name}: {spec} names {unknown}, not in {list(names)}")
    if twice := sorted({axis for axis in axes if axes.count(axis) > 1}):
        raise ValueError(f"{name}: {spec} names {twice} twice")
    return entries


def shard_tree(tree, specs):
    """Return `tree`, each leaf laid out by its spec on the mesh in context.

    `specs` may be a prefix of the tree: one spec then serves the whole branch. Raises
    ValueError for a spec that does not fit, for a leaf that is no array of numbers, and
    within `jax.jit`, where `jax.device_put` does nothing.
    """
    for path, leaf in jax.tree.leaves_with_path(tree):
        if isinstance(leaf, jax.core.Tracer):
            raise ValueError(f"{label_of(path)} is traced: call shard_tree outside jit")
        if not isinstance(leaf, jax.Array) and np.asarray(leaf).dtype.kind in "OSUMm":
            raise ValueError(f"{label_of(path)} is no number: {leaf!r}")
    specs = broadcast_specs(specs, tree)
    check(tree, specs)
    return jax.device_put(tree, specs)


def broadcast_specs(specs, tree):
    """Return a spec for each leaf of `tree`, of which `specs` is a prefix."""
    try:
        return jax.tree.broadcast(specs, tree)
    except ValueError as error:
        raise ValueError(f"the specs are no prefix of the tree: {error}") from error


def sharded_init(init: Callable, specs) -> Callable:
    """Return `init` compiled so that each device makes only its part of the tree.

    On Explicit axes `out_shardings` alone would make each array whole, then cut it;
    `auto_axes` leaves the shardings within `init` to XLA. Raises ValueError for a spec
    that does not fit, at the latest in the first call.
    """
    typed = jax.tree.map_with_path(explicit_part, specs)

    def checked(args, kwargs):
        tree = init(*args, **kwargs)
        each = broadcast_specs(specs, tree)
        check(tree, each)
        return lax.with_sharding_constraint(tree, each)

    if AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types:
        checked = jax.sharding.auto_axes(checked, out_sharding=typed)
    return jax.jit(lambda *args, **kwargs: checked(args, kwargs), out_shardings=specs)


def explicit_part(path, spec) -> jax.P:
    """Return the part of a leaf's spec that its type has: the Explicit axes."""
    mesh, entries = jax.sharding.get_abstract_mesh(), axes_of(path, spec)
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    types = [{kinds[axis] for axis in axes} for axes in entries]
    if any(len(kind) > 1 for kind in types):
        raise ValueError(f"{label_of(path)}: {spec} cuts an axis by axes of two types")
    explicit = [kind == {AxisType.Explicit} for kind in types]
    return jax.P(*(e if keep else None for e, keep in zip(spec, explicit, strict=True)))


def bytes_per_device(tree) -> int:
    """Return the bytes of the tree on the device that holds most of it.

    The leaves are arrays, or `jax.ShapeDtypeStruct`s with a sharding: nothing is read.
    Raises ValueError for a leaf that lies on no device, such as a NumPy array.
    """
    held = Counter()
    for path, leaf in jax.tree.leaves_with_path(tree):
        sharding = getattr(leaf, "sharding", None)
        if isinstance(getattr(sharding, "mesh", sharding), AbstractMesh | None):
            raise ValueError(f"{label_of(path)} lies on no device: pass a jax.Array")
        elements = math.prod(sharding.shard_shape(leaf.shape))
        for device in sharding.device_set:
            held[device] += elements * leaf.dtype.itemsize
    return max(held.values(), default=0)


def main():
    """Make a layer and its momentum on every device there is, a part on each."""

    def init(key):
        w = jax.random.normal(key, (64 * jax.device_count(), 32))
        params = {"w": w, "b": jnp.zeros(32)}
        return {"params": params, "momentum": jax.tree.map(jnp.zeros_like, params)}

    with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
        key = jax.random.key(0)
        rules = [("w", jax.P("x")), ("b", jax.P())]
        specs = specs_by_path(jax.eval_shape(init, key), rules)
        state = sharded_init(init, specs)(key)
        w = state["params"]["w"]
        assert abs(w.std() - 1) < 0.1
        print(f"{jax.typeof(w)}, {bytes_per_device(state)} bytes a device in all")


if __name__ == "__main__":
    main()
