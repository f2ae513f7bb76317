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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax
from jax.sharding import Sharding

COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#f0e442")
COLOURS += ("#0072b2", "#d55e00", "#cc79a7", "#bbbbbb")
INKS = ("#000", "#000", "#000", "#000", "#fff", "#000", "#000", "#000")

WIDE, GAP, DEPTH = 320, 24, 9  # of a picture, beside a panel, of a slab, in CSS pixels
MOST = 32  # rows, columns, slabs, copies that are drawn; the caption counts the rest

NARROW = "display: inline-block; vertical-align: top; width: 20rem; max-width: 100%"
SMALL = "font-size: .85em; line-height: 1.4; margin-bottom: .5em"

Box = tuple[tuple[int, int], ...]  # (start, stop) along each axis of the array
Block = tuple[int, ...]  # its position along each axis, counted in blocks
Rect = tuple[float, float, float, float]  # left, top, right, bottom
Point = tuple[float, float]


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
        everywhere = [range(len(cuts) - 1) for cuts in self.cuts]
        found = dict.fromkeys(itertools.product(*everywhere), ())
        for device, box in sorted(self.boxes.items()):
            pairs = zip(self.cuts, box, strict=True)
            spans = [range(cuts.index(a), cuts.index(b)) for cuts, (a, b) in pairs]
            for block in itertools.product(*spans):
                found[block] += (device,)
        return found

    @property
    def face(self) -> list[list[int]]:
        """The cuts between the rows and between the columns that are drawn."""
        return [cuts[: MOST + 1] for cuts in [[0, 1], [0, 1], *self.cuts][-2:]]

    @functools.cached_property
    def slabs(self) -> dict[Block, list[list[Block]]]:
        """For each place on all axes but the last two: the rows of blocks there."""
        rows, columns = (range(len(cuts) - 1) for cuts in self.face)
        leads = itertools.product(*(range(len(cuts) - 1) for cuts in self.cuts[:-2]))
        none = max(0, 2 - len(self.shape))  # axes of the picture that the array lacks
        return {
            lead: [[(*lead, i, j)[none:] for j in columns] for i in rows]
            for lead in itertools.islice(leads, MOST)
        }

    def span(self, block: Block) -> str:
        """Write a block as an index: "[0:8, 4:8]"; a slab is "[0:8, ...]"."""
        pairs = zip(self.cuts, block, strict=False)
        parts = ", ".join(f"{cuts[i]}:{cuts[i + 1]}" for cuts, i in pairs)
        return f"[{parts}]" if len(block) == len(self.shape) else f"[{parts}, ...]"

    @property
    def words(self) -> str:
        """The text alternative: which devices hold which part."""
        first = itertools.islice(self.holders.items(), 2 * MOST)
        parts = [f"{_hold(devices)} {self.span(block)}" for block, devices in first]
        if len(parts) < len(self.holders):
            parts.append("and so on")
        return f"Picture of {self.facts[0]}: {'; '.join(parts)}."

    @property
    def caption(self) -> str:
        """What the array is, how it is split, and what a device stores."""
        return "; ".join(self.facts)

    @property
    def text(self) -> str:
        """The picture for terminals: device numbers under the columns they hold."""
        lines = [self.title, self.caption, *_table(self)]
        return "\n".join(lines if self.title else lines[1:])

    @property
    def svg(self) -> str:
        """The picture for notebooks and web pages, without the caption."""
        frames = _frames(self)
        end = math.ceil(frames[-1][3] + 26)
        shapes = list(_names(self, frames))
        for lead, frame in zip(self.slabs, frames, strict=True):
            shapes += [*_slab(self, lead, frame), *_ticks(self, frame)]
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
    if pending:  # JAX has no index map of these, but they lie like finished arrays
        where = jax.NamedSharding(where.mesh, jax.P(*split))
    parts = where if isinstance(where, Mapping) else where.devices_indices_map(shape)
    boxes = {getattr(d, "id", d): _box(d, part, shape) for d, part in parts.items()}
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
    own, shape = _sizes(own), _sizes(own if shape is None else shape)
    if shape != own:
        raise ValueError(f"the array has shape {own}, not {shape}: leave it out")
    if 0 in own:
        raise ValueError(f"an array of shape {own} has no elements to draw")
    return own


def _sizes(shape) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    if not all(isinstance(n, int) and n >= 0 for n in sizes):
        raise ValueError(f"{shape!r} is no shape: pass whole numbers, such as (8, 16)")
    return sizes


