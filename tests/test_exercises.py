"""Every stub fails its judge, every solution passes, wrong answers fail for a reason.

A page runs once, in a process of its own, cell by cell and without a notebook. At each
stub the wrong answers of `wrong_answers/NAME.toml` take its place, one after another,
on a copy of the names that the page has defined so far.
"""

import ast
import contextlib
import functools
import io
import json
import linecache
import os
import re
import subprocess
import sys
import tomllib
import traceback
from pathlib import Path

import jax
import jupytext
import pytest

from examples import processes

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EVERY = re.compile(r"%%every(.*)\n")  # the first line of a cell for every process
WRONG = ROOT / "tests/wrong_answers"
ENVIRONMENT = {
    "JAX_NUM_CPU_DEVICES": "8",
    "JAX_PLATFORMS": "cpu",
    "JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "0",
    "MPLBACKEND": "Agg",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT / "src"),
}


# ------------------------------------------------------------ reading the exercises


@functools.cache
def cells(page):
    """Return the code of a page as [{source, tags}]; tags[1] names an exercise."""
    notebook = jupytext.read(page, fmt="md:myst")
    return [
        {"source": cell.source, "tags": cell.metadata.get("tags", [])}
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def tagged(page, tag):
    """Return the cells of a page with this tag, as pairs of a name and the source."""
    found = [cell for cell in cells(page) if tag in cell["tags"]]
    return [
        (cell["tags"][cell["tags"].index(tag) + 1], cell["source"]) for cell in found
    ]


@functools.cache
def wrong_answers(name):
    """Return the wrong answers to an exercise, each with its reason."""
    file = WRONG / f"{name}.toml"
    return tomllib.loads(file.read_text())["wrong"] if file.exists() else []


def pages_with_exercises():
    sources = sorted(DOCS.glob("*/**/*.md")) + sorted(DOCS.glob("*.md"))
    sources = [page for page in sources if "_build" not in page.parts]
    return [page for page in sources if "exercise," in page.read_text()]


PAGES = pages_with_exercises()
EXERCISES = [(page, name) for page in PAGES for name, _ in tagged(page, "exercise")]
ANSWERS = [
    (page, name, number)
    for page, name in EXERCISES
    for number in range(len(wrong_answers(name)))
]


def label(value):
    return str(value.relative_to(DOCS)) if isinstance(value, Path) else None


each_page = pytest.mark.parametrize("page", PAGES, ids=label)
each_exercise = pytest.mark.parametrize(("page", "name"), EXERCISES, ids=label)
each_answer = pytest.mark.parametrize(("page", "name", "number"), ANSWERS, ids=label)


# ------------------------------------------- playing a page (in a process of its own)


def execute(source, names):
    """Run a cell among `names`; return the value of its last expression."""
    if magic := EVERY.match(source):  # as IPython calls it
        return processes.every(magic[1], source[magic.end() :])
    tree, last = ast.parse(source), None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    file = f"<cell {len(linecache.cache)}>"
    linecache.cache[file] = len(source), None, source.splitlines(True), file
    exec(compile(tree, file, "exec"), names)
    return eval(compile(last, file, "eval"), names) if last else None


def attempt(source, names):
    """Run a cell and put the mesh back; return what became of it."""
    mesh = jax.sharding.get_mesh()
    try:
        verdict = execute(source, names)
        shown = verdict._repr_html_() and str(verdict)
        return {"passed": verdict.passed, "text": shown}
    except Exception:
        return {"error": traceback.format_exc(limit=-3)}
    finally:
        if jax.sharding.get_mesh() != mesh:
            jax.set_mesh(mesh)


def replaced(stub, answer):
    """Return the stub with other code above its last statement."""
    last = ast.parse(stub).body[-1]
    lines = stub.splitlines()[last.lineno - 1 :]
    return "\n".join([answer, *lines])


def play(script):
    """Run the cells of a page in order; return what became of its exercises."""
    names, outcome = {"__name__": "__main__"}, []
    for cell in script:
        if "exercise" in cell["tags"]:
            sources = [replaced(cell["source"], answer) for answer in cell["wrong"]]
            tries = [attempt(source, dict(names)) for source in sources]
            stub = attempt(cell["source"], names)
            outcome.append({"tags": cell["tags"], "wrong": tries, **stub})
        elif "solution" in cell["tags"]:
            outcome.append({"tags": cell["tags"], **attempt(cell["source"], names)})
        elif "import capture_output" in cell["source"]:
            continue  # of what only a notebook shows
        elif "skip-execution" not in cell["tags"]:
            expected = Exception if "raises-exception" in cell["tags"] else ()
            with contextlib.suppress(expected):
                execute(cell["source"], names)
    return outcome


@functools.cache
def played(page):
    """Play a page in a fresh process, with the wrong answers of its exercises."""
    script = [cell.copy() for cell in cells(page)]
    for cell in script:
        if "exercise" in cell["tags"]:
            name = cell["tags"][cell["tags"].index("exercise") + 1]
            cell["wrong"] = [wrong["answer"] for wrong in wrong_answers(name)]
    ends = [i for i, c in enumerate(script) if {"exercise", "solution"} & {*c["tags"]}]
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(script[: ends[-1] + 1]),
        env=os.environ | ENVIRONMENT,
        cwd=page.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        return {"failed": f"{label(page)} does not run:\n{done.stderr[-2000:]}"}
    return {"outcome": json.loads(done.stdout)}


def outcomes(page, tag, name):
    """Return what became of the cells of a page with this tag and name."""
    result = played(page)
    assert "failed" not in result, result["failed"]
    return [cell for cell in result["outcome"] if {tag, name} <= {*cell["tags"]}]


def text(page, name, outcome):
    """Return the verdict's text; an error names the page and the exercise."""
    where = f"{label(page)}, exercise {name}"
    assert "error" not in outcome, f"{where}:\n{outcome['error']}"
    return f"{where}:\n{outcome['text']}"


# ------------------------------------------------------------------------ the tests


def test_every_exercise_has_a_name_of_its_own():
    names = [name for _, name in EXERCISES]
    assert sorted(set(names)) == sorted(names)


def test_every_file_of_wrong_answers_belongs_to_an_exercise():
    assert {file.stem for file in WRONG.glob("*")} <= {name for _, name in EXERCISES}


@each_page
def test_every_exercise_is_stated_in_an_admonition(page):
    stated = page.read_text().count("\n:class: exercise\n")
    assert stated == len(tagged(page, "exercise")), "one stub for each statement"


@each_exercise
def test_it_has_one_stub_and_a_solution_below_it(page, name):
    tags = [cell["tags"] for cell in cells(page) if name in cell["tags"]]
    assert ["exercise" in each for each in tags][:2] == [True, False]
    assert sum("exercise" in each for each in tags) == 1
    assert all("solution" in each and "hide-cell" in each for each in tags[1:])


@each_exercise
def test_its_solution_is_judged_as_its_stub_is(page, name):
    """Else a solution could pass a judge that the reader never meets."""
    (stub,) = (source for n, source in tagged(page, "exercise") if n == name)
    judged = ast.unparse(ast.parse(stub).body[-1])
    for _, solution in (s for s in tagged(page, "solution") if s[0] == name):
        assert ast.unparse(ast.parse(solution).body[-1]) == f"{judged}.require()"


@each_exercise
def test_it_has_two_plausible_wrong_answers(page, name):
    wrong = wrong_answers(name)
    assert len({answer["answer"] for answer in wrong}) >= 2, f"{name}.toml"
    assert all(len(answer["reason"]) >= 8 for answer in wrong)


@each_exercise
def test_its_stub_runs_and_is_not_yet_accepted(page, name):
    (stub,) = outcomes(page, "exercise", name)
    said = text(page, name, stub)
    assert not stub["passed"], said


@each_exercise
def test_its_solution_is_accepted(page, name):
    for solution in outcomes(page, "solution", name):
        said = text(page, name, solution)
        assert solution["passed"], said


@each_answer
def test_a_wrong_answer_fails_for_the_reason_stated(page, name, number):
    (stub,) = outcomes(page, "exercise", name)
    said = text(page, name, stub["wrong"][number])
    reason = wrong_answers(name)[number]["reason"]
    assert not stub["wrong"][number]["passed"], said
    assert reason.casefold() in said.casefold(), f"{reason!r} is not in {said}"


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()):
        outcome = play(json.load(sys.stdin))
    print(json.dumps(outcome))
