"""What extensions of a few lines do to a page: one page has all of it."""

import re
from xml.etree import ElementTree

import pytest
import svgmath
from tiny_site import HEAD, Site

WIDE = " + ".join("abcdefghijklmnopqrstuvwxyz")
CELL = "```{code-cell}\n"
PAGE = f"""{HEAD.removesuffix("---\n")}wide: true
---
# Page

{{bdg-primary-line}}`Auto`

*Before this page: [another](other.md). About 15 minutes.*

| a | b |
|---|---|
| 1 | 2 |

Send $b$ bytes, and not $\\shard$:

$$ a < b $$

$$ {WIDE} $$

{CELL}---
tags: [hide-cell]
mystnb:
  code_prompt_show: Show a solution
---
1
```

{CELL}%%every --raises ValueError
raise ValueError("none")
```

"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    small = "accessibility", "every_lexer", "style_classes", "svgmath"
    return Site(
        tmp_path_factory.mktemp("site"),
        {"index.md": PAGE, "other.md": "# Other\n"},
        extensions=["myst_nb", "sphinx_design", *small],
        html_math_renderer="svg",
        html_theme="sphinx_book_theme",
        myst_enable_extensions=["dollarmath"],
        nb_execution_mode="off",
        suppress_warnings=["misc.highlighting_failure"],
    )


@pytest.fixture(scope="module")
def html(site):
    return site("index.html")


def test_an_extension_does_what_it_is_for(site, html):
    assert '<div class="pst-scrollable-table-container" tabindex="0"><table' in html
    summary = re.search(r"<summary([^>]*)>(.*?)</summary>", html, re.S)
    assert summary[1] == ""
    assert "Show a solution" in summary[2]
    assert '<span class="k">%%every</span>' in html
    assert 'sd-text-primary mode-auto">Auto<' in html
    assert '<p class="before"><em>Before this page: <a' in html
    assert re.search(r'<section class="[^"]*\bwide"', html)


def test_a_formula_that_cannot_be_drawn_is_a_warning(site, html):
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
