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
lax.psum(1, 'x')
```

```{{code-cell}}
:fold: "Set-up"

jax.numpy.zeros(3)
```
"""
INDEX = "# Book\n\n```{toctree}\nz/first\na/second\nreference/api_index\n```\n"


def test_a_section_whose_heading_has_the_name_comes_first(tmp_path):
    pages = {
        "index.md": INDEX,
        "z/first.md": HEAD + PAGE.format(title="One", heading="Then"),
        "a/second.md": HEAD + PAGE.format(title="Two", heading="`lax.psum` <adds>"),
        "reference/api_index.md": "# Names\n\n```{api-index}\n```\n",
    }
    site = Site(
        tmp_path,
        pages,
        extensions=["myst_nb", "cells", "api_index"],
        nb_execution_mode="off",
        suppress_warnings=["myst-nb.lexer"],
    )
    html = site("reference/api_index.html")
    (row,) = re.findall(r"<tr><td><p id=\"api-lax.psum\">.*</tr>", html)
    links = re.findall(r'href="([^"]*)">([^<]*)</a>', row)
    assert links == [
        ("../a/second.html#lax-psum", "Two: lax.psum &lt;adds&gt;"),
        ("../z/first.html#then", "One: Then"),
    ]
    assert "zeros" not in html  # of a folded cell
    assert site.warnings == ""


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("jax.numpy.linalg.solve(a, b)", {"jnp.linalg.solve"}),
        ("P, S = jax.P, jax.NamedSharding\nP('x')", {"jax.P", "jax.NamedSharding"}),
        ("from jax.sharding import PartitionSpec as Q\nQ('x')", {"jax.P"}),
        ("%%every\njax.devices()[0].platform", {"jax.devices"}),
        ("import numpy as jnp\nnp.sin(x); from jax._src import a\na.b()", set()),
        ("jax.jit(", set()),
    ],
)
def test_names_are_found_as_the_book_writes_them(code, names):
    cell = parse_cell(code)
    assert names_in(cell, find_aliases([cell])) == names


def test_a_heading_may_write_a_name_with_hyphens_and_no_page_fills_the_list():
    assert rank("lax.all_gather", "All-gather, and its sum", "Page") == (True, False)
    found = [(n, (f"page{n // 4}", f"at{n}", "")) for n in range(16)]
    chosen = [n for _, n, _ in best_places(found)]
    assert chosen == ["at0", "at1", "at4", "at5", "at8"]
