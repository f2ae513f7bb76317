"""Each exercise has a stub, a solution that is judged as it is, and wrong answers.

The build tries them all: that none passes is judged there (`book/exercises.py`).
"""

import ast

import pytest
from site_cells import DOCS

from book import exercise_list, exercises
from book.page import Page, pages

EXERCISES = [(page, each.name) for page in pages(DOCS) for each in page.exercises]
PAGE = """
# The page

:::{admonition} Exercise: one of them
:class: exercise
Find `one`, as [the page](../index.md) says,
and keep it in a variable. Then rest.
:::

```{code-cell}
:tags: [exercise, one]
1
```

```{code-cell}
:tags: [solution, one]
x = 1

y = 2
```
"""


def test_every_exercise_is_stated_in_a_box_and_has_a_name_of_its_own():
    names = [name for _, name in EXERCISES]
    assert sorted(set(names)) == sorted(names)
    assert {file.stem for file in exercises.WRONG_ANSWERS.glob("*")} <= {*names}
    stubs = [c for page in pages(DOCS) for c in page.code if "exercise" in c.tags]
    assert len(stubs) == len(names), "one stub for each statement"


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


def test_the_list_has_a_link_the_question_and_the_difficulty(tmp_path, monkeypatch):
    """Two lines of a solution, and ways to be wrong."""
    monkeypatch.setattr(exercises, "WRONG_ANSWERS", tmp_path)
    (tmp_path / "index.md").write_text("# Book\n\n```{toctree}\npage\n```\n")
    (tmp_path / "page.md").write_text(PAGE)
    for wrong, level in (3, "easy"), (4, "medium"), (6, "medium"), (7, "hard"):
        (tmp_path / "one.toml").write_text("[[wrong]]\nanswer = '1'\n" * wrong)
        assert exercise_list.index_text(Page(tmp_path / "a/list.md", tmp_path)) == (
            "## [The page](../page.md)\n\n- [One of them](../page.md#exercise-one) "
            f"({level}): Find `one`, as the page says, and keep it in a variable."
        )
