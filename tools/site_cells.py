"""Read the outputs of cells from the notebooks of the built site."""

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
    file = site / f"{page.name}.ipynb"
    if not file.exists():
        raise ValueError(f"{page.name} is not on the site: run `nox -s docs`")
    notebook = nbformat.read(file, as_version=4)
    gave = {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}
    found = []
    for number, cell in enumerate(page.cells, 1):
        if cell.code:
            ran = gave.get(f"cell-{number}")
            if ran is None or not ran.source.endswith(cell.source):
                raise ValueError(f"{page.name} changed since `nox -s docs`")
            found.append((cell, ran.outputs))
    return found
