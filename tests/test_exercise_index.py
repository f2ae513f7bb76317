"""The index of exercises lists every exercise, without being edited."""

import re
from pathlib import Path

import pytest
from exercise_index import difficulty, wrong_answers
from tiny_site import HEAD, Site

from book.page import Page, first_sentence

PAGE = """
# The page of {name}

:::{{admonition}} Exercise: {name} of them
:class: exercise
Find `{name}`, as [the page](../index.md) says,
and keep it. Then rest.
:::

```{{code-cell}}
:tags: [exercise, {name}-tag]

1
```
"""
INDEX = "# Book\n\n```{toctree}\nz/first\na/second\nreference/exercises\n```\n"


@pytest.fixture
def site(tmp_path):
    """Build a book with one page of exercises, and the index of them."""
    pages = {
        "index.md": INDEX.replace("a/second\n", ""),
        "z/first.md": HEAD + PAGE.format(name="one"),
        "reference/exercises.md": "# Exercises\n\n```{exercise-index}\n```\n",
    }
    return Site(
        tmp_path,
        pages,
        extensions=["myst_nb", "exercise_index"],
        myst_enable_extensions=["colon_fence"],
        nb_execution_mode="off",
        nitpicky=True,
        suppress_warnings=["myst-nb.lexer"],
    )


def words(html):
    return " ".join(re.sub("<[^>]*>", "", html).split())


def test_an_exercise_is_listed_with_what_it_asks(site):
    html = site("reference/exercises.html")
    assert "One of them (easy): Find one, as the page says, and keep it." in words(html)
    assert "Then rest" not in words(html)
    assert "The page of one" in words(html)
    assert site.warnings == ""


def test_the_link_leads_to_the_exercise_itself(site):
    assert 'href="../z/first.html#exercise-one-tag"' in site("reference/exercises.html")
    (box,) = re.findall(r'<div class="[^"]*admonition[^>]*>', site("z/first.html"))
    assert 'id="exercise-one-tag"' in box


def test_exercises_come_go_and_change_in_the_order_of_the_contents(site):
    docs = site.folder / "docs"
    (docs / "a").mkdir()
    (docs / "a/second.md").write_text(HEAD + PAGE.format(name="two"))
    (docs / "index.md").write_text(INDEX)
    site.build()
    html = words(site("reference/exercises.html"))
    assert 0 < html.find("One of them (easy): ") < html.find("Two of them (easy): ")
    (docs / "a/second.md").write_text(HEAD + PAGE.format(name="three"))
    site.build()
    html = words(site("reference/exercises.html"))
    assert "Three of them (easy): " in html
    assert "Two of them (easy): " not in html
    (docs / "a/second.md").unlink()
    (docs / "index.md").write_text(INDEX.replace("a/second\n", ""))
    site.build()
    assert "Three of them (easy): " not in words(site("reference/exercises.html"))


def page(text):
    return Page(Path("/docs/a/page.md"), Path("/docs"), source=text)


def test_a_box_of_another_kind_is_no_exercise():
    text = "# A page\n\n:::{admonition} Note\nWords.\n:::\n"
    assert page(text).exercises == []


def test_each_exercise_has_the_tag_of_the_stub_below_it():
    both = page(
        HEAD + PAGE.format(name="one") + PAGE.format(name="two").partition("# ")[2]
    )
    assert [exercise.name for exercise in both.exercises] == ["one-tag", "two-tag"]


SOLUTION = """
```{{code-cell}}
:tags: [solution, one-tag]

{}
```
"""


@pytest.mark.parametrize(
    ("lines", "wrong", "level"),
    [(3, 2, "easy"), (4, 2, "medium"), (8, 0, "medium"), (8, 1, "hard")],
)
def test_its_difficulty_is_lines_and_wrong_answers(lines, wrong, level, tmp_path):
    text = PAGE.format(name="one") + SOLUTION.format("x = 1\n\n" * lines)
    page = Page(tmp_path / "docs/page.md", tmp_path / "docs", source=HEAD + text)
    (exercise,) = page.exercises
    if wrong:
        file = wrong_answers(exercise, page)
        file.parent.mkdir(parents=True)
        file.write_text("[[wrong]]\nanswer = '1'\n" * wrong)
    assert difficulty(exercise, page) == level


@pytest.mark.parametrize(
    ("statement", "begins"),
    [
        (
            "Find the row of `a.T` that device 3 holds, in words. Draw it.",
            "Find the row of `a.T` that device 3 holds, in words.",
        ),
        ("Count. Then say\nin a word why. No.", "Count. Then say in a word why. No."),
        ("No end", "No end."),
        ("Make it so:\n\n- one\n", "Make it so."),
        ("As [here](x.md) for `a.b`?", "As here for `a.b`."),
    ],
)
def test_it_is_told_how_a_statement_begins(statement, begins):
    assert first_sentence(statement) == begins
