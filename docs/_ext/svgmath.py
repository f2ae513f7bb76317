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
from sphinx.util.math import get_node_equation_number

SIZE = 17  # the size ziamath draws at, where the text around has 16 pixels
NARROW = 340  # what fits on a phone, in pixels
UNKNOWN = re.compile(r">(\\[A-Za-z]+)<")  # a command that is typeset as it is written

log = logging.getLogger(__name__)
ziamath.config.svg2 = False  # paths: the ids of symbols would repeat on a page
ziamath.config.precision = 2


def typeset(tex, *, inline):
    """Return a formula, or raise ValueError for TeX that cannot be drawn."""
    try:
        formula = ziamath.Latex(tex, size=SIZE, inline=inline, color="currentColor")
        image = formula.svgxml()
    except Exception as error:  # latex2mathml raises whatever it stumbles over
        raise ValueError(f"cannot draw the formula {tex!r}: {error!r}") from error
    if unknown := UNKNOWN.search(formula.mathmlstr()):
        raise ValueError(f"cannot draw {unknown[1]} in the formula {tex!r}")
    return formula, image


def formula_svg(tex, *, inline):
    r"""Return a formula as SVG text, and its width in pixels.

    Args:
        tex: plain LaTeX, such as `\frac{n-1}{n} b`.
        inline: whether it stands in a line of text, on the line's baseline.

    Raises:
        ValueError: for TeX that cannot be drawn.
    """
    formula, image = typeset(tex, inline=inline)
    width = float(image.get("width"))
    for side in ("width", "height"):
        image.set(side, f"{float(image.get(side)) / 16:.3f}em")
    image.set("role", "img")
    image.set("aria-label", " ".join(tex.split()))
    if inline:
        image.set("style", f"vertical-align:{formula.getyofst() / 16:.3f}em")
    return tostring(image, encoding="unicode"), width


def draw_formula(node, *, inline):
    """Draw the formula of a node; where that fails, warn and write its TeX instead."""
    try:
        return formula_svg(node.astext(), inline=inline)
    except ValueError as error:
        log.warning("%s", error, location=node, type="svgmath")
        return f"<code>{escape(node.astext())}</code>", 0


def visit_inline(self, node):
    """Write a formula inside a line of text."""
    self.body.append(draw_formula(node, inline=True)[0])
    raise nodes.SkipNode


def visit_display(self, node):
    """Write a formula on a line of its own, with its number if it has one."""
    image, width = draw_formula(node, inline=False)
    focus = {"tabindex": "0"} if width > NARROW else {}  # so that the keyboard scrolls
    self.body.append(self.starttag(node, "div", CLASS="math notranslate", **focus))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append(f"{image}</div>\n")
    raise nodes.SkipNode


def setup(app):
    """Register the renderer as `html_math_renderer = "svg"`."""
    app.add_html_math_renderer("svg", (visit_inline, None), (visit_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
