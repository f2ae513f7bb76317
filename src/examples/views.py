# SPDX-License-Identifier: MIT-0
"""Views of a picture: numbers in its blocks, and what a move has to bring.

Both functions take what `draw` of pictures.py returns, and return a picture that shows
itself as before, also in a row of `beside` and as a frame of a `Film`.

    numbers(draw(x), x)                   the elements of a small array in its blocks
    missing(draw(before), draw(after))    hatched: what a device lacks of `after`

`numbers` reads the elements, on the host; `missing` looks at the two pictures only.

    python views.py

The file needs JAX and NumPy alone.
"""

import html
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, make_dataclass, replace
from itertools import pairwise, product

import jax.numpy as jnp
import numpy as np
from jax import Array

COLOURS = ("#67bdf5", "#f5ad45", "#2fb08c", "#fbe184")
COLOURS += ("#9b93f7", "#e28a52", "#d99cc8", "#c5d3d6")
INK = 'font-size="12" fill="#0b0d10"'  # on every colour of a device
LETTER, LINE, HEAD = (
    6.7,
    16,
    17,
)  # how wide a letter, how high a line, and the first one
WIDE = 276  # of all numbers in a picture: with its margins it is as wide as any

Box = tuple[tuple[int, int], ...]  # (start, stop) along each axis of the array
Block = tuple[int, ...]  # its position along each axis, counted in blocks


# ----------------------------------------------------------------- numbers in shards


@dataclass(frozen=True)
class Numbers:
    """Writes texts on elements; `lines` is what devices hold, `room` what it takes."""

    texts: Mapping[tuple[int, ...], str]
    lines: tuple[str, ...]
    room: tuple[float, float]

    def paint(self, picture, block: Block, rect, strips) -> Iterator[str]:
        """Fill a block, name its devices at the top, and write the elements below."""
        (x, y, wide, high), devices = rect, picture.holders[block]
        yield from map(_filled, strips, (picture.colours[d] for d in devices))
        yield _text(x + wide / 2, y + 13, _who(devices), f'{INK} font-weight="700"')
        spans = _spans(picture, block)
        (top, low), (left, right) = ((0, 1), (0, 1), *spans)[-2:]
        line, cell = (high - HEAD) / (low - top), wide / (right - left)
        for at in product(*(range(a, b) for a, b in spans)):
            row, column = (0, 0, *at)[-2:]
            x_of, y_of = x + cell * (column - left + 0.5), line * (row - top + 0.5)
            yield _text(x_of, y + HEAD + y_of + 3, self.texts.get(at, ""), INK)


def numbers(picture, x: Array):
    """Return the picture with the elements of the array in its blocks.

    Where copies differ, as sums that are due do, all are written with a | between them.
    Raises ValueError for what is no array of this shape, for more than two axes, and
    for more numbers than fit.
    """
    if getattr(x, "shape", None) != picture.shape or not hasattr(
        x, "addressable_shards"
    ):
        raise ValueError(f"pass the array of shape {picture.shape} that was drawn")
    if picture.shape[2:]:
        raise ValueError("numbers lie on one axis or two: draw a part, such as x[0]")
    texts, lines = {}, []
    for shard in sorted(x.addressable_shards, key=lambda each: each.device.id):
        words = np.vectorize(_word, otypes=[object])(np.asarray(shard.data))
        starts = [start for start, _ in picture.boxes[shard.device.id]]
        for at, word in np.ndenumerate(words):
            index = tuple(map(sum, zip(starts, at, strict=True)))
            texts.setdefault(index, []).append(word)
        rows = " / ".join(map(" ".join, np.atleast_2d(words)))
        lines.append(f"device {shard.device.id} holds {rows}")
    texts = {at: "|".join(dict.fromkeys(words)) for at, words in texts.items()}
    return replace(picture, view=Numbers(texts, tuple(lines), _room(picture, texts)))


def _room(picture, texts) -> tuple[float, float]:
    """Return how wide and how high all numbers are with the names of devices."""
    rows, columns = [[0, 1], [0, 1], *picture.cuts][-2:]
    names = max(len(_who(devices)) for devices in picture.holders.values())
    narrow, low = (min(b - a for a, b in pairwise(cut)) for cut in (columns, rows))
    cell = max(LETTER * max(map(len, texts.values())) + 3, LETTER * names / narrow)
    if cell * columns[-1] > WIDE or rows[-1] > 32:
        raise ValueError(f"{len(texts)} such numbers do not fit: draw fewer of them")
    return cell * columns[-1], rows[-1] * (LINE + HEAD / low)


