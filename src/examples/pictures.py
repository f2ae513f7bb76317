# SPDX-License-Identifier: MIT-0
"""Pictures of shardings: which device holds which part of an array.

`draw` asks a sharding for its `devices_indices_map` and draws the answer: a block for
every part of the array, in the colours of the devices that hold it. Notebooks and web
pages show an SVG with a text alternative, terminals a table of device numbers.

    grid    [N@x, M@y]       X rows of Y blocks, each in the colour of one device
    rows    [N@x, M]         X blocks, each cut slantwise into its Y copies
    volume  [L@x, M@y, N@z]  X slabs, each a picture of [M@y, N@z]

No message is sent and no element is read: only the sharding is looked at. The eight
colours repeat from device 8 on.

    JAX_NUM_CPU_DEVICES=8 python pictures.py

The file needs JAX alone. Colours after M. Okabe and K. Ito, "Color universal design",
2008, jfly.uni-koeln.de/color, with grey in the place of black.
"""

import functools
import html
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
from jax.sharding import Sharding

COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#f0e442")
COLOURS += ("#0072b2", "#d55e00", "#cc79a7", "#bbbbbb")
INKS = ("#000", "#000", "#000", "#000", "#fff", "#000", "#000", "#000")

FACE, WIDE, GAP, DEPTH = 256, 288, 16, 9  # of a picture, in CSS pixels
MOST = 32  # rows, columns and slabs that are drawn; the caption counts the others

NARROW = "display: inline-block; vertical-align: top; width: 20rem; max-width: 100%"
SMALL = "font-size: .85em; line-height: 1.4; margin-bottom: .5em"
UNBROKEN = "display: inline-block"

Box = tuple[tuple[int, int], ...]  # (start, stop) along each axis of the array
Block = tuple[int, ...]  # its position along each axis, counted in blocks
Point = tuple[float, float]
Label = tuple[str, list[Point], str]  # words, where, and the ink; "" for a white plate
Style = tuple[int, bool]  # of labels: their size; one a strip, or one a block


@dataclass(frozen=True, repr=False)
class Picture:
    """What `draw` returns: shows itself in notebooks, prints itself in terminals.

    `boxes` is the part that each device holds, `axes` the name of each array axis with
    the mesh axes that split it, `facts` the caption's parts, `colours` each device's
    number among the colours. `svg`, `text`, `words` and `caption` are strings.
    """

    shape: tuple[int, ...]
    boxes: Mapping[int, Box]
    axes: tuple[str, ...]
    facts: tuple[str, ...]
    colours: Mapping[int, int]
    title: str = ""

    @functools.cached_property
    def cuts(self) -> list[list[int]]:
        """The places at which each axis is cut, its two ends included."""
        return [
            sorted({0, size}.union(*(box[axis] for box in self.boxes.values())))
            for axis, size in enumerate(self.shape)
        ]

    @functools.cached_property
    def holders(self) -> dict[Block, tuple[int, ...]]:
        """The devices that hold each block."""
        places = [{cut: i for i, cut in enumerate(cuts)} for cuts in self.cuts]
        found: dict[Block, tuple[int, ...]] = {}
        for device, box in sorted(self.boxes.items()):
            spans = [range(p[a], p[b]) for p, (a, b) in zip(places, box, strict=True)]
            for block in itertools.product(*spans):
                found[block] = (*found.get(block, ()), device)
        return found

    def span(self, block: Block) -> str:
        """Write the part of the array that `block` is as an index: "[0:8, 4:8]"."""
        cuts = zip(self.cuts, block, strict=False)
        return "[" + ", ".join(f"{c[i]}:{c[i + 1]}" for c, i in cuts) + "]"

    def slab(self, lead: Block) -> str:
        """Write the part of the array that a slab is as an index: "[0:4, ...]"."""
        return self.span(lead)[:-1] + ", ...]"

    def block(self, lead: Block, row: int, column: int) -> Block:
        """Find a block from its place in a panel."""
        return (*lead, row, column)[max(0, 2 - len(self.shape)) :]

    @property
    def words(self) -> str:
        """The text alternative: which devices hold which part."""
        parts = sorted(self.holders.items())
        told = [f"{_hold(d)} {self.span(b)}" for b, d in parts[: 2 * MOST]]
        more = len(parts) - len(told)
        told += [f"and so on for {more} more blocks"] * bool(more)
        return f"Picture of {self.facts[0]}: {'; '.join(told)}."

    @property
    def caption(self) -> str:
        """What the array is, how it is split, and what a device stores."""
        return "; ".join(self.facts)

    @property
    def text(self) -> str:
        """The picture for terminals: device numbers under the columns they hold."""
        return "\n".join(
            [self.title] * bool(self.title) + [self.caption, *_table(self)]
        )

    @property
    def svg(self) -> str:
        """The picture for notebooks and web pages, without the caption."""
        return _svg(self)

    def _repr_html_(self) -> str:
        kind, *facts = (html.escape(fact) for fact in self.facts)
        title = f"<strong>{html.escape(self.title)}</strong><br>" if self.title else ""
        spans = "; ".join(f'<span style="{UNBROKEN}">{fact}</span>' for fact in facts)
        return (
            f'<div class="picture" style="{NARROW}">{self.svg}<div style="{SMALL}">'
            f"{title}<code>{kind}</code> {spans}</div></div>"
        )

    def __repr__(self) -> str:
        """Return the picture for terminals."""
        return self.text


