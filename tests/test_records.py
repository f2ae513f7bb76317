"""Tables beside pages are of the JAX of the lock, are read, and can be made again."""

import datetime
import json
import sys

import pytest
import remeasure
from records import ROOT, read_table, write_table

from book import facts

TABLES = sorted(ROOT.glob("docs/*/data/*.csv"))


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.name)
def test_table_is_of_the_jax_and_libtpu_of_the_lock(file):
    jax = file.stem.partition("-")[2] or facts.locked_version("jax")  # atlas-0.9.2.csv
    for row in read_table(file):
        assert row["jax"] == jax, "measure it again: `nox -s remeasure -- NAME`"
        assert row.get("libtpu", facts.facts().libtpu) == facts.facts().libtpu
        assert datetime.date.fromisoformat(row["date"])


def test_transcripts_are_of_the_jax_of_the_lock():
    data = json.loads((ROOT / "docs/processes/data/launching.json").read_text())
    assert data["versions"]["JAX"] == facts.locked_version("jax")


def test_rows_get_versions_and_the_date_and_others_stay_in_order(tmp_path):
    file, order = tmp_path / "data/a.csv", [("a",), ("b",), ("c",)]
    write_table(file, [{"case": "c", "code": 1}, {"case": "a", "jax": "0.1"}], order)
    write_table(file, [{"note": "x", "case": "b"}, {"code": 3, "case": "c"}], order)
    rows = read_table(file)
    assert [*rows[0]] == ["case", "code", "jax", "date", "note"]
    assert [(row["case"], row["code"]) for row in rows] == [
        ("a", ""),
        ("b", ""),
        ("c", "3"),
    ]
    assert [row["jax"] for row in rows] == ["0.1", *[facts.locked_version("jax")] * 2]
    assert {row["date"] for row in rows} == {datetime.date.today().isoformat()}


def test_measurements_go_on_after_a_failure(monkeypatch, capfd):
    commands = {"bad": "-c 'exit(3)'", "good": "-c 'import sys; print(sys.argv[1:])'"}
    commands = {name: f"{sys.executable} {line}" for name, line in commands.items()}
    monkeypatch.setattr(remeasure, "COMMANDS", commands)
    assert remeasure.main() == "failed: bad"
    assert remeasure.main("good", "--", "h100") == ""
    assert capfd.readouterr().out == "== bad\n== good\n[]\n== good\n['h100']\n"
