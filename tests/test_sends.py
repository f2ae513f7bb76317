"""What three compilers said of each line is kept whole, and so here today."""

import pytest
import records
import sends
from records import read_table

ROWS = {sends.key_of(row): row for row in read_table(sends.TABLE)}
DRAWN = [  # of each kind, with and without collectives
    ("x.sum(0)", "x,y", ""),
    ("jnp.roll(x, 1, 0)", "xy,-", ""),
    ("x @ w", "y,- x,y", ""),
    ("x @ w", "-,x x,-", "x,y"),
    ("jax.reshard(x, to)", "xy,-", "x,-"),
]


def test_every_question_has_an_answer_of_every_machine():
    asked = {
        (*each, machine) for each in sends.questions() for machine in sends.MACHINES
    }
    assert asked == ROWS.keys()


@pytest.mark.parametrize("question", DRAWN, ids=" ".join)
def test_this_machine_answers_as_it_did(question):
    found = sends.compile_row("CPU", *question)
    row = ROWS[*question, "CPU"]
    assert {key: str(value) for key, value in found.items()}.items() <= row.items()


def test_only_what_changed_is_compiled_again(monkeypatch):
    today = next(iter(ROWS.values()))  # this environment lacks two compilers
    monkeypatch.setattr(records, "version", today.get)
    assert sends.missing_questions() == []
    monkeypatch.setattr(sends, "LINES", ["jnp.cos(x)", *sends.LINES])
    assert {line for line, *_ in sends.missing_questions()} == {"jnp.cos(x)"}