class Row(tuple):
    """Pictures that show themselves side by side, or below each other if narrow."""

    def _repr_html_(self) -> str:
        return "".join(picture._repr_html_() for picture in self)

    def __repr__(self) -> str:
        """Return the pictures for terminals, one below the other."""
        return "\n\n".join(picture.text for picture in self)


def beside(*pictures: Picture) -> Row:
    """Put pictures side by side."""
    return Row(pictures)


def draw(x, shape: Sequence[int] | None = None, *, title: str = "") -> Picture:
    """Draw which device holds which part of an array.

    x: an array or a `jax.ShapeDtypeStruct` with a sharding; or, each with a `shape`,
    a sharding, a `jax.P` over the mesh in context, a mapping {device id: slices}.

    An array of more than two axes comes as slabs: a picture of the last two axes for
    each part of the others. ValueError if there is nothing to draw: a traced array, a
    mesh without devices, a shape that does not divide or has no elements.
    """
    shape = _shape(x, shape)
    layout = x if isinstance(x, Mapping) else _placed(x, len(shape))
    parts, known = _parts(layout, shape)
    boxes = {device: _box(part, shape, device) for device, part in parts.items()}
    split = _split_by(layout, len(shape))
    facts = [_type(x, shape, split), _blocks(boxes), *_remarks(x, layout, boxes)]
    idle = [device for device in known if device not in boxes]
    facts += [f"nothing on {_ids(idle)}"] * bool(idle)
    facts += _cut_off(boxes)
    places = {device: i for i, device in enumerate(known)}
    colours = {device: places.get(device, device) % len(COLOURS) for device in boxes}
    axes = tuple(
        f"axis {i} over {s}" if s else f"axis {i}" for i, s in enumerate(split)
    )
    return Picture(shape, boxes, axes, tuple(facts), colours, title)


# ------------------------------------------------------------- what is to be drawn


def _shape(x, shape) -> tuple[int, ...]:
    if isinstance(x, jax.core.Tracer):
        raise ValueError(
            f"a traced array has no devices: print jax.typeof(x), here {jax.typeof(x)}"
        )
    own = getattr(x, "shape", None)
    if own is None and shape is None:
        raise ValueError(f"a {type(x).__name__} alone has no shape: draw(x, shape)")
    if own is not None and shape is not None and tuple(shape) != own:
        raise ValueError(f"the array has shape {own}, not {tuple(shape)}: leave it out")
    shape = tuple(own if shape is None else shape)
    if 0 in shape:
        raise ValueError(f"an array of shape {shape} has no elements to draw")
    return shape


def _placed(x, ndim: int) -> Sharding:
    if isinstance(x, jax.P):
        x = _over_the_mesh_in_context(x)
    sharding = x if isinstance(x, Sharding) else getattr(x, "sharding", None)
    if not isinstance(sharding, Sharding):
        raise ValueError(
            f"a {type(x).__name__} has no sharding: pass an array, a ShapeDtypeStruct "
            "with a sharding, or a sharding and a shape"
        )
    if isinstance(getattr(sharding, "mesh", None), jax.sharding.AbstractMesh):
        raise ValueError(f"{sharding} is abstract: it has no devices to draw")
    spec = getattr(sharding, "spec", jax.P())
    if len(spec) > ndim:
        raise ValueError(f"{spec} names {len(spec)} axes, but the array has {ndim}")
    return sharding


