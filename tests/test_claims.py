"""What would fail the build is counted: comparisons, expected values, errors."""

import pytest

from book.claims import count_claims
from book.page import Cell


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("assert a == b and c < d < e", 3),
        ('assert counts == {"all-gather": 1, "all-reduce": 2}', 2),
        ("assert all(n > 1 for n in found)", 1),
        ("np.testing.assert_allclose(a, b)", 1),
        ("judge.program(answer).require()", 1),
        ("assert True", 0),
        ("%%every\nassert x", 1),
    ],
)
def test_each_comparison_is_a_fact(code, count):
    assert count_claims(Cell(True, code, 1)) == count


@pytest.mark.parametrize(
    ("option", "text", "count"),
    [
        ("expect", "13 rows: arrays of 2, 16 and 1,024 rows, 1.5e-3\n", 5),
        ("expect", "nothing is sent\n...\n", 1),
        ("expect", "f32[16@x,32@y] to f32[32@y]   all-reduce over x: 16 B\n", 3),
        ("raises", "ValueError no", 1),
    ],
)
def test_numbers_types_and_words_that_are_expected_are_facts(option, text, count):
    assert count_claims(Cell(True, "f()", 1, options={option: text})) == count
