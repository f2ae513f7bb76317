"""The kept table of failures is whole; the page on guards states what it shows."""

import failures
import pytest
from records import ROOT, read_table

TABLE = {
    row["case"]: row for row in read_table(ROOT / "docs/processes/data/failures.csv")
}


def test_each_row_is_about_its_case_in_order():
    assert [*TABLE] == [*failures.CASES]
    for row, case in zip(TABLE.values(), failures.CASES.values(), strict=True):
        counts = str(case.processes), str(case.devices)
        assert (row["processes"], row["devices"], row["knob"]) == (*counts, case.knob)


def test_another_program_or_other_data_end_well_with_wrong_numbers():
    """The sum of four twos is 8."""
    assert TABLE["program"]["seen"] == "the last value is 12.0"
    assert TABLE["data"]["seen"] == "the last value is 10.0"
    assert {TABLE[name]["code"] for name in ("program", "data")} == {"0"}


@pytest.mark.processes
def test_a_case_runs():
    """That of the shortest: it is over at once."""
    row = failures.run_case("process 0 killed")
    assert "Failed to send RPC to coordination service" in row["seen"]
    assert row["code"] == "-6"
    assert int(row["seconds"]) < 60
