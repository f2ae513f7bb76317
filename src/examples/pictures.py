# SPDX-License-Identifier: MIT-0
"""Pictures of shardings: which device holds which part of an array.

`draw` asks a sharding for its `devices_indices_map` and draws the answer: a block for
every part of the array, in the colours of the devices that hold it. Notebooks and web
pages show an SVG with a text alternative, terminals a table of device numbers.

    grid    [N@x, M@y]       X rows of Y blocks, each in the colour of one device
    rows    [N@x, M]         X blocks, each cut slantwise into its Y copies
    volume  [L@x, M@y, N@z]  X slabs, each a picture of [M@y, N@z]

`beside` puts pictures in a row, at one scale where signs stand between them:
`beside(draw(a), "@", draw(b), "=", draw(a @ b))`. Three axes as a cube, the numbers in
the blocks, and what a move has to bring: see cubes.py and views.py.

No message is sent and no element is read: only the sharding is looked at. The eight
colours repeat from device 8 on.

    JAX_NUM_CPU_DEVICES=8 python pictures.py

The file needs JAX alone. Colours after M. Okabe and K. Ito, "Color universal design",
2008, jfly.uni-koeln.de/color, with grey in the place of black.
"""

import functools
import html
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched, groupby, pairwise, product

import jax

COLOURS = ("#67bdf5", "#f5ad45", "#2fb08c", "#fbe184")
COLOURS += ("#9b93f7", "#e28a52", "#d99cc8", "#c5d3d6")
INKS = ("#0b0d10",) * 8  # each is seen seven times as well on them as they are

WIDE, SMALL, ROW, GAP = 320, 226, 600, 24  # widths: one, one of many, a row, between
MOST = 32  # devices that are named, rows and columns of a table, rows with a label

FLOW = "display: flex; flex-wrap: wrap; align-items: center; gap: .5rem .75rem"
PART = "display: inline-block; vertical-align: top; max-width: 100%; "
PART += "margin: .25rem .5rem .25rem 0; "
CAPTION = "font-size: .85em; line-height: 1.4; margin-bottom: .5em"
RIM = 'font-size="12" fill="#000" stroke="#fff" stroke-width="4" paint-order="stroke"'

Box = tuple[tuple[int, int], ...]  # (start, stop) along each axis of the array
Block = tuple[int, ...]  # its position along each axis, counted in blocks


