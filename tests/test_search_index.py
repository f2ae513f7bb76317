"""The index of the search: the sections of all pages, as their readers see them."""

import json
from pathlib import Path

import search_index
from tiny_site import HEAD, Site

ROOT = Path(__file__).resolve().parents[1]
PAGE = f"""\
{HEAD}
# A page

It begins with *words*.

(old-name)=
## A section with `code`

```{{code-cell}}
import jax
total = sum(block for block in range(3))
print("a line of output")
print(1.25, 3)
```

- a list, with a [link](other.md)

```{{code-cell}}
:tags: [solution]
hidden_solution = 1
```

### Below it

| a | table |
|---|---|
| of | cells |

$$ \\alpha $$
"""
SETTINGS = {
    "extensions": ["myst_nb", "search_index"],
    "nb_execution_mode": "force",
    "myst_enable_extensions": ["dollarmath"],
    "html_theme": "sphinx_book_theme",
    "html_theme_options.disable_search": True,
    "html_theme_options.article_header_start": ["front.html"],
    "templates_path": [str(ROOT / "docs/_templates")],
    "html_static_path": [str(ROOT / "docs/_static")],
    "html_sidebars": {"**": ["find.html"]},
    "suppress_warnings": ["toc.not_included"],
}


def test_each_section_has_an_anchor_its_own_text_and_words_of_code(tmp_path):
    """Each word once, and none of solutions."""
    site = Site(tmp_path, {"index.md": PAGE, "other.md": "# Other\n"}, **SETTINGS)
    text = site(search_index.INDEX).removeprefix("finder.data = ").removesuffix(";\n")
    index = json.loads(text)
    number = [each[0] for each in index["pages"]].index("index.html")
    sections = [rest for of, *rest in index["sections"] if of == number]
    head, section, below = sections
    assert head == ["a-page", "A page", "It begins with words.", ""]
    assert section[:2] == ["old-name", "A section with code"]
    assert "a list, with a link" in section[2]
    assert "cells" not in section[2]
    assert below[0] == "below-it"
    assert "of cells" in below[2]
    assert all(f'id="{each[0]}"' in site("index.html") for each in (section, below))
    _, _, text, code = section
    assert {"import", "jax", "total", "block", "line", "output"} <= {*code.split()}
    assert "1.25" not in text
    assert "a line of output" not in text
    assert "hidden_solution" not in site(search_index.INDEX)


def test_the_words_of_an_output_of_html_are_found_without_its_drawing():
    html = "<table><tr><td>sent</td></tr><tr><td>&lt;4 B</td></tr></table><svg>x</svg>"
    assert search_index.html_words(html).split() == ["sent", "<4", "B"]


def test_the_library_has_its_licence():
    vendor = ROOT / "docs/_static/vendor"
    licence = (vendor / "minisearch-LICENSE.txt").read_text()
    assert "Permission is hereby granted" in licence
