"""Put the plots of cells into the page itself, not beside it as pictures.

What MyST-NB shows as <img> has one grey for its words, in light and in dark mode, and
does not grow with the text of the page. Inside the page words and axes have the colour
of the text, lines one that stands out in each mode (--line-0 in site.css), and widths
count in the size of letters. Ids are those of one plot alone.
"""

import re
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from cells import output_nodes
from docutils import nodes
from sphinx.util import logging

from book.facts import facts

SVG, LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
WIDE, FULL = 33, 42  # in rem: what is wider than the one gets the width of the other
NARROW = 22  # in rem: what fits on a phone
GREY = re.compile(r"#([4-9a-b][0-9a-f])\1\1\b")
DIGITS = re.compile(r"-?\d+\.\d{3,}")
REFERRED = re.compile(r"url\(#([^)]+)\)")

log = logging.getLogger(__name__)
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", LINK)


def inline_svg(text, name, words) -> tuple[str, float]:
    """Return a plot as a part of a page, and its width in rem.

    Args:
        text: the file that Matplotlib wrote.
        name: what its ids begin with.
        words: its text alternative.
    """
    image = ElementTree.fromstring(text)
    for parent in [*image.iter()]:
        for child in [*parent]:
            if child.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style"):
                parent.remove(child)
    identify(image, name)
    for node in image.iter():
        colour_node(node)
        for key in {"d", "points", "transform", "x", "y"} & node.attrib.keys():
            node.set(key, DIGITS.sub(round_number, " ".join(node.get(key).split())))
    width = float(image.attrib.pop("width").removesuffix("pt")) / 12
    width = FULL if width >= WIDE else width
    image.attrib.pop("height")
    image.set("style", f"width: {width:.4g}rem")
    image.set("role", "img")
    image.set("aria-label", words)
    return ElementTree.tostring(image, encoding="unicode"), width


def identify(image, name):
    """Prefix the ids that are referred to, and remove all others."""
    link = f"{{{LINK}}}href"
    used = {node.get(link, "").removeprefix("#") for node in image.iter()}
    for node in image.iter():
        used.update(REFERRED.findall(" ".join(node.attrib.values())))
    for node in image.iter():
        if node.get("id") in used:
            node.set("id", f"{name}-{node.get('id')}")
        else:
            node.attrib.pop("id", None)
        if node.get(link, "").startswith("#"):
            node.set(link, f"#{name}-{node.get(link)[1:]}")
        for key, value in node.attrib.items():
            node.set(key, REFERRED.sub(rf"url(#{name}-\1)", value))


def colour_node(node):
    """Give words and greys the colour of the text, and lines that of the mode."""
    style = node.get("style", "")
    if node.tag == f"{{{SVG}}}text":
        style = GREY.sub("currentColor", style)
    else:
        style = style.replace("#777777", "currentColor")
        style = GREY.sub("var(--line-grey)", style)
    for line, variable in line_colours().items():
        style = style.replace(line, variable)
    if style:
        node.set("style", style)


@cache
def line_colours() -> dict[str, str]:
    """Return the colours of lines, and what stands for them on a page."""
    colours = enumerate(facts().lines)
    return {colour: f"var(--line-{n}, {colour})" for n, colour in colours}


def round_number(number) -> str:
    """Return a number with two digits after its point."""
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def put_inline(app, doctree):
    """Handle `doctree-read`: replace the plots of cells, before Sphinx copies them."""
    outputs = output_nodes(doctree)
    images = [image for output in outputs for image in output.findall(nodes.image)]
    for number, image in enumerate(images, 1):
        file = Path(app.srcdir, image["uri"].lstrip("/"))
        if file.suffix == ".svg":
            image.replace_self(plot_node(image, file, f"plot-{number}"))


def plot_node(image, file, name):
    """Return the node of a plot; the keyboard scrolls what a phone does not fit."""
    if not image.get("alt"):
        log.warning("a plot has no text alternative", location=image, type="plots")
    svg, width = inline_svg(file.read_text(), name, image.get("alt", ""))
    focus = ' tabindex="0"' if width > NARROW else ""
    return nodes.raw("", f'<div class="plot"{focus}>{svg}</div>', format="html")


def setup(app):
    """Register the handler."""
    app.connect("doctree-read", put_inline, priority=450)  # collectors come at 500
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 1}
