# SPDX-License-Identifier: MIT-0
"""Cubes: an array of three axes, its blocks in the colours of their devices.

`cube` takes what `draw` of pictures.py returns, and returns the same picture as a cube:
axis 0 goes back, axis 1 down, axis 2 to the right. It shows itself in notebooks, in a
row of `beside`, as a frame of a `Film`; a terminal prints its slabs.

    slabs      [L@x, M, N]       X slices, each as high and as wide as the array
    pencils    [L, M@x, N@y]     X times Y bars, each as deep as the array

    cube(draw(volume))

Only the picture is looked at; the caption names the devices that are behind others.

    python cubes.py

The file needs only Python.
"""

import html
import math
from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass, replace

COS, SIN = math.cos(math.pi / 6), 0.5  # where the edges of a cube point to

Block = tuple[int, ...]  # its position along each axis, counted in blocks


@dataclass(frozen=True)
class Cube:
    """Draws three axes as a cube, and blocks as another view does, if there is one."""

    blocks: object = None

    def __getattr__(self, name):
        """Return an attribute of the view of the blocks."""
        return getattr(self.blocks, name)

    def drawn(self, picture, wide: float, scale: float):
        """Return the shapes of a cube, and how wide and high it is."""
        margin, low = (1, 1) if scale else (22, 24)
        lead = picture.cuts[0] if len(picture.shape) == 3 else _indices(picture.slabs)
        cuts = lead, *picture.cuts[-2:]
        most = max(cut[-1] for cut in cuts)
        parts = [max(cut[-1] / most, 0.3) for cut in cuts]
        room = min((wide - 2 * margin) / COS / (parts[0] + parts[2]), 0.62 * wide)
        sizes = [min(scale * most or room, room) * part for part in parts]
        sides = zip(sizes, cuts, strict=True)
        edges = [[size * at / cut[-1] for at in cut] for size, cut in sides]

        def corner(d, r, c):
            return margin + COS * (c + d), 2 + SIN * (sizes[0] + c - d) + r

        shapes = [] if scale else [*_edge_names(picture, sizes, corner)]
        for depth, slab in enumerate(picture.slabs.values()):
            for block in slab:
                shapes += _brick(picture, block, depth, (edges, corner))
        return shapes, corner(*sizes)[0] + margin, corner(0, *sizes[1:])[1] + low


def cube(picture):
    """Return the picture as a cube of blocks.

    Of more than three axes all but the last two go back. The caption names the devices
    whose blocks are behind others. Raises ValueError for fewer axes.
    """
    if not picture.shape[2:]:
        raise ValueError(f"a cube has three axes, not the shape {picture.shape}")
    _, *slabs = picture.slabs.values()
    last = len(picture.cuts[-1]) - 2
    behind = [b for slab in slabs for b in slab if b[-2] > 0 and b[-1] < last]
    ids = {device for block in behind for device in picture.holders[block]}
    words = [f"behind others: {', '.join(map(str, sorted(ids)))}"] if ids else []
    return replace(picture, view=Cube(picture.view), facts=(*picture.facts, *words))


def _indices(slabs) -> list[int]:
    return [*range(len(slabs) + 1)]


def _edge_names(picture, sizes, corner) -> Iterator[str]:
    """Name the axes along the edges of a cube."""
    back, down, across = sizes
    lead = picture.axes[:-2]
    names = lead[0] if len(lead) < 2 else f"axes 0-{len(lead) - 1}", *picture.axes[-2:]
    places = (back / 2, down, across), (0, down / 2, 0), (0, down, across / 2)
    turns = (COS, -SIN, 0, 1), (0, -1, 1, 0), (COS, SIN, 0, 1)
    for name, place, turn in zip(names, places, turns, strict=True):
        x, y = corner(*place)
        x, y = (x, y + 18) if turn[0] else (x - 7, y)
        yield _text(0, 0, name, _matrix(*turn, x, y))


def _brick(picture, block: Block, depth: int, cut) -> Iterator[str]:
    """Draw the faces of a block that are seen, those on top and at the side darker."""
    (edges, corner), at = cut, (depth, *block[-2:])
    spans = [
        (edge[i] + 1.5, edge[i + 1] - 1.5) for edge, i in zip(edges, at, strict=True)
    ]
    (front, back), (up, down), (left, right) = spans
    wide, high, deep = right - left, down - up, back - front
    last = len(edges[2]) - 2
    faces = [
        (at[0] == 0, (COS, SIN, 0, 1), (front, up, left), (wide, high)),
        (at[1] == 0, (COS, SIN, -COS, SIN), (back, up, left), (wide, deep)),
        (at[2] == last, (COS, -SIN, 0, 1), (front, up, right), (deep, high)),
    ]
    for dark, (visible, turn, place, size) in enumerate(faces):
        if visible:
            face = picture.block(block, (0, 0, *size))
            shade = f'width="{size[0]:.5g}" height="{size[1]:.5g}" fill="#000"'
            face += f'<rect {shade} fill-opacity="{dark / 10}"/>'
            yield f"<g {_matrix(*turn, *corner(*place))}>{face}</g>"


def _text(x, y, words, how: str = "") -> str:
    return f'<text x="{x:.5g}" y="{y:.5g}" {how}>{html.escape(str(words))}</text>'


def _matrix(*numbers: float) -> str:
    return f'transform="matrix({" ".join(f"{number:.5g}" for number in numbers)})"'


def main():
    """Print which of eight blocks is behind the others."""
    corners = [(i, j, k) for i in (0, 1) for j in (0, 1) for k in (0, 1)]
    made = {
        "shape": (2, 2, 2),
        "cuts": [[0, 1, 2]] * 3,
        "holders": {at: (n,) for n, at in enumerate(corners)},
        "slabs": {(0,): corners[:4], (1,): corners[4:]},
        "facts": ("eight blocks",),
        "view": None,
    }
    print(*cube(make_dataclass("Made", made)(**made)).facts, sep="; ")


if __name__ == "__main__":
    main()
