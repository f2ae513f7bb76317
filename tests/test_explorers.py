"""Explorers have an answer for each question, and say what JAX and the judge say.

That a page shows what is stored, for each choice, is seen by browser/test_explore.py.
"""

import random

import explorer_specs
import explorers
import pytest
import specs

from book.page import Page, pages

DOCS = explorer_specs.DOCS
FOUND = "type", "bytes", "copies", "holds", "error", "verdict"
ROWS = {  # of the tables of a page, without script
    "index": "| `x.sum(0)` | 28 KiB | nothing | 4 KiB | 16 KiB |",
    "reference/sends": None,
    "arrays/meshes": None,
    "global-view/cost": "| TPU v5e: 4 x 8 (line) | "
    "20: 20 µs | 20: 45.5 µs | 20: 26.1 ms |",
}


@pytest.mark.parametrize("name", ROWS)
def test_tables_stand_in_the_markdown_of_a_page(name):
    blocks = Page(DOCS / f"{name}.md", DOCS).blocks
    part = next(block for block in blocks if block.name == "explorer")
    lines = explorers.directive_text(part).splitlines()
    assert ROWS[name] is None or ROWS[name] in lines
    for title, rows in explorers.tables(part.argument, part.options).items():
        assert f"**{title}**" in lines
        assert all(f"| {' | '.join(row)} |" in lines for row in rows)


class TestSpecs:
    """Which device holds what, and what the judge says of it."""

    def test_every_question_has_an_answer(self):
        rows = explorer_specs.rows()
        assert [*rows] == explorer_specs.questions()
        for (exercise, *_), row in rows.items():
            kinds = [bool(row[key]) for key in ("verdict", "type", "error")]
            assert sum(kinds) == 1
            assert kinds[0] == bool(exercise)

    def test_jax_says_the_same_of_some_states_today(self):
        questions = [each for each in explorer_specs.questions() if not each[0]]
        for question in random.sample(questions, 60):
            row, now = explorer_specs.rows()[question], specs.answer_row(*question)
            assert {k: row[k] for k in FOUND} == {k: str(now.get(k, "")) for k in FOUND}

    def test_the_code_of_a_state_is_a_program(self, run, tmp_path):
        key = "", "2x2x2", "8,16,4", "z,-,xy"
        code = explorer_specs.code(explorer_specs.MESHES["2x2x2"], *key[2:])
        (tmp_path / "state.py").write_text(code)
        output = run("state.py", devices=1, cwd=tmp_path)
        assert output.strip() == explorer_specs.rows()[key]["type"]

    def test_the_judge_says_the_same_of_every_answer_today(self):
        for question, row in explorer_specs.rows().items():
            if question[0]:
                now = specs.answer_row(*question)
                assert {k: row[k] for k in now} == now

    def test_each_exercise_that_asks_for_a_picture_can_be_answered(self):
        found = {
            (cell.tags[-1], page.name)
            for page in pages(DOCS)
            for cell in page.code
            if "exercise" in cell.tags and explorer_specs.JUDGED.search(cell.source)
        }
        known = explorer_specs.EXERCISES.items()
        assert found == {(name, page) for name, (page, _) in known}
        for name, (page, _) in known:
            text = (DOCS / f"{page}.md").read_text()
            _, _, rest = text.partition(f":tags: [exercise, {name}]")
            place = f"```{{explorer}} specs\n:exercise: {name}\n```"
            assert place in rest.partition("```{code-cell}")[0]
