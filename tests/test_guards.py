"""A guard fails for every broken promise of a cell, and for nothing else."""

from pathlib import Path

import pytest
from book import guards
from book.page import Page, quiet
from nbformat.v4 import new_output

HEAD = "---\nkernelspec: {name: python3}\n---\n# Page\n\n"


def page(*cells):
    """Return a page with these cells, each a pair of options and code."""
    fences = (f"```{{code-cell}}\n{told}\n{code}\n```\n" for told, code in cells)
    return Page(Path("a.md"), Path(), source=HEAD + "\n".join(fences))


def printed(text):
    return [new_output("stream", name="stdout", text=text)]


def returned(text, **others):
    data = {"text/plain": text, **others}
    return [new_output("execute_result", data=data, execution_count=1)]


def raised(kind, message, *bases):
    trace = ["Traceback", f"\x1b[31m{kind}\x1b[0m: {message}"]
    trace += [f"A kind of: {', '.join(bases)}"]
    return [new_output("error", ename=kind, evalue=message, traceback=trace)]


def faults(options, outputs, code="1", strict=True):
    (cell,) = page((options, code)).code
    return [words for _, words in guards.faults(cell, outputs, strict=strict)]


KEPT = {
    ":expect: 0.10": printed("0.10\n"),
    ":expect: {'a': 1}": returned("{'a': 1}"),
    ":expect: '[1, 2]'": returned("[1, 2]"),
    "---\nexpect: |\n  one ... x\n\n  two\n---": printed("one and x  \n\ntwo\n"),
    "---\nexpect: |2\n    a\n  b\n---": printed("  a\nb"),
    ":expect: a": printed("\x1b[1ma\x1b[0m"),
    ":raises: ValueError no mesh": raised("ValueError", "there is no mesh\nat all"),
    ":raises: 'ShardingTypeError: of ... x'": raised("jax.ShardingTypeError", "of a x"),
    ":raises: ValueError base": raised("OddError", "a base", "ValueError", "Exception"),
    ":expect: in pieces": [*printed("in "), *printed("pieces\n")],
    ":fold: Set-up": [],
    ":tags: [hide-output]": printed("much"),
    "": returned("<Picture>", **{"text/html": "<svg/>"}),
}
BROKEN = {
    ":expect: 2": (printed("3"), "-2\n+3"),
    ":expect: 1": (returned("True"), "+True"),
    ":expect: x": ([], "-x"),
    ":expect: ...": (printed("3"), "expects no word, number or type"),
    ":raises: ValueError a": (
        [],
        "raised nothing, where `raises` expects ValueError: a",
    ),
    ":raises: ValueError b": (raised("TypeError", "b"), "raised    TypeError: b"),
    ":raises: ValueError c": (
        raised("ValueError", "d"),
        "expected  ValueError: ...c...",
    ),
    ":raises: KeyError base": (
        raised("OddError", "a base", "ValueError", "Exception"),
        "raised    OddError: a base",
    ),
    ":raises: ValueError": (raised("ValueError", "d"), "add a phrase of it"),
    ":expects: 3": ([], "an option that nothing knows: expects"),
    ":expect: 4": (raised("NameError", "y"), "raised what no option expects"),
    "": (printed("5"), "prints what nothing expects\n5"),
}


@pytest.mark.parametrize("options", KEPT)
def test_a_promise_that_is_kept_is_no_fault(options):
    assert faults(options, KEPT[options]) == []


@pytest.mark.parametrize("options", BROKEN)
def test_a_promise_that_is_broken_is_told(options):
    outputs, words = BROKEN[options]
    (fault,) = faults(options, outputs)
    assert words in fault


def test_text_may_go_unspoken_of_on_a_page_that_is_not_converted():
    assert faults("", printed("5"), strict=False) == []


@pytest.mark.parametrize(
    "code",
    ["assert a == b", "judge(x).require()", "np.testing.assert_allclose(a, b)"],
)
def test_a_check_proves_something(code):
    assert faults(":check: so", [], code) == []
    assert faults(":check: so", [], f"%%every\n{code}") == []
    (fault,) = faults(":check: so", raised("AssertionError", ""), code)
    assert fault.startswith("is not true: so")


@pytest.mark.parametrize(
    "code", ["1", "assert True", "print('assert x')", "f(require)"]
)
def test_a_check_without_an_assertion_is_a_fault(code):
    assert faults(":check: so", [], code) == ["asserts nothing: so"]


def test_lines_that_differ_in_dots_alone_are_not_told():
    told = guards.difference("a ... c\nx", "a b c\ny")
    assert "a b c" in told
    assert "-a" not in told
    assert "-x\n+y" in told


def test_a_message_says_nothing_of_files_and_frames():
    message = f"bad at /tmp/x/1.py:3:4 (f)\n{'-' * 20}\nFor simplicity, JAX removed"
    assert guards.told(message) == "bad at ... (f)"


@pytest.mark.parametrize("options", sorted({*KEPT, *BROKEN}))
def test_options_become_comments_on_their_lines(options):
    before = page((options, "1"))
    after = Page(before.file, before.docs, source=quiet(before))
    assert len(after.text.split("\n")) == len(before.text.split("\n"))
    assert [cell.options for cell in after.code] == [{}]
    assert after.code[0].source == before.code[0].source
    assert after.code[0].line == before.code[0].line


@pytest.mark.parametrize("options", [":raises: A: b: c", ":expect: [1", ":expect: @a"])
def test_options_that_cannot_be_read_are_refused_with_their_line(options):
    with pytest.raises(ValueError, match="line 6: the options of a cell need quotes"):
        _ = page((options, "1")).code