@dataclass(frozen=True, repr=False)
class Picture:
    """What `draw` returns: shows itself in notebooks, prints itself in terminals.

    `boxes` is the part that each device holds, `axes` the name of each array axis with
    the mesh axes that split it, `facts` the caption's parts, `colours` each device's
    number among the colours. `svg`, `text`, `words` and `caption` are strings. A
    `view` of views.py or cubes.py has its own way: `drawn` is a picture, `paint` fills
    a block, `lines` are words; boxes that are `also` there cut; `room` is its size.
    """

    shape: tuple[int, ...]
    boxes: Mapping[int, Box]
    axes: tuple[str, ...]
    facts: tuple[str, ...]
    colours: Mapping[int, int]
    title: str = ""
    view: object = None

    @functools.cached_property
    def cuts(self) -> list[list[int]]:
        """The places at which each axis is cut, its two ends included."""
        boxes = *self.boxes.values(), *getattr(self.view, "also", ())
        axes = zip(self.shape, *boxes, strict=True)
        return [sorted({0, size}.union(*spans)) for size, *spans in axes]

    @functools.cached_property
    def holders(self) -> dict[Block, tuple[int, ...]]:
        """The devices that hold each block."""
        found = dict.fromkeys(product(*(range(len(c) - 1) for c in self.cuts)), ())
        for device, box in sorted(self.boxes.items()):
            pairs = zip(self.cuts, box, strict=True)
            spans = [range(cuts.index(a), cuts.index(b)) for cuts, (a, b) in pairs]
            for block in product(*spans):
                found[block] += (device,)
        return found

    @functools.cached_property
    def slabs(self) -> dict[Block, list[Block]]:
        """For each place on all axes but the last two: the blocks drawn there."""
        slabs = groupby(self.holders, lambda block: block[:-2])
        return {lead: list(blocks) for lead, blocks in slabs}

    def span(self, block: Block) -> str:
        """Write a block as an index: "[0:8, 4:8]"; a slab is "[0:8, ...]"."""
        pairs = zip(self.cuts, block, strict=False)
        parts = ", ".join(f"{cuts[i]}:{cuts[i + 1]}" for cuts, i in pairs)
        return f"[{parts}]" if len(block) == len(self.shape) else f"[{parts}, ...]"

    @property
    def words(self) -> str:
        """The text alternative: which devices hold which part."""
        parts = [f"{_subject(ids)} {self.span(at)}" for at, ids in self.holders.items()]
        parts = [*getattr(self.view, "lines", parts)]
        parts[2 * MOST :] = ["and so on"] * (len(parts) > 2 * MOST)
        return f"Picture of {self.facts[0]}: {'; '.join(parts)}."

    caption = property(lambda self: "; ".join(self.facts), doc="The facts in a line.")

    def at(self, wide: float = WIDE, scale: float = 0) -> str:
        """Return the SVG so wide; or bare, with so many pixels for an element."""
        shapes, *size = getattr(self.view, "drawn", _shapes)(self, wide, scale)
        wide, high = map(math.ceil, size)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" '
            f'width="{wide}" height="{high}" role="img" '
            f'aria-label="{html.escape(self.words)}" fill="currentColor" '
            'font-family="system-ui, sans-serif" font-size="11" text-anchor="middle" '
            f'style="max-width: 100%; height: auto">{"".join(shapes)}</svg>'
        )

    svg = property(at)

    def shown(self, wide: float = WIDE, scale: float = 0) -> str:
        """Return the SVG and its caption; with a scale, its type alone."""
        kind, _, facts = html.escape(self.caption).partition("; ")
        title = f"<strong>{html.escape(self.title)}</strong><br>" if self.title else ""
        least = getattr(self.view, "room", [0])[0] + 64  # with its margins
        how = "text-align: center" if scale else f"width: {max(wide, least):.0f}px"
        markup = f"{title}<code>{kind}</code> {'' if scale else facts}"
        markup = f'{self.at(wide, scale)}<div style="{CAPTION}">{markup}</div>'
        return f'<div class="picture" style="{PART}{how}">{markup}</div>'

    _repr_html_ = shown

    def __repr__(self) -> str:
        """Return the picture for terminals: device numbers under their columns."""
        lines = getattr(self.view, "lines", None) or _table(self)
        return "\n".join([self.title, self.caption, *lines]).removeprefix("\n")

    text = property(__repr__)

    def block(self, block: Block, rect) -> str:
        """Return the SVG of a block in its `rect`: left, top, width, height."""
        x, y, wide, high = rect
        strips = _strips(rect, len(self.holders[block]) or 1)
        inside = getattr(self.view, "paint", _paint)(self, block, rect, strips)
        size = f'x="{x:.5g}" y="{y:.5g}" width="{wide:.5g}" height="{high:.5g}"'
        return (
            f"<g><title>{_subject(self.holders[block])} {self.span(block)}</title>"
            f'{"".join(inside)}<rect {size} fill="none" stroke="currentColor"/></g>'
        )


class Row(tuple):
    """Pictures that show themselves side by side, and the signs between them."""

    def _repr_html_(self) -> str:
        sizes = [(1, 1, *p.shape)[-2:] for p in self if not isinstance(p, str)]
        if len(sizes) == len(self):
            return "".join(each.shown(SMALL if self[2:] else WIDE) for each in self)
        most = max(map(max, [(1, 1), *sizes]))
        scale = min(ROW / sum(wide for _, wide in [(1, 1), *sizes]), SMALL / most, 24)
        row = [_sign(p) if isinstance(p, str) else p.shown(SMALL, scale) for p in self]
        return f'<div style="{FLOW}">{"".join(row)}</div>'

    def __repr__(self) -> str:
        """Return the pictures for terminals, one below the other."""
        return "\n\n".join(map(str, self))


def beside(*parts) -> Row:
    """Put pictures side by side; with signs between them they are drawn at one scale.

    beside(a, "@", b, "=", c) shows a product. Raises ValueError for what is neither
    text nor a picture.
    """
    for other in {type(each) for each in parts if not hasattr(each, "shown")} - {str}:
        raise ValueError(f"a {other.__name__} is no picture: pass what `draw` returns")
    return Row(parts)


