"""Load `filter.js` on pages with a place for it: above a list, or for an error."""

from docutils import nodes
from sources import load_files

PLACES = '<div class="list-filter"', '<div class="error-search"'


def load_filter(app, doctree):
    """Handle `doctree-read`: load the script and the style where there is a place."""
    if any(node.astext().startswith(PLACES) for node in doctree.findall(nodes.raw)):
        load_files(app.env, "filter.js", "filter.css")


def setup(app):
    """Register the handler."""
    app.setup_extension("sources")
    app.connect("doctree-read", load_filter)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
