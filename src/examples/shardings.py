# SPDX-License-Identifier: MIT-0
"""Two shardings compared: which device holds which part, and what is the mistake.

Two shardings do the same to an array if each device holds the same part of it, whatever
their meshes, axis names and specs. `differences` compares these parts, and says how
they differ: transposed, on other devices, in another order, in other blocks.

    answer     jax.P("x"), a sharding, an array [N@x, M@y], or its ShapeDtypeStruct
    target     the same, or "0 2 / 4 6": device 0 holds the upper left quarter, device 2
               the upper right one; "0,1 2,3": 0 and 1 both hold the left half
    index_map  {0: (slice(0, 4), slice(0, 8)), ...}    what each device holds

Cost: no message is sent and no element is read.

    JAX_NUM_CPU_DEVICES=8 python shardings.py

Copy this file alone: it needs JAX and NumPy.
"""

import enum
import itertools
import math
import textwrap
from collections.abc import Mapping

import jax
import numpy as np
from jax.sharding import Sharding

IndexMap = Mapping[int, tuple[slice, ...]]


class Mistake(enum.Enum):
    """How a sharding differs from its target, and the words for it."""

    FEWER_DEVICES = "it uses {mine[count]} of the {wanted[count]} devices: {mine[ids]}"
    OTHER_DEVICES = "it uses the devices {mine[ids]}; the target uses {wanted[ids]}"
    REPLICATED = "every device holds the whole array (replicated)"
    NOT_REPLICATED = "the target is replicated: no device holds only a part"
    TRANSPOSED = "rows and columns are swapped: this is the transposed sharding"
    OTHER_ORDER = (
        "the devices are in another order: {mine[order]} instead of {wanted[order]}"
    )
    OTHER_BLOCKS = (
        "the array is cut into blocks {mine[blocks]}, in the target {wanted[blocks]}"
    )


def differences(
    answer, target, shape: tuple[int, ...]
) -> tuple[list[str], list[IndexMap]]:
    """Return how an answer differs from a target, and the index maps of both.

    The sentences are none if each device of an array of this shape holds the same.
    The index maps are those of the target and, where it has one, of the answer.
    ValueError if the target is no sharding.
    """
    known = parse if isinstance(target, str) else _resolve
    wanted = known(target, shape)
    try:
        mine = _resolve(answer, shape)
    except ValueError as refusal:
        return [str(refusal)], [wanted]
    return explain(mine, wanted, shape), [wanted, mine]


# ------------------------------------------------------- what each device holds


def index_map(sharding: Sharding, shape: tuple[int, ...]) -> IndexMap:
    """Return the part of an array of this shape that each device holds."""
    return {
        device.id: tuple(
            slice(*part.indices(n)[:2]) for part, n in zip(box, shape, strict=True)
        )
        for device, box in sharding.devices_indices_map(shape).items()
    }