def draw(x, shape: Sequence[int] | None = None, *, title: str = "") -> Picture:
    """Draw which device holds which part of an array.

    x: an array or a `jax.ShapeDtypeStruct` with a sharding; or, each with a `shape`,
    a sharding, a `jax.P` over the mesh in context, a mapping {device id: slices}.

    An array of more than two axes comes as slabs: a picture of the last two axes for
    each part of the others. ValueError if there is nothing to draw: a traced array, a
    mesh without devices, a shape that does not divide or has no elements.
    """
    shape = _shape_to_draw(x, shape)
    where = x if isinstance(x, Mapping) else _sharding_of(x)
    split, pending = _spec(where, shape)
    # JAX has no index map of pending sums, but they lie like finished arrays
    where = jax.NamedSharding(where.mesh, jax.P(*split)) if pending else where
    parts = where if isinstance(where, Mapping) else where.devices_indices_map(shape)
    boxes = {getattr(d, "id", d): _box(d, part, shape) for d, part in parts.items()}
    if {type(device) for device in boxes} != {int}:
        raise ValueError(f"the mapping has no device: {{id: slices}}, not {x}")
    here = jax.devices() if parts.keys() <= set(jax.devices()) else []
    known = sorted(device.id for device in here)
    colours = {d: (known.index(d) if known else d) % len(COLOURS) for d in boxes}
    idle = [device for device in known if device not in boxes]
    names = [f"({','.join(s)})" if isinstance(s, tuple) else s for s in split]
    axes = [f"axis {i} over {s}" if s else f"axis {i}" for i, s in enumerate(names)]
    sizes = [f"{n}@{s}" if s else f"{n}" for n, s in zip(shape, names, strict=True)]
    due = f"{{U:{','.join(pending)}}}" if pending else ""
    kind = f"{getattr(x, 'dtype', '')}[{','.join(sizes)}]{due}"
    facts = kind, *_facts(x, boxes, pending, idle)
    return Picture(shape, boxes, tuple(axes), facts, colours, title)


# ------------------------------------------------------------- what is to be drawn


def _shape_to_draw(x, shape) -> tuple[int, ...]:
    if isinstance(x, jax.core.Tracer):
        raise ValueError(f"a traced array: print jax.typeof(x), here {jax.typeof(x)}")
    own = getattr(x, "shape", shape)
    if own is None:
        raise ValueError(f"a {type(x).__name__} alone has no shape: draw(x, shape)")
    sizes = tuple(own) if isinstance(own, Iterable) else (own,)
    if not all(isinstance(n, int) and n >= 0 for n in sizes):
        raise ValueError(f"{own!r} is no shape: pass whole numbers, such as (8, 16)")
    if shape not in (own, None, [*sizes]):
        raise ValueError(f"the array has shape {own}, not {shape}: leave it out")
    if 0 in sizes:
        raise ValueError(f"an array of shape {sizes} has no elements to draw")
    return sizes


def _sharding_of(x) -> jax.sharding.Sharding:
    if isinstance(x, jax.P):
        if (mesh := jax.sharding.get_mesh()).empty:
            raise ValueError(f"{x} needs a mesh: call jax.set_mesh(mesh) first")
        if jax.P.UNCONSTRAINED in getattr(x, "partitions", x):
            raise ValueError(f"{x} does not say where each element belongs")
        x = jax.NamedSharding(mesh, x)
    sharding = getattr(x, "sharding", x)
    if not isinstance(sharding, jax.sharding.Sharding):
        raise ValueError(f"a {type(x).__name__} has no sharding: pass one, and a shape")
    return sharding


def _spec(where, shape: tuple[int, ...]) -> tuple[list, list[str]]:
    """Find the mesh axes that split each axis, and those still to be summed over."""
    if isinstance(getattr(where, "mesh", None), jax.sharding.AbstractMesh):
        raise ValueError(f"{where} is abstract: it has no devices to draw")
    spec, ndim = getattr(where, "spec", ()), len(shape)
    if len(spec) > ndim:
        raise ValueError(f"{spec} names {len(spec)} axes, but the array has {ndim}")
    split = [*getattr(spec, "partitions", spec)]  # with sums, a spec will not unpack
    getattr(where, "shard_shape", tuple)(shape)  # JAX refuses what does not divide
    return split + [None] * (ndim - len(split)), sorted(getattr(spec, "unreduced", ()))


def _box(device, part: tuple[slice, ...], shape: tuple[int, ...]) -> Box:
    advice = f"device {device} holds {part!r}: give a slice for each axis of {shape}"
    try:
        ranges = [range(*s.indices(n)) for s, n in zip(part, shape, strict=True)]
    except (AttributeError, TypeError, ValueError):
        raise ValueError(advice) from None
    if any(len(r) == 0 or r.step != 1 for r in ranges):
        raise ValueError(f"{advice}, with step 1 and at least one element")
    return tuple((r.start, r.stop) for r in ranges)


