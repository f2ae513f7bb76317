"""Every page runs as a plain notebook, and one that does not is named with its cell."""

import notebooks
import pytest

HEAD = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  name: python3
needs: jax
---
"""
PROJECT = '[project]\nrequires-python = ">=3.12"\ndependencies = ["jax>=0.12"]\n'
PAGES = {
    "good.md": f"{HEAD}# Good\n\n```{{code-cell}}\nassert True\n```\n",
    "bad.md": f"{HEAD}# Bad\n\n```{{code-cell}}\n1 / 0\n```\n",
    "ugly.md": f"{HEAD}# Ugly\n\n```{{list-table}}\n- - a\n```\n",
    "prose.md": "# Prose\n",
}


@pytest.fixture
def book(tmp_path, monkeypatch):
    """Write a book of four pages; the kernel is the one of this Python."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    for name, text in PAGES.items():
        (docs / name).write_text(text)
    monkeypatch.setenv("JUPYTER_PATH", "")
    monkeypatch.setattr(notebooks, "DOCS", docs)
    monkeypatch.setattr(notebooks, "MODULES", tmp_path / "src")
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path / "build")
    monkeypatch.setattr(notebooks, "environment", lambda needs: "python3")


@pytest.mark.usefixtures("book")
def test_all_failures_are_reported_with_page_and_cell(capsys):
    assert notebooks.main([]) == 1
    words = capsys.readouterr().out
    assert "FAILED bad, cell-2: ZeroDivisionError: division by zero\n1 / 0" in words
    assert "FAILED ugly: the directive 'list-table'" in words
    assert "1 of 3 notebooks ran" in words


@pytest.mark.usefixtures("book")
def test_named_pages_run_alone(capsys):
    assert notebooks.main(["good"]) == 0
    assert "1 of 1 notebooks ran" in capsys.readouterr().out


@pytest.mark.usefixtures("book")
def test_a_name_that_no_page_has_fails():
    assert notebooks.main(["goood"]) == 1


def test_the_lock_gives_versions_without_hashes():
    lock = (
        "colorama==0.4.6 ; sys_platform == 'win32' \\\n    --hash=sha256:ab \\\n"
        "    --hash=sha256:cd\njax==0.12.0.1 \\\n    --hash=sha256:ef\n"
    )
    expected = "colorama==0.4.6 ; sys_platform == 'win32'\njax==0.12.0.1\n"
    assert notebooks.constraints(lock) == expected


@pytest.mark.usefixtures("book")
def test_a_sample_is_a_third_and_three_commits_have_all(monkeypatch, capsys):
    ran = ""
    for number in range(3):
        monkeypatch.setattr(notebooks, "commit", lambda number=number: number)
        notebooks.main(["--sample"])
        words = capsys.readouterr().out
        assert "of 1 notebooks ran" in words
        ran += words
    assert all(page.name in ran for page in notebooks.pages([]))
