"""What many files state is what pyproject.toml states."""

import re

import copies
from packaging.version import Version

from book import export, facts
from book.page import Page, pages

DOCS = facts.ROOT / "docs"
BOOK = facts.facts()
COPIES = (
    "CITATION.cff README.md how-to-read.md logo.svg matplotlibrc pictures.py site.css"
)


def test_the_lock_has_the_release_of_the_pages():
    locked = Version(facts.locked_version("jax"))
    assert f"{locked.major}.{locked.minor}" == BOOK.jax
    assert Version(BOOK.oldest_jax) <= locked


def test_copies_are_as_their_tool_writes_them():
    wanted = copies.copies()
    files = {*wanted, *DOCS.glob("reference/modules/*.md")}
    found = {file: file.read_text() for file in files if file.exists()}
    assert found == wanted, "run `.nox/book/bin/python tools/copies.py`"
    assert {file.name for file in wanted} >= {*COPIES.split()}


def test_no_page_writes_the_release_of_jax_itself():
    """But when something came with it stays true: "Since JAX 0.12"."""
    for page in pages(DOCS):
        assert not re.search(rf"(?<!Since )JAX {BOOK.jax}\b", page.text), page.name


def test_facts_are_filled_in_outside_of_code():
    text = "In JAX {{jax}} and {{other}}.\n\n```{code-cell}\nf'{{jax}}'\n```\n"
    found = export.markdown(text, Page(DOCS / "page.md", DOCS))
    assert found == text.replace("{{jax}} and", f"{BOOK.jax} and")
