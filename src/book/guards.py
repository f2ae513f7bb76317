"""Compare the outputs of a cell with its options.

    expect: TEXT          what the reader sees as text; `...` stands for anything
    raises: KIND PHRASE   the error that it raises, its class or a base of it, with the
                          phrase in its message; text printed before needs `expect`
    check: WORDS          what its assertions prove; these words stand for the code
    fold: WORDS           words that stand for the code; what the cell gives stays

A cell's outputs are those of a notebook (nbformat), from the site's own run or from a
reader's: both are judged here. What every process shows (`%%every`) is HTML, and counts
as text: its plain form, with the processes named above their lines, `[processes 0, 1]`.
"""

import ast
import difflib
import re
from doctest import DONT_ACCEPT_TRUE_FOR_1, ELLIPSIS, OutputChecker

MYST_OPTIONS = {"load", "mystnb", "tags"}  # the options of others
ACCOUNTED_FOR = {"check", "expect", "hide-cell"}  # of text that a page states, or folds
RICHER = {"text/html", "image/svg+xml", "image/png", "text/markdown", "text/latex"}
ANSI = re.compile(r"\x1b\[[\d;]*m")
FRAMES = re.compile(r"\s*(This error occurs at source:|-{20}|For simplicity).*", re.S)
GROUPS = '<div role="group" aria-label="'  # what processes show: see magic.py
MARK = re.compile(r"\[(every process|process(es)? [\d, ]+)\]\n")
INSIDE = re.compile("<(?!/|div |pre )")  # a value with a form of its own for the web
FLEETING = re.compile(  # of several processes: another one in each run
    r"(\d+\.){3}\d+:\d+|localhost:\d+|\b(port|pid) \d+|\b0x[\da-f]{6,}|/tmp/\w+"
    r"|\b\d\d:\d\d:\d\d\b|\b\d+(\.\d+)? ?(s|ms|us|seconds)\b"
)
PATH = re.compile(r"(?:/[\w.-]+){2,}\.py(?::\d+)*|/tmp/tmp\w+")  # or tempfile
BASES = "A kind of: "  # the last line of a traceback: see start_kernel.py
MAX_TRACEBACK_LINES = 30


# ----------------------------------------------------------------- what a cell gave


def visible_text(outputs) -> str:
    """Return the text below a cell: not pictures, tables, errors, nor stderr."""
    texts, printing = [], False
    for output in outputs:
        printed = output.get("name") == "stdout"
        if printed and printing:  # a kernel may send what it prints in pieces
            texts[-1] += output["text"]
        elif printed:
            texts.append(output["text"])
        elif "data" in output and (is_text(output) or is_of_processes(output)):
            texts.append(output["data"].get("text/plain", ""))
        printing = printed or (printing and output.get("name") == "stderr")
    return "\n".join(tidy(text) for text in texts)


def is_text(output) -> bool:
    """Return whether data has no other form than text."""
    return not RICHER & output["data"].keys()


def is_of_processes(output) -> bool:
    """Return whether an output is what several processes show."""
    data = output.get("data", {})
    html, text = ("".join(data.get(f"text/{kind}", "")) for kind in ("html", "plain"))
    return html.startswith(GROUPS) and bool(MARK.match(text))


def find_fleeting(text, outputs) -> list[str]:
    """Return what in a text differs between runs, where several processes show it."""
    if not any(map(is_of_processes, outputs)):
        return []
    return [found[0] for found in FLEETING.finditer(text)]


def tidy(text) -> str:
    """Return a text without colours, blanks at ends of lines, and empty last lines."""
    lines = ANSI.sub("", text).splitlines()
    return "\n".join(line.rstrip() for line in lines).rstrip()


def find_error(outputs) -> tuple[str, str, str] | None:
    """Return the kind of the error that a cell raised, its message, and how it came."""
    for output in outputs:
        if output["output_type"] == "error":
            lines = tidy("\n".join(output["traceback"])).splitlines()
            trace = "\n".join(lines[-MAX_TRACEBACK_LINES:])
            return output["ename"], clean_message(output["evalue"]), trace
    return None


def error_kinds(outputs) -> set[str]:
    """Return the names of the class of the error that a cell raised, and its bases."""
    for output in outputs:
        if output["output_type"] == "error":
            bases = [line for line in output["traceback"] if line.startswith(BASES)]
            names = "".join(bases).removeprefix(BASES).split(", ")
            return {output["ename"].rpartition(".")[2], *names}
    return set()


