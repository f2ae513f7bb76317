"""What is kept beside pages is whole, of today's JAX, and survives what measures it."""

import datetime
import json
import re
import sys

import explorers
import pytest
import records
import remeasure
from book import answers, facts
from book.page import pages
from records import RECORDS, ROOT, TABLES, keep, read, table_of

FILES = sorted(
    file for kind in ("csv", "json") for file in ROOT.glob(f"docs/*/data/*.{kind}")
)
CSV = [file for file in FILES if file.suffix == ".csv"]
each_table = pytest.mark.parametrize("file", CSV, ids=lambda file: file.name)
NETWORK = {"program": "a", "order": "rows", "rate": "none", "block": 8, "theory": 1}
NETWORK |= {"host0": 2, "host1": 3, "milliseconds": 4.5}


def test_every_kept_file_is_recorded_and_every_record_is_kept():
    assert {file.name for file in FILES} == {
        file.name
        for name in RECORDS["measurements"]
        for file in remeasure.files_of(name)
    }
    for name in TABLES:
        assert any(file.match(name) for file in FILES), name
    measured = {table.measured_by for table in TABLES.values()}
    assert measured == RECORDS["measurements"].keys()


def test_every_kept_file_is_read_by_a_page():
    used = {file.resolve() for page in pages(ROOT / "docs") for file in page.data}
    used.add(answers.KEPT)  # by the kernel of each page that measures
    used |= {explorers.explorer(name).KEPT for name in explorers.NAMES}
    assert {*FILES} <= used


@each_table
def test_a_table_has_its_columns_and_each_key_once(file):
    table, rows = table_of(file), read(file)
    keys = [table.key_of(row) for row in rows]
    assert len(keys) == len({*keys}) > 0
    assert all([*row] == table.columns for row in rows)
    for column in table.columns:  # an older compiler gave no warning
        assert any(row[column] for row in rows) or table.other_jax, column


@each_table
def test_a_table_says_when_and_with_what_it_was_made(file):
    table = table_of(file)
    for row in read(file):
        assert all(row[name] for name in table.versions)
        assert datetime.date.fromisoformat(row["date"])


@each_table
def test_a_table_was_made_with_the_jax_of_the_lock_or_says_why_not(file):
    made = {row["jax"] for row in read(file)}
    if table_of(file).other_jax:
        assert made == {file.stem.rpartition("-")[2]}
    else:
        name = table_of(file).measured_by
        assert made == {facts.locked("jax")}, f"run `nox -s remeasure -- {name}`"


def test_pods_were_compiled_with_the_compiler_that_is_stated():
    for file in (file for file in CSV if "libtpu" in table_of(file).versions):
        assert {row["libtpu"] for row in read(file)} == {facts.facts().libtpu}


def test_the_transcripts_are_of_the_jax_of_the_lock():
    (file,) = (file for file in FILES if file.suffix == ".json")
    data = json.loads(file.read_text())
    assert datetime.date.fromisoformat(data["date"])
    assert data["versions"]["JAX"] == facts.locked("jax")


# ----------------------------------------------------------------------- the writer


def row(rate, **others):
    return NETWORK | {"rate": rate} | others


def test_rows_get_the_machine_the_versions_and_the_date(tmp_path):
    keep(tmp_path / "network.csv", [row("none")])
    (found,) = read(tmp_path / "network.csv")
    assert [*found] == TABLES["network.csv"].columns
    assert found["date"] == datetime.date.today().isoformat()
    assert found["jax"] == facts.locked("jax")
    assert found["milliseconds"] == "4.5"
    assert float(found["load"]) >= 0


