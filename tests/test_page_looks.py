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

{{bdg-primary-line}}`Auto` {{bdg-primary-line}}`TPU`

*Before this page: [another](other.md). About 15 minutes.*

*Before this page* nothing is needed.

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

```text
%%timeit
pass
```
"""
FORMULAS = (
    r"\frac{n-1}{n} b",
    r"\begin{aligned} a &= b \\ c &= \sum_i x_i \end{aligned}",
)


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


def test_a_collapsed_cell_is_called_by_its_words(html):
    summary = re.search(r"<summary([^>]*)>(.*?)</summary>", html, re.S)
    assert summary[1] == ""
    assert "Show a solution" in summary[2]


def test_what_scrolls_takes_the_keyboard_focus_and_nothing_else(html):
    assert '<div class="pst-scrollable-table-container" tabindex="0"><table' in html
    formulas = re.findall(r'<div class="math notranslate[^>]*>', html)
    assert ["tabindex" in each for each in formulas] == [False, True]


def test_a_cell_of_every_process_is_coloured_as_python(html):
    (cell,) = html.split('<div class="highlight-every')[1:]
    magic, _, code = cell.partition("\n")
    assert '<span class="k">%%every</span>' in magic
    assert '<span class="k">raise</span>' in code


def test_the_head_of_a_page_has_classes_for_the_style_sheet(site, html):
    assert 'sd-text-primary mode-auto">Auto<' in html
    assert 'sd-text-primary">TPU<' in html
    assert html.count('<p class="before">') == 1
    assert '<p class="before"><em>Before this page: <a' in html
    wide = r'<section class="[^"]*\bwide"'
    assert re.search(wide, html)
    assert not re.search(wide, site("other.html"))


def test_a_formula_that_cannot_be_drawn_is_a_warning(site, html):
    assert r"cannot draw \shard in the formula" in site.warnings
    assert r"<code>\shard</code>" in html
    assert 'aria-label="a &lt; b"' in html


@pytest.mark.parametrize("tex", FORMULAS)
def test_a_formula_is_named_by_its_tex_and_looks_like_the_text_around_it(tex):
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
