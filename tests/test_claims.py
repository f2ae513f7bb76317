"""What would fail the build is counted: comparisons, expected values, errors."""

import pytest

from book import claims
from book.page import Cell


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("assert x", 1),
        ("assert a == b and c < d < e", 3),
        ('assert counts == {"all-gather": 1, "all-reduce": 2}', 2),
        ("assert (a, b, c) == (1, 2, 3)", 3),
        ("assert a in (1, 2, 3)", 1),
        ("assert counts == {}", 1),
        ("assert all(n > 1 for n in found)", 1),
        ("np.testing.assert_allclose(a, b)", 1),
        ("judge.program(answer).require()", 1),
        (
            "try:\n    f()\nexcept E:\n    pass\nelse:\n    raise AssertionError(1)",
            1,
        ),
        ("try:\n    f()\nfinally:\n    pass", 0),
        ("assert True", 0),
        ("%%every\nassert x == 1", 1),
    ],
)
def test_each_comparison_is_a_fact(code, count):
    assert claims.count_claims(Cell(True, code, 1)) == count


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("float32[16@x,4]", 1),
        ("13 rows: arrays of 2, 16 and 1,024 rows, 1.5e-3", 5),
        ("nothing is sent", 1),
        ("mean -1.20", 1),
        ("...", 0),
        ("f32[16@x,32@y] to f32[32@y]   all-reduce over x: 16 B", 3),
        ("1 2 3 4 5 6 7", 7),
    ],
)
def test_each_number_and_type_of_an_expected_line_is_a_fact(line, count):
    assert claims.count_tokens(line) == count
    assert (
        claims.count_claims(Cell(True, "x", 1, options={"expect": f"{line}\n"}))
        == count
    )


def test_an_error_that_must_come_is_a_fact():
    assert (
        claims.count_claims(Cell(True, "f()", 1, options={"raises": "ValueError no"}))
        == 1
    )
