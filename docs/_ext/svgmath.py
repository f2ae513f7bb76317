"""Draw formulas as SVG while the site is built: no script, no font, no other host.

A formula takes the colour and the size of the text around it and is named by its TeX. A
wide one scrolls inside its own box on a phone. TeX that cannot be drawn is a warning.
"""

import re
from html import escape
from xml.etree.ElementTree import tostring

import ziamath
from docutils import nodes
from sphinx.util import logging

SIZE = 17  # the size ziamath draws at, where the text around has 16 pixels
NARROW = 340  # what fits on a phone, in pixels
UNKNOWN = re.compile(r">(\\[A-Za-z]+)<")  # a command that is typeset as it is written

log = logging.getLogger(__name__)
ziamath.config.svg2 = False  # paths: the ids of symbols would repeat on a page
ziamath.config.precision = 2


def formula_svg(tex, *, inline) -> tuple[str, float]:
    """Return TeX as SVG, and its width in pixels, or raise a ValueError."""
    try:
        formula = ziamath.Latex(tex, size=SIZE, inline=inline, color="currentColor")
        image = formula.svgxml()
    except Exception as error:  # latex2mathml raises whatever it stumbles over
        raise ValueError(f"cannot draw the formula {tex!r}: {error!r}") from error
    if unknown := UNKNOWN.search(formula.mathmlstr()):
        raise ValueError(f"cannot draw {unknown[1]} in the formula {tex!r}")
    width = float(image.get("width"))
    for side in ("width", "height"):
        image.set(side, f"{float(image.get(side)) / 16:.3f}em")
    image.set("role", "img")
    image.set("aria-label", " ".join(tex.split()))
    if inline:  # on the line's baseline
        image.set("style", f"vertical-align:{formula.getyofst() / 16:.3f}em")
    return tostring(image, encoding="unicode"), width


def visit_formula(self, node):
    """Write a formula; where that fails, warn and write its TeX instead."""
    inline = isinstance(node, nodes.math)
    try:
        image, width = formula_svg(node.astext(), inline=inline)
    except ValueError as error:
        log.warning("%s", error, location=node, type="svgmath")
        image, width = f"<code>{escape(node.astext())}</code>", 0
    if not inline:
        focus = {"tabindex": "0"} if width > NARROW else {}  # the keyboard scrolls it
        start = self.starttag(node, "div", CLASS="math notranslate", **focus)
        image = f"{start}{image}</div>\n"
    self.body.append(image)
    raise nodes.SkipNode


def setup(app):
    """Register the renderer as `html_math_renderer = "svg"`."""
    app.add_html_math_renderer("svg", (visit_formula, None), (visit_formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
