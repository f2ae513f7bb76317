"""A cell's plot stands in the page: words in the text's colour, ids of its own."""

import base64
import json
import re
from xml.etree import ElementTree

import plots
import pytest
from tiny_site import Site

from book.facts import facts

LINE = facts().lines[1]
DRAWN = f"""\
<?xml version="1.0" encoding="utf-8" standalone="no"?>
<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="{{width}}pt" height="120pt"
 viewBox="0 0 {{width}} 120" xmlns="http://www.w3.org/2000/svg">
 <metadata><title>made by</title></metadata>
 <defs><style type="text/css">*{{{{stroke-linejoin: round}}}}</style></defs>
 <g id="figure_1"><defs><path id="m1" d="M 0 0.123456
L 0 3.5" style="stroke: #777777; stroke-width: 0.8"/></defs>
 <use xlink:href="#m1" x="12.987654" y="3"/>
 <path clip-path="url(#p1)" d="M 0 0" style="fill: none; stroke: {LINE}"/>
 <path d="M 0 0" style="fill: #808080; stroke: #808180"/>
 <text style="font: 10px 'DejaVu Sans'; fill: #666666">ten</text></g>
 <defs><clipPath id="p1"><rect x="0" y="0"/></clipPath></defs>
</svg>
"""


def test_each_plot_has_ids_of_its_own_and_keeps_only_those_that_are_used():
    first, second = (plots.inline_svg(DRAWN.format(width=400), n, "")[0] for n in "ab")
    assert re.findall(r' id="([^"]+)"', first) == ["a-m1", "a-p1"]
    assert re.findall(r' id="([^"]+)"', second) == ["b-m1", "b-p1"]
    assert 'xlink:href="#a-m1"' in first
    assert 'clip-path="url(#a-p1)"' in first


def test_words_and_axes_have_the_colour_of_the_text_and_lines_that_of_the_mode():
    svg, _ = plots.inline_svg(DRAWN.format(width=400), "a", "")
    assert "fill: currentColor" in svg[svg.index("<text") :]
    assert "stroke: currentColor; stroke-width: 0.8" in svg
    assert f"stroke: var(--line-1, {LINE})" in svg
    assert "fill: var(--line-grey); stroke: #808180" in svg


def test_its_style_and_its_metadata_do_not_reach_the_page():
    svg, _ = plots.inline_svg(DRAWN.format(width=400), "a", "")
    assert "<style" not in svg
    assert "made by" not in svg


@pytest.mark.parametrize(("points", "rem"), [(240, 20), (390, 32.5), (432, 42)])
def test_its_width_counts_in_letters_and_wide_ones_are_equal(points, rem):
    svg, width = plots.inline_svg(DRAWN.format(width=points), "a", "")
    image = ElementTree.fromstring(svg)
    assert width == rem
    assert image.get("style") == f"width: {rem:.4g}rem"
    assert "height" not in image.attrib
    assert image.get("viewBox") == f"0 0 {points} 120"


def test_numbers_have_two_digits():
    svg, _ = plots.inline_svg(DRAWN.format(width=400), "a", "")
    assert 'd="M 0 0.12 L 0 3.5"' in svg
    assert 'x="12.99"' in svg


# ---------------------------------------------------------------------- on a page


def cell(alt, **data):
    shown = {"output_type": "display_data", "metadata": {}, "data": data}
    about = {"mystnb": {"image": {"alt": alt}}} if alt else {}
    made = {"cell_type": "code", "metadata": about, "source": "1", "outputs": [shown]}
    return made | {"execution_count": 1}


def notebook(*cells):
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    kernel["language_info"] = {"name": "python"}
    title = {"cell_type": "markdown", "metadata": {}, "source": "# Page"}
    made = {"cells": [title, *cells], "metadata": kernel, "nbformat": 4}
    return json.dumps(made | {"nbformat_minor": 4})


def site(folder, *cells):
    settings = {
        "extensions": ["myst_nb", "plots"],
        "nb_execution_mode": "off",
        "suppress_warnings": ["misc.highlighting_failure"],
    }
    return Site(folder, {"index.ipynb": notebook(*cells)}, **settings)


def test_a_page_holds_plots_with_words_and_the_keyboard_scrolls_them(tmp_path):
    small, large = (DRAWN.format(width=width) for width in (240, 432))
    words = 'Two lines, "a" < b.'
    built = site(
        tmp_path,
        cell(words, **{"image/svg+xml": small}),
        cell("Wide.", **{"image/svg+xml": large}),
    )
    html = built("index.html")
    assert "<img" not in html
    assert not [*tmp_path.glob("html/_images/*")]
    assert 'role="img" aria-label="Two lines, &quot;a&quot; &lt; b."' in html
    assert re.findall(r'<div class="plot"(.*?)>', html) == ["", ' tabindex="0"']
    assert 'id="plot-1-m1"' in html
    assert 'id="plot-2-m1"' in html
    assert built.warnings == ""


def test_a_plot_without_words_is_a_warning_and_other_pictures_stay(tmp_path):
    dot = base64.b64encode(b"\x89PNG").decode()
    built = site(
        tmp_path,
        cell("A dot.", **{"image/png": dot}),
        cell("", **{"image/svg+xml": DRAWN.format(width=240)}),
    )
    assert 'alt="A dot."' in built("index.html")
    assert built.warnings.count("a plot has no text alternative") == 1
