"""Count the claims of cells, for the front page."""

from book.guards import ASSERTION


def count_claims(cell) -> int:
    """Count the claims of a cell that fail the build where they are false.

    That is each line of text that it expects, each error that must come, and each
    assertion.
    """
    lines = cell.options.get("expect", "").splitlines()
    expected = sum(any(map(str.isalnum, line)) for line in lines)
    assertions = len(ASSERTION.findall(cell.source))
    return expected + assertions + ("raises" in cell.options)
