"""The page of errors explains every error of the book, and nothing that nobody met."""

import csv
import re
from pathlib import Path

import pytest

from book import error_index
from book.page import Page

DOCS = Path(__file__).resolve().parents[1] / "docs"
TABLE = error_index.read_table(DOCS)[0]
CUT = {"divide-1", "network-6"}  # were pasted without their constant words
OURS = "last value|raised|was in step|left without|took over|not answer|waited over"


def names(text):
    return [entry.name for entry in error_index.matches(text, TABLE)]


def page_line(name):
    """Return a page and the data that it reads, as one line."""
    page = Page(DOCS / f"{name}.md", DOCS)
    texts = [re.sub(r"\n! |…", lambda m: " " if m[0][0] == "\n" else "...", page.text)]
    texts += [file.read_text() for file in page.data if file.suffix == ".csv"]
    return " ".join(" ".join(texts).replace("`", "").split())


def is_on_page(entry):
    """Return whether a page that the entry names has its words."""
    texts = [page_line(path.partition("#")[0]) for path in entry.page]
    patterns = map(error_index.pattern, entry.patterns)
    return any(each.search(text) for each in patterns for text in texts)


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
    with open(DOCS / "processes/data/failures.csv", newline="") as file:
        texts = {row["seen"] for row in csv.DictReader(file)}
    phrases = [each for words in texts for each in words.split(", then ") if each]
    phrases = [each for each in phrases if not re.search(OURS, each)]
    assert len(phrases) > 3
    assert [each for each in phrases if not names(each)] == []


def test_errors_that_readers_brought_are_found():
    with open(DOCS.parent / "tests/search/errors.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["set"] == "tune"]
    rows = [row for row in rows if "decoy" not in row["missing"]]
    assert {row["id"] for row in rows if not names(row["line"])} == CUT


@pytest.mark.parametrize("mark", ["", "E   ", "[rank3]: "])
def test_a_traceback_is_found_behind_the_marks_of_a_launcher(mark):
    lines = (
        "ShardingTypeError: Contracting dimensions are sharded",
        "and it is ambiguous how the output should be sharded. Please specify",
    )
    assert names("\n".join(mark + line for line in lines)) == ["ambiguous-contraction"]
