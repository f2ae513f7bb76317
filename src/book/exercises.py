"""Try answers to exercises while a page is played.

At each exercise its stub and the answers of `tests/wrong_answers` run on a copy of the
names that the page has so far. None may pass, and each wrong answer is to be told the
reason that stands beside it.

The index has a line for each exercise: a link, its difficulty, its first sentence. Its
difficulty is the sum of the lines of its solution and of its wrong answers, in three
classes.
"""

import ast
import json
import re
import tomllib
from pathlib import Path
from posixpath import relpath

from nbformat.v4 import new_code_cell

from book import contents

WRONG_ANSWERS = Path(__file__).resolve().parents[2] / "tests/wrong_answers"
ATTEMPT = Path(__file__).with_name("attempt.py")  # what the kernel is given
CODE = """\
def _try(sources, names, own):
    exec({module!r}, own)
    print("\\noutcome", own["run_answers"](sources, names))
_try({sources!r}, globals(), {{}})"""  # leaves no other name behind
OUTCOME = re.compile(r"^outcome (.*)$", re.M)
PREFIX = "try-"  # of the cells that try answers
LEVELS = {"easy": 5, "medium": 8}  # the largest sum of each; more is hard


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
    stubs = {
        f"cell-{number}": cell
        for number, cell in enumerate(page.cells, 1)
        if "exercise" in cell.tags
    }
    cells = []
    for cell in notebook.cells:
        if stub := stubs.get(cell.id):
            name = stub.tags[stub.tags.index("exercise") + 1]
            answers = (each["answer"] for each in wrong_answers(name))
            tries = [replace_answer(stub.source, answer) for answer in answers]
            code = CODE.format(
                module=ATTEMPT.read_text(), sources=[stub.source, *tries]
            )
            cells.append(new_code_cell(code, id=PREFIX + name))
        cells.append(cell)
    notebook.cells = cells


def read_outcomes(notebook) -> dict[str, list[dict]]:
    """Return the outcomes of the answers, the stub's first, by exercise."""
    found = {}
    for cell in notebook.cells:
        if cell.id.startswith(PREFIX):
            printed = "".join(o.text for o in cell.outputs if o.get("name") == "stdout")
            last = OUTCOME.findall(printed)[-1:] or ["[]"]
            found[cell.id.removeprefix(PREFIX)] = json.loads(last[0])
    return found


def faults(name, found) -> list[str]:
    """List the answers to an exercise with an unexpected verdict.

    found: the outcomes of the stub, and of each wrong answer.
    """
    wrong = wrong_answers(name)
    if len(found) != len(wrong) + 1:
        return [f"exercise {name}: its answers were not tried"]
    stub, *others = found
    messages = ["its stub is accepted"] if stub.get("passed") else []
    messages += [each["error"] for each in found if "error" in each]
    for each, answer in zip(others, wrong, strict=True):
        text = each.get("text", "")  # none where there was an error
        if each.get("passed"):
            messages.append(f"a wrong answer is accepted:\n{answer['answer']}")
        elif answer["reason"].casefold() not in text.casefold():
            messages += [f"{answer['reason']!r} is not in {text}"] if text else []
    return [f"exercise {name}: {fault}" for fault in messages]


# ----------------------------------------------------------------------- the index


def difficulty(exercise, page) -> str:
    """Return the class of an exercise: a long solution, or many ways to be wrong."""
    cells = (cell for cell in page.code if {"solution", exercise.name} <= {*cell.tags})
    lines = [line for cell in cells for line in cell.source.splitlines()]
    count = sum(map(bool, map(str.strip, lines))) + len(wrong_answers(exercise.name))
    return next((name for name, most in LEVELS.items() if count <= most), "hard")


def page_section(other, page) -> str:
    """Return the MyST text for one page with exercises, to stand on another page."""
    path = relpath(other.file, page.file.parent)
    lines = [f"## [{other.title}]({path})", ""]
    for each in other.exercises:
        link = f"[{each.title}]({path}#exercise-{each.name})"
        lines.append(f"- {link} ({difficulty(each, other)}): {each.asks}")
    return "\n".join(lines)


def index_text(page) -> str:
    """Return the index in MyST, to stand on a page."""
    others = (other for other in contents.pages(page.docs) if other.exercises)
    return "\n\n".join(page_section(other, page) for other in others)
