"""Formulas are drawn while the site is built, and can be read by everybody."""

from xml.etree import ElementTree

import pytest
import svgmath
from tiny_site import Site

FORMULAS = {
    "letter": "x",
    "fraction": r"\frac{n-1}{n} b",
    "aligned": r"\begin{aligned} a &= b \\ c &= \sum_{i=0}^{n-1} x_i \end{aligned}",
    "cases": r"f(x) = \begin{cases} 0 & x < 1 \\ 1 & x \ge 1 \end{cases}",
    "text": r"\text{bytes} \le 2^{30}",
}


@pytest.fixture
def site(tmp_path):
    def build(text):
        settings = {
            "extensions": ["myst_nb", "svgmath"],
            "html_math_renderer": "svg",
            "myst_enable_extensions": ["dollarmath"],
        }
        return Site(tmp_path, {"index.md": text}, **settings)

    return build


@pytest.fixture(params=FORMULAS.values(), ids=FORMULAS.keys())
def tex(request):
    return request.param


def test_a_formula_is_an_image_named_by_its_tex(tex):
    image = ElementTree.fromstring(svgmath.formula_svg(tex, inline=False)[0])
    assert image.get("role") == "img"
    assert image.get("aria-label") == tex


def test_a_formula_takes_the_colour_of_the_text(tex):
    image = ElementTree.fromstring(svgmath.formula_svg(tex, inline=True)[0])
    colours = {part.get(name) for part in image.iter() for name in ("fill", "stroke")}
    assert colours <= {None, "none", "currentColor"}
    assert "currentColor" in colours


def test_the_size_follows_the_text(tex):
    image = ElementTree.fromstring(svgmath.formula_svg(tex, inline=True)[0])
    assert image.get("width").endswith("em")
    assert image.get("height").endswith("em")


def test_the_same_formula_gives_the_same_bytes_and_no_ids(tex):
    first, second = (svgmath.formula_svg(tex, inline=False)[0] for _ in range(2))
    assert first == second
    assert " id=" not in first


def test_a_formula_in_a_line_hangs_below_it():
    image = ElementTree.fromstring(svgmath.formula_svg("y_i", inline=True)[0])
    shift = float(image.get("style").removeprefix("vertical-align:").removesuffix("em"))
    assert -1 < shift < 0


def test_tex_that_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match=r"cannot draw \\shard in the formula"):
        svgmath.formula_svg(r"\shard x", inline=True)
    with pytest.raises(ValueError, match="cannot draw the formula"):
        svgmath.formula_svg(r"\frac{x", inline=True)


def test_a_page_holds_its_formulas(site):
    page = site("# Costs\n\nSend $b$ bytes:\n\n$$ a < b $$ (cost)\n")
    html = page("index.html")
    assert html.count('role="img"') == 2
    assert 'aria-label="a &lt; b"' in html
    assert '<span class="eqno">(1)' in html


def test_only_a_formula_wider_than_a_phone_takes_the_keyboard_focus(site):
    wide = " + ".join("abcdefghijklmnopqrstuvwxyz")
    html = site(f"# T\n\n$$ a $$\n\n$$ {wide} $$\n")("index.html")
    assert html.count('class="math notranslate"') == 2
    assert html.count('tabindex="0"') == 1


def test_a_formula_that_cannot_be_drawn_fails_the_build(site):
    page = site("# T\n\nSee $\\shard$.\n")
    assert "cannot draw" in page.warnings
    assert "<code>\\shard</code>" in page("index.html")
