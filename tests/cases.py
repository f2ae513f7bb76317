"""What the tests of modules leave to each week."""

import pytest


def each_week(*values):
    """Return a case of a table that the gate does not run."""
    return pytest.param(*values, marks=pytest.mark.weekly)
