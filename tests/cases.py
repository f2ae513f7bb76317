"""What tests of modules share: cases of each week, and calls that are refused."""

import pytest


def each_week(*values):
    """Return a case of a table that the gate does not run."""
    return pytest.param(*values, marks=pytest.mark.weekly)


def each_refusal(*pairs):
    """Give a test calls without an answer, each with words of its error."""
    ids = [f"{number} {words}" for number, (_, words) in enumerate(pairs)]
    return pytest.mark.parametrize(("call", "words"), pairs, ids=ids)
