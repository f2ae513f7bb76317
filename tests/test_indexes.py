"""What the search, the index of API names and the links of cells make of a site."""

import json
import re
from hashlib import sha256
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from docutils import nodes
from search_index import INDEX, output_words
from tiny_site import HEAD, Site

from book import api_index
from book.page import Page

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = """
# {title}

It begins with *words*, {{math}}`n` and {{math}}`\\frac12`.

## {heading}

```{{code-cell}}
from jax import lax
lax.psum(1, 'x')
```

- a list

```{{code-cell}}
:fold: "Set-up"

jax.numpy.zeros(3)
```

```{{code-cell}}
:tags: [solution]

hidden = 1
```

![A block](block.svg)
"""
PAGES = {
    "index.md": "# Book\n\n```{toctree}\nz/first\na/second\n```\n",
    "z/first.md": HEAD + PAGE.format(title="One", heading="Then"),
    "a/second.md": HEAD + PAGE.format(title="Two", heading="`lax.psum` <adds>"),
    "z/block.svg": '<svg xmlns="http://www.w3.org/2000/svg"/>',
    "a/block.svg": '<svg xmlns="http://www.w3.org/2000/svg"/>',
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    built = Site(
        tmp_path_factory.mktemp("site"),
        PAGES,
        extensions=["myst_nb", "cells", "cell_links", "search_index"],
        html_static_path=[str(DOCS / "_static")],
        html_theme="sphinx_book_theme",
        html_theme_options={"article_header_start": []},
        nb_execution_mode="off",
        repository="https://github.com/someone/book.git",
        suppress_warnings=["myst-nb.lexer"],
        templates_path=[str(DOCS / "_templates")],
    )
    assert built.warnings == ""
    return built


def test_the_search_has_what_a_reader_sees_of_each_section(site):
    text = site(INDEX).removeprefix("finder.sections = ").removesuffix(";\n")
    head, section = (s for s in json.loads(text) if s["href"].startswith("a/second"))
    assert head["page"] == "Two"
    assert head["text"] == "It begins with words, n and \u2026."  # without TeX
    assert section["href"] == "a/second.html#lax-psum"
    assert section["title"] == "lax.psum <adds>"
    assert section["text"].startswith("a list")
    assert section["code"].startswith("from jax import lax psum")
    assert "hidden" not in text


def test_the_words_of_an_output_of_html_are_found_without_its_drawing():
    html = "<table><tr><td>sent</td></tr><tr><td>&lt;4 B</td></tr></table><svg>x</svg>"
    assert output_words(nodes.raw("", html)).split() == ["sent", "<4", "B"]


def test_a_section_whose_heading_has_the_name_comes_first(site):
    docs = site.folder / "docs"
    places = "[Two: `lax.psum` <adds>](a/second.md#laxpsum-adds)"
    places += " · [One: Then](z/first.md#then)"
    text = api_index.index_text(Page(docs / "index.md", docs))
    assert text.splitlines()[2:] == [f"| `lax.psum` | {places} |"]  # no folded cell


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("jax.numpy.linalg.solve(a, b)", {"jnp.linalg.solve"}),
        ("P, S = jax.P, jax.NamedSharding\nP('x')", {"jax.P", "jax.NamedSharding"}),
        ("from jax.sharding import PartitionSpec as Q\nQ('x')", {"jax.P"}),
        ("%%every\njax.devices()[0].platform", {"jax.devices"}),
        ("import numpy as np\nnp.sin(x); from jax._private import a\na.b()", set()),
        ("x = jax.device_put(1)\nx.sum()", {"jax.device_put"}),
        ("f(lax=1)  # of jax.jit, as 'jax.vmap'", set()),
    ],
)
def test_names_are_found_as_the_book_writes_them(code, names):
    assert api_index.names_in(code, api_index.find_aliases(code)) == names


def test_no_page_fills_the_places_of_a_name():
    pages = [Page(DOCS / f"page{n}.md", DOCS) for n in range(4)]
    found = [(n, pages[n // 4], f"at{n}", "") for n in range(16)]
    chosen = [n for _, n, _ in api_index.best_places(found)]
    assert chosen == ["at0", "at1", "at4", "at5", "at8"]


def test_a_cell_has_a_link_that_stays_and_a_form(site):
    """The link is a digest of its own code, so no other cell changes it."""
    html = site("z/first.html")
    own = sha256(b"from jax import lax\nlax.psum(1, 'x')").hexdigest()[:6]
    ids = re.findall(r'id="(cell-[\w-]+)"', html)
    assert ids == re.findall(r'href="#(cell-[\w-]+)"', html)
    assert ids[0] == f"cell-{own}"
    assert re.search(r'<img[^>]*id="figure-block"', html)
    url = urlsplit(unescape(re.search(r'href="(https[^"]*/issues/new[^"]*)', html)[1]))
    assert url.path == "/someone/book/issues/new"
    assert parse_qs(url.query)["page"] == [f"z/first, #{ids[0]}"]
