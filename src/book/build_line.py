"""Write the last line of the front page: what this build ran, and what it proved."""

import subprocess

from book.facts import ROOT, locked_version
from book.guards import ASSERTION
from book.page import pages

LINE = """\
<p class="build-line">This build{date} ran {cells:,} cells on {pages:,} pages with JAX \
{jax}; {facts:,} facts were proved, and {exercises:,} exercises have answers that \
pass.</p>"""


def build_line(page) -> str:
    """Return the sentence with the counts of this build."""
    found = [each for each in pages(page.docs) if each.is_notebook]
    cells = [cell for each in found for cell in each.code]
    ask = ["git", "log", "-1", "--format=, of %cs,"]
    date = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=False)
    return LINE.format(
        date=date.stdout.strip(),
        cells=len(cells),
        pages=len(found),
        jax=locked_version("jax"),
        facts=sum(map(count_claims, cells)),
        exercises=sum(len(each.exercises) for each in found),
    )


def count_claims(cell) -> int:
    """Count the claims of a cell that fail the build where they are false.

    That is each line of text that it expects, each error that must come, and each
    assertion.
    """
    lines = cell.options.get("expect", "").splitlines()
    expected = sum(any(map(str.isalnum, line)) for line in lines)
    assertions = len(ASSERTION.findall(cell.source))
    return expected + assertions + ("raises" in cell.options)
