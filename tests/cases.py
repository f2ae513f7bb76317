"""Cases of a test from several axes: few in the gate, the complete table each week."""

from collections.abc import Iterable, Iterator
from itertools import combinations, product

import pytest


def combine(*axes: Iterable, strength: int = 2) -> list:
    """Return every combination of one value of each axis, for `parametrize`.

    The gate runs as many as hold each `strength` values of different axes together at
    least once: with 2 each pair, with 1 each value. All others are marked `weekly`.
    The choice is greedy, and the same at each call.
    """
    axes = [[*axis] for axis in axes]
    table, where = [*product(*axes)], [*product(*(range(len(axis)) for axis in axes))]
    chosen = cover(where, min(strength, len(axes)))
    return [
        pytest.param(*row, marks=() if place in chosen else pytest.mark.weekly)
        for place, row in zip(where, table, strict=True)
    ]


def each_week(*values):
    """Return a case of a table that the gate does not run."""
    return pytest.param(*values, marks=pytest.mark.weekly)


def cover(rows: list[tuple], strength: int) -> set[tuple]:
    """Choose rows until each `strength` values of different columns stand in one."""
    missing, chosen = {each for row in rows for each in parts(row, strength)}, set()
    while missing:
        best = max(rows, key=lambda row: len(missing & {*parts(row, strength)}))
        missing -= {*parts(best, strength)}
        chosen.add(best)
    return chosen


def parts(row: tuple, strength: int) -> Iterator[tuple]:
    """Yield each choice of `strength` values of a row, with their columns."""
    return combinations(enumerate(row), strength)
