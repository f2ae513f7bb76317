"""Explorers have an answer for each question, which JAX and the compilers give today.

That a page shows what is stored, for each choice, browser/test_explore.py finds out.
"""

import os
import random
from importlib.util import find_spec

import explorer_sends
import explorer_specs
import explorers
import pytest
import records
import sends
import specs

from book.page import Page, pages

DOCS = specs.DOCS
LINES = {  # of the tables of a page, without script
    "index": "| `a.sum(0)` | 28 KiB | nothing | 4 KiB | 16 KiB |",
    "global-view/cost": "| TPU v5p: 4 x 4 x 4 (ring) | 1 µs | 90 GB/s | 12: 12 µs | "
    "12: 15.8 µs | 12: 3.93 ms | 6: 128 µs | 6: 7.91 µs | 6: 11.8 µs |",
}
DRAWN = [  # of each kind, with and without collectives
    ("a.sum(0)", "x,y", ""),
    ("jnp.roll(a, 1, 0)", "xy,-", ""),
    ("a @ w", "-,x x,-", "x,y"),
    ("jax.reshard(a, to)", "xy,-", "x,-"),
]
if DRAW := os.environ.get("BOOK_DRAW"):  # a commit, each week
    DRAWN += random.Random(DRAW).sample(
        [*{key[:3]: 0 for key in explorer_sends.ROWS}], 3
    )
COMPILERS = {"CPU": "jaxlib", "TPU v5p": "libtpu", "H100": "jax_plugins"}
HERE = [machine for machine, package in COMPILERS.items() if find_spec(package)]


def test_tables_stand_in_the_markdown_of_a_page():
    for name, line in LINES.items():
        blocks = Page(DOCS / f"{name}.md", DOCS).blocks
        block = next(block for block in blocks if block.name == "explorer")
        assert line in explorers.tables_text(block).splitlines()


def test_every_question_has_an_answer():
    assert [*explorer_specs.ROWS] == specs.questions()
    asked = {(*each, name) for each in sends.questions() for name in sends.MACHINES}
    assert asked == explorer_sends.ROWS.keys()


def test_jax_and_the_judge_give_the_same_answers_today():
    rows = explorer_specs.ROWS
    states = [key for key in rows if not key[0]][::11]
    for question in [*states, *(key for key in rows if key[0])]:
        now = {key: str(value) for key, value in specs.answer_row(*question).items()}
        assert now.items() <= rows[question].items()


@pytest.mark.parametrize("machine", HERE)
@pytest.mark.parametrize("question", DRAWN, ids=" ".join)
def test_compilers_that_are_here_give_the_same_answers_today(question, machine):
    now = sends.compile_row(machine, *question)
    row = explorer_sends.ROWS[*question, machine]
    now |= {} if machine == "CPU" else {"explicit": row["explicit"]}
    assert {key: str(value) for key, value in now.items()}.items() <= row.items()


def test_only_what_changed_is_compiled_again(monkeypatch):
    today = next(iter(explorer_sends.ROWS.values()))  # two compilers are not here
    monkeypatch.setattr(records, "version", today.get)
    assert sends.missing_questions() == []
    monkeypatch.setattr(sends, "LINES", ["jnp.cos(a)", *sends.LINES])
    assert {line for line, *_ in sends.missing_questions()} == {"jnp.cos(a)"}


def test_each_exercise_that_asks_for_a_picture_can_be_answered():
    asked, answered = set(), set()
    for page in pages(DOCS):
        for cell in page.code:
            if "exercise" in cell.tags and specs.JUDGED.search(cell.source):
                asked.add((cell.tags[-1], page.name))
        answered |= {(each.options.get("exercise"), page.name) for each in page.blocks}
    exercises = {(name, page) for name, (page, _) in specs.EXERCISES.items()}
    assert asked == exercises
    assert {each for each in answered if each[0]} == exercises
