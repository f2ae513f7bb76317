# SPDX-License-Identifier: MIT-0
"""Films: what every device holds, and what it sends, turn by turn.

`record` compiles and runs a program for each turn, and reads two things: the shards
that every device holds before and after it, and from the compiled program who sends to
whom. `cards` draws a turn: a card for each device, cells for what it holds in the
colours of those who had it first, hatching for what is missing, an arrow for each
message. A `Film` puts such frames side by side, each with its sentence; the site of
this book plays them.

    state    [P@x, ...]   on each of P devices [1, ...], one cell for each element

Nothing is sent that the program does not send; arrays are read on the host.

    JAX_NUM_CPU_DEVICES=4 python films.py

The file needs JAX and NumPy alone. The arrows of the compiled program are those of the
`collective-permute` in its text.
"""

import html
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jax import Array

COLOURS = ("#67bdf5", "#f5ad45", "#2fb08c", "#fbe184")
COLOURS += ("#9b93f7", "#e28a52", "#d99cc8", "#c5d3d6")
INK = "#0b0d10"  # on every colour of a device
WIDE = 340  # of a picture, in CSS pixels: as wide as a phone shows it
CELL = 26  # a cell's side where there is room
SHORT = 60  # an arrow that has no room for words
HEAD = 24  # above a card's cells: the device's number, and how much is here

GRID = (  # of a film's frames; where a script plays them, the site has its own
    "display: grid; gap: 1.5rem 1.25rem; list-style: none; margin: 0; padding: 0; "
    "grid-template-columns: repeat(auto-fill, minmax(min(100%, 18.5rem), 1fr))"
)
SCALED = "display: block; height: auto; max-width: 100%; overflow: visible"


@dataclass(frozen=True)
class Cell:
    """What a device holds in one place.

    owners: the devices whose data it is, or whose data it sums; text: written on it;
    pale: it is not used now; source: (device, place) where it was a frame ago.
    """

    owners: tuple[int, ...]
    text: str = ""
    pale: bool = False
    source: tuple[int, int] | None = None


@dataclass(frozen=True)
class Message:
    """What one device sends to another: data of `owners`, `label` is how much."""

    source: int
    to: int
    owners: tuple[int, ...] = ()
    label: str = ""


@dataclass(frozen=True)
class Turn:
    """A turn of a recording: what devices hold after it, and who sent to whom in it."""

    held: Mapping[int, np.ndarray]
    pairs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Drawing:
    """A picture as `svg`, and what it shows in `words`."""

    svg: str
    words: str


# ------------------------------------------------------------------------- recording


def shards(x: Array) -> dict[int, np.ndarray]:
    """Return what each device of this process holds of an array.

    Devices are numbered by their place in the mesh, row by row, as programs do.
    """
    mesh = getattr(x.sharding, "mesh", None)
    order = [*mesh.devices.flat] if mesh else sorted(x.devices(), key=lambda d: d.id)
    found = {order.index(s.device): np.asarray(s.data) for s in x.addressable_shards}
    return dict(sorted(found.items()))


def record(steps: Iterable[Callable[[Array], Array]], state: Array) -> list[Turn]:
    """Run functions of an array one after the other; return a turn for each state.

    Each function is compiled on its own. Pairs are those of its collective-permutes;
    they number the devices as the mesh does. The first turn is the state as given.
    """
    turns = [Turn(shards(state))]
    for step in steps:
        compiled = jax.jit(step).lower(state).compile()
        lists = re.findall(r"source_target_pairs=\{(.*?)\}\}", compiled.as_text())
        pairs = re.findall(r"\{(\d+),(\d+)", " ".join(lists))
        state, sent = compiled(state), tuple((int(a), int(b)) for a, b in pairs)
        turns.append(Turn(shards(state), sent))
    return turns


