"""The table that `nox -s failures` keeps: whole, and with what the page says of it."""

import csv
from pathlib import Path

import failures
import pytest

DATA = Path(__file__).parents[1] / "docs" / "processes" / "data"
with DATA.joinpath("failures.csv").open(newline="") as file:
    ROWS = list(csv.DictReader(file))
TABLE = {row["case"]: row for row in ROWS}
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row["case"])
CLOCKS = {  # seconds after which JAX itself ends a job, and a few for it to do so
    "stopped sending heartbeats": (95, 115),
    "Shutdown barrier has failed": (295, 320),
    "DEADLINE_EXCEEDED": (300, 325),
}


def test_every_case_is_there_in_order():
    assert [row["case"] for row in ROWS] == [*failures.CASES]


@each_row
def test_a_row_is_about_its_case_and_names_version_and_day(row):
    case = failures.CASES[row["case"]]
    assert (row["processes"], row["devices"]) == (
        str(case.processes),
        str(case.devices),
    )
    assert row["knob"] == case.knob
    assert row["jax"] >= "0.12"
    assert len(row["date"].split("-")) == 3


@each_row
def test_the_seconds_are_those_of_the_clock_that_rang(row):
    """The last phrase seen is the reason for the end; a knob of ten seconds moves it."""
    last = row["seen"].rpartition(", then ")[2]
    if row["case"].endswith("guard"):
        assert int(row["seconds"]) < 15
    elif (
        "=10" in row["knob"] and "asleep, heartbeat" != row["case"] and "," not in last
    ):
        limit = 110 if "heartbeats" in last and "cpu" in row["knob"] else 20
        assert 9 <= int(row["seconds"]) <= limit
    elif last in CLOCKS:
        first, end = CLOCKS[last]
        assert first <= int(row["seconds"]) <= end


def test_only_who_is_asleep_is_never_noticed():
    silent = {name for name, row in TABLE.items() if row["code"] == "still running"}
    assert silent == {"asleep", "asleep, heartbeat"}
    assert all(int(TABLE[name]["seconds"]) >= 400 for name in silent)


def test_lies_end_well():
    """Wrong numbers and exit code 0: the sum of four twos is 8."""
    assert TABLE["program"]["seen"] == "the last value is 12.0"
    assert TABLE["data"]["seen"] == "the last value is 10.0"
    assert {TABLE[name]["code"] for name in ("program", "data", "SIGTERM")} == {"0"}


def test_a_case_runs():
    """That of the shortest: it is over at once."""
    row = failures.row("process 0 killed")
    assert row["seen"] == TABLE["process 0 killed"]["seen"]
    assert row["code"] == "-6"
    assert int(row["seconds"]) < 60
