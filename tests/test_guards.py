"""A guard fails for every broken promise of a cell, and for nothing else."""

from pathlib import Path

import pytest
from nbformat.v4 import new_output

from book import guards
from book.page import Page, comment_options
from examples.magic import as_html
from examples.processes import Output, Shown

HEAD = "---\nkernelspec: {name: python3}\n---\n# Page\n\n"


def page(*cells):
    """Return a page with these cells, each a pair of options and code."""
    fences = (f"```{{code-cell}}\n{options}\n{code}\n```\n" for options, code in cells)
    return Page(Path("a.md"), Path(), source=HEAD + "\n".join(fences))


def stdout(text):
    return [new_output("stream", name="stdout", text=text)]


def result(text, **others):
    data = {"text/plain": text, **others}
    return [new_output("execute_result", data=data, execution_count=1)]


def every(*shown):
    """What `%%every` displays of processes that show this, or print it."""
    each = (one if isinstance(one, Shown) else Shown(printed=one) for one in shown)
    output = Output(tuple(each))
    data = {"text/plain": str(output), "text/html": as_html(output)}
    return [new_output("display_data", data=data)]


def error(kind, message, *bases):
    trace = ["Traceback", f"\x1b[31m{kind}\x1b[0m: {message}"]
    trace += [f"A kind of: {', '.join(bases)}"]
    return [new_output("error", ename=kind, evalue=message, traceback=trace)]


def faults(options, outputs, code="1"):
    (cell,) = page((options, code)).code
    return [words for _, words in guards.faults(cell, outputs)]


VALID = {
    ":expect: 0.10": stdout("0.10\n"),
    ":expect: \"{'a': 1}\"": result("{'a': 1}"),
    "---\nexpect: |\n  one ... x\n\n  two\n---": stdout("one and x  \n\ntwo\n"),
    "---\nexpect: |2\n    a\n  b\n---": stdout("  a\nb"),
    ":expect: in pieces": [*stdout("\x1b[1min "), *stdout("pieces\x1b[0m\n")],
    ":raises: ValueError no mesh": error("ValueError", "there is no mesh\nat all"),
    ":raises: 'ShardingTypeError: of ... x'": error("jax.ShardingTypeError", "of a x"),
    ":raises: ValueError base": error("OddError", "a base", "ValueError", "Exception"),
    "---\nexpect: |\n  [every process]\n  a < b\n---": every("a < b\n", "a < b\n"),
    "---\nexpect: |\n  [process 0]\n  port ...\n---": every("port 41233\n", ""),
    ":expect: it takes 1.5 s": stdout("it takes 1.5 s"),
    ":fold: Set-up": [],
    ":tags: [hide-cell]": stdout("much"),
    "": result("<Picture>", **{"text/html": "<svg/>"}),
}
INVALID = {
    ":expect: 2": (stdout("3"), "-2\n+3"),
    ":expect: 1": (result("True"), "+True"),
    ":expect: ...": (stdout("3"), "expects no word, number or type"),
    ":raises: ValueError a": (
        [],
        "raised nothing, where `raises` expects ValueError: a",
    ),
    ":raises: ValueError b": (error("TypeError", "b"), "raised    TypeError: b"),
    ":raises: ValueError c": (
        error("ValueError", "d"),
        "expected  ValueError: ...c...",
    ),
    ":raises: ValueError": (error("ValueError", "d"), "add a phrase of it"),
    ":expects: 3": ([], "an option that nothing knows: expects"),
    ":expect: 4": (error("NameError", "y"), "raised what no option expects"),
    "": (stdout("5"), "prints what nothing expects\n5"),
    "---\nexpect: |\n  [every process]\n  1\n---": (
        every("1", ""),
        "-[every process]\n+[process 0]",
    ),
    ":fold: In processes": (
        every("5", "6"),
        "prints what nothing expects\n[process 0]\n5",
    ),
}
PASSING = [  # what another run would not show
    ("at 127.0.0.1:41233", "127.0.0.1:41233"),
    ("in 1.25 s", "1.25 s"),
]


@pytest.mark.parametrize("options", VALID)
def test_a_promise_that_is_fulfilled_is_no_fault(options):
    assert faults(options, VALID[options]) == []


@pytest.mark.parametrize("options", INVALID)
def test_a_promise_that_is_not_fulfilled_is_a_fault(options):
    outputs, words = INVALID[options]
    (fault,) = faults(options, outputs)
    assert words in fault


@pytest.mark.parametrize(("text", "differs"), PASSING)
def test_what_differs_between_runs_is_expected_of_no_process(text, differs):
    options = f"---\nexpect: |\n  [process 0]\n  {text}\n---"
    (fault,) = faults(options, every(text, ""))
    assert fault == f"expects what differs between runs: {differs}: write `...` for it"
    assert faults(options.replace(differs, "..."), every(text, "")) == []


@pytest.mark.parametrize(
    ("outputs", "code"),
    [
        (every(Shown(error="ValueError: 1")), "%%every --raises ValueError\nf()"),
        (every(Shown(value="a  b", html="<table></table>")), "%%every\ntable"),
    ],
)
def test_an_expected_error_and_a_table_of_processes_need_no_expectation(outputs, code):
    assert faults(":fold: so", outputs, code) == []
    assert faults(":expect: other", outputs, code) != []


@pytest.mark.parametrize("code", ["assert a == b", "%%every\njudge(x).require()"])
def test_a_check_proves_something(code):
    assert faults(":check: so", [], code) == []
    (fault,) = faults(":check: so", error("AssertionError", ""), code)
    assert fault.startswith("is not true: so")


@pytest.mark.parametrize("code", ["assert True", "print('assert x')"])
def test_a_check_without_an_assertion_is_a_fault(code):
    assert faults(":check: so", [], code) == ["asserts nothing: so"]


def test_lines_that_differ_in_dots_alone_do_not_differ():
    text = guards.difference("a ... c\nx", "a b c\ny")
    assert "-a" not in text
    assert "-x\n+y" in text


def test_a_message_has_no_files_and_no_frames():
    message = f"bad at /tmp/x/1.py:3:4 (f)\n{'-' * 20}\nFor simplicity, JAX removed"
    assert guards.clean_message(message) == "bad at ... (f)"
    assert guards.clean_message("no /tmp/tmpa_1b/small here") == "no .../small here"


@pytest.mark.parametrize("options", [*VALID][:4])
def test_options_become_comments_on_their_lines(options):
    before = page((options, "1"))
    after = Page(before.file, before.docs, source=comment_options(before))
    assert len(after.text.split("\n")) == len(before.text.split("\n"))
    assert [cell.options for cell in after.code] == [{}]
    assert after.code[0].source == before.code[0].source
    assert after.code[0].line == before.code[0].line


@pytest.mark.parametrize("options", [":raises: A: b: c", ":expect: [1]"])
def test_options_that_cannot_be_read_are_refused_with_their_line(options):
    with pytest.raises(ValueError, match="line 6: the options of a cell need quotes"):
        _ = page((options, "1")).code
