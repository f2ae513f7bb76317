"""What the extensions make of a site: its search, its links, its drawings."""

import json
import re
from hashlib import sha256
from html import unescape
from urllib.parse import parse_qs, urlsplit

import plots
import pytest
from tiny_site import HEAD, Site

from book import api_index
from book.facts import ROOT, facts
from book.page import Page

ADDRESS, REPOSITORY = "https://book.example", "github.com/someone/book"
CODE = "from jax import lax\nlax.psum(1, 'x')"
CELL = f"```{{code-cell}}\n{CODE}\n```\n"
FIRST = f"""{HEAD}# One

## Then

{CELL}
```{{code-cell}}
:fold: "Set-up"

jax.numpy.zeros(3)
```
"""
SECOND = f"""{HEAD.removesuffix("---\n")}\
myst:
  html_meta:
    description: How to send less.
---
# Two

Begin with *words*, $n$ and $\\frac12$, not $\\shard$. See [one](../z/first.md#then).

## `lax.psum` <adds>

{CELL}
- a list

$$ a < b $$

:::{{admonition}} Exercise: less of it
:class: exercise
Send less.
:::

```{{code-cell}}
:tags: [exercise, less]

hidden = 0
```
"""
NAMES = [  # of three sections with a cell, two stand in the index
    *3 * [CODE],
    "jax.numpy.linalg.solve(a, b)",
    "P, S = jax.P, jax.NamedSharding\nP('x')",
    "from jax.sharding import PartitionSpec as Q\nQ('x')",
    "%%every\njax.devices()[0].platform",
    "import numpy as np\nnp.sin(x); from jax._private import a\na.b()",
    "x = jax.device_put(1)\nx.sum()",
    "f(lax=1)  # of jax.jit, as 'jax.vmap'",
]
PAGES = {
    "index.md": "# Book\n\n```{toctree}\nz/first\na/second\nnames\n```\n",
    "z/first.md": FIRST,
    "a/second.md": SECOND,
    "names.md": f"{HEAD}# Names\n"
    + "\n".join(f"## {n}\n```{{code-cell}}\n{c}\n```\n" for n, c in enumerate(NAMES)),
}
EXTENSIONS = "cells downloads myst_nb reference_pages search_index svgmath"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return Site(
        tmp_path_factory.mktemp("site"),
        PAGES,
        extensions=[*EXTENSIONS.split(), "sphinxext.opengraph"],
        html_math_renderer="svg",
        html_static_path=[str(ROOT / "docs/_static")],
        html_theme="sphinx_book_theme",
        html_theme_options={"article_header_end": ["menus.html"]},
        myst_enable_extensions=["colon_fence", "dollarmath"],
        nb_execution_mode="off",
        ogp_enable_meta_description=False,
        ogp_site_url=f"{ADDRESS}/",
        published=ADDRESS,
        repository=f"https://{REPOSITORY}.git",
        suppress_warnings=["myst-nb.lexer"],
        templates_path=[str(ROOT / "docs/_templates")],
    )


def test_the_search_has_what_a_reader_sees_of_each_section(site):
    text = site("find-index.js").removeprefix("finder.sections = ")
    sections = json.loads(text.removesuffix(";\n"))
    head, section = (s for s in sections if s["href"].startswith("a/second"))
    assert head["page"] == "Two"
    assert head["text"] == "Begin with words, n and …, not …. See one."
    assert section["href"] == "a/second.html#lax-psum"
    assert section["title"] == "lax.psum <adds>"
    assert section["text"].startswith("a list")
    assert section["code"].startswith("from jax import lax psum")
    assert "hidden" not in text


def test_the_index_of_names_has_each_as_the_book_writes_it_and_its_best_places(site):
    docs = site.folder / "docs"
    text = api_index.index_text(Page(docs / "index.md", docs))
    rows = dict(re.findall(r"^\| `(.*?)` \| (.*) \|$", text, re.M))
    places = "[Two: `lax.psum` <adds>](a/second.md#laxpsum-adds) · [One: Then]"
    places += "(z/first.md#then) · [Names: 0](names.md#0) · [Names: 1](names.md#1)"
    assert rows.pop("lax.psum") == places
    names = "jax.device_put jax.devices jax.NamedSharding jax.P jnp.linalg.solve"
    assert [*rows] == names.split()  # none of a folded cell


def test_a_cell_has_a_link_that_stays_and_a_form(site):
    """The link is a digest of its own code, so no other cell changes it."""
    html = site("z/first.html")
    ids = re.findall(r'id="(cell-[\w-]+)"', html)
    assert ids == re.findall(r'href="#(cell-[\w-]+)"', html)
    assert ids[0] == f"cell-{sha256(CODE.encode()).hexdigest()[:6]}"
    url = urlsplit(unescape(re.search(r'href="(https[^"]*/issues/new[^"]*)', html)[1]))
    assert f"{url.netloc}{url.path}" == f"{REPOSITORY}/issues/new"
    assert parse_qs(url.query)["page"] == [f"z/first, #{ids[0]}"]


def test_an_address_adds_launching_and_sharing(site):
    html, notebook = site("a/second.html"), site("a/second.ipynb")
    colab = "https://colab.research.google.com/github/someone/book/blob/gh-pages/a"
    assert f'href="{colab}/second.ipynb"' in html
    assert f'href="{colab}/second.ipynb#scrollTo=cell-4"' in html
    assert '"id": "cell-4",\n   "metadata": {\n    "tags"' in notebook
    assert f"See [one]({ADDRESS}/z/first.html#then)" in notebook
    assert f"({ADDRESS}/a/second.md): How to send less." in site("llms.txt")
    assert "| `a.at[2:6].set(0)` | 28 MiB / nothing / nothing |" in site("llms.txt")
    found = dict(re.findall(r'<meta property="og:(\S+)" content="([^"]*)"', html))
    assert found["title"] == "Two"
    assert found["description"] == "How to send less."
    assert found["url"] == f"{ADDRESS}/a/second.html"
    picture = site.out / found["image"].removeprefix(f"{ADDRESS}/")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_formula_is_drawn_or_a_warning(site):
    html = site("a/second.html")
    assert r"cannot draw \shard in the formula" in site.warnings
    assert r"<code>\shard</code>" in html
    assert 'aria-label="a &lt; b"' in html
    drawn = "".join(re.findall(r"<svg[^>]*vertical-align.*?</svg>", html))
    assert " id=" not in drawn  # it would repeat on a page
    colours = {*re.findall(r'(?:fill|stroke)="([^"]*)"', drawn)}
    assert {"currentColor"} <= colours <= {"none", "currentColor"}


def test_a_plot_has_colours_and_ids_of_its_page():
    line = facts().lines[1]
    plot = f"""<?xml version="1.0"?>
<svg width="400pt" height="120pt"><style type="text/css">*{{}}</style>
 <g id="g1"><path id="m1" style="stroke: #777777"/><use xlink:href="#m1"/></g>
 <path style="stroke: {line}"/><text style="fill: #666666">ten</text></svg>"""
    expected = f"""<svg role="img" aria-label="a &lt; b" style="width: 42rem">
 <g><path id="a-m1" style="stroke: currentColor"/><use xlink:href="#a-m1"/></g>
 <path style="stroke: var(--line-1, {line})"/><text style="fill: currentColor">"""
    assert plots.inline_svg(plot, "a", "a < b") == (f"{expected}ten</text></svg>", 42)
