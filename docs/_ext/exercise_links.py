"""Put links to the notebook into the box of each exercise.

Each box of a page that is a notebook ends with a link that saves it. Where the site has
an address and a repository (see `downloads`), a second one opens the notebook on Colab,
at the cell to change.
"""

from html import escape
from posixpath import basename

from docutils import nodes
from downloads import launches
from exercise_index import find_boxes
from sources import page_of


def add_links(app, doctree):
    """Handle `doctree-read`: put the links at the end of each box."""
    page = page_of(app.env)
    if page.is_notebook:
        for box, exercise in find_boxes(doctree, page):
            html = links_html(app.config, page, exercise)
            box.append(nodes.raw("", html, format="html"))


def links_html(config, page, exercise) -> str:
    """Return the links of an exercise in HTML."""
    file = f"{basename(page.name)}.ipynb"
    found = [f'<a href="{file}" download>Download it as a notebook</a>']
    if config.published and config.repository:
        colab = launches(page.name, config.repository)["Colab"]
        url = escape(f"{colab}#scrollTo={stub_id(page, exercise)}")
        found.append(f'<a href="{url}" target="_blank">run it on Colab</a>')
    words = ", or ".join(found)
    return f'<p class="to-notebook d-print-none">{words}.</p>'


def stub_id(page, exercise) -> str:
    """Return the id that the cell to change has in the notebook."""
    tags = {"exercise", exercise.name}
    numbered = enumerate(page.cells, 1)
    return next(f"cell-{n}" for n, cell in numbered if tags <= {*cell.tags})


def setup(app):
    """Register the handler."""
    app.setup_extension("downloads")  # it owns the settings of the address
    app.connect("doctree-read", add_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