def arrived(before: Turn, after: Turn, *, elsewhere: bool = False):
    """Return where what is new came from: {(device, place): (device, place)}.

    A place counts the elements of a device. NaN is what is missing. What is new was
    put there, or added to what was there; it has to come from the same place of a
    device that sent to this one, or, if it may come from `elsewhere`, from any place.
    Raises ValueError for what came from none, and if messages brought nothing new.
    """
    found = {}
    for to, values in after.held.items():
        senders = {s: before.held[s].ravel() for s, end in after.pairs if end == to}
        old, new = before.held[to].ravel(), values.ravel()
        for place in map(int, np.flatnonzero(~np.isnan(new) & (old != new))):
            came = new[place], new[place] - old[place]
            places = range(new.size) if elsewhere else [place]
            at = [(s, p) for s in senders for p in places if senders[s][p] in came]
            if not at:
                there = (
                    "" if elsewhere else " there: elsewhere=True permits other places"
                )
                raise ValueError(
                    f"device {to} has {came[0]:g} in place {place}, but none of the "
                    f"devices {[*senders]}, which sent to it, had that{there}"
                )
            found[to, place] = at[0]
    if after.pairs and not found:
        raise ValueError(f"nothing new came with the messages {after.pairs}")
    return found


def first_holders(turns: Sequence[Turn]) -> Callable[[float], tuple[int, ...]]:
    """Return a function: the device that held a value in the first turn."""
    owner = {}
    for device, held in turns[0].held.items():
        owner |= dict.fromkeys(held[~np.isnan(held)].tolist(), (device,))
    return lambda value: owner[float(value)]


def summands(value: float) -> tuple[int, ...]:
    """Return the devices of a sum to which device d gives 2**d."""
    return tuple(d for d in range(int(value).bit_length()) if int(value) >> d & 1)


def frames(
    turns: Sequence[Turn],
    owners: Callable[[float], tuple[int, ...]] | None = None,
    name: Callable[[float], str] | None = None,
    unit: int = 4,
    elsewhere: bool = False,
    **how,
) -> list[Drawing]:
    """Draw the turns of a recording: what each device holds, and what came from whom.

    owners: the devices whose colours a value has, by default the one that held it
    first, and `summands` for sums; name: what is written on it (the number); unit:
    bytes of an element; how: passed to `cards`. Raises ValueError as `arrived` does.
    """
    owners = owners or first_holders(turns)
    name = name or "{:g}".format
    drawings = []
    for before, turn in zip([turns[0], *turns], turns, strict=False):
        came, cells = arrived(before, turn, elsewhere=elsewhere), {}
        for device, held in turn.held.items():
            cells[device] = [
                None
                if math.isnan(value)
                else Cell(owners(value), name(value), source=came.get((device, place)))
                for place, value in enumerate(held.ravel())
            ]
        sent = {}
        for (to, _), (source, place) in came.items():
            value = before.held[source].ravel()[place]
            sent.setdefault((source, to), []).append(owners(value))
        messages = [
            Message(*ends, tuple(sorted(set().union(*each))), f"{unit * len(each)} B")
            for ends, each in sent.items()
        ]
        drawings.append(cards(cells, messages, **how))
    return drawings


# --------------------------------------------------------------------------- drawing


def cards(
    cells: Mapping[int, Sequence],
    messages: Iterable[Message] = (),
    *,
    shape: tuple[int, int] | None = None,
    columns: int | None = None,
    notes: Mapping[int, str] | None = None,
) -> Drawing:
    """Draw a card for each device with its cells, and arrows for messages.

    cells: device -> a `Cell` for each place, None for what is missing, "" for no place;
    shape: rows and columns of cards, as the devices lie in a mesh; without it they lie
    in a ring of two rows; columns: cells in a row of a card; notes: a word for each.
    """
    messages, notes = [*messages], notes or {}
    ranks = sorted(cells)
    places = max(map(len, cells.values()))
    spots, size = _layout(len(ranks), places, shape, columns or _fit(places))
    at = dict(zip(ranks, spots, strict=True))
    wires = {_wire(at[m.source], at[m.to], size, m, messages) for m in messages}
    inner = "".join(_card(d, at[d], size, cells[d], notes.get(d)) for d in ranks)
    drawn = [_inside(d, at[d], size, cells[d]) for d in ranks]
    inner += "".join([*sorted(wire for wire, _ in wires), *(s for s, _ in drawn)])
    inner += "".join(moved for _, moved in drawn)  # what flies is drawn last
    low = max(y for _, y in spots) + size[1] + 4
    far = any(_is_far(at[m.source], at[m.to], size) for m in messages)
    high = 42 if far or (shape and shape[1] > 3) else 0  # the same in all frames
    if labels := sorted({label for _, label in wires} - {""}):
        inner += _text(WIDE / 2, low + 14, f"each arrow: {' or '.join(labels)}")
    words = "; ".join(_holdings(d, cells[d]) for d in ranks)
    sends = (f"device {m.source} sends {m.label} to device {m.to}" for m in messages)
    words = ". ".join(filter(None, [words, ", ".join(sends)])) + "."
    return Drawing(_svg(-high, low + 22 + high, inner, words), words)


