"""A guard fails for every false claim of a cell, and for nothing else."""

from pathlib import Path

import pytest
from nbformat.v4 import new_output

from book import guards
from book.claims import count_claims
from book.page import Page
from examples.magic import as_html
from examples.processes import Output, Shown

HEAD = "---\nkernelspec: {name: python3}\n---\n# Page\n\n"


def printed(text):
    return [new_output("stream", name="stdout", text=text)]


def shown(text, **others):
    data = {"text/plain": text, **others}
    return [new_output("execute_result", data=data, execution_count=1)]


def every(*shown):
    """What `%%every` displays of processes that show this, or print it."""
    output = Output(tuple(s if isinstance(s, Shown) else Shown(s) for s in shown))
    data = {"text/plain": str(output), "text/html": as_html(output)}
    return [new_output("display_data", data=data)]


def error(kind, message):
    trace = ["Traceback", f"\x1b[31m{kind}\x1b[0m: {message}"]
    return [new_output("error", ename=kind, evalue=message, traceback=trace)]


def block(text):
    return f"---\nexpect: {text}\n---"


TRUE = [  # options, outputs, code
    (":expect: 0.10", printed("0.10\n"), "1"),
    (block("|\n  one ... x\n\n  two"), printed("one and x  \n\ntwo\n"), "1"),
    (block("|2\n    a\n  b"), printed("  a\n\x1b[1mb\x1b[0m"), "1"),
    (block("|\n  [every process]\n  a < b"), every("a < b\n", "a < b\n"), "1"),
    (":raises: ValueError no mesh", error("ValueError", "there is no mesh\nat"), "1"),
    (":raises: 'KindError: of ... x'", error("jax.KindError", "of a x"), "1"),
    (":raises: ValueError base", error("IndivisibleError", "a base"), "1"),
    (":check: so", [], "assert a == b"),
    (":check: so", [], "%%every\njudge(x).require()"),
    (":fold: so", every(Shown(error="E: 1")), "%%every --raises E\nf()"),
    (":fold: so", every(Shown(value="a  b", html="<table></table>")), "%%every\ntable"),
    (":tags: [hide-cell]", printed("much"), "1"),
    ("", shown("<Picture>", **{"text/html": "<svg/>"}), "1"),
]
FALSE = [  # options, outputs, code, what the build says
    (":expect: 2", printed("3"), "1", "-2\n+3"),
    (":expect: 1", shown("True"), "1", "+True"),
    (":expect: ...", printed("3"), "1", "expects no word, number or type"),
    (":expect: 4", error("NameError", "y"), "1", "raised what no option expects"),
    (":expect: a", every(Shown(error="E: 1")), "%%every --raises E\nf()", "-a"),
    (block("|\n  [every process]\n  1"), every("1", ""), "1", "+[process 0]"),
    (":raises: ValueError a", [], "1", "where `raises` expects ValueError: a"),
    (":raises: ValueError b", error("TypeError", "b"), "1", "raised    TypeError: b"),
    (":raises: ValueError c", error("ValueError", "d"), "1", "ValueError: ...c..."),
    (":raises: ValueError", error("ValueError", "d"), "1", "add a phrase of it"),
    (":check: so", error("AssertionError", ""), "assert x", "is not true: so"),
    (":check: so", [], "assert True", "asserts nothing: so"),
    (":check: so", [], "print('assert x')", "asserts nothing: so"),
    (":expects: 3", [], "1", "an option that nothing knows: expects"),
    ("", printed("5"), "1", "prints what nothing expects\n5"),
    (":fold: so", every("5", "6"), "1", "prints what nothing expects\n[process 0]\n5"),
]


def read_cell(options, code):
    text = f"{HEAD}```{{code-cell}}\n{options}\n{code}\n```\n"
    (cell,) = Page(Path("a.md"), Path(), source=text).code
    return cell


@pytest.mark.parametrize(("options", "outputs", "code"), TRUE)
def test_what_a_cell_gives_as_stated_is_no_fault(options, outputs, code):
    assert [*guards.faults(read_cell(options, code), outputs)] == []


@pytest.mark.parametrize(("options", "outputs", "code", "words"), FALSE)
def test_what_a_cell_states_falsely_is_a_fault(options, outputs, code, words):
    ((_, fault),) = guards.faults(read_cell(options, code), outputs)
    assert words in fault


def test_a_message_has_no_files_and_no_frames():
    message = f"bad at /tmp/x/1.py:3:4 (f)\n{'-' * 20}\nFor simplicity, JAX removed"
    assert guards.clean_message(message) == "bad at ... (f)"
    assert guards.clean_message("no /tmp/tmpa_1b/small here") == "no .../small here"


@pytest.mark.parametrize(
    ("options", "code", "count"),
    [
        (block("|\n  13 rows\n  ...\n  1.5e-3"), "f()", 2),
        (":raises: ValueError no", "f()", 1),
        (":check: so", "assert a == b\nnp.testing.assert_allclose(a, b)", 2),
        (":fold: so", "assert True", 0),
    ],
)
def test_lines_errors_and_assertions_are_facts(options, code, count):
    assert count_claims(read_cell(options, code)) == count
