"""Read the outputs of cells from the notebooks of the built site."""

from pathlib import Path

import nbformat

from book.page import pages

DOCS = Path(__file__).resolve().parents[1] / "docs"


def find_pages(names):
    """Return the pages with cells that have these names, or all."""
    found = (page for page in pages(DOCS) if page.is_notebook)
    return [page for page in found if not names or page.name in names]


def read_cells(page):
    """Return the code cells of a page, each with its outputs on the site.

    Raises ValueError when the site is of another version of the page.
    """
    notebook = nbformat.read(DOCS / f"_build/html/{page.name}.ipynb", as_version=4)
    ran = [c for c in notebook.cells if "outputs" in c and c.id.startswith("cell-")]
    cells = list(zip(page.code, ran, strict=True))
    if not all(own.source.endswith(cell.source) for cell, own in cells):
        raise ValueError(f"{page.name} changed since `nox -s docs`")
    return [(cell, own.outputs) for cell, own in cells]
