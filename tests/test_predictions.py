"""Predictions are compared with the cells that answer them."""

from pathlib import Path

import pytest

from book import predictions
from book.page import Page

QUESTION = """\
:::{predict} What is sent for `a @ b`?
- [ ] an `all-gather` — no device needs
      the **whole** factor
- [x] an `all-reduce` over `y`
- [ ] an `all-reduce` over `x` — the summed dimension is split over `y`
:::
"""
CELL = "\n```{code-cell}\n:expect: all-reduce over y\nprint()\n```\n"
WRONG, RIGHT = "wrong, but in", "right, but not in"


def stream_output(text):
    return {"output_type": "stream", "name": "stdout", "text": text}


def error_output(message):
    kind = {"output_type": "error", "ename": "ValueError", "traceback": []}
    return kind | {"evalue": message}


def faults(text, *outputs):
    """Return the faults of a page whose only cell has these outputs."""
    page = Page(Path("/docs/a.md"), Path("/docs"), source=text)
    found = predictions.faults(page, [(cell, outputs) for cell in page.code])
    return [words for line, words in found]


@pytest.mark.parametrize(
    ("output", "states"),
    [
        (stream_output("all-reduce over y: 16 B\nnothing over x"), ()),
        (stream_output("all-gather, all-reduce over x and y"), (WRONG, WRONG)),
        (stream_output("all-reduce over yz: 16 B"), (RIGHT,)),
        (error_output("an all-reduce\nover y"), ()),
        (error_output("an all-gather"), (WRONG, RIGHT)),
    ],
)
def test_what_the_next_cell_gives_decides_line_by_line(output, states):
    found = faults(QUESTION + CELL, output)
    assert len(found) == len(states)
    assert all(state in words for state, words in zip(states, found, strict=True))
    assert len(faults(f"{CELL}\n{QUESTION}", output)) == 1  # no cell below gives it


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("- [x]", "- [ ]", "give 3 or 4 answers, one right"),
        ("- [x] an `all-reduce` over `y`\n", "", "give 3 or 4 answers, one right"),
        (
            " — the summed dimension is split over `y`",
            "",
            "is wrong, but for no reason",
        ),
        ("`all-reduce` over `y`", "all-reduce over y", "no words in code or bold"),
    ],
)
def test_what_is_not_whole_is_a_fault(old, new, words):
    found = faults(
        QUESTION.replace(old, new) + CELL, stream_output("all-reduce over y")
    )
    assert words in found[0]


def test_a_notebook_has_it_as_text_with_its_reasons_folded():
    page = Page(Path("/docs/a.md"), Path("/docs"), source=QUESTION)
    text, _, reasons = predictions.to_markdown(page.blocks[0]).partition("<details>")
    assert text.startswith("**Predict.** What is sent for `a @ b`?\n\n1. an `all-g")
    assert "\n\nAnswer 2 is right. The next cells show it.\n\n1. no device" in reasons
    assert "\n2. Right.\n3. the summed dimension is split" in reasons
