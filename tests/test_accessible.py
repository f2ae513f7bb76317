"""What a collapsed cell is called is what stands on it."""

import re

from tiny_site import Site

PAGE = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  name: python3
---
# Page

```{code-cell}
---
tags: [hide-cell]
mystnb:
  code_prompt_show: Show a solution
---
1
```
"""


def test_a_collapsed_cell_is_called_by_its_words(tmp_path):
    site = Site(
        tmp_path,
        {"index.md": PAGE},
        extensions=["myst_nb", "accessible"],
        nb_execution_mode="off",
    )
    html = site("index.html")
    summary = re.search(r"<summary([^>]*)>(.*?)</summary>", html, re.S)
    assert summary[1] == ""
    assert "Show a solution" in summary[2]
