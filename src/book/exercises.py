"""Try answers to exercises while a page is played.

At each exercise its stub and the answers of `tests/wrong_answers` run on a copy of the
names that the page has so far. None may pass, and each wrong answer is to be told the
reason that stands beside it.
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
    places = {cell.id: n for n, cell in enumerate(notebook.cells)}
    for number, stub in reversed([*enumerate(page.cells, 1)]):
        if "exercise" in stub.tags:
            name = stub.tags[stub.tags.index("exercise") + 1]
            answers = [each["answer"] for each in wrong_answers(name)]
            tries = [replace_answer(stub.source, answer) for answer in answers]
            code = CODE.format(
                module=ATTEMPT.read_text(), sources=[stub.source, *tries]
            )
            cell = new_code_cell(code, id=PREFIX + name)
            notebook.cells.insert(places[f"cell-{number}"], cell)


def read_outcomes(notebook) -> dict[str, list[dict]]:
    """Return the outcomes of the answers, the stub's first, by exercise."""
    found = {}
    for cell in notebook.cells:
        if cell.id.startswith(PREFIX):
            printed = "".join(o.text for o in cell.outputs if o.get("name") == "stdout")
            outcomes = OUTCOME.findall(printed) or ["[]"]
            found[cell.id.removeprefix(PREFIX)] = json.loads(outcomes[-1])
    return found


def faults(name, found) -> list[str]:
    """List the answers to an exercise with an unexpected verdict.

    found: the outcomes of the stub, and of each wrong answer.
    """
    tried = [None, *wrong_answers(name)]
    if len(found) != len(tried):
        return [f"exercise {name}: its answers were not tried"]
    messages = []
    for outcome, wrong in zip(found, tried, strict=True):
        if "error" in outcome:
            messages.append(outcome["error"])
        elif outcome["passed"]:
            accepted = (
                f"a wrong answer is accepted:\n{wrong['answer']}" if wrong else ""
            )
            messages.append(accepted or "its stub is accepted")
        elif wrong and wrong["reason"].casefold() not in outcome["text"].casefold():
            messages.append(f"{wrong['reason']!r} is not in {outcome['text']}")
    return [f"exercise {name}: {each}" for each in messages]
