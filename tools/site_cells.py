"""Read the outputs of cells from the notebooks of the built site."""

from itertools import zip_longest
from pathlib import Path

import nbformat

from book.page import pages

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SITE = DOCS / "_build/html"


def find_pages(names, docs=DOCS):
    """Return the pages with cells that have these names, or all."""
    found = (page for page in pages(docs) if page.is_notebook)
    return [page for page in found if not names or page.name in names]


def read_cells(page, site=SITE):
    """Return the code cells of a page, each with its outputs on the site.

    Raises ValueError when the site is of another version of the page.
    """
    notebook = nbformat.read(site / f"{page.name}.ipynb", as_version=4)
    own = (cell for cell in notebook.cells if cell.id.startswith("cell-"))
    found = [*zip_longest(page.code, (cell for cell in own if "outputs" in cell))]
    if not all(
        cell and ran and ran.source.endswith(cell.source) for cell, ran in found
    ):
        raise ValueError(f"{page.name} changed since `nox -s docs`")
    return [(cell, ran.outputs) for cell, ran in found]
