# SPDX-License-Identifier: MIT-0
"""Charts: amounts as bars, and what happens when as a timeline, both as SVG.

`bars` draws numbers with their names and units; several numbers of one name stand
below each other, each in the colour of its series. `timeline` draws who does what from
when to when: a lane for each device, process or link, a bar for each piece of work,
hatching for waiting. Both are text as well: printed, and in the words that screen
readers tell. Colours of text and lines are those of the page around; bars get shorter
with the page, letters do not.

    python charts.py

Copy this file alone: it needs only Python.
"""

import html
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

COLOURS = ("#67bdf5", "#f5ad45", "#2fb08c", "#fbe184")
COLOURS += ("#9b93f7", "#e28a52", "#d99cc8", "#c5d3d6")
INK = "#0b0d10"  # on every colour
NARROW, WIDE = 340, 680  # of a frame of a film, and of a chart alone, in CSS pixels
LETTER = 7.2  # about as wide as a letter is


@dataclass(frozen=True)
class Span:
    """A piece of work in a lane: from `start` to `stop`.

    colour: a number, such as that of a device; None is waiting, and hatched; text: is
    written on it if there is room, and always told.
    """

    start: float
    stop: float
    text: str = ""
    colour: int | None = 0


@dataclass(frozen=True, repr=False)
class Chart:
    """A picture as `svg`, what it shows in `words`, and as `lines` of text."""

    svg: str
    words: str
    lines: tuple[str, ...]

    def _repr_html_(self) -> str:
        return f'<div class="chart">{self.svg}</div>'

    def __repr__(self) -> str:
        """Return the numbers as text."""
        return "\n".join(self.lines)


def bars(
    numbers: Mapping[str, float | Mapping[str, float]],
    unit: str = "",
    *,
    mark: float | None = None,
    axis: str = "",
    narrow: bool = False,
) -> Chart:
    """Draw a bar for each number, from 0 on, with the number and its unit beside it.

    numbers: name -> number, or name -> {series: number}; mark: a number at which a
    line stands, such as 1 for ratios; axis: what is measured, in words below.
    Raises ValueError for no numbers, and for numbers that are negative or not finite.
    """
    groups = {k: v if isinstance(v, Mapping) else {"": v} for k, v in numbers.items()}
    values = [each for group in groups.values() for each in group.values()]
    if not values or not all(0 <= each < math.inf for each in [*values, mark or 0]):
        raise ValueError(f"bars begin at 0, and end: pass such numbers, not {values}")
    room = LETTER * max(len(_number(value, unit)) for value in values) + 8
    share = max(1 - room / NARROW, 0.3)  # of the width, for the longest bar
    scale = 100 * share / (max([*values, mark or 0]) or 1)
    inner, top = _legend(list(dict.fromkeys(itertools.chain(*groups.values()))))
    drawn, low = _label_bars(groups, unit, scale, top)
    inner += drawn
    if mark is not None:
        inner += _upright(mark * scale, top, low)
        inner += _label(f"{mark * scale:.4g}%", low + 12, _number(mark, unit), _MIDDLE)
        low += 16
    if axis:
        inner += _label(0, low + 13, axis)
        low += 18
    lines = [
        f"{name}{', ' * bool(each)}{each}: {_number(value, unit)}"
        for name, group in groups.items()
        for each, value in group.items()
    ]
    return _chart(NARROW if narrow else WIDE, low, inner, lines)


def _number(value: float, unit: str) -> str:
    return f"{value:,{'.0f' if abs(value) >= 1000 else '.4g'}} {unit}".rstrip()


def _label_bars(groups, unit: str, scale: float, y: float) -> tuple[str, float]:
    """Draw each name and its bars below each other; return where they end."""
    series, inner = list(dict.fromkeys(itertools.chain(*groups.values()))), ""
    for name, group in groups.items():
        inner += _label(0, y + 13, name)
        y += 19
        for each, value in group.items():
            fill = COLOURS[series.index(each) % len(COLOURS)]
            inner += _bar(0, y, f"{value * scale:.4g}%", 16, f'fill="{fill}"')
            place = f"{value * scale:.4g}%"
            inner += _label(place, y + 12.5, _number(value, unit), 'dx="6"')
            y += 19
        y += 5
    return inner, y


def timeline(
    lanes: Mapping[str, Iterable[Span]],
    unit: str = "",
    *,
    now: float | None = None,
    end: float | None = None,
    narrow: bool = False,
) -> Chart:
    """Draw a lane for each name, and in it a bar for each span, on one axis of time.

    unit: of the axis, such as "steps" or "seconds"; now: what begins later is pale,
    and a line stands there; end: where the axis ends, by default at the last span.
    Raises ValueError for spans that begin before 0, end before they begin, or overlap
    in a lane, and if there is none.
    """
    spans = {name: sorted(each, key=lambda s: s.start) for name, each in lanes.items()}
    last = end or max((s.stop for each in spans.values() for s in each), default=0)
    if last <= 0:
        raise ValueError("nothing lasts: pass lanes with spans")
    for name, each in spans.items():
        _check(name, each)
    wide, left = NARROW if narrow else WIDE, 12 + LETTER * max(map(len, [*spans, unit]))
    low, scale = 25 * len(spans) + 2, (100 / last, wide - left - 8)
    inside = _lanes(spans, scale, now) + _axis(low, last)
    if now is not None:
        how = f"transform: translate({100 * now / last:.4g}%, 0px); {_IN_PERCENT}"
        inside += f'<g style="{how}" data-key="now">{_upright(0, 0, low)}</g>'
    heads = [_label(-8, 25 * k + 17, name, _END) for k, name in enumerate(spans)]
    inside += f"{''.join(heads)}{_label(-8, low + 14, unit, _END)}"
    lines = [f"{name}: {'; '.join(map(_phrase, each))}" for name, each in spans.items()]
    return _chart(wide, low + 20, inside, lines, left)


