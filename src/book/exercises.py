"""Try the stub of each exercise, and the answers of `tests/wrong_answers`, on its page.

None may pass, and the verdict on a wrong answer has to have the reason beside it.
"""

import ast
import json
import re
import tomllib
from pathlib import Path

from nbformat.v4 import new_code_cell

WRONG_ANSWERS = Path(__file__).resolve().parents[2] / "tests/wrong_answers"
ATTEMPT = Path(__file__).with_name("attempt.py")  # what the kernel is given
CODE = """\
def _try(sources, names, own):
    exec({module!r}, own)
    print("\\noutcome", own["run_answers"](sources, names))
_try({sources!r}, globals(), {{}})"""  # leaves no other name behind
OUTCOME = re.compile(r"^outcome (.*)$", re.M)
PREFIX = "try-"  # of the cells that try answers


def wrong_answers_file(name) -> Path:
    """Return the file with the wrong answers to an exercise; there may be none."""
    return WRONG_ANSWERS / f"{name}.toml"


def wrong_answers(name) -> list[dict]:
    """Return the wrong answers to an exercise, each with its reason."""
    file = wrong_answers_file(name)
    return tomllib.loads(file.read_text())["wrong"] if file.exists() else []


def replace_answer(stub, answer) -> str:
    """Return the stub with other code above its last statement."""
    last = ast.parse(re.sub(r"\A%%.*", "", stub)).body[-1]
    return "\n".join([answer, *stub.splitlines()[last.lineno - 1 :]])


def add_attempts(notebook, page):
    """Put before each stub a cell that tries it, and each wrong answer in its place."""
    module = ATTEMPT.read_text()
    for each in page.exercises:
        tags = [{*cell.metadata.get("tags", ())} for cell in notebook.cells]
        place = next(n for n, own in enumerate(tags) if {"exercise", each.name} <= own)
        stub = notebook.cells[place].source
        wrong = (replace_answer(stub, w["answer"]) for w in wrong_answers(each.name))
        code = CODE.format(module=module, sources=[stub, *wrong])
        notebook.cells.insert(place, new_code_cell(code, id=PREFIX + each.name))


def faults(page, notebook):
    """Yield the exercises with an answer of an unexpected verdict: lines, and why."""
    cells = {cell.id: cell for cell in notebook.cells}
    for each in page.exercises:
        cell = cells.get(PREFIX + each.name)
        outcomes = read_outcomes(cell) if cell else []
        tried = [{"answer": "its stub"}, *wrong_answers(each.name)]
        if len(outcomes) != len(tried):
            yield each.line, f"exercise {each.name}: its answers were not tried"
            continue
        for outcome, answer in zip(outcomes, tried, strict=True):
            if words := answer_fault(outcome, **answer):
                yield each.line, f"exercise {each.name}: {words}"


def read_outcomes(cell) -> list[dict]:
    """Return the outcomes of the answers that a cell tried, the stub's first."""
    printed = "".join(o.text for o in cell.outputs if o.get("name") == "stdout")
    return json.loads(["[]", *OUTCOME.findall(printed)][-1])


def answer_fault(outcome, answer, reason="") -> str:
    """Return what is wrong with the outcome of an answer that shall not pass."""
    if "error" in outcome:
        return outcome["error"]
    if outcome["passed"]:
        return f"\n{answer} is accepted"
    text = outcome["text"]
    return (
        "" if reason.casefold() in text.casefold() else f"{reason!r} is not in {text}"
    )
