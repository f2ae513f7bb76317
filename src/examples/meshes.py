# SPDX-License-Identifier: MIT-0
"""Meshes: devices in the order you choose, and what each device holds or still lacks.

A sharding says in words which part of an array a device holds; `devices_indices_map`
says it in numbers. These functions compare, count and subtract those numbers, so that
what a sharding costs is known before anything is allocated or sent.

    ids      [[0, 4], [1, 5]]   device ids, nested as deep as the mesh has axes
    mesh     a jax.sharding.Mesh with its devices exactly there
    x        [N@x, M@y]         an array, or a jax.ShapeDtypeStruct with a sharding
    tree     any pytree of such arrays

Nothing here sends a message or reads an element of an array.

    JAX_NUM_CPU_DEVICES=8 python meshes.py

The file needs JAX and NumPy alone: copy it as it is.
"""

import math
from collections.abc import Iterable, Sequence

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, Sharding

Box = tuple[slice, ...]


def arrange(
    ids: Sequence, names: str | Sequence[str], axis_type: AxisType = AxisType.Explicit
) -> Mesh:
    """Return the mesh that has the devices with these ids in these places.

    `ids` is a nested list or an array with one axis per name. Other than in
    `jax.make_mesh` the order is kept on every platform, and any subset will do. Raises
    ValueError for an id or a name that is there twice, an id that no device has, or
    another number of names than axes.
    """
    if not isinstance(axis_type, AxisType):
        raise ValueError(f"{axis_type!r} is no type of axes: pass AxisType.Auto")
    names = (names,) if isinstance(names, str) else names
    if not isinstance(names, Sequence) or {*map(type, names)} - {str}:
        raise ValueError(f"{names!r} names no axes: pass a word for each")
    grid, names = _as_ids(ids), tuple(names)
    devices = {device.id: device for device in jax.devices()}
    flat = grid.ravel().tolist()
    if grid.ndim != len(names) or len(set(names)) < len(names) or not flat:
        raise ValueError(
            f"ids of shape {grid.shape} make no mesh with the axes {names}: give at "
            "least one id, and one name per axis, all different"
        )
    if twice := sorted({i for i in flat if flat.count(i) > 1}):
        raise ValueError(f"a device has one place in a mesh, but ids repeat {twice}")
    if unknown := sorted(set(flat) - set(devices)):
        raise ValueError(f"no device has an id of {unknown}; ids are {list(devices)}")
    places = np.array([devices[i] for i in flat], dtype=object).reshape(grid.shape)
    return Mesh(places, names, axis_types=(axis_type,) * grid.ndim)


def boxes(sharding: Sharding, shape: Iterable[int]) -> dict[int, Box]:
    """Map the id of each device to the part it holds, as slices with numbers.

    `devices_indices_map` writes a whole axis as `slice(None)` here and as `slice(0, n)`
    there; this one always writes the numbers. Raises ValueError for a shape that cannot
    be split so.
    """
    shape = _shape(sharding, shape)
    return {
        device.id: tuple(
            slice(*part.indices(n)) for part, n in zip(box, shape, strict=True)
        )
        for device, box in sharding.devices_indices_map(shape).items()
    }


def same_placement(a: Sharding, b: Sharding, shape: Iterable[int]) -> bool:
    """Return whether two shardings put the same part of an array on each device.

    Meshes, names and specs may differ. JAX's own `is_equivalent_to` also wants the
    devices in one order, as a program that reads both arrays does.
    """
    return boxes(a, shape) == boxes(b, shape)


def bytes_held(tree) -> dict[int, int]:
    """Map the id of each device to the bytes that it holds of all arrays in `tree`.

    Raises ValueError for a leaf that lies on no device, such as a NumPy array.
    """
    held: dict[int, int] = {}
    for x in jax.tree.leaves(tree):
        sharding = _sharding(x)
        size = math.prod(sharding.shard_shape(x.shape)) * x.dtype.itemsize
        for device in sharding.device_set:
            held[device.id] = held.get(device.id, 0) + size
    return dict(sorted(held.items()))


