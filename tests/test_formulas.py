"""A formula is drawn while the site is built, or the build fails.

What else small extensions do to a page, the tests in a browser see.
"""

import re
from xml.etree import ElementTree

import svgmath
from tiny_site import Site

WIDE = " + ".join("abcdefghijklmnopqrstuvwxyz")
PAGE = f"""# Page

Send $b$ bytes, and not $\\shard$:

$$ a < b $$

$$ {WIDE} $$
"""


def test_a_formula_that_cannot_be_drawn_is_a_warning(tmp_path):
    site = Site(
        tmp_path,
        {"index.md": PAGE},
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


def test_a_formula_is_named_by_its_tex_and_looks_like_the_text_around_it():
    tex = r"\begin{aligned} a &= b \\ c &= \sum_i x_i \end{aligned}"
    text, _ = svgmath.formula_svg(tex, inline=True)
    assert text == svgmath.formula_svg(tex, inline=True)[0]
    assert " id=" not in text  # it would repeat on a page
    image = ElementTree.fromstring(text)
    assert (image.get("role"), image.get("aria-label")) == ("img", tex)
    assert image.get("width").endswith("em")
    colours = {part.get(name) for part in image.iter() for name in ("fill", "stroke")}
    assert {"currentColor"} <= colours <= {None, "none", "currentColor"}
    shift = float(image.get("style").removeprefix("vertical-align:").removesuffix("em"))
    assert -9 < shift < 0