# -------------------------------------------------------------------- in words


def _facts(x, boxes: Mapping[int, Box], pending, idle) -> Iterator[str]:
    yield _copies(boxes)
    if hasattr(x, "dtype"):
        sizes = [math.prod(b - a for a, b in box) for box in boxes.values()]
        yield f"{_amount(max(sizes) * x.dtype.itemsize)} a device"
    if pending:
        yield f"to be summed over {', '.join(pending)}"
    if idle:
        yield f"nothing on {_ids(idle)}"


def _copies(boxes: Mapping[int, Box]) -> str:
    copies = Counter(boxes.values())
    devices, blocks = len(boxes), len(copies)
    if devices == 1:
        return f"all on device {min(boxes)}"
    if blocks in (1, devices):
        return f"a {'copy' if blocks == 1 else 'block'} on each of {devices} devices"
    if len(set(copies.values())) == 1:
        return f"{blocks} blocks, {devices // blocks} copies of each"
    return f"{blocks} blocks on {devices} devices"


def _amount(count: int) -> str:
    power = min(3, max(0, count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def _ids(devices: Sequence[int]) -> str:
    """Write device ids, runs of three and more shortened: "0-3, 6"."""
    pairs = groupby(enumerate(devices), lambda pair: pair[1] - pair[0])
    runs = [[device for _, device in run] for _, run in pairs]
    if len(runs) > 8:
        return f"{devices[0]}...{devices[-1]}"
    short = [f"{r[0]}-{r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs]
    return ", ".join(short)


def _subject(devices: Sequence[int]) -> str:
    """Begin a sentence about devices: "devices 0, 1, 2, 3 hold"."""
    ids = ", ".join(map(str, devices)) if len(devices) <= MOST else _ids(devices)
    ways = "no device holds", f"device {ids} holds", f"devices {ids} hold"
    return ways[min(len(devices), 2)]


def _table(picture: Picture) -> Iterator[str]:
    sides = [[0, 1], [0, 1], *picture.cuts][-2:]
    rows, columns = ([f"{a}:{b}" for a, b in pairwise(cuts)] for cuts in sides)
    left = max(map(len, rows)) if len(picture.shape) > 1 else 0
    for lead, blocks in picture.slabs.items():
        yield from ["", picture.span(lead)] if lead else [""]
        held = [_ids(picture.holders[b]).replace(", ", ",") or "-" for b in blocks]
        wide = max(map(len, columns + held))
        lines = zip(["", *rows], batched(columns + held, len(columns)), strict=True)
        for head, cells in [*lines][not picture.shape : MOST + 1]:
            line = f"{head[:left]:>{left}}", *(f"{c:^{wide}}" for c in cells[:MOST])
            yield " ".join(line).rstrip() + " ..." * (len(cells) > MOST)


# ------------------------------------------------------------------------ as SVG


def _shapes(picture: Picture, wide: float, scale: float):
    """Return the shapes of a picture, and how wide and high it is."""
    scale = 0 if picture.shape[2:] else scale
    lines, columns = _frames(picture, wide, scale)
    shapes = [] if scale else [*_names(picture, lines, columns)]
    for lead, frame in zip(picture.slabs, product(lines, columns), strict=False):
        ticks = [] if scale else _ticks(picture, *frame)
        shapes += [*_slab(picture, lead, *frame), *ticks]
    rest = 1 if scale else GAP
    return shapes, columns[-1][-1] + rest, lines[-1][-1] + rest


def _frames(picture: Picture, wide: float, scale: float):
    """Place slabs in lines, and say at which y and x their cuts then lie.

    As many slabs stand side by side as there is room for.
    """
    rows, columns = [[0, 1], [0, 1], *picture.cuts][-2:]
    least, tall = getattr(picture.view, "room", (0, 0))
    if scale:
        high, width = (max(scale * c[-1], 20 * len(c) - 20) for c in (rows, columns))
        high, width = max(high, tall), max(width, least)
        return [_spread(rows, 1, high)], [_spread(columns, 1, width)]
    left, top = 24 + 6.5 * len(str(rows[-1])), 46 if len(picture.shape) > 2 else 20
    index = max(len(picture.span(lead)) for lead in picture.slabs)
    need = max(5.8 * index, 20 * (len(columns) - 1))
    lines = math.ceil(len(picture.slabs) / max(1, (wide - left) // need))
    across = math.ceil(len(picture.slabs) / lines)
    width, height = max((wide - left) / across - GAP, least), max(40, tall)
    if len(picture.shape) > 1:
        ratio = min(max(rows[-1] / columns[-1], 0.25), 1.25)
        least = 14 * min(len(rows) - 1, MOST), 6.5 * len(picture.axes[-2]), tall
        height = max(ratio * width, *least)
    xs = [_spread(columns, left + (width + GAP) * k, width) for k in range(across)]
    ys = [_spread(rows, top + (height + 46) * k, height) for k in range(lines)]
    return ys, xs


def _spread(cuts: list[int], start: float, size: float) -> list[float]:
    return [start + size * cut / cuts[-1] for cut in cuts]


def _names(picture: Picture, lines, columns) -> Iterator[str]:
    """Name the last two axes, below and at the left."""
    x, y = (columns[0][0] + columns[-1][-1]) / 2, (lines[0][0] + lines[-1][-1]) / 2
    if picture.shape:
        yield _text(x, lines[-1][-1] + 20, picture.axes[-1])
    if len(picture.shape) > 1:
        yield _text(12, y, picture.axes[-2], f'transform="rotate(-90 12 {y:.5g})"')


def _slab(picture: Picture, lead: Block, ys, xs) -> Iterator[str]:
    """Draw the blocks of a slab; if there are several, its index, too."""
    if lead:
        yield _text((xs[0] + xs[-1]) / 2, ys[0] - 20, picture.span(lead))
    cells = product(pairwise(ys), pairwise(xs))
    for block, ((y, lower), (x, there)) in zip(picture.slabs[lead], cells, strict=True):
        yield picture.block(block, (x, y, there - x, lower - y))


def _ticks(picture: Picture, ys, xs) -> Iterator[str]:
    """Number the cuts: above the columns as there is room, and left of the rows."""
    rows, columns = [[0, 1], [0, 1], *picture.cuts][-2:]
    if picture.shape:
        crowd = len(xs) * (6.5 * len(str(columns[-1])) + 4) / (xs[-1] - xs[0])
        for k in range(0, len(xs), math.ceil(crowd)):
            yield _text(xs[k], ys[0] - 5, columns[k])
    if len(picture.shape) > 1 and xs[0] < 80:  # the leftmost slab
        for row, y in zip(rows, ys, strict=True):
            yield _text(xs[0] - 5, y + 4, row, 'text-anchor="end"')


def _strips(rect, count: int) -> list[list[tuple[float, float]]]:
    """Cut a block slantwise into equal strips, one a copy."""
    x, y, wide, high = rect
    if high > wide:  # always across the longer side
        return [[at[::-1] for at in s] for s in _strips((y, x, high, wide), count)]
    width = wide / count
    lean = min(0.4 * width, 0.25 * high)
    inner = [(x + k * width, lean) for k in range(1, count)]
    return [
        [(a + s, y), (b + t, y), (b - t, y + high), (a - s, y + high)]
        for (a, s), (b, t) in pairwise([(x, 0), *inner, (x + wide, 0)])
    ]


def _paint(picture: Picture, block: Block, rect, strips) -> Iterator[str]:
    """Fill the strips; number each, or all, or none, as there is room."""
    (x, y, wide, high), devices = rect, picture.holders[block]
    yield from map(_polygon, strips, map(picture.colours.get, devices))
    need = 7 * len(str(max(picture.boxes))) + 1
    room = (wide // need if wide >= high else high // 12) if high >= 12 else 0
    if wide >= need and 0 < room < len(devices):
        yield _text(x + wide / 2, y + high / 2 + 4, _ids(devices), RIM)
    elif wide >= need and room:
        middles = [(sum(x for x, _ in s) / 4, sum(y for _, y in s) / 4) for s in strips]
        for device, (x, y) in zip(devices, middles, strict=False):  # a hole has none
            yield _text(x, y + 4, device, f'font-size="12" fill="{INKS[0]}"')


def _sign(words: str) -> str:
    return f'<div style="font-size: 1.4em">{html.escape(words)}</div>'


def _polygon(points: Sequence[tuple[float, float]], colour: int) -> str:
    path = " ".join(f"{x:.5g},{y:.5g}" for x, y in points)
    return f'<polygon points="{path}" fill="{COLOURS[colour]}"/>'


def _text(x, y, words, how: str = "") -> str:
    return f'<text x="{x:.5g}" y="{y:.5g}" {how}>{html.escape(str(words))}</text>'


def main():
    """Draw rows over all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    print(draw(jax.NamedSharding(mesh, jax.P("x")), (8 * jax.device_count(), 16)))


if __name__ == "__main__":
    main()
