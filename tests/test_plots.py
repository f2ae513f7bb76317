"""A cell's plot stands in the page: words in the text's colour, ids of its own.

That it has words, and that the keyboard scrolls it, axe checks on each page.
"""

import re

import plots

from book.facts import facts

LINE = facts().lines[1]
DRAWN = f"""\
<?xml version="1.0" encoding="utf-8" standalone="no"?>
<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="400pt" height="120pt"
 viewBox="0 0 400 120" xmlns="http://www.w3.org/2000/svg">
 <metadata><title>made by</title></metadata>
 <defs><style type="text/css">*{{stroke-linejoin: round}}</style></defs>
 <g id="figure_1"><defs><path id="m1" d="M 0 0.123456
L 0 3.5" style="stroke: #777777; stroke-width: 0.8"/></defs>
 <use xlink:href="#m1" x="12.987654" y="3"/>
 <path clip-path="url(#p1)" d="M 0 0" style="fill: none; stroke: {LINE}"/>
 <path d="M 0 0" style="fill: #808080; stroke: #808180"/>
 <text style="font: 10px 'DejaVu Sans'; fill: #666666">ten</text></g>
 <defs><clipPath id="p1"><rect x="0" y="0"/></clipPath></defs>
</svg>
"""


def test_each_plot_has_ids_of_its_own_and_only_those_that_are_used():
    for name in "ab":
        svg, _ = plots.inline_svg(DRAWN, name, "")
        assert re.findall(r' id="([^"]+)"', svg) == [f"{name}-m1", f"{name}-p1"]
        assert f'xlink:href="#{name}-m1"' in svg
        assert f'clip-path="url(#{name}-p1)"' in svg


def test_words_and_axes_have_the_colour_of_the_text_and_lines_that_of_the_mode():
    svg, _ = plots.inline_svg(DRAWN, "a", "")
    assert "fill: currentColor" in svg[svg.index("<text") :]
    assert "stroke: currentColor; stroke-width: 0.8" in svg
    assert f"stroke: var(--line-1, {LINE})" in svg
    assert "fill: var(--line-grey); stroke: #808180" in svg
    assert "<style" not in svg  # of its own
    assert "made by" not in svg
    assert 'd="M 0 0.12 L 0 3.5"' in svg  # two digits
    assert 'x="12.99"' in svg