def test_with_an_order_other_rows_stay(tmp_path):
    file, order = tmp_path / "failures.csv", [("a",), ("b",), ("c",)]
    keep(file, [{"case": "c", "code": 1}, {"case": "a", "code": 1}], order)
    keep(file, [{"case": "b", "code": 2}, {"case": "c", "code": 3}], order)
    codes = [(found["case"], found["code"]) for found in read(file)]
    assert codes == [("a", "1"), ("b", "2"), ("c", "3")]
    keep(file, [{"case": "b", "code": 4}])
    assert [found["code"] for found in read(file)] == ["4"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("none"), row("none")], "several rows of one key"),
        ([row("1gbit"), row("none", colour="red")], "fields not in fieldnames"),
    ],
)
def test_a_wrong_row_is_refused_and_the_table_stays(tmp_path, rows, message):
    keep(tmp_path / "network.csv", [row("none")])
    before = (tmp_path / "network.csv").read_bytes()
    with pytest.raises(ValueError, match=message):
        keep(tmp_path / "network.csv", rows)
    assert (tmp_path / "network.csv").read_bytes() == before
    assert len([*tmp_path.iterdir()]) == 1


def test_an_unknown_table_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"other.csv is not in records.toml"):
        keep(tmp_path / "other.csv", [])


# ---------------------------------------------------------------- measuring it again


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A book with two measurements of one table each."""
    data = tmp_path / "docs/part/data"
    data.mkdir(parents=True)
    measurements, tables = {}, {}
    for name in ("good", "bad"):
        file = data / f"{name}.csv"
        file.write_text(
            "n,words,seconds,date\n1,10,1.0,2026-01-01\n2,20,1.0,2026-01-01\n"
        )
        measurements[name] = f"{sys.executable} {tmp_path / f'{name}.py'} {file}"
        tables[file.name] = records.Table(name, ("n",), ("words",), ("seconds",))
    monkeypatch.setattr(remeasure, "ROOT", tmp_path)
    monkeypatch.setitem(RECORDS, "measurements", measurements)
    for module in records, remeasure:
        monkeypatch.setattr(module, "TABLES", tables)
    write = "import pathlib, sys\npathlib.Path(sys.argv[1]).write_text("
    new = "n,words,seconds,date\\n1,10,1.2,2026-02-02\\n2,21,1.9,2026-02-02\\n"
    (tmp_path / "good.py").write_text(f"{write}'{new}')\n")
    (tmp_path / "bad.py").write_text("raise SystemExit(3)\n")
    return data


def test_what_changed_is_told_and_a_failure_leaves_its_table(folder, capfd):
    before = (folder / "bad.csv").read_bytes()
    assert remeasure.main("bad", "good") == 1
    assert (folder / "bad.csv").read_bytes() == before
    out = re.sub(r"\d+ s  ", "", capfd.readouterr().out)  # on any machine
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "good.csv: 3 values differ" in lines
    assert "1 seconds 1.0 -> 1.2" in lines
    assert "! 2 words 20 -> 21" in lines
    assert "! 2 seconds 1.0 -> 1.9" in lines
    assert lines[-3:] == [
        "== all",
        "bad FAILED, exit code 3",
        "good 2 differ beyond noise",
    ]


def test_all_is_measured_if_nothing_is_named(folder, capfd):
    assert remeasure.main() == 1
    out = capfd.readouterr().out
    assert out.index("== good") < out.index("== bad")


def test_an_unknown_measurement_is_refused(capfd):
    assert remeasure.main("atlas", "speed") == 2
    assert capfd.readouterr().out.startswith("no ['speed']: name some of ['atlas',")


def test_a_row_that_came_or_went_is_told(folder):
    table = TABLES["start.csv"]
    one, two, four = ({(n,): {"seconds": "1.5"}} for n in ("1", "2", "4"))
    found = remeasure.changes(table, one | two, two | four)
    assert [remeasure.told(change).split() for change in found] == [
        ["!", "4", "seconds", "nothing", "->", "1.5"],
        ["!", "1", "seconds", "1.5", "->", "nothing"],
    ]


def test_what_a_json_holds_is_compared_leaf_by_leaf():
    data = {"versions": {"JAX": "1"}, "bindings": {"a": [["0", "1"], ["2"]]}}
    assert dict(remeasure.leaves(data)) == {
        ("versions", "JAX"): "1",
        ("bindings", "a", "0", "0"): "0",
        ("bindings", "a", "0", "1"): "1",
        ("bindings", "a", "1", "0"): "2",
    }