def parse(picture: str, shape: tuple[int, ...]) -> IndexMap:
    """Read a picture such as "0 2 / 4 6" as the index map of an array of this shape.

    A slash ends a row, a space a column, and commas join the devices that hold the same
    block; an array with one axis has one row. ValueError if that is no index map.
    """
    rows = [row.split() for row in picture.split("/")]
    grid = (len(rows), len(rows[0]))
    if len(shape) == len(rows) == 1:
        grid = grid[1:]
    regular = all(rows) and len(set(map(len, rows))) == 1 and len(grid) == len(shape)
    if not regular or any(n % parts for n, parts in zip(shape, grid, strict=True)):
        raise ValueError(f"{picture!r} does not cut the shape {shape} in equal blocks")
    found = {}
    for place, cell in zip(np.ndindex(*grid), itertools.chain(*rows), strict=True):
        box = tuple(
            slice(i * n // parts, (i + 1) * n // parts)
            for i, n, parts in zip(place, shape, grid, strict=True)
        )
        for word in cell.split(","):
            if not word.isdigit() or int(word) in found:
                raise ValueError(f"{picture!r}: {word!r} is no device, or one too many")
            found[int(word)] = box
    return found


def notation(boxes: IndexMap) -> str:
    """Write an index map as `parse` reads it, or a row for each cut but the last."""
    rows: dict = {}
    for device, box in sorted(boxes.items(), key=lambda item: item[::-1]):
        rows.setdefault(box[:-1], {}).setdefault(box, []).append(str(device))
    return " / ".join(" ".join(map(",".join, row.values())) for row in rows.values())


def _resolve(answer, shape: tuple[int, ...]) -> IndexMap:
    """Return the index map that an answer gives to an array of this shape."""
    sharding = _find(answer)
    if getattr(answer, "shape", shape) != shape:
        raise ValueError(f"the array has the shape {answer.shape}, wanted is {shape}")
    spec = getattr(sharding, "spec", jax.P())
    if len(spec) > len(shape):
        raise ValueError(f"{spec} is for {len(spec)} axes, the array has {len(shape)}")
    if spec.unreduced:
        axes = ", ".join(sorted(spec.unreduced))
        raise ValueError(f"its sums are pending (unreduced) over {axes}")
    return _from_jax(index_map, sharding, shape)


def _find(answer) -> Sharding:
    """Return the sharding that `answer` is or has; a spec takes the mesh in context."""
    if isinstance(answer, jax.P):
        mesh = jax.sharding.get_mesh()
        if mesh.empty:
            raise ValueError("a spec alone has no mesh: call jax.set_mesh(mesh) first")
        return _from_jax(jax.NamedSharding, mesh, answer)
    sharding = getattr(answer, "sharding", answer)
    if not isinstance(sharding, Sharding):
        raise ValueError(f"the answer is {_inline(answer)}; a sharding is wanted")
    return sharding


def _from_jax(function, *args):
    """Call a function of JAX; ValueError with the first line of what it raises."""
    try:
        return function(*args)
    except Exception as error:
        reason = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
        raise ValueError(f"JAX refuses this sharding: {reason}") from error


def _inline(answer) -> str:
    """Return an answer on one line, as Python prints it."""
    if answer is ...:
        return "three dots, unchanged"
    return textwrap.shorten(repr(answer), 400)


# ----------------------------------------------------------- how two of them differ


def mistake(mine: IndexMap, wanted: IndexMap) -> Mistake | None:
    """Return how one index map differs from another; None if it does not."""
    if mine == wanted:
        return None
    if mine.keys() == wanted.keys():
        return _other_parts(mine, wanted)
    fewer = mine.keys() < wanted.keys()
    return Mistake.FEWER_DEVICES if fewer else Mistake.OTHER_DEVICES


def _other_parts(mine: IndexMap, wanted: IndexMap) -> Mistake:
    """Return what kind of mistake it is when the same devices hold other parts."""
    (cuts, places), (wanted_cuts, wanted_places) = _places(mine), _places(wanted)
    swapped = {device: place[::-1] for device, place in places.items()}
    if math.prod(cuts) == 1:
        return Mistake.REPLICATED
    if math.prod(wanted_cuts) == 1:
        return Mistake.NOT_REPLICATED
    if len(cuts) == 2 and swapped == wanted_places:
        return Mistake.TRANSPOSED
    return Mistake.OTHER_ORDER if cuts == wanted_cuts else Mistake.OTHER_BLOCKS


def _places(boxes: IndexMap) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """Return into how many blocks each axis is cut, and which one each device has."""
    axes = [sorted(set(parts)) for parts in zip(*boxes.values(), strict=True)]
    places = {d: tuple(map(list.index, axes, box)) for d, box in boxes.items()}
    return [len(parts) for parts in axes], places


def explain(mine: IndexMap, wanted: IndexMap, shape: tuple[int, ...]) -> list[str]:
    """Return what kind of mistake an index map is, and give a device that shows it."""
    kind = mistake(mine, wanted)
    if kind is None:
        return []
    device = min(d for d in mine.keys() | wanted.keys() if mine.get(d) != wanted.get(d))
    has, wants = (_in_words(boxes.get(device), shape) for boxes in (mine, wanted))
    example = f"device {device} holds {has}, the target wants {wants}"
    return [kind.value.format(mine=_details(mine), wanted=_details(wanted)), example]


def _details(boxes: IndexMap) -> dict[str, object]:
    """Return what the words of a mistake say of an index map."""
    return {
        "count": len(boxes),
        "ids": ", ".join(map(str, sorted(boxes))),
        "order": notation(boxes),
        "blocks": " x ".join(map(str, _places(boxes)[0])),
    }


def _in_words(box: tuple[slice, ...] | None, shape: tuple[int, ...]) -> str:
    """Return in words which part of an array a box is."""
    if box is None:
        return "nothing"
    if box == tuple(slice(0, n) for n in shape):
        return "the whole array"
    if len(shape) > 2:
        return "[" + ", ".join(f"{part.start}:{part.stop}" for part in box) + "]"
    names = ("element",) if len(shape) == 1 else ("row", "column")
    return " of ".join(
        f"{name} {part.start}"
        if part.stop - part.start == 1
        else f"{name}s {part.start}-{part.stop - 1}"
        for name, part, n in zip(names, box, shape, strict=True)
        if part != slice(0, n)
    )


def main():
    """Compare rows over all devices with columns."""
    count = jax.device_count()
    mesh = jax.make_mesh((count,), ("x",))
    rows = jax.NamedSharding(mesh, jax.P("x"))
    columns = " ".join(str(device.id) for device in mesh.devices)
    reasons, _ = differences(rows, columns, (2 * count, 2 * count))
    print("\n".join(reasons or ["each device holds the same part"]))


if __name__ == "__main__":
    main()
