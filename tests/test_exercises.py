"""Every stub fails its judge, every solution passes, wrong answers fail for a reason.

`nox -s notebooks` plays the pages and keeps what became of the answers, for this file.
A page that was not played since it changed is skipped, and fails in CI.
"""

import ast
import os

import notebooks
import pytest
from book.page import pages

PAGES = [page for page in pages(notebooks.DOCS) if page.exercises]
EXERCISES = [(page, each.name) for page in PAGES for each in page.exercises]
ANSWERS = [
    (page, name, number)
    for page, name in EXERCISES
    for number in range(len(notebooks.wrong_answers(name)))
]


def label(value):
    return getattr(value, "name", None)


def tagged(page, tag, name):
    """Return the cells of a page with this tag that belong to an exercise."""
    return [cell.source for cell in page.code if {tag, name} <= {*cell.tags}]


def outcome(page):
    """Return what became of a page when it was played last."""
    if (found := notebooks.outcome(page)) is None:
        words = f"{page.name} was not played: nox -s notebooks -- {page.name}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(words)
    return found


each_page = pytest.mark.parametrize("page", PAGES, ids=label)
each_exercise = pytest.mark.parametrize(("page", "name"), EXERCISES, ids=label)
each_answer = pytest.mark.parametrize(("page", "name", "number"), ANSWERS, ids=label)


def test_every_exercise_has_a_name_of_its_own():
    names = [name for _, name in EXERCISES]
    assert sorted(set(names)) == sorted(names)


def test_every_file_of_wrong_answers_belongs_to_an_exercise():
    files = {file.stem for file in notebooks.WRONG.glob("*")}
    assert files <= {name for _, name in EXERCISES}


@each_page
def test_every_exercise_is_stated_in_an_admonition(page):
    stubs = [cell for cell in page.code if "exercise" in cell.tags]
    assert len(page.exercises) == len(stubs), "one stub for each statement"


@each_exercise
def test_it_has_one_stub_and_a_solution_below_it(page, name):
    tags = [cell.tags for cell in page.code if name in cell.tags]
    assert ["exercise" in each for each in tags][:2] == [True, False]
    assert sum("exercise" in each for each in tags) == 1
    assert all("solution" in each and "hide-cell" in each for each in tags[1:])


@each_exercise
def test_its_solution_is_judged_as_its_stub_is(page, name):
    """Else a solution could pass a judge that the reader never meets."""
    (stub,) = tagged(page, "exercise", name)
    judged = ast.unparse(ast.parse(stub).body[-1])
    for solution in tagged(page, "solution", name):
        assert ast.unparse(ast.parse(solution).body[-1]) == f"{judged}.require()"


@each_exercise
def test_it_has_two_plausible_wrong_answers(page, name):
    wrong = notebooks.wrong_answers(name)
    assert len({answer["answer"] for answer in wrong}) >= 2, f"{name}.toml"
    assert all(len(answer["reason"]) >= 8 for answer in wrong)


@each_page
def test_it_runs_as_a_notebook_and_accepts_its_solutions(page):
    """A solution that is not accepted raises, and so would be a fault."""
    assert outcome(page)["faults"] == []


@each_exercise
def test_its_stub_runs_and_is_not_yet_accepted(page, name):
    stub, *_ = outcome(page)["exercises"][name]
    assert stub["passed"] is False


@each_answer
def test_a_wrong_answer_fails_for_the_reason_stated(page, name, number):
    _, *wrong = outcome(page)["exercises"][name]
    reason = notebooks.wrong_answers(name)[number]["reason"]
    assert wrong[number]["passed"] is False
    assert reason.casefold() in wrong[number]["text"].casefold()