def bytes_missing(x, target: Sharding) -> dict[int, int]:
    """Map each device of `target` to the bytes of its new part that it lacks so far.

    x: [N@x, M@y] -> as `target` says

    No program can lay `x` out as `target` says and send any device less. Raises
    ValueError if `x` lies on no device.
    """
    before, after = boxes(_sharding(x), x.shape), boxes(target, x.shape)
    return {
        device: (_cells(box) - _common(before.get(device), box)) * x.dtype.itemsize
        for device, box in sorted(after.items())
    }


def _sharding(x) -> Sharding:
    """Return the sharding of an array, or say that there is none."""
    sharding = getattr(x, "sharding", None)
    if not isinstance(sharding, Sharding) or _is_abstract(sharding):
        raise ValueError(
            f"a {type(x).__name__} lies on no device: pass a jax.Array, or a "
            "jax.ShapeDtypeStruct with a sharding"
        )
    return sharding


def _is_abstract(sharding: Sharding) -> bool:
    """Return whether a sharding speaks of no devices in particular."""
    return isinstance(getattr(sharding, "mesh", None), AbstractMesh)


def _as_ids(ids) -> np.ndarray:
    """Return device ids as an array, or say that they are none."""
    shapes = {np.shape(row) for row in ids} if isinstance(ids, Sequence) else {()}
    grid = np.asarray(ids) if len(shapes) < 2 else np.empty(())
    if grid.size and not np.issubdtype(grid.dtype, np.integer):
        raise ValueError(f"{ids!r} are no ids of devices in a grid: pass whole numbers")
    return grid


def _shape(sharding: Sharding, shape) -> tuple[int, ...]:
    """Return the shape, or say why no array of this shape is split so."""
    if not isinstance(sharding, Sharding) or _is_abstract(sharding):
        raise ValueError(f"{sharding!r} is no sharding over devices: pass one")
    shape = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    if not all(isinstance(n, int | np.integer) and n >= 0 for n in shape):
        raise ValueError(f"{shape} is no shape: pass sizes from 0 on")
    spec = getattr(sharding, "spec", ())
    spec = tuple(getattr(spec, "partitions", spec))  # with sums, it will not unpack
    if len(spec) > len(shape):
        raise ValueError(f"{sharding.spec} is too long for the shape {shape}")
    for n, entry in zip(shape, spec, strict=False):
        names = (entry,) if isinstance(entry, str) else entry or ()
        if n % (parts := math.prod(sharding.mesh.shape[name] for name in names)):
            raise ValueError(
                f"{sharding.spec} cuts {n} of the shape {shape} in {parts}"
            )
    return shape


def _cells(box: Box) -> int:
    """Count the elements in a box."""
    return math.prod(max(part.stop - part.start, 0) for part in box)


def _common(a: Box | None, b: Box) -> int:
    """Count the elements that two boxes share; none if the first is missing."""
    if a is None:
        return 0
    both = zip(a, b, strict=True)
    return _cells(
        tuple(slice(max(p.start, q.start), min(p.stop, q.stop)) for p, q in both)
    )


def main():
    """Print what a device holds of a matrix in three shardings, and lacks for rows."""
    mesh = arrange([device.id for device in jax.devices()], "ring")
    shape = (16 * mesh.size, 16 * mesh.size)
    rows = NamedSharding(mesh, jax.P("ring"))
    for spec in (jax.P("ring"), jax.P(None, "ring"), jax.P()):
        x = jax.device_put(np.ones(shape, np.float32), NamedSharding(mesh, spec))
        held, missing = bytes_held(x), bytes_missing(x, rows)
        most = f"holds {max(held.values())}, lacks {max(missing.values())} for rows"
        print(f"{jax.typeof(x)}: a device {most}; mean {float(x.mean()):.1f}")


if __name__ == "__main__":
    main()