def _fit(places: int) -> int:
    """Return how many cells stand in a row: as in a square, and all rows full."""
    wide = range(math.ceil(math.sqrt(places)), places + 1)
    return next(n for n in wide if places % n == 0 or n > 6)


def _layout(count, places, shape, columns):
    """Return each card's corner, and (width, height, columns, cell) of all."""
    rows, wide = shape or (min(2, count), math.ceil(count / 2))
    gap = 46 if wide < 3 else 24
    width = min(150, (WIDE - gap * (wide - 1)) / wide)
    cell = min(CELL, (width - 10) / columns)
    height = HEAD + 6 + cell * math.ceil(places / columns)
    left = (WIDE - wide * width - gap * (wide - 1)) / 2
    grid = [
        (left + (width + gap) * j, 2 + (height + 40) * i)
        for i in range(rows)
        for j in range(wide)
    ]
    if shape is None and rows == 2:  # a ring goes back along its second row
        grid = grid[:wide] + grid[wide:][::-1]
    return grid[:count], (width, height, columns, cell)


def _card(device, spot, size, cells, note) -> str:
    """A card: the number of the device, and how much of it is here."""
    x, y = spot
    width, height = size[:2]
    here = sum(isinstance(cell, Cell) for cell in cells)
    full = sum(cell != "" for cell in cells)
    note = note if note is not None else f"{here} of {full}" if here < full else ""
    frame = _rect(x, y, width, height, 'rx="8" fill="currentColor" fill-opacity=".06"')
    number = _rect(x + 5, y + 4, 18, 17, f'rx="5" fill="{_hue(device)}"')
    number += _text(x + 14, y + 17, device, f'fill="{INK}" font-weight="600"')
    return frame + number + _text(x + width - 6, y + 17, note, 'text-anchor="end"')


