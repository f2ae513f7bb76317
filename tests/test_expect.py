"""Expectations are written from what cells gave on the site, and nothing else moves."""

import expect
import pytest
import site_cells
from nbformat.v4 import new_output
from tiny_site import HEAD, PROJECT

from book import export
from book.page import Page

CELLS = [  # header, code, what it prints
    ([":fold: Set-up"], "x = 1", ""),
    ([], "one", "float32[8@x]"),
    ([":expect: 2"], "two", "# 0.10"),
    (["---", "tags: [a]", "expect: |", "  old", "  text", "---"], "three", "a: b\n  c"),
    ([":tags: [b]", ":expect: 4"], "four", "  first\n\nsecond"),
    ([":expect: right"], "five", "right"),
]


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page, and its notebook on the site."""
    fences = ["\n".join(["```{code-cell}", *h, c, "```\n"]) for h, c, _ in CELLS]
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "docs").mkdir()
    file, site = tmp_path / "docs/page.md", tmp_path / "page.ipynb"
    file.write_text(f"{HEAD}# Page\n\n" + "\n".join(fences))
    outputs = [[new_output("stream", text=t)] if t else [] for *_, t in CELLS]
    site.write_text(export.notebook_text(Page(file, file.parent), tmp_path, outputs))
    find_pages = lambda names: [Page(file, file.parent)]  # noqa: E731
    monkeypatch.setattr(site_cells, "find_pages", find_pages)
    monkeypatch.setattr(site_cells.read_cells, "__defaults__", (tmp_path,))
    monkeypatch.delenv("CI", raising=False)
    return file


def test_differences_are_shown_then_written_and_nothing_else_moves(page, capsys):
    text, old = page.read_text(), Page(page, page.parent).code
    assert expect.main([]) == 1
    assert page.read_text() == text
    output = capsys.readouterr().out
    assert "-2\n+# 0.10" in output
    assert "right" not in output
    assert expect.main(["--write"]) == 0
    new = Page(page, page.parent).code
    assert [(c.source, c.tags) for c in new] == [(c.source, c.tags) for c in old]
    wanted = [cell.options.get("expect", "").rstrip("\n") for cell in new]
    assert wanted == [text for *_, text in CELLS]
    assert expect.main([]) == 0


def test_it_never_runs_in_ci(page, monkeypatch):
    monkeypatch.setenv("CI", "1")
    with pytest.raises(SystemExit, match="never runs in CI"):
        expect.main(["--write"])


def test_a_page_that_changed_since_the_build_is_refused(page):
    page.write_text(page.read_text().replace("one\n", "another\n"))
    with pytest.raises(ValueError, match="changed since `nox -s docs`"):
        expect.main([])
