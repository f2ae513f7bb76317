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
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched, groupby, islice, pairwise, product

import jax

COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#f0e442")
COLOURS += ("#0072b2", "#d55e00", "#cc79a7", "#bbbbbb")
INKS = ("#000", "#000", "#000", "#000", "#fff", "#000", "#000", "#000")

WIDE, GAP, DEPTH = 320, 24, 9  # of a picture, beside a panel, of a slab, in CSS pixels
MOST = 32  # rows, columns, slabs, copies that are drawn; the caption counts the rest

NARROW = "display: inline-block; vertical-align: top; width: 20rem; max-width: 100%"
SMALL = "font-size: .85em; line-height: 1.4; margin-bottom: .5em"
RIM = ' font-size="12" fill="#000" stroke="#fff" stroke-width="4" paint-order="stroke"'

Box = tuple[tuple[int, int], ...]  # (start, stop) along each axis of the array
Block = tuple[int, ...]  # its position along each axis, counted in blocks


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
        axes = zip(self.shape, *self.boxes.values(), strict=True)
        return [sorted({0, size}.union(*spans)) for size, *spans in axes]

    @functools.cached_property
    def holders(self) -> dict[Block, tuple[int, ...]]:
        """The devices that hold each block."""
        everywhere = [range(len(cuts) - 1) for cuts in self.cuts]
        found = dict.fromkeys(product(*everywhere), ())
        for device, box in sorted(self.boxes.items()):
            pairs = zip(self.cuts, box, strict=True)
            spans = [range(cuts.index(a), cuts.index(b)) for cuts, (a, b) in pairs]
            for block in product(*spans):
                found[block] += (device,)
        return found

    @property
    def face(self) -> list[list[int]]:
        """The cuts between the rows and between the columns that are drawn."""
        return [cuts[: MOST + 1] for cuts in [[0, 1], [0, 1], *self.cuts][-2:]]

    @functools.cached_property
    def slabs(self) -> dict[Block, list[Block]]:
        """For each place on all axes but the last two: the blocks drawn there."""
        near = [block for block in self.holders if max(block[-2:], default=0) < MOST]
        slabs = groupby(near, lambda block: block[:-2])
        return {lead: list(blocks) for lead, blocks in islice(slabs, MOST)}

    def span(self, block: Block) -> str:
        """Write a block as an index: "[0:8, 4:8]"; a slab is "[0:8, ...]"."""
        pairs = zip(self.cuts, block, strict=False)
        parts = ", ".join(f"{cuts[i]}:{cuts[i + 1]}" for cuts, i in pairs)
        return f"[{parts}]" if len(block) == len(self.shape) else f"[{parts}, ...]"

    @property
    def words(self) -> str:
        """The text alternative: which devices hold which part."""
        parts = [f"{_hold(ids)} {self.span(at)}" for at, ids in self.holders.items()]
        if len(parts) > 2 * MOST:
            parts[2 * MOST :] = ["and so on"]
        return f"Picture of {self.facts[0]}: {'; '.join(parts)}."

    @property
    def caption(self) -> str:
        """What the array is, how it is split, and what a device stores."""
        return "; ".join(self.facts)

    @property
    def svg(self) -> str:
        """The picture for notebooks and web pages, without the caption."""
        lines, columns = _frames(self)
        end = math.ceil(lines[-1][-1] + 26)
        shapes = list(_names(self, lines, columns))
        for lead, frame in zip(self.slabs, product(lines, columns), strict=False):
            shapes += [*_slab(self, lead, *frame), *_ticks(self, *frame)]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {end}" '
            f'width="{WIDE}" height="{end}" role="img" '
            f'aria-label="{html.escape(self.words)}" fill="currentColor" '
            'font-family="system-ui, sans-serif" font-size="11" text-anchor="middle" '
            f'style="max-width: 100%; height: auto">{"".join(shapes)}</svg>'
        )

    def _repr_html_(self) -> str:
        kind, *facts = (html.escape(fact) for fact in self.facts)
        title = f"<strong>{html.escape(self.title)}</strong><br>" if self.title else ""
        return (
            f'<div class="picture" style="{NARROW}">{self.svg}<div style="{SMALL}">'
            f"{title}<code>{kind}</code> {'; '.join(facts)}</div></div>"
        )

    def __repr__(self) -> str:
        """Return the picture for terminals: device numbers under their columns."""
        return "\n".join([self.title, self.caption, *_table(self)]).removeprefix("\n")

    text = property(__repr__)


