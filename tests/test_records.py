"""Tables beside pages are of the JAX of the lock, are read, and can be made again."""

import datetime
import json
import sys

import explorers
import pytest
import remeasure
from records import ROOT, read_table, write_table

from book import facts, program_table
from book.page import pages

TABLES = sorted(ROOT.glob("docs/*/data/*.csv"))
FILES = {*TABLES, *ROOT.glob("docs/*/data/*.json")}


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
    assert datetime.date.fromisoformat(data["date"])


def test_every_table_is_read_by_a_page():
    used = {file.resolve() for page in pages(ROOT / "docs") for file in page.data}
    used |= {explorers.load(name).SOURCE for name in explorers.NAMES}
    assert used | {program_table.TABLE} >= FILES  # which every kernel reads


def test_rows_get_versions_and_the_date_and_others_stay_in_order(tmp_path):
    file = tmp_path / "data/a.csv"
    write_table(file, [{"n": 1, "b": 2.5}, {"n": 2, "note": "x", "jax": "0.1"}])
    rows = read_table(file)
    assert [*rows[0]] == ["n", "b", "jax", "date", "note"]
    assert [row["jax"] for row in rows] == [facts.locked_version("jax"), "0.1"]
    assert {row["date"] for row in rows} == {datetime.date.today().isoformat()}
    file, order = tmp_path / "b.csv", [("a",), ("b",), ("c",)]
    write_table(file, [{"case": "c", "code": 1}, {"case": "a", "code": 1}], order)
    write_table(file, [{"code": 2, "case": "b"}, {"code": 3, "case": "c"}], order)
    rows = [[*row.values()][:2] for row in read_table(file)]
    assert rows == [["a", "1"], ["b", "2"], ["c", "3"]]


def test_measurements_run_by_name_and_go_on_after_a_failure(monkeypatch, capfd):
    commands = {"bad": "-c 'exit(3)'", "good": "-c 'import sys; print(sys.argv[1:])'"}
    commands = {name: f"{sys.executable} {line}" for name, line in commands.items()}
    monkeypatch.setattr(remeasure, "COMMANDS", commands)
    assert remeasure.main("good", "--", "h100") == ""
    assert remeasure.main() == "failed: bad"
    assert capfd.readouterr().out == "== good\n['h100']\n== bad\n== good\n[]\n"
    assert remeasure.main("speed") == "no speed: name some of bad, good"
