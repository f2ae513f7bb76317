"""A guard fails for every false claim of a cell, and for nothing else."""

from pathlib import Path

import pytest
from nbformat.v4 import new_output
from tiny_site import HEAD

from book import guards
from book.claims import count_claims
from book.page import Page
from examples.magic import as_html
from examples.processes import Output, Shown


def printed(text):
    return [new_output("stream", name="stdout", text=text)]


def shown(text, **others):
    data = {"text/plain": text, **others}
    return [new_output("execute_result", data=data, execution_count=1)]


def every(*each):
    """What `%%every` displays of processes that show this."""
    output = Output(tuple(Shown(**fields) for fields in each))
    return shown(str(output), **{"text/html": as_html(output)})


def error(kind, message):
    trace = ["Traceback", f"\x1b[31m{kind}\x1b[0m: {message}"]
    return [new_output("error", ename=kind, evalue=message, traceback=trace)]


LINES = "---\nexpect: |\n  one ... x\n\n  two\n---\n1"
INDENTED = "---\nexpect: |2\n    a\n  b\n---\n1"
OF_PROCESSES = "---\nexpect: |\n  [every process]\n  a < b\n---\n1"
CELLS = [  # options and code, outputs, what the build says
    (":expect: 0.10\n1", printed("0.10\n"), ""),
    (":expect: 2\n1", printed("3"), "-2\n+3"),
    (":expect: 1\n1", shown("True"), "+True"),
    (":expect: ...\n1", printed("3"), "expects no word, number or type"),
    (":expect: 4\n1", error("NameError", "y"), "raised what no option expects"),
    (LINES, printed("one and x  \n\ntwo\n"), ""),
    (INDENTED, printed("  a\n\x1b[1mb\x1b[0m"), ""),
    (OF_PROCESSES, every({"printed": "a < b"}, {"printed": "a < b"}), ""),
    (OF_PROCESSES, every({"printed": "a < b"}, {}), "+[process 0]"),
    (":raises: ValueError no mesh\n1", error("ValueError", "is no mesh\nat"), ""),
    (":raises: 'KindError: of ... x'\n1", error("jax.KindError", "of a x"), ""),
    (":raises: ValueError base\n1", error("IndivisibleError", "a base"), ""),
    (":raises: ValueError a\n1", [], "where `raises` expects ValueError: a"),
    (":raises: ValueError b\n1", error("TypeError", "b"), "raised    TypeError: b"),
    (":raises: ValueError c\n1", error("ValueError", "d"), "ValueError: ...c..."),
    (":raises: ValueError\n1", error("ValueError", "d"), "add a phrase of it"),
    (":check: so\nassert a == b", [], ""),
    (":check: so\n%%every\njudge(x).require()", [], ""),
    (":check: so\nassert x", error("AssertionError", ""), "is not true: so"),
    (":check: so\nassert True", [], "asserts nothing: so"),
    (":check: so\nprint('assert x')", [], "asserts nothing: so"),
    (":fold: so\n%%every --raises E\nf()", every({"error": "E: 1"}), ""),
    (":fold: so\n%%every\nx", every({"value": "a", "html": "<table></table>"}), ""),
    (":fold: so\n%%every\nx", every({"printed": "5"}), "prints what nothing expects"),
    (":tags: [hide-cell]\n1", printed("much"), ""),
    (":expects: 3\n1", [], "an option that nothing knows: expects"),
    ("1", shown("<Picture>", **{"text/html": "<svg/>"}), ""),
    ("1", printed("5"), "prints what nothing expects\n5"),
]


def read_cell(text):
    source = f"{HEAD}# Page\n\n```{{code-cell}}\n{text}\n```\n"
    (cell,) = Page(Path("a.md"), Path(), source=source).code
    return cell


@pytest.mark.parametrize(("text", "outputs", "words"), CELLS)
def test_what_a_cell_states_falsely_is_a_fault(text, outputs, words):
    found = [fault for _, fault in guards.faults(read_cell(text), outputs)]
    assert len(found) == bool(words)
    assert words in "".join(found)


def test_a_message_has_no_files_and_no_frames():
    message = f"bad at /tmp/x/1.py:3:4 (f)\n{'-' * 20}\nFor simplicity, JAX removed"
    assert guards.clean_message(message) == "bad at ... (f)"
    assert guards.clean_message("no /tmp/tmpa_1b/small here") == "no .../small here"


def test_lines_errors_and_assertions_are_facts():
    texts = LINES, ":raises: ValueError no\nf()", ":check: so\nassert a\nb.require()"
    assert [count_claims(read_cell(text)) for text in texts] == [2, 1, 2]
