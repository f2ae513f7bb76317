"""Compare the outputs of a cell (nbformat) with its options.

    expect: TEXT          what the reader sees as text; `...` stands for anything
    raises: KIND PHRASE   the error that it raises, with the phrase in its message; text
                          printed before needs `expect`
    check: WORDS          what its assertions prove; the words stand for the code
    fold: WORDS           the words stand for the code; what the cell gives stays

What every process shows (`%%every`) is HTML, and counts as text: its plain form, with
the processes above their lines, `[processes 0, 1]`.
"""

import difflib
import re
from doctest import DONT_ACCEPT_TRUE_FOR_1, ELLIPSIS, OutputChecker

ACCOUNTED_FOR = {"expect", "hide-cell"}  # of text that a page states, or folds
RICHER = {"text/html", "image/svg+xml", "image/png", "text/markdown", "text/latex"}
BASE_CLASSES = {"IndivisibleError": "ValueError"}  # of JAX's errors, as pages state
ANSI = re.compile(r"\x1b\[[\d;]*m")
FRAMES = re.compile(r"\s*(This error occurs at source:|-{20}|For simplicity).*", re.S)
PATH = re.compile(r"(?:/[\w.-]+){2,}\.py(?::\d+)*|/tmp/tmp\w+")  # or tempfile
PROCESSES = '<div role="group" aria-label="'  # what processes show: see magic.py
INSIDE = re.compile("<(?!/|div |pre )")  # a value of theirs with its own form
ASSERTION = re.compile(r"^\s*assert (?!True\b)|\brequire\(|\bassert_\w+\(", re.M)
MAX_TRACEBACK_LINES = 30


# ----------------------------------------------------------------- what a cell gave


def visible_text(outputs) -> str:
    """Return the text below a cell: not pictures, tables, errors, nor stderr."""
    texts = []
    for output in outputs:
        data = output.get("data", {})
        if output.get("name") == "stdout":
            texts.append(output["text"])
        elif data and (not RICHER & data.keys() or process_html(output)):
            texts.append(data.get("text/plain", ""))
    return "\n".join(map(tidy, texts))


def text_and_error(outputs) -> str:
    """Return the text below a cell, and the kind and the message of its error."""
    error = ": ".join((find_error(outputs) or ())[:2])
    return "\n".join(filter(None, (visible_text(outputs), error)))


def process_html(output) -> str:
    """Return the HTML of what several processes show, or nothing."""
    html = output.get("data", {}).get("text/html", "")
    return html if html.startswith(PROCESSES) else ""


def tidy(text) -> str:
    """Return a text without colours, blanks at ends of lines, and empty last lines."""
    lines = ANSI.sub("", text).splitlines()
    return "\n".join(line.rstrip() for line in lines).rstrip()


def find_error(outputs) -> tuple[str, str, str] | None:
    """Return the kind of the error that a cell raised, its message, and its trace."""
    for output in outputs:
        if output["output_type"] == "error":
            lines = tidy("\n".join(output["traceback"])).splitlines()
            trace = "\n".join(lines[-MAX_TRACEBACK_LINES:])
            return output["ename"], clean_message(output["evalue"]), trace
    return None


def clean_message(message) -> str:
    """Return the message of an error without the paths of one run."""
    return PATH.sub("...", FRAMES.sub("", ANSI.sub("", message))).strip()


# ----------------------------------------------------------------------- judgement


def faults(cell, outputs):
    """Yield each option that a cell does not fulfil, and the fault.

    Text that nothing expects is a fault of `expect`.
    """
    for option in cell.options.keys() - RULES.keys():
        yield "option", f"has an option that nothing knows: {option}"
    error = find_error(outputs)
    if error and not {"raises", "check"} & cell.options.keys():
        yield "error", f"raised what no option expects\n{error[2]}"
        return
    for option in filter(RULES.get, cell.options):
        for words in RULES[option](cell, outputs, error):
            yield option, words
    if text := unexpected_text(cell, outputs):
        yield "expect", f"prints what nothing expects\n{text}"


def unexpected_text(cell, outputs) -> str:
    """Return the text of a cell that neither states nor folds it.

    Processes that show a table, or an error that their first line expects, are exempt.
    """
    shown = [*filter(None, map(process_html, outputs))]
    expects_error = shown and "--raises" in cell.source.partition("\n")[0]
    accounted_for = ACCOUNTED_FOR & {*cell.options, *cell.tags}
    if accounted_for or expects_error or any(map(INSIDE.search, shown)):
        return ""
    return visible_text(outputs)


def is_match(wanted, got) -> bool:
    """Return whether two texts are equal, where `...` stands for anything."""
    flags = ELLIPSIS | DONT_ACCEPT_TRUE_FOR_1
    return OutputChecker().check_output(f"{wanted}\n", f"{got}\n", flags)


def expect(cell, outputs, error):
    """Yield the difference between the text wanted and the text that there is."""
    wanted, got = tidy(cell.options["expect"]), visible_text(outputs)
    if not re.search(r"\w", wanted):
        yield f"expects no word, number or type: {wanted!r} fits anything"
    if not is_match(wanted, got):
        lines = wanted.splitlines(), got.splitlines()
        diff = difflib.unified_diff(*lines, "expected", "printed", lineterm="")
        yield "\n".join(["printed something else", *diff])


def raises(cell, outputs, error):
    """Yield what is wrong with the error, or with its absence."""
    name, _, phrase = cell.options["raises"].strip().partition(" ")
    name, phrase = name.rstrip(":"), phrase.strip()
    kind, message, _ = error or ("nothing", "", "")
    kinds = kind.rpartition(".")[2], BASE_CLASSES.get(kind)
    if not phrase:
        yield f"says nothing of the message of {name}: add a phrase of it"
    elif not (name in kinds and is_match(f"...{phrase}...", message)):
        yield f"raised {kind}: {message}\nwhere `raises` expects {name}: {phrase}"


def check(cell, outputs, error):
    """Yield the error of an assertion, or that there is no assertion."""
    if not ASSERTION.search(cell.source):
        yield f"asserts nothing: {cell.options['check']}"
    if error:
        yield f"is not true: {cell.options['check']}\n{error[2]}"


RULES = {"expect": expect, "raises": raises, "check": check, "fold": lambda *_: ()}