def _over_the_mesh_in_context(spec: jax.P) -> Sharding:
    mesh = jax.sharding.get_mesh()
    if mesh.empty:
        raise ValueError(f"{spec} needs a mesh: call jax.set_mesh(mesh) first")
    return jax.NamedSharding(mesh, spec)


def _parts(layout, shape) -> tuple[dict[int, tuple[slice, ...]], list[int]]:
    """Return the slices on each device, and all devices that there are, by id."""
    if isinstance(layout, Mapping):
        if not layout:
            raise ValueError("the mapping has no device: {device id: tuple of slices}")
        return dict(layout), []
    if _pending(layout):
        layout = jax.NamedSharding(layout.mesh, jax.P(*_entries(layout)))
    parts = layout.devices_indices_map(shape)
    known = set(jax.devices())
    there = sorted(device.id for device in known if parts.keys() <= known)
    return {device.id: part for device, part in parts.items()}, there


def _box(part: tuple[slice, ...], shape: tuple[int, ...], device: int) -> Box:
    if len(part) != len(shape):
        raise ValueError(
            f"device {device} has {len(part)} slices for the shape {shape}"
        )
    ranges = [range(*s.indices(n)) for s, n in zip(part, shape, strict=True)]
    if any(len(r) == 0 or r.step != 1 for r in ranges):
        raise ValueError(f"device {device} holds no block of {shape}: {part}")
    return tuple((r.start, r.stop) for r in ranges)


# -------------------------------------------------------------------- in words


def _split_by(layout, ndim: int) -> list[str]:
    """Name the mesh axes that split each array axis: "x", "(x,y)" or ""."""
    names = [(n,) if isinstance(n, str) else n or () for n in _entries(layout)]
    names += [()] * (ndim - len(names))
    return [n[0] if len(n) == 1 else f"({','.join(n)})" if n else "" for n in names]


def _entries(layout) -> tuple:
    """Return what a spec says of each axis; one with pending sums refuses to unpack."""
    spec = getattr(layout, "spec", ())
    return tuple(getattr(spec, "partitions", spec))


def _pending(layout) -> tuple[str, ...]:
    """Return the mesh axes over which the array is still to be summed."""
    return tuple(sorted(getattr(getattr(layout, "spec", ()), "unreduced", ())))


def _type(x, shape, split) -> str:
    sizes = [f"{n}@{s}" if s else f"{n}" for n, s in zip(shape, split, strict=True)]
    return f"{getattr(x, 'dtype', '')}[{','.join(sizes)}]"


def _blocks(boxes: Mapping[int, Box]) -> str:
    held = Counter(boxes.values())
    copies = set(held.values())
    if len(boxes) == 1:
        return f"all on device {min(boxes)}"
    if len(held) == 1:
        return f"a copy on each of {len(boxes)} devices"
    if copies == {1}:
        return f"a block on each of {len(boxes)} devices"
    if len(copies) > 1:
        return f"{len(held)} blocks on {len(boxes)} devices"
    return f"{len(held)} blocks, {copies.pop()} copies of each"


def _remarks(x, layout, boxes: Mapping[int, Box]) -> Iterator[str]:
    if hasattr(x, "dtype"):
        sizes = [math.prod(b - a for a, b in box) for box in boxes.values()]
        yield f"{_amount(max(sizes) * x.dtype.itemsize)} a device"
    if _pending(layout):
        yield f"to be summed over {', '.join(_pending(layout))}"


def _cut_off(boxes: Mapping[int, Box]) -> Iterator[str]:
    blocks = [len(set(ranges)) for ranges in zip(*boxes.values(), strict=True)]
    *leads, rows, columns = [1, 1, *blocks]
    counts = {"rows": rows, "columns": columns, "slabs": math.prod(leads)}
    for name, many in counts.items():
        if many > MOST:
            yield f"drawn are {MOST} of {many} {name}"


