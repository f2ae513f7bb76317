"""The table of `nox -s remeasure -- failures`: whole, with what the page says of it."""

import csv
from pathlib import Path

import failures
import pytest

DATA = Path(__file__).parents[1] / "docs" / "processes" / "data"
with DATA.joinpath("failures.csv").open(newline="") as file:
    ROWS = list(csv.DictReader(file))
TABLE = {row["case"]: row for row in ROWS}
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row["case"])
CLOCKS = {  # which of JAX's clocks rings, and between which seconds
    "stopped sending heartbeats": (95, 115, ["killed", "raised, hook", "suspended"]),
    "Shutdown barrier has failed": (295, 320, ["raised", "skipped"]),
    "DEADLINE_EXCEEDED": (300, 325, ["never started", "no process 0"]),
}
KNOBS = {  # what a knob of ten seconds makes ring
    "killed, heartbeat": "stopped sending heartbeats",
    "raised, shutdown": "Shutdown barrier has failed",
    "asleep, collective": "Timed out waiting 10000ms",
    "never started, start": "DEADLINE_EXCEEDED",
}


def test_every_case_is_there_in_order():
    assert [row["case"] for row in ROWS] == [*failures.CASES]


@each_row
def test_a_row_is_about_its_case(row):
    case = failures.CASES[row["case"]]
    assert (row["processes"], row["devices"]) == (
        str(case.processes),
        str(case.devices),
    )
    assert row["knob"] == case.knob


@pytest.mark.parametrize("words", CLOCKS)
def test_a_clock_of_jax_rings_in_its_time(words):
    first, end, cases = CLOCKS[words]
    for row in map(TABLE.get, cases):
        assert row["seen"].endswith(words)
        assert row["code"] == "-6"
        assert first <= int(row["seconds"]) <= end


@pytest.mark.parametrize("case", KNOBS)
def test_a_knob_makes_it_ring_earlier(case):
    assert TABLE[case]["seen"].endswith(KNOBS[case])
    assert 8 <= int(TABLE[case]["seconds"]) <= 20


def test_an_exception_is_not_yet_an_end():
    row = TABLE["killed, collective"]
    assert row["seen"].startswith("Timed out waiting 10000ms, then Shutdown barrier")
    assert int(row["seconds"]) > 95


def test_a_guard_needs_seconds():
    rows = [row for row in ROWS if row["case"].endswith(", guard")]
    assert len(rows) == 6
    assert all(int(row["seconds"]) < 15 for row in rows)


def test_only_who_is_asleep_is_not_noticed_before_we_give_up():
    """After 420 s; XLA:CPU's own limit, 1800 s, is in test_guard.py."""
    silent = {name for name, row in TABLE.items() if row["code"] == "still running"}
    assert silent == {"asleep", "asleep, heartbeat"}
    assert all(int(TABLE[name]["seconds"]) >= 400 for name in silent)


def test_lies_end_well():
    """Wrong numbers and exit code 0: the sum of four twos is 8."""
    assert TABLE["program"]["seen"] == "the last value is 12.0"
    assert TABLE["data"]["seen"] == "the last value is 10.0"
    assert {TABLE[name]["code"] for name in ("program", "data", "SIGTERM")} == {"0"}


@pytest.mark.processes
def test_a_case_runs():
    """That of the shortest: it is over at once."""
    row = failures.run_case("process 0 killed")
    assert "Failed to send RPC to coordination service" in row["seen"]
    assert row["code"] == "-6"
    assert int(row["seconds"]) < 60