def _inside(device, spot, size, cells) -> list[str]:
    """The cells of a card: those that stay, and those that come from elsewhere."""
    width, _, columns, side = size
    left = spot[0] + (width - side * min(columns, len(cells))) / 2
    parts = ["", ""]
    for place, cell in enumerate(cells):
        x = left + side * (place % columns)
        y = spot[1] + HEAD + side * (place // columns)
        drawn = _cell(cell, side, f"{device}.{place}", (x, y)) if cell else ""
        if cell is None or (cell and cell.source):
            box = x + 1.5, y + 1.5, side - 4, side - 4
            parts[0] += _rect(*box, _HOLE) + _hatch(*box)
        parts[bool(cell and cell.source)] += drawn
    return parts


_HOLE = 'fill="none" stroke="currentColor" stroke-opacity=".6"'


def _cell(cell: Cell, side: float, key: str, spot) -> str:
    """A cell in the colours of its owners, with its name and where it came from."""
    source = f' data-from="{cell.source[0]}.{cell.source[1]}"' if cell.source else ""
    dim = 'fill-opacity=".35"' if cell.pale else ""
    strips = _stripes(cell.owners, (0, 0, side - 1, side - 1), dim)
    ink = "" if cell.pale else f'fill="{INK}"'
    if 7 * len(cell.text) > side:
        ink += f' font-size="{1.6 * side / len(cell.text):.3g}"'
    words = _text((side - 1) / 2, side / 2 + 4, cell.text, ink)
    place = f'transform="translate({spot[0]:.5g} {spot[1]:.5g})"'
    return f'<g {place} data-key="{key}"{source}>{strips}{words}</g>'


def _stripes(owners, box, how: str = "") -> str:
    """A box cut upright into the colours of devices."""
    (x, y, wide, high), count = box, max(1, len(owners))
    lefts = [x + wide / count * i for i in range(count)]
    hows = [f'fill="{_hue(d)}" {how}' for d in owners]
    return "".join(
        map(_rect, lefts, [y] * count, [wide / count] * count, [high] * count, hows)
    )


def _is_far(a, b, size) -> bool:
    """Return whether cards lie in a row with others between, or at its two ends."""
    return a[1] == b[1] and abs(a[0] - b[0]) > 2 * size[0] + 30


def _wire(a, b, size, message: Message, others) -> tuple[str, str]:
    """An arrow from card to card, and what remains to be said of it below.

    One that is answered leaves room for the other.
    """
    ends = {(m.source, m.to) for m in others}
    aside = 9 if (message.to, message.source) in ends else 0
    far, drawn = _is_far(a, b, size), ""
    if far:
        line, tip, middle = _bow(a, b, size, aside)
        drawn, long = f'<path d="{line}" fill="none" stroke="currentColor"/>', 14
    else:
        tip, long, middle = _line(a, b, size, aside)
    drawn += _broad(*tip, long, message)
    if len({m.label for m in others}) > 1 and (far or long >= SHORT):
        return f'<g class="msg">{drawn}{_pill(*middle, message)}</g>', ""
    return f'<g class="msg">{drawn}</g>', message.label


def _broad(x, y, turn: float, long: float, message: Message) -> str:
    """A broad arrow with its tip at (x, y), in the colours of what it carries."""
    owners, head = message.owners or (message.source,), 8
    edge = f"M{-long:.5g} -4H{-head}V-8L0 0L{-head} 8V4H{-long:.5g}z"
    fill = f'fill="{_hue(owners[-1])}" stroke="currentColor"'
    shapes = f'<path d="{edge}" {fill}/>'
    shapes += _stripes(owners, (0.5 - long, -3.5, long - head, 7))
    place = f"translate({x:.5g} {y:.5g}) rotate({math.degrees(turn):.5g})"
    return f'<g transform="{place}">{shapes}</g>'


def _bow(a, b, size, aside):
    """A path over the cards between; the tip of its arrow, and its middle."""
    high = a[1] - 24 - (aside if a < b else 0)
    x1, x2 = (x + size[0] / 2 + (aside if a < b else -aside) for x, _ in (a, b))
    middle = (x1 + x2) / 2
    line = f"M{x1:.5g} {a[1] - 2}Q{x1:.5g} {high} {middle:.5g} {high}"
    line += f"Q{x2:.5g} {high} {x2:.5g} {b[1] - 15}"
    return line, (x2, b[1] - 2, math.pi / 2), (middle, high)


def _line(a, b, size, aside):
    """An arrow's tip between two cards, its length, and its middle."""
    start, stop = ((x + size[0] / 2, y + size[1] / 2) for x, y in (a, b))
    turn = math.atan2(stop[1] - start[1], stop[0] - start[0])
    ends = _edge(start, turn, size), _edge(stop, turn + math.pi, size)
    shift = -aside * math.sin(turn), aside * math.cos(turn)
    (x1, y1), (x2, y2) = ((x + shift[0], y + shift[1]) for x, y in ends)
    middle = (x1 + x2) / 2, (y1 + y2) / 2
    return (x2, y2, turn), math.dist((x1, y1), (x2, y2)), middle


def _edge(middle, turn: float, size) -> tuple[float, float]:
    """Where a line from a card's middle leaves it, and a little further."""
    width, height = size[0] / 2 + 3, size[1] / 2 + 3
    cos, sin = math.cos(turn), math.sin(turn)
    far = min(width / max(abs(cos), 1e-9), height / max(abs(sin), 1e-9))
    return middle[0] + far * cos, middle[1] + far * sin


def _pill(x, y, message: Message) -> str:
    """How much travels, in the colours of those whose data it is."""
    if not message.label:
        return ""
    width = 9 + 6.2 * len(message.label)
    owners = message.owners or (message.source,)
    fills = _stripes(owners, (x - width / 2, y - 9, width, 17))
    return fills + _text(x, y + 4, message.label, f'fill="{INK}"')


def _holdings(device, cells) -> str:
    """Return in words what a device holds."""
    held = [cell.text for cell in cells if isinstance(cell, Cell) and cell.text]
    return f"device {device} holds {', '.join(held) or 'nothing'}"


def _svg(top: float, height: float, inner: str, words: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{height:.5g}" '
        f'viewBox="0 {top:.5g} {WIDE} {height:.5g}" role="img" fill="currentColor" '
        f'aria-label="{html.escape(words)}" font-family="system-ui, sans-serif" '
        f'font-size="12" text-anchor="middle" style="{SCALED}">{inner}</svg>'
    )


def _rect(x, y, width, height, how: str) -> str:
    size = f'width="{width:.5g}" height="{height:.5g}"'
    return f'<rect x="{x:.5g}" y="{y:.5g}" {size} {how}/>'


def _text(x, y, words, how: str = "") -> str:
    return f'<text x="{x:.5g}" y="{y:.5g}" {how}>{html.escape(str(words))}</text>'


def _hatch(x, y, wide, high) -> str:
    steps = range(6, int(wide + high), 6)  # slanting lines: nothing is here
    lines = ((min(s, wide), s, min(s, wide, high, wide + high - s)) for s in steps)
    path = "".join(f"M{x + a:g} {y + s - a:g}l{-c:g} {c:g}" for a, s, c in lines)
    return f'<path d="{path}" stroke="currentColor" stroke-opacity=".6"/>'


def _hue(device: int) -> str:
    return COLOURS[device % len(COLOURS)]


# ------------------------------------------------------------------------------ films


class Film:
    """Frames with a sentence for each; they show side by side, and print as text."""

    def __init__(self, frames: Iterable[tuple], caption: str = ""):
        """Take (drawing, sentence) pairs and what all of them show.

        A drawing has an `svg` and `words`, such as `cards` and `charts.timeline` and
        `pictures.draw` give; several in a list stand below each other in one frame.
        Raises ValueError for a film without frames, or a frame without a drawing.
        """
        pairs = [(d if isinstance(d, list) else [d], s) for d, s in frames]
        if not pairs:
            raise ValueError("a film without frames: pass (drawing, sentence) pairs")
        if odd := [s for ds, s in pairs for d in ds if not hasattr(d, "svg")]:
            raise ValueError(f"frames without drawings, which have `svg`: {odd}")
        self.frames, self.caption = pairs, caption

    def __repr__(self) -> str:
        """Return the sentences, numbered, and the caption."""
        lines = [f"{n}. {say}" for n, (_, say) in enumerate(self.frames, 1)]
        return "\n".join([*lines, self.caption]).rstrip()

    def _repr_html_(self) -> str:
        frames = "".join(
            f"<li>{''.join(d.svg for d in drawings)}<p>{html.escape(say)}</p></li>"
            for drawings, say in self.frames
        )
        caption = f"<figcaption>{html.escape(self.caption)}</figcaption>"
        inner = f'<ol style="{GRID}">{frames}</ol>{caption if self.caption else ""}'
        return f'<figure class="film" style="margin: 1em 0">{inner}</figure>'


def main():
    """Record how each device of a ring passes on what it has."""
    size = jax.device_count()
    jax.set_mesh(jax.make_mesh((size,), ("x",)))
    on = [(i, (i + 1) % size) for i in range(size)]

    @jax.shard_map(in_specs=jax.P("x"), out_specs=jax.P("x"))
    def shift(have):
        return jax.lax.ppermute(have, "x", on)

    turns = record([shift] * (size - 1), jax.device_put(np.arange(size), jax.P("x")))
    says = [f"After {n} turns." for n in range(size)]
    print(Film(zip(frames(turns), says, strict=True), "A ring"))


if __name__ == "__main__":
    main()
