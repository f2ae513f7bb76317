"""The index of exercises lists every exercise, without being edited."""

import re
from pathlib import Path

import pytest
from tiny_site import HEAD, Site

from book import exercises
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
SOLUTION = """
```{code-cell}
:tags: [solution, one-tag]

x = 1

y = 2
```
"""
PAGES = {
    "index.md": "# Book\n\n```{toctree}\nz/first\na/second\nreference/exercises\n```\n",
    "z/first.md": HEAD + PAGE.format(name="one") + SOLUTION,
    "a/second.md": HEAD + PAGE.format(name="two"),
    "reference/exercises.md": "# Exercises\n\n```{exercise-index}\n```\n",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build a book with two pages of exercises, and the index of them."""
    return Site(
        tmp_path_factory.mktemp("exercises"),
        PAGES,
        extensions=["myst_nb", "exercise_index"],
        myst_enable_extensions=["colon_fence"],
        nb_execution_mode="off",
        nitpicky=True,
        suppress_warnings=["myst-nb.lexer"],
    )


def test_an_exercise_is_listed_in_order_with_what_it_asks_and_a_link_to_it(site):
    html = site("reference/exercises.html")
    words = " ".join(re.sub("<[^>]*>", "", html).split())
    first = words.index("One of them (easy): Find one, as the page says, and keep it.")
    assert first < words.index("Two of them (easy): ")
    assert "Then rest" not in words
    assert "The page of one" in words
    assert 'href="../z/first.html#exercise-one-tag"' in html
    (box,) = re.findall(r'<div class="[^"]*admonition[^>]*>', site("z/first.html"))
    assert 'id="exercise-one-tag"' in box
    assert site.warnings == ""


def test_its_difficulty_is_lines_and_wrong_answers(site, tmp_path, monkeypatch):
    """Two lines of a solution, and ways to be wrong."""
    docs = site.folder / "docs"
    page = Page(docs / "z/first.md", docs)
    (exercise,) = page.exercises
    monkeypatch.setattr(exercises, "WRONG_ANSWERS", tmp_path)
    file = exercises.wrong_answers_file(exercise.name)
    for wrong, level in (3, "easy"), (4, "medium"), (6, "medium"), (7, "hard"):
        file.write_text("[[wrong]]\nanswer = '1'\n" * wrong)
        assert exercises.difficulty(exercise, page) == level


def test_each_box_of_an_exercise_has_the_tag_of_the_stub_below_it():
    note = ":::{admonition} Note\nWords.\n:::\n"
    two = PAGE.format(name="two").partition("# ")[2]
    text = HEAD + PAGE.format(name="one") + note + two
    page = Page(Path("/docs/a/page.md"), Path("/docs"), source=text)
    assert [exercise.name for exercise in page.exercises] == ["one-tag", "two-tag"]


def test_the_first_sentences_say_what_is_asked():
    text = "Find the row of `a.T` that [device 3](x.md) holds,\nin words. Draw it."
    found = "Find the row of `a.T` that device 3 holds, in words."
    assert first_sentence(text) == found
    assert first_sentence("Make it so:\n\n- one\n") == "Make it so."
