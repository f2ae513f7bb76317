"""What three compilers said of each line is kept whole, and so here today."""

import json
import re

import explorer_sends
import explorers
import pytest
import records
import sends
from records import read_table

ROWS = {
    tuple(row[key] for key in ("line", "specs", "result", "machine")): row
    for row in read_table(sends.TABLE)
}
DRAWN = [  # of each kind, with and without collectives
    ("x.sum(0)", "x,y", ""),
    ("x.argmax(0)", "-,xy", ""),
    ("jnp.roll(x, 1, 0)", "xy,-", ""),
    ("x @ w", "y,- x,y", ""),
    ("x @ w", "-,x x,-", "x,y"),
    ("x @ w", "-,xy xy,-", "-,-"),
    ("jax.reshard(x, to)", "x,y", "yx,-"),
    ("jax.reshard(x, to)", "xy,-", "x,-"),
]


def test_every_question_has_an_answer_of_every_machine():
    asked = {
        (*each, machine) for each in sends.questions() for machine in sends.MACHINES
    }
    assert asked == ROWS.keys()
    assert len(asked) > 1500


@pytest.mark.parametrize("question", DRAWN, ids=" ".join)
def test_this_machine_answers_as_it_did(question):
    found = sends.compile_row("CPU", *question)
    row = ROWS[*question, "CPU"]
    assert {key: str(value) for key, value in found.items()}.items() <= row.items()


def test_the_answers_drawn_are_not_all_alike():
    found = {ROWS[*question, "CPU"]["collectives"] for question in DRAWN}
    assert len(found) > 4


def test_only_what_changed_is_compiled_again(monkeypatch):
    held = next(iter(ROWS.values()))  # this environment lacks two compilers
    monkeypatch.setattr(records, "version", held.get)
    assert sends.missing_questions() == []
    monkeypatch.setattr(sends, "LINES", ["jnp.cos(x)", *sends.LINES])
    lines = {line for line, *_ in sends.missing_questions()}
    assert lines == {"jnp.cos(x)"}
    assert len(sends.missing_questions()) == len(sends.SPECS) * len(sends.MACHINES)


def test_the_script_tells_what_the_table_holds():
    text = explorers.script("sends")
    assert len(text.encode()) < 150 * 1024
    data = json.loads(text.partition(" = ")[2].removesuffix(";\n"))
    orders = [*data["specs"]]
    for line, specs, result in sends.questions():
        if line == sends.PRODUCT:
            x, w = map(orders.index, specs.split())
            found = data["product"][x][w][data["results"].index(result)]
        elif line == sends.RESHARD:
            found = data["reshard"][orders.index(specs)][orders.index(result)]
        else:
            found = data["operation"][data["lines"].index(line)][orders.index(specs)]
        for machine, number in zip(data["machines"], found, strict=False):
            row = ROWS[line, specs, result, machine]
            steps, sent, held, output = data["answers"][number]
            kinds = [data["steps"][step][0] for step in steps]
            assert sent == explorer_sends.format_bytes(row["sent"])
            assert held == explorer_sends.format_bytes(row["held"])
            assert data["types"][output] == row["output"]
            assert kinds == re.findall(r"[\d]+ ([a-z-]+) of", row["collectives"])


def test_the_front_page_asks_what_was_asked():
    for line in explorer_sends.FRONT_PAGE["lines"]:
        for spec in explorer_sends.FRONT_PAGE["specs"]:
            assert (line, spec, "", "CPU") in ROWS
