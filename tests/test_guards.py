"""What several processes show is compared with the options, too; claims are counted."""

from pathlib import Path

import pytest
from nbformat.v4 import new_output

from book import guards
from book.claims import count_claims
from book.page import Page
from examples.magic import as_html
from examples.processes import Output, Shown

LINES = "---\nexpect: |\n  [every process]\n  a < b\n---\n1"
SAME = 2 * [{"printed": "a < b"}]
CELLS = [  # options and code, what each process shows, what the build says
    (LINES, SAME, ""),
    (LINES, [*SAME[:1], {}], "+[process 0]"),
    (":fold: so\n%%every --raises E\nf()", [{"error": "E: 1"}], ""),
    (":fold: so\n%%every\nx", [{"value": "a", "html": "<table></table>"}], ""),
    (":fold: so\n%%every\nx", [{"printed": "5"}], "prints what nothing expects"),
    (":check: so\n%%every\njudge(x).require()", [{"printed": "5"}], ""),
]


def read_cell(text):
    return Page(Path("a.md"), Path(), source=f"```{{code-cell}}\n{text}\n```").code[0]


@pytest.mark.parametrize(("text", "processes", "words"), CELLS)
def test_what_processes_show_is_text_unless_it_is_a_table(text, processes, words):
    output = Output(tuple(Shown(**fields) for fields in processes))
    data = {"text/plain": str(output), "text/html": as_html(output)}
    outputs = [new_output("display_data", data=data)]
    found = [fault for _, fault in guards.faults(read_cell(text), outputs)]
    assert len(found) == bool(words)
    assert words in "".join(found)


def test_lines_errors_and_assertions_are_claims():
    texts = LINES, ":raises: ValueError no\nf()", ":check: so\nassert a\nb.require()"
    assert [count_claims(read_cell(text)) for text in texts] == [2, 1, 2]
