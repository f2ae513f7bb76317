"""Bars are as long as their numbers, and spans lie where their times are."""

import re

import pytest
from pictures.test_pictures import SVG, parse

from examples.charts import COLOURS, Span, bars, timeline


def percent(element, key):
    return float(element.get(key).removesuffix("%"))


def filled(chart):
    """The bars of a chart, not the signs of its legend: colour, width in percent."""
    rects = parse(chart).findall(f"{SVG}rect")
    wide = [r for r in rects if r.get("width").endswith("%")]
    return [(COLOURS.index(r.get("fill")), percent(r, "width")) for r in wide]


def texts(element):
    return [t.text for t in element.iter(f"{SVG}text")]


# -------------------------------------------------------------------------------- bars


@pytest.mark.parametrize(
    ("numbers", "words", "narrow"),
    [
        ({"gather": 7000, "ring": 1250}, ["7,000 B", "1,250 B"], True),
        ({"a": 1e-6, "b": 5e-7, "c": 0}, ["1e-06 B", "5e-07 B", "0 B"], False),
    ],
)
def test_bars_are_as_long_as_their_numbers(numbers, words, narrow):
    """Each number stands at the end of its bar."""
    chart = bars(numbers, "B", narrow=narrow)
    lengths = [wide for _, wide in filled(chart)]
    scale = max(lengths) / max(numbers.values())
    wanted = [scale * number for number in numbers.values()]
    assert lengths == pytest.approx(wanted, abs=0.01)
    assert max(lengths) >= 30
    labels = [t for t in parse(chart).iter(f"{SVG}text") if t.get("dx")]
    assert [t.get("x") for t in labels] == [f"{wide:.4g}%" for wide in lengths]
    assert [t.text for t in labels] == words


def test_series_have_a_colour_each_and_a_legend():
    groups = {"n = 2048": {"ours": 1, "jnp": 3}, "n = 4096": {"jnp": 9}}
    chart = bars(groups, "s")
    assert [colour for colour, _ in filled(chart)] == [0, 1, 1]
    root = parse(chart)
    signs = [r for r in root.findall(f"{SVG}rect") if r.get("width") == "14"]
    assert [COLOURS.index(r.get("fill")) for r in signs] == [0, 1]
    assert texts(root)[:2] == ["ours", "jnp"]
    lines = "n = 2048, ours: 1 s", "n = 2048, jnp: 3 s", "n = 4096, jnp: 9 s"
    assert chart.lines == lines
    assert str(chart) == "\n".join(lines)


@pytest.mark.parametrize("mark", [0, 20])
def test_a_mark_stands_at_its_number(mark):
    """What is measured is the last line below."""
    chart = bars({"a": 4, "b": 2}, "times", mark=mark, axis="on two cores")
    line = parse(chart).find(f"{SVG}line")
    assert line.get("x1") == line.get("x2")
    scale = filled(chart)[0][1] / 4
    assert percent(line, "x1") == pytest.approx(mark * scale, rel=0.002)
    assert percent(line, "x1") <= 100
    words = texts(parse(chart))
    assert f"{mark} times" in words
    assert words[-1] == "on two cores"


@pytest.mark.parametrize("number", [-1, float("nan"), float("inf")])
def test_bars_and_marks_of_no_numbers_are_refused(number):
    for numbers, mark in ({"a": number}, None), ({"a": 1}, number), ({"a": {}}, 1):
        with pytest.raises(ValueError, match="bars begin at 0"):
            bars(numbers, mark=mark)


# --------------------------------------------------------------------------- timelines

WORK = {
    "link": [Span(4, 8, "b2", 2), Span(0, 4, "b3", 3)],
    "arithmetic": [Span(0, 3, "b0"), Span(3, 4, "", None), Span(4, 7, "b3", 3)],
    "idle": [],
}


def spans(chart):
    """The spans: their titles, and from where to where in percent."""
    for inner in parse(chart).findall(f"{SVG}svg"):
        x, wide = percent(inner, "x"), percent(inner, "width")
        yield inner.find(f"{SVG}title").text, x, x + wide, inner


@pytest.mark.parametrize(("end", "narrow"), [(None, True), (10, False)])
def test_spans_lie_where_their_times_are(end, narrow):
    """Each lane has its height."""
    found, heights = list(spans(timeline(WORK, "s", end=end, narrow=narrow))), {}
    assert len(found) == 5
    for title, start, stop, inner in found:
        heights[title.split(",")[0]] = inner.get("y")
        times = [float(n) for n in re.findall(r"from (\S+) to (\S+)", title)[0]]
        assert start == pytest.approx(100 * times[0] / (end or 8), abs=0.01)
        assert stop == pytest.approx(100 * times[1] / (end or 8), abs=0.01)
    assert len({*heights.values()}) == 2


@pytest.mark.parametrize("now", [0, 3.5])
def test_waiting_is_hatched_and_work_later_than_now_is_pale(now):
    chart = timeline(WORK, now=now)
    for title, start, _, inner in spans(chart):
        (rect,) = inner.findall(f"{SVG}rect")
        waits, pale = "waits" in title, rect.get("fill-opacity") == ".3"
        assert (rect.get("fill") == "none") == waits
        assert bool(inner.findall(f"{SVG}path")) == waits
        assert waits or pale == (start >= 100 * now / 8)
        assert "b3" not in title or rect.get("fill") == COLOURS[3]
    line = next(g for g in parse(chart).iter(f"{SVG}g") if g.get("data-key") == "now")
    assert f"translate({100 * now / 8:.4g}%, 0px)" in line.get("style")


def test_a_timeline_prints_what_happens():
    chart = timeline(WORK, "steps")
    work = "b0 from 0 to 3; waits from 3 to 4; b3 from 4 to 7"
    lines = "link: b3 from 0 to 4; b2 from 4 to 8", f"arithmetic: {work}"
    assert chart.lines[:2] == lines
    assert f'aria-label="{chart.words}"' in chart.svg
    assert str(timeline({"a": [Span(0, 1)]})) == "a: busy from 0 to 1"


@pytest.mark.parametrize(
    ("lanes", "message"),
    [
        ({}, "nothing lasts: pass lanes with spans"),
        ({"a": [Span(0, 0)]}, "nothing lasts"),
        ({"a": [Span(2, 1), Span(2, 3)]}, "in a, .* ends before it begins"),
        ({"a": [Span(-1, 1)]}, "or before 0"),
        ({"a": [Span(0, 2), Span(1, 3)]}, "in a, .* overlap: pass two lanes"),
    ],
)
def test_times_that_cannot_be_are_refused(lanes, message):
    with pytest.raises(ValueError, match=message):
        timeline(lanes)


# -------------------------------------------------------------------------------- both


@pytest.mark.parametrize("narrow", [True, False])
def test_letters_keep_their_size_however_narrow_the_page_is(narrow):
    """No viewBox, which would scale them, and no width in pixels of what is long."""
    idle = timeline({"<a>": [Span(0, 1, "&", None)]}, narrow=narrow)
    for chart in bars({"<a>": 1}, mark=1, narrow=narrow), idle:
        root = parse(chart)
        assert (root.get("viewBox"), root.get("width")) == (None, "100%")
        assert f"max-width: {340 if narrow else 680}px" in root.get("style")
        assert int(root.get("font-size")) >= 12
        # it has no ids, and the ink of the page
        assert not re.search(r"\bid=|<style|<script|href|url\(", chart.svg)
        assert root.get("fill") == "currentColor"
        assert "<a>" in chart.words