def _word(value) -> str:
    return f"{value:d}" if isinstance(value, (int, np.integer)) else f"{value:.4g}"


# ------------------------------------------------------------------ what is missing


@dataclass(frozen=True)
class Missing:
    """Hatches what devices lack; `had` is the part that each of them had."""

    had: Mapping[int, Box]
    lines: tuple[str, ...] = ()

    @property
    def also(self):
        """The boxes at whose edges blocks are cut."""
        return self.had.values()

    def lacks(self, picture, block: Block, device: int) -> bool:
        """Return whether a device did not have a block."""
        if device not in self.had:
            return True
        pairs = zip(_spans(picture, block), self.had[device], strict=True)
        return any(a < start or b > stop for (a, b), (start, stop) in pairs)

    def paint(self, picture, block: Block, rect, strips) -> Iterator[str]:
        """Fill what is there; hatch what is not."""
        room = min(rect[2] / len(strips), rect[3])
        for device, strip in zip(picture.holders[block], strips, strict=False):
            lacks = self.lacks(picture, block, device)
            yield _filled(strip, picture.colours[device], ' fill-opacity=".3"' * lacks)
            yield _slants(strip) if lacks else ""
            x, y = (sum(each) / 4 for each in zip(*strip, strict=True))
            how = 'font-size="12"' if lacks else INK
            yield _text(x, y + 4, device, how) if room > 12 else ""


def missing(before, after):
    """Return `after`, hatched where devices that lie as `before` lack elements.

    Takes two pictures of one shape. Raises ValueError for two shapes.
    """
    if before.shape != after.shape:
        raise ValueError(f"{before.shape} is not {after.shape}: draw one shape twice")
    bare = replace(after, view=Missing(before.boxes))
    lacks = Counter(dict.fromkeys(after.boxes, 0))
    for block, devices in bare.holders.items():
        size = math.prod(b - a for a, b in _spans(bare, block))
        lacks.update({d: size for d in devices if bare.view.lacks(bare, block, d)})
    kind, most = after.facts[0].partition("[")[0], max(lacks.values())
    most = f"{most * jnp.dtype(kind).itemsize:,} B" if kind else f"{most} elements"
    upto = "up to " * (len({*lacks.values()}) > 1)
    lines = tuple(f"device {d} lacks {n} elements" for d, n in sorted(lacks.items()))
    to_get = f"from {before.facts[0]}", f"hatched: {upto}{most} a device to get"
    view = Missing(before.boxes, lines)
    return replace(after, view=view, facts=(after.facts[0], *to_get))


def _slants(points) -> str:
    """Draw slanting lines inside a polygon."""
    ends, path = [(x + y, x, y) for x, y in points], ""
    for s in range(6 * math.ceil(min(ends)[0] / 6), int(max(ends)[0]), 6):
        pen = "M"
        for (a, x, y), (b, there, lower) in pairwise([*ends, ends[0]]):
            if min(a, b) <= s < max(a, b):
                t = (s - a) / (b - a)
                path += f"{pen}{x + t * (there - x):.4g} {y + t * (lower - y):.4g}"
                pen = "L"
    return f'<path d="{path}" stroke="currentColor" stroke-opacity=".6"/>'


def _spans(picture, block: Block) -> list[tuple[int, int]]:
    pairs = zip(picture.cuts, block, strict=True)
    return [(cuts[i], cuts[i + 1]) for cuts, i in pairs]


def _who(devices) -> str:
    run = devices[2:] and devices[-1] - devices[0] == len(devices) - 1
    return f"{devices[0]}-{devices[-1]}" if run else ",".join(map(str, devices))


def _filled(points, colour: int, how: str = "") -> str:
    path = " ".join(f"{x:.5g},{y:.5g}" for x, y in points)
    return f'<polygon points="{path}" fill="{COLOURS[colour]}"{how}/>'


def _text(x, y, words, how: str = "") -> str:
    return f'<text x="{x:.5g}" y="{y:.5g}" {how}>{html.escape(str(words))}</text>'


def main():
    """Print what two devices lack of halves, if one of them holds the whole."""
    fields = "shape", "boxes", "cuts", "holders", "facts", "view"
    made = make_dataclass("Made", fields)
    whole = made((4,), {0: ((0, 4),)}, [[0, 4]], {(0,): (0,)}, ("[4]",), None)
    boxes, holders = {0: ((0, 2),), 1: ((2, 4),)}, {(0,): (0,), (1,): (1,)}
    halves = made((4,), boxes, [[0, 2, 4]], holders, ("[4@x]",), None)
    print(*missing(whole, halves).view.lines, sep="\n")


if __name__ == "__main__":
    main()
