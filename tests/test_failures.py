"""The kept table of failures is whole; the page on guards states what it shows."""

import failures
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