def _lanes(spans, scale, now) -> str:
    """Draw the ground of each lane, and what is in it."""
    inside = ""
    for row, (name, each) in enumerate(spans.items()):
        inside += _bar(0, 25 * row + 2, "100%", 21, _GROUND)
        place = 25 * row + 3, *scale
        inside += "".join(_span(name, span, place, now) for span in each)
    return inside


def _check(name: str, spans: Sequence[Span]):
    for span in spans:
        if not 0 <= span.start <= span.stop < math.inf:
            raise ValueError(f"in {name}, {span} ends before it begins, or before 0")
    for before, after in itertools.pairwise(spans):
        if after.start < before.stop - 1e-9:
            raise ValueError(f"in {name}, {before} and {after} overlap: pass two lanes")


_GROUND = 'rx="3" fill="currentColor" fill-opacity=".06"'
_WAITS = 'rx="3" fill="none" stroke="currentColor" stroke-opacity=".6"'
_MIDDLE, _END = 'text-anchor="middle"', 'text-anchor="end"'
_IN_PERCENT = "transform-box: view-box"  # of the picture, not of the line


def _span(name: str, span: Span, place, now) -> str:
    """Draw a span; `place` is its height, the percents of a unit, the pixels of all."""
    y, percent, pixels = place
    wide = (span.stop - span.start) * percent
    past = now is None or span.start < now
    how = f'rx="3" fill="{COLOURS[(span.colour or 0) % len(COLOURS)]}"'
    how += "" if past else ' fill-opacity=".3"'
    lines, ink = "", f'fill="{INK}"' if past else ""
    if span.colour is None:
        how, ink, lines = _WAITS, "", _hatch(0, 0, wide * pixels / 60, 19)
    room = wide * pixels / 100 > LETTER * len(span.text) + 4
    words = _label("50%", 14, span.text, f"{_MIDDLE} {ink}") if room else ""
    return (
        f'<svg x="{span.start * percent:.4g}%" y="{y}" width="{wide:.4g}%" height="19">'
        f"<title>{html.escape(f'{name}, {_phrase(span)}')}</title>"
        f"{_bar(0.5, 0, '100%', 19, how + _LESS)}{lines}{words}</svg>"
    )


_LESS = ' style="width: calc(100% - 1px)"'  # so that spans lie apart


def _phrase(span: Span) -> str:
    text = span.text or ("waits" if span.colour is None else "busy")
    return f"{text} from {span.start:.4g} to {span.stop:.4g}"


def _axis(y: float, last: float) -> str:
    """Numbers on the axis, at steps of 1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(last / 6))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= last / 6)
    numbers = [k * step for k in range(math.floor(last / step + 1e-9) + 1)]
    places = [f"{100 * number / last:.4g}%" for number in numbers]
    marks = (
        _label(x, y + 14, f"{n:g}", _MIDDLE)
        for x, n in zip(places, numbers, strict=True)
    )
    return "".join(marks)


def _legend(series: Sequence[str]) -> tuple[str, float]:
    """The names of the series with their colours, in lines."""
    if series == [""]:
        return "", 0
    inner, x, y = "", 0, 0
    for k, name in enumerate(series):
        room = 26 + LETTER * len(name)
        if x and x + room > NARROW:
            x, y = 0, y + 20
        inner += _bar(x, y + 1, 14, 14, f'rx="3" fill="{COLOURS[k % len(COLOURS)]}"')
        inner += _label(x + 19, y + 12.5, name)
        x += room + 10
    return inner, y + 24


def _upright(percent: float, y1: float, y2: float) -> str:
    ends = f'x1="{percent:.4g}%" y1="{y1}" x2="{percent:.4g}%" y2="{y2}"'
    return f'<line {ends} stroke="currentColor" stroke-width="1.5"/>'


def _bar(x, y, width, height, how: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" {how}/>'


def _label(x, y, words, how: str = "") -> str:
    text = f'<text x="{x}" y="{y}" {how}>{html.escape(words)}</text>'
    return text if words else ""


def _hatch(x, y, wide, high) -> str:
    steps = range(6, int(wide + high), 6)  # slanting lines: nothing is here
    lines = ((min(s, wide), s, min(s, wide, high, wide + high - s)) for s in steps)
    path = "".join(f"M{x + a:g} {y + s - a:g}l{-c:g} {c:g}" for a, s, c in lines)
    return f'<path d="{path}" stroke="currentColor" stroke-opacity=".6"/>'


def _chart(wide, height, inner: str, lines: Sequence[str], left=0) -> Chart:
    """Put a chart together; names may stand at its `left`, where x is negative."""
    words = f"{'. '.join(lines)}."
    room = f"box-sizing: border-box; padding: 0 8px 0 {left:.4g}px; " if left else ""
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height:.5g}" '
        f'role="img" aria-label="{html.escape(words)}" fill="currentColor" '
        'font-family="system-ui, sans-serif" font-size="13" style="display: block; '
        f'max-width: {wide}px; {room}overflow: visible">{inner}</svg>'
    )
    return Chart(svg, words, tuple(lines))


def main():
    """Print a chart of two sizes, and a timeline of two lanes."""
    print(bars({"gather": 7, "ring": 1.25}, "blocks"))
    work = [Span(0, 2, "product"), Span(3, 5, "product")]
    print(timeline({"device 0": work, "link": [Span(2, 3, "send", 1)]}, "steps"))


if __name__ == "__main__":
    main()
