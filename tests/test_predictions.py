"""Predictions are compared with the cells that answer them, and shown with reasons."""

from pathlib import Path

import pytest
from tiny_site import HEAD, Site

from book import predictions
from book.page import Page

QUESTION = """\
:::{predict} What is sent for `a @ b`?
- [ ] an `all-gather` -- no device needs
      the **whole** factor
- [x] an `all-reduce` over `y`
- [ ] an `all-reduce` over `x` — the summed dimension is split over `y`
:::
"""
CELL = """
```{code-cell}
---
expect: |
  all-reduce over y: 16 B
  nothing over x
---
print("all-reduce over y: 16 B", "nothing over x", sep="\\n")
```
"""
PLAIN = """\
**Predict.** What is sent for `a @ b`?

1. an `all-gather`
2. an `all-reduce` over `y`
3. an `all-reduce` over `x`

<details><summary>Which, and why</summary>

Answer 2 is right. The next cells show it.

1. no device needs the **whole** factor
2. Right.
3. the summed dimension is split over `y`

</details>"""
ERROR = {"output_type": "error", "ename": "ValueError", "traceback": []}


def faults(text, printed="all-reduce over y: 16 B\nnothing over x", **error):
    """Return the faults of a page whose cell gives this text, or an error."""
    page = Page(Path("/docs/a.md"), Path("/docs"), source=text)
    output = {"output_type": "stream", "name": "stdout", "text": printed}
    outputs = [ERROR | error] if error else [output]
    return list(predictions.faults(page, [(cell, outputs) for cell in page.code]))


def test_what_the_cell_gives_decides_line_by_line():
    assert faults(QUESTION + CELL) == []
    wrong, *_ = faults(QUESTION + CELL, "all-gather, all-reduce over x and y")
    words = "an answer is wrong, but in what the next cell gives: all-gather"
    assert wrong == (1, words)
    ((_, words),) = faults(QUESTION + CELL, "all-reduce over yz: 16 B")
    assert words.endswith("right, but not in what the next cell gives: all-reduce, y")
    ((_, words),) = faults(CELL + "\n" + QUESTION)
    assert words.startswith("no cell below")


def test_an_error_answers_a_question():
    text = QUESTION + "\n```{code-cell}\n:raises: ValueError\n1 / 0\n```\n"
    assert faults(text, evalue="an all-reduce\nover y") == []
    assert len(faults(text, evalue="an all-gather")) == 2


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("- [x]", "- [ ]", "one answer must be right"),
        (" — the summed dimension is split over `y`", "", "for no reason"),
        ("`all-reduce` over `y`", "all-reduce over y", "no words in code or bold"),
        ("- [x] an `all-reduce` over `y`\n", "", "give 3 or 4 answers"),
    ],
    ids=["none right", "no reason", "no key words", "two answers"],
)
def test_what_is_not_whole_is_named(old, new, words):
    assert QUESTION.count(old) == 1
    ((_, found),) = faults(QUESTION.replace(old, new) + CELL)
    assert words in found


def test_a_notebook_has_it_as_text_with_its_reasons_folded():
    page = Page(Path("/docs/a.md"), Path("/docs"), source=QUESTION)
    assert predictions.to_markdown(page.blocks[0]) == PLAIN


def test_a_page_has_a_line_for_each_answer_and_a_fault_is_a_warning(tmp_path):
    wrong = QUESTION.replace("[x]", "[ ]")
    site = Site(
        tmp_path,
        {"index.md": f"{HEAD}\n# A page\n\n{QUESTION}\n{wrong}\n{QUESTION}"},
        extensions=["myst_nb", "predict"],
        myst_enable_extensions=["colon_fence"],
    )
    line = HEAD.count("\n") + 4 + QUESTION.count("\n") + 1
    assert f"index.md:{line}: ERROR: one answer must be right" in site.warnings
    html = site("index.html")
    assert html.count('<details class="right" name="predict-1">') == 1
    assert html.count('<details class="wrong" name="predict-2">') == 2
    first = html[html.index("<details") : html.index("</details>")]
    assert "<summary>" in first
    assert "No: </strong>no device needs the <strong>whole</strong> factor" in first