def _amount(count: int) -> str:
    power = min(3, max(0, count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def _ids(devices: Sequence[int]) -> str:
    """Write device ids, runs of three and more shortened: "0-3, 6"."""
    runs: list[list[int]] = []
    for device in devices:
        if runs and device == runs[-1][-1] + 1:
            runs[-1].append(device)
        else:
            runs.append([device])
    short = [f"{r[0]}-{r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs]
    return ", ".join(short) if len(short) < 9 else f"{devices[0]}...{devices[-1]}"


def _hold(devices: Sequence[int]) -> str:
    """Begin a sentence about devices: "devices 0, 1, 2, 3 hold"."""
    if not devices:
        return "no device holds"
    if len(devices) == 1:
        return f"device {devices[0]} holds"
    if len(devices) > 2 * len(COLOURS):
        return f"devices {_ids(devices)} hold"
    return f"devices {', '.join(map(str, devices))} hold"


# ----------------------------------------------------------------------- as text


def _table(picture: Picture) -> Iterator[str]:
    for lead, rows, columns, _ in _panels(picture):
        yield ""
        if lead:
            yield picture.slab(lead)
        names = [f"{a}:{b}" for a, b in itertools.pairwise(columns)]
        heads = [f"{a}:{b}" for a, b in itertools.pairwise(rows)]
        cells = [
            [_cell(picture, picture.block(lead, i, j)) for j in range(len(names))]
            for i in range(len(heads))
        ]
        wide = max(map(len, [*names, *itertools.chain(*cells)]))
        left = max(map(len, heads)) * (len(picture.shape) > 1)
        if picture.shape:
            yield _line("", names, left, wide)
        for head, row in zip(heads, cells, strict=True):
            yield _line(head[:left], row, left, wide)


def _cell(picture: Picture, block: Block) -> str:
    return _ids(picture.holders.get(block, ())).replace(", ", ",") or "-"


def _line(head: str, cells: list[str], left: int, wide: int) -> str:
    return f"{head:>{left}} {' '.join(f'{c:^{wide}}' for c in cells)}".rstrip()


# ------------------------------------------------------------------------ as SVG


class Rect(NamedTuple):
    """A rectangle of the drawing, in pixels."""

    left: float
    top: float
    right: float
    bottom: float


class Panel(NamedTuple):
    """A drawing of the last two axes, at the place `lead` on the axes before them.

    `rows` and `columns` are the cuts that are drawn, `frame` is where.
    """

    lead: Block
    rows: list[int]
    columns: list[int]
    frame: Rect = Rect(0, 0, 0, 0)

    def x(self, column: int) -> float:
        """Find the left edge of a column."""
        left, _, right, _ = self.frame
        return left + (right - left) * self.columns[column] / self.columns[-1]

    def y(self, row: int) -> float:
        """Find the top edge of a row."""
        _, top, _, bottom = self.frame
        return top + (bottom - top) * self.rows[row] / self.rows[-1]

    def height(self, width: float) -> float:
        """Find a height that suits the array's shape and has room for the rows."""
        ratio = min(max(self.rows[-1] / self.columns[-1], 0.25), 1.25)
        return min(320, max(18 * (len(self.rows) - 1), width * ratio))


class Part(NamedTuple):
    """A block in the drawing: what it says, and the devices with their strips."""

    title: str
    rect: Rect
    devices: tuple[int, ...]
    colours: list[int]
    strips: list[list[Point]]


def _panels(picture: Picture) -> list[Panel]:
    *leads, rows, columns = [[0, 1]] * (2 - len(picture.shape)) + picture.cuts
    places = itertools.product(*(range(len(cuts) - 1) for cuts in leads))
    first = itertools.islice(places, MOST)
    return [Panel(lead, rows[: MOST + 1], columns[: MOST + 1]) for lead in first]


def _svg(picture: Picture) -> str:
    layout = _slabs if len(picture.shape) > 2 else _flat
    panels, words, width, height = layout(picture)
    parts = [list(_parts_of(picture, panel)) for panel in panels]
    style = _lettering(list(itertools.chain(*parts)))
    for panel, here in zip(panels, parts, strict=True):
        depth = DEPTH if panel.lead else 0
        words += [_drawn(part, panel.frame, depth, style) for part in here]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" '
        f'aria-label="{html.escape(picture.words)}" fill="currentColor" '
        'font-family="system-ui, sans-serif" font-size="11" text-anchor="middle" '
        f'style="max-width: 100%; height: auto">{"".join(words)}</svg>'
    )


def _parts_of(picture: Picture, panel: Panel) -> Iterator[Part]:
    rows, columns = range(len(panel.rows) - 1), range(len(panel.columns) - 1)
    for i, j in itertools.product(rows, columns):
        block = picture.block(panel.lead, i, j)
        devices = picture.holders.get(block, ())
        rect = Rect(panel.x(j), panel.y(i), panel.x(j + 1), panel.y(i + 1))
        title = f"{_hold(devices)} {picture.span(block)}"
        colours = [picture.colours[device] for device in devices]
        yield Part(title, rect, devices, colours, _strips(rect, len(devices)))


def _flat(picture: Picture) -> tuple[list[Panel], list[str], int, int]:
    """Lay out an array of up to two axes, with the numbers of its rows and columns."""
    (panel,) = _panels(picture)
    left, top, height = 12, 38 if picture.shape else 4, 40
    if len(picture.shape) == 2:
        left = 26 + 6.5 * len(str(panel.rows[-1]))
        height = max(6.5 * len(picture.axes[0]), panel.height(FACE))
    panel = panel._replace(frame=Rect(left, top, left + FACE, top + height))
    right = left + FACE + 4 + 3.5 * len(str(panel.columns[-1]))
    words = _column_numbers(picture, panel) if picture.shape else []
    words += _row_numbers(picture, panel) if len(picture.shape) == 2 else []
    return [panel], words, math.ceil(right), math.ceil(top + height + 6)


def _column_numbers(picture: Picture, panel: Panel) -> list[str]:
    left, top, right, _ = panel.frame
    need = 6.5 * len(str(panel.columns[-1])) + 4
    some = _sparse(len(panel.columns), (right - left) / need)
    ticks = [_words(panel.x(k), top - 6, str(panel.columns[k])) for k in some]
    return [_words((left + right) / 2, 12, picture.axes[-1]), *ticks]


def _row_numbers(picture: Picture, panel: Panel) -> list[str]:
    left, top, _, bottom = panel.frame
    some = _sparse(len(panel.rows), (bottom - top) / 12)
    ticks = [
        _words(left - 5, panel.y(k) + 4, str(panel.rows[k]), ' text-anchor="end"')
        for k in some
    ]
    return [_upwards(12, (top + bottom) / 2, picture.axes[0]), *ticks]


def _sparse(cuts: int, room: float) -> range:
    """Choose the cuts that get a number: all, or every second, fourth, ..."""
    step = 1
    while cuts - 1 > room * step:
        step *= 2
    return range(0, cuts, step)


def _slabs(picture: Picture) -> tuple[list[Panel], list[str], int, int]:
    """Lay out an array of more axes as slabs that lie apart, each with its index."""
    panels = _panels(picture)
    titles = [picture.slab(panel.lead) for panel in panels]
    need = max(5.8 * max(map(len, titles)), 20 * len(panels[0].columns))
    enough = [n for n in (4, 3) if len(panels) % n == 0 and n * need <= WIDE]
    across = (enough or [min(2, len(panels))])[0]
    width = min(WIDE / across - GAP, 0.75 * FACE)
    height = max(panels[0].height(width), 6.2 * len(picture.axes[-2]))
    words = [_words(160, 12, "slabs: " + ", ".join(picture.axes[:-2]))]
    for number, title in enumerate(titles):
        left = 24 + WIDE / across * (number % across)
        top = 46 + (height + 46) * (number // across)
        frame = Rect(left, top, left + width, top + height)
        panels[number] = panels[number]._replace(frame=frame)
        words += [_words(left + width / 2, top - DEPTH - 5, title)]
    words += [_words(24 + width / 2, 60 + height, picture.axes[-1])]
    words += [_upwards(15, 46 + height / 2, picture.axes[-2])]
    return panels, words, 320, math.ceil(panels[-1].frame.bottom + 20)


def _words(x: float, y: float, words: str, how: str = "") -> str:
    return f'<text x="{x:.5g}" y="{y:.5g}"{how}>{html.escape(words)}</text>'


def _upwards(x: float, y: float, words: str) -> str:
    return _words(x, y, words, f' transform="rotate(-90 {x:.5g} {y:.5g})"')


def _strips(rect: Rect, count: int) -> list[list[Point]]:
    """Cut a block slantwise into equal strips: one a copy, while there is room."""
    left, top, right, bottom = rect
    if bottom - top > right - left:  # always across the longer side
        turned = _strips(Rect(top, left, bottom, right), count)
        return [[(x, y) for y, x in strip] for strip in turned]
    count = min(count, max(1, int((right - left) // 4)))
    width = (right - left) / max(1, count)
    lean = min(0.4 * width, 0.25 * (bottom - top))
    edges = [(left + k * width, lean * (0 < k < count)) for k in range(count + 1)]
    return [
        [(a + s, top), (b + t, top), (b - t, bottom), (a - s, bottom)]
        for (a, s), (b, t) in itertools.pairwise(edges)
    ]


def _drawn(part: Part, frame: Rect, depth: float, style: Style | None) -> str:
    left, top, right, bottom = part.rect
    shapes = []
    for colour, strip in zip(part.colours, part.strips, strict=False):
        shapes += [_polygon(strip, COLOURS[colour])]
        shapes += _sides(strip, frame, depth, COLOURS[colour]) if depth else []
    words = (
        [_label(label, style[0]) for label in _labels(part, style[1])] if style else []
    )
    return (
        f"<g><title>{part.title}</title>{''.join(shapes)}"
        f'<rect x="{left:.5g}" y="{top:.5g}" width="{right - left:.5g}" '
        f'height="{bottom - top:.5g}" fill="none" stroke="currentColor"/>'
        f"{''.join(words)}</g>"
    )


def _sides(strip: list[Point], frame: Rect, depth: float, fill: str) -> list[str]:
    """Draw the top and the right side of a strip, if it lies at the slab's edge."""
    shapes = []
    for axis, limit, shade in ((1, frame.top, 0.25), (0, frame.right, 0.5)):
        line = sorted(point for point in strip if abs(point[axis] - limit) < 1e-6)
        if len(line) == 2:
            side = [*line, *((x + depth, y - depth) for x, y in reversed(line))]
            shapes += [_polygon(side, fill)]
            shapes += [_polygon(side, f'#000" fill-opacity="{shade}')]
    return shapes


def _polygon(points: Sequence[Point], fill: str) -> str:
    path = " ".join(f"{x:.5g},{y:.5g}" for x, y in points)
    return f'<polygon points="{path}" fill="{fill}"/>'


def _lettering(parts: list[Part]) -> Style | None:
    """Choose the largest labels for which every block has room, if there are any."""
    for each, size in itertools.product((True, False), (13, 10)):
        labels = itertools.chain(*(_labels(part, each) for part in parts))
        if all(_fits(words, area, size) for words, area, _ in labels):
            return size, each
    return None


def _labels(part: Part, each: bool) -> list[Label]:
    """Number each strip, or write all numbers of the block in its middle."""
    left, top, right, bottom = part.rect
    if each or len(part.devices) == 1:
        areas = itertools.chain(part.strips, itertools.repeat([(left, top)]))
        inks = [INKS[colour] for colour in part.colours]
        return list(zip(map(str, part.devices), areas, inks, strict=False))
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return [(_ids(part.devices), corners, "")] * bool(part.devices)


def _fits(words: str, area: list[Point], size: int) -> bool:
    xs, ys = zip(*area, strict=True)
    wide, high = max(xs) - min(xs), max(ys) - min(ys)
    pairs = zip(area, area[1:] + area[:1], strict=True)
    inside = abs(sum(x * v - u * y for (x, y), (u, v) in pairs)) / 2
    return max(_wide(words, size) * high, size * wide) <= inside


def _wide(words: str, size: int) -> float:
    return 0.6 * size * len(words) + 3


def _label(label: Label, size: int) -> str:
    words, area, ink = label
    x, y = (sum(values) / len(area) for values in zip(*area, strict=True))
    wide, high = _wide(words, size) + 3, size + 3
    plate = (
        f'<rect x="{x - wide / 2:.5g}" y="{y - high / 2:.5g}" width="{wide:.5g}" '
        f'height="{high}" rx="3" fill="#fff"/>'
    )
    how = f' font-size="{size}" fill="{ink or "#000"}"'
    return plate * (not ink) + _words(x, y + 0.35 * size, words, how)


def main():
    """Draw rows over all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    sharding = jax.NamedSharding(mesh, jax.P("x", None))
    grid = jax.ShapeDtypeStruct(
        (8 * jax.device_count(), 16), "float32", sharding=sharding
    )
    print(draw(grid))


if __name__ == "__main__":
    main()
