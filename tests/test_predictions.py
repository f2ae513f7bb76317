"""Predictions are compared with the cells that answer them."""

from pathlib import Path

import pytest
from nbformat.v4 import new_output

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
FORM, REASON = "give 3 or 4 answers, one right", "is wrong, but for no reason"


def page_of(text):
    return Page(Path("/docs/a.md"), Path("/docs"), source=text)


def printed(text):
    return new_output("stream", name="stdout", text=text)


def raised(message):
    return new_output("error", ename="ValueError", evalue=message, traceback=[])


RESULT = printed("all-reduce over y: 16 B\nnothing over x")


@pytest.mark.parametrize(
    ("text", "output", "faults"),
    [
        (QUESTION + CELL, RESULT, []),
        (QUESTION + CELL, printed("all-gather, all-reduce over x and y"), 2 * [WRONG]),
        (QUESTION + CELL, printed("all-reduce over yz: 16 B"), [RIGHT]),
        (QUESTION + CELL, raised("an all-reduce\nover y"), []),
        (QUESTION + CELL, raised("an all-gather"), [WRONG, RIGHT]),
        (f"{CELL}\n{QUESTION}", RESULT, [RIGHT]),  # no cell below gives it
        (QUESTION.replace("[x]", "[ ]") + CELL, RESULT, [FORM, REASON]),
        (
            QUESTION.replace("- [x] an `all-reduce` over `y`\n", "") + CELL,
            RESULT,
            [FORM],
        ),
        (QUESTION.replace(" — the s", " s") + CELL, RESULT, [REASON]),
        (QUESTION.replace("`", "") + CELL, RESULT, 3 * ["no words in code or bold"]),
    ],
)
def test_what_the_next_cell_gives_decides_line_by_line(text, output, faults):
    page = page_of(text)
    found = predictions.faults(page, [(cell, [output]) for cell in page.code])
    for words, (_, fault) in zip(faults, found, strict=True):
        assert words in fault


def test_a_notebook_has_it_as_text_with_its_reasons_folded():
    block = page_of(QUESTION).blocks[0]
    text, _, reasons = predictions.to_markdown(block).partition("<details>")
    assert text.startswith("**Predict.** What is sent for `a @ b`?\n\n1. an `all-g")
    assert "\n\nAnswer 2 is right. The next cells show it.\n\n1. no device" in reasons
    assert "\n2. Right.\n3. the summed dimension is split" in reasons
