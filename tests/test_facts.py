"""What many files state is what pyproject.toml states."""

import re
import subprocess
from pathlib import Path

import copies
from packaging.version import Version

from book import export, facts
from book.page import Page, pages

ROOT = Path(__file__).parents[1]
BOOK = facts.facts()
GIT = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
)
TRACKED = [file for name in GIT.stdout.split() if (file := ROOT / name).is_file()]
COPIES = {"README.md", "CITATION.cff", "how-to-read.md", "matplotlibrc", "site.css"}
COPIES |= {"logo.svg", "pictures.py"}


def test_the_lock_holds_the_release_that_pages_are_written_for():
    held = Version(facts.locked_version("jax"))
    assert f"{held.major}.{held.minor}" == BOOK.jax
    assert Version(BOOK.oldest_jax) <= held


def test_copies_and_pages_of_modules_are_as_their_tool_writes_them():
    wanted = copies.copies() | copies.stubs()
    files = {*wanted, *ROOT.glob("docs/reference/modules/*.md")}
    found = {file: file.read_text() for file in files if file.exists()}
    assert found == wanted, "run `.nox/book/bin/python tools/copies.py`"


def test_other_facts_reach_every_copy(monkeypatch):
    colours = [tuple(f"#0000{n}{i}" for i in range(8)) for n in (1, 2)]
    other = facts.Facts("2030.1", "3.99", "7.8", "6.5", "", *colours)
    monkeypatch.setattr(copies, "facts", lambda: other)
    changed = copies.copies()
    assert {file.name for file in changed} >= COPIES
    assert all(file.read_text() != text for file, text in changed.items())
    text = "\n".join(changed.values())
    for words in "JAX 7.8 on Python 3.99", "JAX 6.5 on", "(7, 8)", '"2030.1"':
        assert words in text
    assert not [colour for colour in BOOK.colours[:7] if colour in text]


def test_no_other_file_writes_a_colour_of_the_devices():
    may = {*copies.copies(), ROOT / "pyproject.toml"}
    kinds = {".css", ".js", ".md", ".py", ".svg", ".toml", ".yaml"}
    for file in {file for file in TRACKED if file.suffix in kinds} - may:
        assert not re.search("|".join(BOOK.colours), file.read_text(), re.I), file


def test_no_page_writes_the_release_of_jax_itself():
    """But when something came with it stays true: "Since JAX 0.12"."""
    for page in pages(ROOT / "docs"):
        assert not re.search(rf"(?<!Since )JAX {BOOK.jax}\b", page.text), page.name


def test_a_notebook_has_the_facts_that_a_page_names():
    text = "In JAX {{jax}} and {{oldest_jax}}.\n\n```{code-cell}\nf'{{jax}}'\n```\n"
    page = Page(ROOT / "docs/page.md", ROOT / "docs")
    found = export.markdown(text, page)
    assert found.startswith(f"In JAX {BOOK.jax} and {BOOK.oldest_jax}.\n")
    assert "f'{{jax}}'" in found
    assert "{{other}}" in export.markdown("{{other}}", page)
