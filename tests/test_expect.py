"""Expectations are written from what was kept, and every lie in one is noticed."""

import expect
import pytest
import site_cells
from nbformat.v4 import new_output

from book import export
from book.page import Page
from examples.magic import as_html
from examples.processes import Output, Shown

HEAD = "---\nkernelspec: {name: python3}\nneeds: jax\n---\n# Page\n\n"
CELLS = [  # header, code, what it prints
    ([":fold: Set-up"], "x = 1", None),
    ([], "one", "float32[8@x]"),
    ([":expect: 2"], "two", "# 0.10"),
    (["---", "tags: [a]", "expect: |", "  old", "  text", "---"], "three", "a: b\n  c"),
    ([":tags: [b]", ":expect: 4"], "four", "first\n\nsecond"),
    ([":expect: right"], "five", "right"),
    ([], "%%every\nsix", Output((Shown(printed="1\n"), Shown(value="2")))),
]
PASSING = Output((Shown(printed="listens at port 41233\n"), Shown()))


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page, and the site that was built from it."""
    fences = [
        "\n".join(["```{code-cell}", *head, code, "```\n"]) for head, code, _ in CELLS
    ]
    (tmp_path / "docs").mkdir()
    file = tmp_path / "docs/page.md"
    file.write_text(HEAD + "\n".join(fences))
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nrequires-python = ">=3.12"\ndependencies = []\n'
    )
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(
        site_cells, "find_pages", lambda names: [Page(file, file.parent)]
    )
    monkeypatch.setattr(site_cells.read_cells, "__defaults__", (tmp_path / "html",))
    publish(file)
    return file


def outputs_of(shown):
    """Return what a cell gives that prints a text, or shows what processes do."""
    if isinstance(shown, Output):
        data = {"text/plain": str(shown), "text/html": as_html(shown)}
        return [new_output("display_data", data=data)]
    return [new_output("stream", name="stdout", text=shown)] if shown else []


def publish(file, cells=CELLS):
    """Write the notebook that the site would offer."""
    outputs = [outputs_of(shown) for *_, shown in cells]
    text = export.notebook_text(Page(file, file.parent), file.parent, outputs)
    site = file.parents[1] / "html"
    site.mkdir(exist_ok=True)
    (site / "page.ipynb").write_text(text)


def test_differences_are_shown_and_then_written_and_nothing_else_moves(page, capsys):
    before = Page(page, page.parent, source=page.read_text())
    assert expect.main([]) == 1
    assert page.read_text() == before.text
    output = capsys.readouterr().out
    assert "-2\n+# 0.10" in output
    assert "right" not in output
    assert expect.main(["--write"]) == 0
    cells, old = Page(page, page.parent).code, before.code
    assert [(c.source, c.tags) for c in cells] == [(c.source, c.tags) for c in old]
    wanted = [cell.options.get("expect", "").rstrip("\n") for cell in cells]
    assert wanted == [str(text or "") for *_, text in CELLS]
    assert cells[0].options == {"fold": "Set-up"}
    assert expect.main([]) == 0


def test_what_differs_between_runs_is_not_written(page, capsys):
    publish(page, [*CELLS[:-1], (*CELLS[-1][:2], PASSING)])
    assert expect.main(["--write"]) == 1
    assert "REFUSED, differs between runs: port 41233" in capsys.readouterr().out
    assert "expect" not in Page(page, page.parent).code[-1].options


def test_it_never_runs_in_ci(monkeypatch):
    monkeypatch.setenv("CI", "1")
    with pytest.raises(SystemExit, match="never runs in CI"):
        expect.main(["--write"])


def test_a_page_that_changed_since_the_build_is_refused(page):
    page.write_text(page.read_text().replace("one\n", "another\n"))
    with pytest.raises(ValueError, match="changed since `nox -s docs`"):
        expect.main([])
