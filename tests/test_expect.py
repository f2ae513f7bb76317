"""Expectations are written from what cells gave on the site, and nothing else moves."""

import expect
import site_cells
from nbformat.v4 import new_output
from tiny_site import HEAD

from book import guards
from book.page import Page

CELLS = [  # header, code, what it prints
    ([":fold: Set-up"], "x = 1", ""),
    ([], "one", "float32[8@x]"),
    ([":expect: 2"], "two", "# 0.10"),
    (["---", "tags: [a]", "expect: |", "  old", "  text", "---"], "three", "a: b\n  c"),
    ([":tags: [b]", ":expect: 4"], "four", "  first\n\nsecond"),
    ([":expect: right"], "five", "right"),
]


def test_what_differs_is_written_and_nothing_else_moves(tmp_path, monkeypatch):
    fences = ["\n".join(["```{code-cell}", *h, c, "```\n"]) for h, c, _ in CELLS]
    file = tmp_path / "page.md"
    file.write_text(f"{HEAD}# Page\n\n" + "\n".join(fences))
    old = Page(file, tmp_path).code
    gave = [[new_output("stream", text=text)] for *_, text in CELLS]
    cells = list(zip(old, gave, strict=True))
    monkeypatch.setattr(site_cells, "read_cells", lambda page: cells)
    expect.update_page(Page(file, tmp_path))
    new = Page(file, tmp_path).code
    assert [(c.source, c.tags) for c in new] == [(c.source, c.tags) for c in old]
    assert new[0].options == {"fold": "Set-up"}
    for cell, (*_, text) in zip(new, CELLS, strict=True):
        assert guards.tidy(cell.options.get("expect", "")) == text
