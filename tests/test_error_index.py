"""The page of errors explains every error of the book, and nothing that nobody met."""

import re
from types import SimpleNamespace

import error_directives
from records import ROOT, read_table

from book import error_index
from book.page import Page

DOCS = ROOT / "docs"
TABLE = error_index.read_table(DOCS)[0]
CUT = {"divide-1", "network-6"}  # were pasted without their constant words
OURS = "last value|raised|was in step|left without|took over|not answer|waited over"


def names(text, table=TABLE):
    return [entry.name for entry in error_index.matches(text, table)]


def is_on_page(entry):
    """Return whether a page that the entry names, or a table of it, has its words."""
    pages = (Page(DOCS / f"{path.partition('#')[0]}.md", DOCS) for path in entry.page)
    files = (file for page in pages for file in (page.file, *page.data))
    texts = [file.read_text() for file in files if file.suffix in (".md", ".csv")]
    return any(names(text.replace("…", "..."), [entry]) for text in texts)


def test_each_error_of_the_book_is_explained_and_each_entry_was_met():
    by_entry, _, rest = error_index.group_cells(DOCS)
    assert [(each.page.name, each.line, each.phrase) for each in rest] == []
    for entry in TABLE:
        assert by_entry[entry.name] or is_on_page(entry) or entry.source, entry.name
        assert bool(entry.source) == bool(re.search(r"\d{4}-\d\d-\d\d", entry.date))
        assert len(f"{entry.means} {entry.cure}") < 520, entry.name


def test_words_of_one_entry_fit_no_other():
    for entry in TABLE:
        assert names(entry.words.replace("...", "7")) == [entry.name]
    assert names("") == names("ValueError: operands could not be broadcast") == []


def test_failures_of_processes_are_explained():
    texts = {row["seen"] for row in read_table(DOCS / "processes/data/failures.csv")}
    phrases = [each for words in texts for each in words.split(", then ") if each]
    phrases = [each for each in phrases if not re.search(OURS, each)]
    assert len(phrases) > 3
    assert [each for each in phrases if not names(each)] == []


def test_errors_that_readers_brought_are_found():
    rows = read_table(ROOT / "tests/search/errors.csv")
    rows = [
        row for row in rows if row["set"] == "tune" and "decoy" not in row["missing"]
    ]
    assert {row["id"] for row in rows if not names(row["line"])} == CUT


def test_a_build_warns_of_a_message_that_fits_another_entry(monkeypatch):
    faults, (own, other, *_) = [], TABLE
    page = Page(DOCS / "index.md", DOCS)
    cell = error_index.RaisingCell(page, own.kind, own.words, 1, "", "")
    log = SimpleNamespace(warning=lambda fault, **_: faults.append(fault))
    monkeypatch.setattr(error_directives, "log", log)
    for entry in own, other:
        error_directives.compare_message(cell, entry.words)
    assert faults == [f"fits ['{other.name}'] in errors.toml, not ['{own.name}']"]
