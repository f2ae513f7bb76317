"""Put the plots of cells into the page itself, not beside it as pictures.

What MyST-NB shows as <img> has one grey for its words, in light and in dark mode, and
does not grow with the text of the page. Inside the page words and axes have the colour
of the text, lines one that stands out in each mode (--line-0 in site.css), and widths
count in the size of letters. Ids are those of one plot alone.
"""

import re
from html import escape
from pathlib import Path

from cells import output_nodes
from docutils import nodes
from sphinx.util import logging

from book.facts import facts

WIDE, FULL = 33, 42  # in rem: what is wider than the one gets the width of the other
NARROW = 22  # in rem: what fits on a phone
PARTS = re.compile(r"\A.*?(?=<svg)|<!--.*?-->|<(metadata|style)\b.*?</\1>", re.S)
WORDS = re.compile(r"<text\b[^>]*>")
GREY = re.compile(r"#([4-9a-b][0-9a-f])\1\1\b")
ID = re.compile(r'\sid="([^"]+)"')
REFERENCE = re.compile(r'(url\(#|xlink:href="#)([^)"]+)')
SIZE = re.compile(r'\s(?:width|height)="([\d.]+)pt"')

log = logging.getLogger(__name__)


def inline_svg(text, name, words) -> tuple[str, float]:
    """Return the text of a plot's file as a part of a page, and its width in rem.

    name: what its ids begin with; words: its text alternative.
    """
    text = colour_plot(rename_ids(PARTS.sub("", text), name))
    width = float(SIZE.search(text)[1]) / 12
    width = FULL if width >= WIDE else width
    start = (
        f'<svg role="img" aria-label="{escape(words)}" style="width: {width:.4g}rem"'
    )
    return SIZE.sub("", text).replace("<svg", start, 1).rstrip(), width


def rename_ids(text, name) -> str:
    """Return a plot whose ids begin with a name, without those that nothing uses."""
    used = {found[2] for found in REFERENCE.finditer(text)}
    text = ID.sub(lambda own: f' id="{name}-{own[1]}"' * (own[1] in used), text)
    return REFERENCE.sub(rf"\1{name}-\2", text)


def colour_plot(text) -> str:
    """Return a plot whose words, axes and lines have the colours of the page."""
    text = WORDS.sub(lambda tag: GREY.sub("currentColor", tag[0]), text)
    text = GREY.sub("var(--line-grey)", text.replace("#777777", "currentColor"))
    for n, colour in enumerate(facts().lines):
        text = text.replace(colour, f"var(--line-{n}, {colour})")
    return text


def put_inline(app, doctree):
    """Handle `doctree-read`: replace the plots of cells, before Sphinx copies them.

    The keyboard scrolls what a phone does not fit.
    """
    images = [im for node in output_nodes(doctree) for im in node.findall(nodes.image)]
    for number, image in enumerate(images, 1):
        file, words = Path(app.srcdir, image["uri"].lstrip("/")), image.get("alt", "")
        if file.suffix == ".svg":
            if not words:
                log.warning(
                    "a plot has no text alternative", location=image, type="plots"
                )
            svg, width = inline_svg(file.read_text(), f"plot-{number}", words)
            focus = ' tabindex="0"' if width > NARROW else ""
            html = f'<div class="plot"{focus}>{svg}</div>'
            image.replace_self(nodes.raw("", html, format="html"))


def setup(app):
    """Register the handler."""
    app.connect("doctree-read", put_inline, priority=450)  # collectors come at 500
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 2}