def clean_message(message) -> str:
    """Return the message of an error without the paths of one run."""
    return PATH.sub("...", FRAMES.sub("", ANSI.sub("", message))).strip()


# ----------------------------------------------------------------------- judgement


def faults(cell, outputs):
    """Yield each option that a cell does not fulfil, and the fault.

    Text that nothing expects is a fault of `expect`.
    """
    for name in cell.others.keys() - MYST_OPTIONS:
        yield "option", f"has an option that nothing knows: {name}"
    error = find_error(outputs)
    if error and not {"raises", "check"} & cell.options.keys():
        yield "error", f"raised what no option expects\n{error[2]}"
        return
    for option, wanted in cell.options.items():
        for words in RULES[option](cell, wanted, outputs):
            yield option, words
    text = visible_text(output for output in outputs if must_be_expected(cell, output))
    if text and not ACCOUNTED_FOR & {*cell.options, *cell.tags}:
        yield "expect", f"prints what nothing expects\n{text}"


def must_be_expected(cell, output) -> bool:
    """Return whether an option must expect the text of an output.

    Tables are exempt, and errors that `--raises` expects in the cell's first line.
    """
    if not is_of_processes(output):
        return True
    expects_error = "--raises" in cell.source.partition("\n")[0]
    return not expects_error and not INSIDE.search(output["data"]["text/html"])


def is_match(wanted, got) -> bool:
    """Return whether two texts are equal, where `...` stands for anything."""
    flags = ELLIPSIS | DONT_ACCEPT_TRUE_FOR_1
    return OutputChecker().check_output(f"{wanted}\n", f"{got}\n", flags)


def expect(cell, wanted, outputs):
    """Yield the difference between the text wanted and the text that there is."""
    wanted, got = tidy(wanted), visible_text(outputs)
    if not re.search(r"\w", wanted.replace("...", "")):
        yield f"expects no word, number or type: {wanted!r} fits anything"
    if differs := find_fleeting(wanted, outputs):
        words = ", ".join(differs)
        yield f"expects what differs between runs: {words}: write `...` for it"
    if not is_match(wanted, got):
        yield "printed something else\n" + difference(wanted, got)


def difference(wanted, got) -> str:
    """Return the lines that differ; those that differ in `...` alone do not."""
    want, have = wanted.splitlines(), got.splitlines()
    if len(want) == len(have):
        want = [h if is_match(w, h) else w for w, h in zip(want, have, strict=True)]
    lines = difflib.unified_diff(want, have, "expected", "printed", lineterm="")
    return "\n".join(lines)


def raises(cell, wanted, outputs):
    """Yield what is wrong with the error, or with its absence."""
    name, _, phrase = wanted.strip().partition(" ")
    name, phrase, error = name.rstrip(":"), phrase.strip(), find_error(outputs)
    if not phrase:
        yield f"says nothing of the message of {name}: add a phrase of it"
    elif not error:
        yield f"raised nothing, where `raises` expects {name}: {phrase}"
    elif name not in error_kinds(outputs) or not is_match(f"...{phrase}...", error[1]):
        yield (
            f"raised another error\nexpected  {name}: ...{phrase}...\n"
            f"raised    {error[0]}: {error[1]}"
        )


def check(cell, words, outputs):
    """Yield the error of an assertion, or that there is no assertion."""
    if not has_claims(cell.source):
        yield f"asserts nothing: {words}"
    if error := find_error(outputs):
        yield f"is not true: {words}\n{error[2]}"


def has_claims(code) -> bool:
    """Return whether code asserts something that could be false."""
    return any(find_claims(parse_cell(code)[1]))


def parse_cell(code) -> tuple[str, ast.Module]:
    """Return the line of magic that a cell may begin with, and the code below it."""
    magic, end, rest = code.partition("\n") if code.startswith("%%") else ("", "", code)
    return magic + end, ast.parse(rest)


def find_claims(tree):
    """Yield each assertion that could be false: a statement, or a call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
            yield node
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name == "require" or name.startswith("assert_"):
                yield node


RULES = {"expect": expect, "raises": raises, "check": check, "fold": lambda *_: ()}