class Row(tuple):
    """Pictures that show themselves side by side, or below each other if narrow."""

    def _repr_html_(self) -> str:
        return "".join(picture._repr_html_() for picture in self)

    def __repr__(self) -> str:
        """Return the pictures for terminals, one below the other."""
        return "\n\n".join(picture.text for picture in self)


def beside(*pictures: Picture) -> Row:
    """Put pictures side by side. Raises ValueError for what `draw` did not return."""
    for other in {type(each) for each in pictures} - {Picture}:
        raise ValueError(f"a {other.__name__} is no picture: pass what `draw` returns")
    return Row(pictures)


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
    kind = f"{getattr(x, 'dtype', '')}[{','.join(sizes)}]"
    facts = kind, *_facts(x, boxes, pending, idle)
    return Picture(shape, boxes, tuple(axes), facts, colours, title)


# ------------------------------------------------------------- what is to be drawn


def _shape_to_draw(x, shape) -> tuple[int, ...]:
    if isinstance(x, jax.core.Tracer):
        raise ValueError(
            f"a traced array has no devices: print jax.typeof(x), here {jax.typeof(x)}"
        )
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
        mesh, entries = jax.sharding.get_mesh(), tuple(getattr(x, "partitions", x))
        if mesh.empty:
            raise ValueError(f"{x} needs a mesh: call jax.set_mesh(mesh) first")
        if jax.P.UNCONSTRAINED in entries:
            raise ValueError(f"{x} does not say where each element belongs")
        if unknown := {*jax.tree.leaves(entries)} - {*mesh.axis_names}:
            raise ValueError(f"{x} names {unknown}, but the axes are {mesh.axis_names}")
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
    for n, entry in zip(shape, split, strict=False):
        parts = math.prod(where.mesh.shape[name] for name in jax.tree.leaves(entry))
        if n % parts:
            raise ValueError(f"{spec} cuts {n} of the shape {shape} in {parts}")
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
    spans = zip(*boxes.values(), strict=True)
    *leads, rows, columns = 1, 1, *(len(set(axis)) for axis in spans)
    drawn = (rows, "rows"), (columns, "columns"), (math.prod(leads), "slabs")
    yield from (f"drawn are {MOST} of {n} {name}" for n, name in drawn if n > MOST)


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


def _hold(devices: Sequence[int]) -> str:
    """Begin a sentence about devices: "devices 0, 1, 2, 3 hold"."""
    ids = ", ".join(map(str, devices)) if len(devices) <= MOST else _ids(devices)
    ways = "no device holds", f"device {ids} holds", f"devices {ids} hold"
    return ways[min(len(devices), 2)]


def _table(picture: Picture) -> Iterator[str]:
    rows, columns = ([f"{a}:{b}" for a, b in pairwise(cuts)] for cuts in picture.face)
    left = max(map(len, rows)) if len(picture.shape) > 1 else 0
    for lead, blocks in picture.slabs.items():
        yield from ["", picture.span(lead)] if lead else [""]
        held = [_ids(picture.holders[b]).replace(", ", ",") or "-" for b in blocks]
        wide = max(map(len, columns + held))
        lines = zip(["", *rows], batched(columns + held, len(columns)), strict=True)
        for head, cells in lines if picture.shape else [*lines][1:]:
            line = " ".join(f"{cell:^{wide}}" for cell in cells)
            yield f"{head[:left]:>{left}} {line}".rstrip()


# ------------------------------------------------------------------------ as SVG