def _sharding_of(x) -> Sharding:
    if isinstance(x, jax.P):
        x = jax.NamedSharding(_mesh_of(x), x)
    sharding = x if isinstance(x, Sharding) else getattr(x, "sharding", None)
    if not isinstance(sharding, Sharding):
        raise ValueError(
            f"a {type(x).__name__} has no sharding: pass an array, a ShapeDtypeStruct "
            "with a sharding, or a sharding and a shape"
        )
    if isinstance(getattr(sharding, "mesh", None), jax.sharding.AbstractMesh):
        raise ValueError(f"{sharding} is abstract: it has no devices to draw")
    return sharding


def _mesh_of(spec: jax.P) -> jax.sharding.Mesh:
    mesh, entries = jax.sharding.get_mesh(), tuple(getattr(spec, "partitions", spec))
    if mesh.empty:
        raise ValueError(f"{spec} needs a mesh: call jax.set_mesh(mesh) first")
    if jax.P.UNCONSTRAINED in entries:
        raise ValueError(f"{spec} does not say where each element belongs")
    if unknown := {*jax.tree.leaves(entries)} - {*mesh.axis_names}:
        raise ValueError(f"{spec} names {unknown}, but the axes are {mesh.axis_names}")
    return mesh


def _spec(where, shape: tuple[int, ...]) -> tuple[list, list[str]]:
    """Find the mesh axes that split each axis, and those still to be summed over."""
    kinds = int, jax.Device
    if isinstance(where, Mapping) and not any(isinstance(key, kinds) for key in where):
        raise ValueError(f"the mapping has no device: {{id: slices}}, not {where}")
    spec, ndim = getattr(where, "spec", ()), len(shape)
    if len(spec) > ndim:
        raise ValueError(f"{spec} names {len(spec)} axes, but the array has {ndim}")
    split = [*getattr(spec, "partitions", spec)]  # with sums, a spec will not unpack
    for n, entry in zip(shape, split, strict=False):
        names = (entry,) if isinstance(entry, str) else entry or ()
        if n % (parts := math.prod(where.mesh.shape[name] for name in names)):
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
    pairs = itertools.groupby(enumerate(devices), lambda pair: pair[1] - pair[0])
    runs = [[device for _, device in run] for _, run in pairs]
    if len(runs) > 8:
        return f"{devices[0]}...{devices[-1]}"
    short = [f"{r[0]}-{r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs]
    return ", ".join(short)


def _hold(devices: Sequence[int]) -> str:
    """Begin a sentence about devices: "devices 0, 1, 2, 3 hold"."""
    if len(devices) < 2:
        return f"device {devices[0]} holds" if devices else "no device holds"
    all_of_them = ", ".join(map(str, devices))
    return f"devices {all_of_them if len(devices) <= MOST else _ids(devices)} hold"


def _table(picture: Picture) -> Iterator[str]:
    rows, columns = (
        [f"{a}:{b}" for a, b in itertools.pairwise(cuts)] for cuts in picture.face
    )
    left = max(map(len, rows)) if len(picture.shape) > 1 else 0
    for lead, slab in picture.slabs.items():
        yield from ["", picture.span(lead)] if lead else [""]
        held = [[_ids(picture.holders[b]).replace(", ", ",") for b in r] for r in slab]
        lines = [("", columns), *zip(rows, held, strict=True)]
        wide = max(len(cell) for _, cells in lines for cell in cells)
        for head, cells in lines if picture.shape else lines[1:]:
            line = " ".join(f"{cell or '-':^{wide}}" for cell in cells)
            yield f"{head[:left]:>{left}} {line}".rstrip()


# ------------------------------------------------------------------------ as SVG


def _frames(picture: Picture) -> list[Rect]:
    """Find a place for each slab: as many side by side as there is room for."""
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
    xs = [left + (width + GAP) * (k % across) for k in range(slabs)]
    ys = [top + (height + 46) * (k // across) for k in range(slabs)]
    return [(x, y, x + width, y + height) for x, y in zip(xs, ys, strict=True)]


def _names(picture: Picture, frames: list[Rect]) -> Iterator[str]:
    """Name the axes below and at the left, and on top those that the slabs divide."""
    left, top, bottom = *frames[0][:2], frames[-1][3]
    x, y = (left + WIDE - GAP) / 2, (top + bottom) / 2
    if picture.shape:
        yield _text(x, bottom + 20, picture.axes[-1])
    if len(picture.shape) > 1:
        yield _text(12, y, picture.axes[-2], f' transform="rotate(-90 12 {y:.5g})"')
    if len(picture.shape) > 2:
        yield _text(x, 12, f"slabs: {', '.join(picture.axes[:-2])}")


def _slab(picture: Picture, lead: Block, frame: Rect) -> Iterator[str]:
    left, top, right, bottom = frame
    if lead:
        yield _text((left + right) / 2, top - 20, picture.span(lead))
        side = [(left, bottom), (right, bottom), (right, top)]
        side += [(x + DEPTH, y + DEPTH) for x, y in reversed(side)]
        yield _polygon(side, 'currentColor" fill-opacity="0.3')
    rows, columns = picture.face
    ys, xs = _spread(rows, top, bottom), _spread(columns, left, right)
    lines = zip(picture.slabs[lead], itertools.pairwise(ys), strict=True)
    for line, (upper, lower) in lines:
        for block, (here, there) in zip(line, itertools.pairwise(xs), strict=True):
            yield _block(picture, block, (here, upper, there, lower))


def _ticks(picture: Picture, frame: Rect) -> Iterator[str]:
    """Number the cuts: above the columns as there is room, and left of the rows."""
    left, top, right, bottom = frame
    rows, columns = picture.face
    if picture.shape:
        xs = _spread(columns, left, right)
        crowd = len(xs) * (6.5 * len(str(columns[-1])) + 4) / (right - left)
        for k in range(0, len(xs), math.ceil(crowd)):
            yield _text(xs[k], top - 5, columns[k])
    if len(picture.shape) > 1 and left < WIDE / 4:  # the leftmost slab
        for row, y in zip(rows, _spread(rows, top, bottom), strict=True):
            yield _text(left - 5, y + 4, row, ' text-anchor="end"')


def _spread(cuts: list[int], start: float, stop: float) -> list[float]:
    return [start + (stop - start) * cut / cuts[-1] for cut in cuts]


def _block(picture: Picture, block: Block, rect: Rect) -> str:
    left, top, right, bottom = rect
    devices = picture.holders[block]
    fills = [COLOURS[picture.colours[device]] for device in devices]
    strips = _strips(rect, min(len(devices), MOST))
    return (
        f"<g><title>{_hold(devices)} {picture.span(block)}</title>"
        f"{''.join(map(_polygon, strips, fills))}"
        f'<rect x="{left:.5g}" y="{top:.5g}" width="{right - left:.5g}" '
        f'height="{bottom - top:.5g}" fill="none" stroke="currentColor"/>'
        f"{''.join(_labels(picture, devices, strips, rect))}</g>"
    )


def _strips(rect: Rect, count: int) -> list[list[Point]]:
    """Cut a block slantwise into equal strips, one a copy."""
    left, top, right, bottom = rect
    if bottom - top > right - left:  # always across the longer side
        turned = _strips((top, left, bottom, right), count)
        return [[(x, y) for y, x in strip] for strip in turned]
    width = (right - left) / max(1, count)
    lean = min(0.4 * width, 0.25 * (bottom - top))
    leans = [0, *[lean] * (count - 1), 0]
    edges = [(left + k * width, leans[k]) for k in range(count + 1)]
    return [
        [(a + s, top), (b + t, top), (b - t, bottom), (a - s, bottom)]
        for (a, s), (b, t) in itertools.pairwise(edges)
    ]


def _labels(picture: Picture, devices, strips, rect: Rect) -> Iterator[str]:
    """Number each strip, or the whole block, or nothing: as there is room."""
    left, top, right, bottom = rect
    wide, high = right - left, bottom - top
    need = 7 * len(str(max(picture.boxes))) + 1
    if not devices or wide < need or high < 12:
        return
    room = wide // need if wide >= high else high // 12
    if len(devices) > room:
        how = ' font-size="12" fill="#000" stroke="#fff" stroke-width="4"'
        how += ' paint-order="stroke"'
        yield _text((left + right) / 2, (top + bottom) / 2 + 4, _ids(devices), how)
    else:
        for device, strip in zip(devices, strips, strict=True):
            x, y = (sum(values) / 4 for values in zip(*strip, strict=True))
            ink = INKS[picture.colours[device]]
            yield _text(x, y + 4, device, f' font-size="12" fill="{ink}"')


def _polygon(points: Sequence[Point], fill: str) -> str:
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
