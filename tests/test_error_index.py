"""The page of errors explains every error of the book, and nothing that nobody met."""

import csv
import re
from functools import cache
from pathlib import Path

import pytest

from book import error_index
from book.page import Page

DOCS = Path(__file__).resolve().parents[1] / "docs"
CUT = {"divide-1", "network-6"}  # they were kept without their constant words
OURS = "last value|raised|was in step|left without|took over|not answer|waited over"


@cache
def table():
    return error_index.read_table(DOCS)[0]


@cache
def cells():
    """Return the cells of each entry, those of each module, and those of neither."""
    return error_index.group_cells(DOCS)


def names(text):
    return [entry.name for entry in error_index.matches(text, table())]


@cache
def page_line(name):
    """Return a page and the data that it reads, as one line."""
    page = Page(DOCS / f"{name}.md", DOCS)
    texts = [re.sub(r"\n! |…", lambda m: " " if m[0][0] == "\n" else "...", page.text)]
    texts += [file.read_text() for file in page.data if file.suffix == ".csv"]
    return " ".join(" ".join(texts).split())


def is_on_page(entry):
    """Return whether a page that the entry names has its words."""
    pages = {path.partition("#")[0] for path in entry.page}
    patterns = list(map(error_index.pattern, entry.patterns))
    return any(
        each.search(page_line(name).replace("`", ""))
        for name in pages
        for each in patterns
    )


def test_every_error_of_the_book_has_an_entry_or_is_of_a_module():
    rest = cells()[2]
    assert [(each.page.name, each.line, each.phrase) for each in rest] == []


def test_no_error_has_two_entries():
    groups = [*cells()[0].values(), *cells()[1].values()]
    found = [(each.page.name, each.line) for group in groups for each in group]
    assert len(found) == len({*found})


def test_every_entry_has_a_cell_a_page_that_says_it_or_a_source_with_its_date():
    by_entry = cells()[0]
    alone = [e for e in table() if not by_entry[e.name] and not is_on_page(e)]
    assert [e.name for e in alone if not e.source] == []
    for entry in table():
        assert bool(entry.source) == bool(re.search(r"\d{4}-\d\d-\d\d", entry.date))


def test_an_entry_belongs_to_a_group_and_is_short():
    for entry in table():
        assert entry.group in error_index.GROUPS
        assert len(f"{entry.means} {entry.cure}") < 520, entry.name


def test_words_of_one_entry_do_not_fit_another():
    for entry in table():
        assert names(entry.words.replace("...", "7")) == [entry.name]


def test_the_failures_that_were_kept_are_explained():
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


@pytest.mark.parametrize("before", ["", "E   ", "[rank3]: "])
def test_a_traceback_is_found_behind_the_marks_of_a_launcher(before):
    lines = (
        "Traceback (most recent call last):",
        '  File "/home/me/train.py", line 12, in <module>',
        "ShardingTypeError: Contracting dimensions are sharded",
        "and it is ambiguous how the output should be sharded. Please specify",
    )
    text = "\n".join(before + line for line in lines)
    assert names(text) == ["ambiguous-contraction"]


def test_what_the_book_does_not_know_fits_no_entry():
    assert names("") == names("ValueError: operands could not be broadcast") == []
