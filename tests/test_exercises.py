"""Each exercise has a stub, a solution that is judged as it is, and wrong answers.

The build tries them all: that none passes is judged there (`book/exercises.py`).
"""

import ast
import re

import pytest

from book import exercise_list, exercises
from book.facts import ROOT
from book.page import Page, pages

DOCS = ROOT / "docs"
EXERCISES = [(page, each.name) for page in pages(DOCS) for each in page.exercises]
NAMES = sorted(name for _, name in EXERCISES)


def test_every_exercise_is_stated_in_a_box_and_has_a_name_of_its_own():
    assert sorted({*NAMES}) == NAMES
    assert {file.stem for file in exercises.WRONG_ANSWERS.glob("*")} <= {*NAMES}
    stubs = [c for page in pages(DOCS) for c in page.code if "exercise" in c.tags]
    assert len(stubs) == len(NAMES), "one stub for each statement"


@pytest.mark.parametrize(
    ("page", "name"), EXERCISES, ids=lambda value: getattr(value, "name", None)
)
def test_a_stub_a_solution_with_the_same_judge_and_two_wrong_answers(page, name):
    """Else a solution could pass a judge that the reader never meets."""
    stub, *solutions = (cell for cell in page.code if name in cell.tags)
    assert "exercise" in stub.tags
    assert solutions
    judged = ast.unparse(ast.parse(stub.source).body[-1])
    for solution in solutions:
        assert {"solution", "hide-cell"} <= {*solution.tags}
        last = ast.parse(solution.source).body[-1]
        assert ast.unparse(last) == f"{judged}.require()"
    wrong = exercises.wrong_answers(name)
    assert len({answer["answer"] for answer in wrong}) >= 2, f"{name}.toml"
    assert all(len(answer["reason"]) >= 8 for answer in wrong)


def test_the_list_has_the_difficulty_and_the_question_of_each():
    text = exercise_list.index_text(Page(DOCS / "reference/exercises.md", DOCS))
    found = re.findall(r"#exercise-(\S+)\) \((easy|medium|hard)\): .+\.$", text, re.M)
    assert sorted(name for name, _ in found) == NAMES
    assert {level for _, level in found} == {"easy", "medium", "hard"}