def _frames(picture: Picture) -> tuple[list[list[float]], list[list[float]]]:
    """Place slabs in lines, and say at which y and x their cuts then lie.

    As many slabs stand side by side as there is room for.
    """
    (rows, columns), slabs = picture.face, len(picture.slabs)
    left, top = 24 + 6.5 * len(str(rows[-1])), 46 if len(picture.shape) > 2 else 20
    index = max(len(picture.span(lead)) for lead in picture.slabs)
    need = max(5.8 * index, 20 * (len(columns) - 1))
    lines = math.ceil(slabs / max(1, (WIDE - left) // need))
    across = math.ceil(slabs / lines)
    width, height = (WIDE - left) / across - GAP, 40
    if len(picture.shape) > 1:
        ratio = min(max(rows[-1] / columns[-1], 0.25), 1.25)
        height = max(ratio * width, 14 * (len(rows) - 1), 6.5 * len(picture.axes[-2]))
    xs = [_spread(columns, left + (width + GAP) * k, width) for k in range(across)]
    ys = [_spread(rows, top + (height + 46) * k, height) for k in range(lines)]
    return ys, xs


def _spread(cuts: list[int], start: float, size: float) -> list[float]:
    return [start + size * cut / cuts[-1] for cut in cuts]


def _names(picture: Picture, lines, columns) -> Iterator[str]:
    """Name the axes below and at the left, and on top those that the slabs divide."""
    x, y = (columns[0][0] + WIDE - GAP) / 2, (lines[0][0] + lines[-1][-1]) / 2
    if picture.shape:
        yield _text(x, lines[-1][-1] + 20, picture.axes[-1])
    if len(picture.shape) > 1:
        yield _text(12, y, picture.axes[-2], f' transform="rotate(-90 12 {y:.5g})"')
    if len(picture.shape) > 2:
        yield _text(x, 12, f"slabs: {', '.join(picture.axes[:-2])}")


def _slab(picture: Picture, lead: Block, ys, xs) -> Iterator[str]:
    """Draw the blocks of a slab; if there are several, its index and its side, too."""
    if lead:
        yield _text((xs[0] + xs[-1]) / 2, ys[0] - 20, picture.span(lead))
        side = [(xs[0], ys[-1]), (xs[-1], ys[-1]), (xs[-1], ys[0])]
        side += [(x + DEPTH, y + DEPTH) for x, y in reversed(side)]
        yield _polygon(side, 'currentColor" fill-opacity="0.3')
    cells = product(pairwise(ys), pairwise(xs))
    for block, ((y, lower), (x, there)) in zip(picture.slabs[lead], cells, strict=True):
        yield _block(picture, block, (x, y, there - x, lower - y))


def _ticks(picture: Picture, ys, xs) -> Iterator[str]:
    """Number the cuts: above the columns as there is room, and left of the rows."""
    rows, columns = picture.face
    if picture.shape:
        crowd = len(xs) * (6.5 * len(str(columns[-1])) + 4) / (xs[-1] - xs[0])
        for k in range(0, len(xs), math.ceil(crowd)):
            yield _text(xs[k], ys[0] - 5, columns[k])
    if len(picture.shape) > 1 and xs[0] < WIDE / 4:  # the leftmost slab
        for row, y in zip(rows, ys, strict=True):
            yield _text(xs[0] - 5, y + 4, row, ' text-anchor="end"')


def _block(picture: Picture, block: Block, rect) -> str:
    """Draw a block in its `rect`: left, top, width, height."""
    x, y, wide, high = rect
    devices = picture.holders[block]
    fills = [COLOURS[picture.colours[device]] for device in devices]
    strips = _strips(rect, len(devices[:MOST]) or 1)
    return (
        f"<g><title>{_hold(devices)} {picture.span(block)}</title>"
        f"{''.join(map(_polygon, strips, fills))}"
        f'<rect x="{x:.5g}" y="{y:.5g}" width="{wide:.5g}" height="{high:.5g}" '
        'fill="none" stroke="currentColor"/>'
        f"{''.join(_labels(picture, devices, strips, rect))}</g>"
    )


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


def _labels(picture: Picture, devices, strips, rect) -> Iterator[str]:
    """Number each strip, or the whole block, or nothing: as there is room."""
    x, y, wide, high = rect
    need = 7 * len(str(max(picture.boxes))) + 1
    if wide < need or high < 12:
        return
    if len(devices) > (wide // need if wide >= high else high // 12):
        yield _text(x + wide / 2, y + high / 2 + 4, _ids(devices), RIM)
        return
    for device, strip in zip(devices, strips, strict=False):  # a hole has no device
        x, y = (sum(values) / 4 for values in zip(*strip, strict=True))
        ink = INKS[picture.colours[device]]
        yield _text(x, y + 4, device, f' font-size="12" fill="{ink}"')


def _polygon(points: Sequence[tuple[float, float]], fill: str) -> str:
    path = " ".join(f"{x:.5g},{y:.5g}" for x, y in points)
    return f'<polygon points="{path}" fill="{fill}"/>'


def _text(x: float, y: float, words, how: str = "") -> str:
    return f'<text x="{x:.5g}" y="{y:.5g}"{how}>{html.escape(str(words))}</text>'


def main():
    """Draw rows over all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    rows = jax.NamedSharding(mesh, jax.P("x", None))
    print(draw(rows, (8 * jax.device_count(), 16)))


if __name__ == "__main__":
    main()
