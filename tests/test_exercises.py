"""Each exercise has a stub, a solution that is judged as it is, and wrong answers.

The build tries them all: that none passes is judged there (`book/exercises.py`).
"""

import ast

import pytest
from site_cells import DOCS

from book import exercises
from book.page import pages

PAGES = [page for page in pages(DOCS) if page.exercises]
EXERCISES = [(page, each.name) for page in PAGES for each in page.exercises]


def label(value):
    return getattr(value, "name", None)


def find_cells(page, tag, name):
    """Return the cells of a page with this tag that belong to an exercise."""
    return [cell.source for cell in page.code if {tag, name} <= {*cell.tags}]


each_exercise = pytest.mark.parametrize(("page", "name"), EXERCISES, ids=label)


def test_every_exercise_is_stated_in_a_box_and_has_a_name_of_its_own():
    names = [name for _, name in EXERCISES]
    assert sorted(set(names)) == sorted(names)
    assert {file.stem for file in exercises.WRONG_ANSWERS.glob("*")} <= {*names}
    stubs = [c for page in pages(DOCS) for c in page.code if "exercise" in c.tags]
    assert len(stubs) == len(names), "one stub for each statement"


@each_exercise
def test_it_has_one_stub_and_a_solution_below_it(page, name):
    tags = [cell.tags for cell in page.code if name in cell.tags]
    assert ["exercise" in each for each in tags][:2] == [True, False]
    assert sum("exercise" in each for each in tags) == 1
    assert all("solution" in each and "hide-cell" in each for each in tags[1:])


@each_exercise
def test_its_solution_is_judged_as_its_stub_is(page, name):
    """Else a solution could pass a judge that the reader never meets."""
    (stub,) = find_cells(page, "exercise", name)
    judged = ast.unparse(ast.parse(stub).body[-1])
    for solution in find_cells(page, "solution", name):
        assert ast.unparse(ast.parse(solution).body[-1]) == f"{judged}.require()"


@each_exercise
def test_it_has_two_plausible_wrong_answers(page, name):
    wrong = exercises.wrong_answers(name)
    assert len({answer["answer"] for answer in wrong}) >= 2, f"{name}.toml"
    assert all(len(answer["reason"]) >= 8 for answer in wrong)
