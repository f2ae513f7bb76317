"""Formulas and plots become a part of the page, or the build fails."""

import re

import plots
from tiny_site import Site

from book.facts import facts

WIDE = " + ".join("abcdefghijklmnopqrstuvwxyz")
FORMULAS = f"# Page\n\nSend $b$ bytes, not $\\shard$:\n\n$$ a < b $$\n\n$$ {WIDE} $$\n"


def test_a_formula_is_drawn_or_a_warning(tmp_path):
    site = Site(
        tmp_path,
        {"index.md": FORMULAS},
        extensions=["myst_nb", "svgmath"],
        html_math_renderer="svg",
        myst_enable_extensions=["dollarmath"],
    )
    html = site("index.html")
    assert r"cannot draw \shard in the formula" in site.warnings
    assert r"<code>\shard</code>" in html
    assert 'aria-label="a &lt; b"' in html
    formulas = re.findall(r'<div class="math notranslate[^>]*>', html)
    assert ["tabindex" in each for each in formulas] == [False, True]  # a wide one
    (inline,) = re.findall(r"<svg[^>]*vertical-align:-0.*?</svg>", html)
    assert " id=" not in inline  # it would repeat on a page
    colours = {*re.findall(r'(?:fill|stroke)="([^"]*)"', inline)}
    assert {"currentColor"} <= colours <= {"none", "currentColor"}


LINE = facts().lines[1]
PLOT = f"""\
<?xml version="1.0" encoding="utf-8" standalone="no"?>
<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="400pt" height="120pt"
 viewBox="0 0 400 120" xmlns="http://www.w3.org/2000/svg">
 <metadata><title>made by</title></metadata>
 <defs><style type="text/css">*{{stroke-linejoin: round}}</style></defs>
 <g id="figure_1"><defs><path id="m1" style="stroke: #777777; fill: none"/></defs>
 <use xlink:href="#m1"/><path clip-path="url(#p1)" style="stroke: {LINE}"/>
 <path style="fill: #808080; stroke: #808180"/>
 <text style="font: 10px 'DejaVu Sans'; fill: #666666">ten</text></g>
 <defs><clipPath id="p1"><rect x="0" y="0"/></clipPath></defs>
</svg>
"""


def test_a_plot_has_colours_and_ids_of_its_page():
    svg, width = plots.inline_svg(PLOT, "a", "a < b")
    assert svg.startswith('<svg role="img" aria-label="a &lt; b" style="width: 42rem" ')
    assert width == 42
    assert re.findall(r' id="([^"]+)"', svg) == ["a-m1", "a-p1"]
    for words in (
        'xlink:href="#a-m1"',
        'clip-path="url(#a-p1)"',
        "stroke: currentColor; fill: none",
        f"stroke: var(--line-1, {LINE})",
        "fill: var(--line-grey); stroke: #808180",
        "font: 10px 'DejaVu Sans'; fill: currentColor",
    ):
        assert words in svg
    assert not re.search('pt"|<style|made by|<[?]xml', svg)
