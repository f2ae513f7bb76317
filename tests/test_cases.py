"""The gate's choice of cases holds all pairs, and the complete table stays."""

from itertools import combinations, product

from cases import combine


def in_the_gate(cases):
    """Return the values of those cases that are not weekly."""
    return [case.values for case in cases if not case.marks]


def test_each_pair_of_values_is_in_the_gate():
    axes = [[f"{n}-{k}" for k in range(size)] for n, size in enumerate((3, 4, 2))]
    cases = combine(*axes)
    assert [case.values for case in cases] == [*product(*axes)]
    chosen = in_the_gate(cases)
    assert len(chosen) < len(cases)
    for (m, one), (n, other) in combinations(enumerate(axes), 2):
        assert {(row[m], row[n]) for row in chosen} == {*product(one, other)}


def test_with_strength_one_each_value_is_in_the_gate_and_few_cases_are():
    chosen = in_the_gate(combine("abc", range(4), strength=1))
    assert {row[0] for row in chosen} == {*"abc"}
    assert {row[1] for row in chosen} == {*range(4)}
    assert len(chosen) == 4


def test_equal_values_and_values_that_cannot_be_hashed_are_cases_of_their_own():
    assert len(in_the_gate(combine([[1], [1]], [{}, {}]))) == 4
