"""The index of API names lists what open cells use, the best sections first."""

import re

import pytest
from api_index import best_places, find_aliases, names_in, parse_cell, rank
from tiny_site import HEAD, Site

PAGE = """
# {title}

```{{code-cell}}
import jax
from jax import lax
```

## {heading}

```{{code-cell}}
{code}
```

```{{code-cell}}
:fold: "Set-up"

jax.numpy.zeros(3)
```
"""
INDEX = "# Book\n\n```{toctree}\nz/first\na/second\nreference/api_index\n```\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build a book with two pages, and the index of names."""
    first = PAGE.format(title="One", heading="Then", code="lax.psum(1, 'x')")
    second = PAGE.format(
        title="Two", heading="`lax.psum` <adds>", code="lax.psum(2, 'x')"
    )
    pages = {
        "index.md": INDEX,
        "z/first.md": HEAD + first,
        "a/second.md": HEAD + second,
        "reference/api_index.md": "# Names\n\n```{api-index}\n```\n",
    }
    folder = tmp_path_factory.mktemp("names")
    (folder / "pyproject.toml").write_text(
        '[project]\nrequires-python = ">=3.12"\ndependencies = []\n'
    )
    return Site(
        folder,
        pages,
        extensions=["myst_nb", "cells", "api_index"],
        nb_execution_mode="off",
        suppress_warnings=["myst-nb.lexer"],
    )


def test_a_section_whose_heading_has_the_name_comes_first(site):
    html = site("reference/api_index.html")
    (row,) = re.findall(r"<tr><td><p id=\"api-lax.psum\">.*</tr>", html)
    links = re.findall(r'href="([^"]*)">([^<]*)</a>', row)
    assert links == [
        ("../a/second.html#lax-psum", "Two: lax.psum &lt;adds&gt;"),
        ("../z/first.html#then", "One: Then"),
    ]
    assert "zeros" not in html  # of a folded cell
    assert site.warnings == ""


def test_the_table_follows_a_page_that_changes(site):
    page = site.folder / "docs/z/first.md"
    text = page.read_text()
    page.write_text(text.replace("lax.psum", "lax.pmax"))
    site.build()
    html = site("reference/api_index.html")
    page.write_text(text)
    site.build()
    assert 'id="api-lax.pmax"' in html
    assert html.count("One: Then") == 1


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("jax.numpy.linalg.solve(a, b)", {"jnp.linalg.solve"}),
        ("P, S = jax.P, jax.NamedSharding\nP('x')", {"jax.P", "jax.NamedSharding"}),
        ("from jax.sharding import PartitionSpec as Q\nQ('x')", {"jax.P"}),
        ("jax.sharding.AxisType.Auto", {"jax.sharding.AxisType"}),
        ("%%every\njax.devices()[0].platform", {"jax.devices"}),
        ("import numpy as jnp\nnp.sin(x); from jax._src import a\na.b()", set()),
        ("jax.jit(", set()),
    ],
)
def test_names_are_found_as_the_book_writes_them(code, names):
    cell = parse_cell(code)
    assert names_in(cell, find_aliases([cell])) == names


def test_a_heading_may_write_a_name_with_hyphens():
    assert rank("lax.all_gather", "All-gather, and its sum", "Page") == (True, False)


def test_no_page_fills_the_list():
    found = [(n, (f"page{n // 4}", f"at{n}", "")) for n in range(16)]
    chosen = [n for _, n, _ in best_places(found)]
    assert chosen == ["at0", "at1", "at4", "at5", "at8"]
