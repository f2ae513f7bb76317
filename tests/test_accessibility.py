"""A collapsed cell is called by its words, and the keyboard scrolls a wide table."""

import re

import pytest
from tiny_site import HEAD, Site

PAGE = f"""{HEAD}
# Page

| a | b |
|---|---|
| 1 | 2 |

```{{code-cell}}
---
tags: [hide-cell]
mystnb:
  code_prompt_show: Show a solution
---
1
```
"""


@pytest.fixture
def html(tmp_path):
    settings = {
        "extensions": ["myst_nb", "accessibility"],
        "html_theme": "sphinx_book_theme",
        "nb_execution_mode": "off",
        "suppress_warnings": ["misc.highlighting_failure"],
    }
    return Site(tmp_path, {"index.md": PAGE}, **settings)("index.html")


def test_a_collapsed_cell_is_called_by_its_words(html):
    summary = re.search(r"<summary([^>]*)>(.*?)</summary>", html, re.S)
    assert summary[1] == ""
    assert "Show a solution" in summary[2]


def test_the_box_of_a_table_takes_the_keyboard_focus(html):
    assert '<div class="pst-scrollable-table-container" tabindex="0"><table' in html
