"""Load the filter on pages with a place for it, `<div class="list-filter" ...>`."""

from docutils import nodes

PLACE = '<div class="list-filter"'


def mark(app, doctree):
    """Handle `doctree-read`: store whether the page has such a place."""
    found = any(node.astext().startswith(PLACE) for node in doctree.findall(nodes.raw))
    app.env.metadata[app.env.docname]["filters"] = found


def add_script(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: load the script and the style."""
    if app.env.metadata.get(pagename, {}).get("filters"):
        app.add_js_file("filter.js", loading_method="defer")
        app.add_css_file("filter.css")


def setup(app):
    """Register the handlers."""
    app.connect("doctree-read", mark, priority=600)  # the metadata are read at 500
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
