"""Give each page a title, a sentence and a picture for previews of links to it.

Where the site has an address, conf.py uses sphinxext-opengraph, which writes these into
a page's head, and draws the picture. The sentence is the page's own description.
"""

from pathlib import Path

from book.page import Page


def add_meta(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: pass on the description of the page."""
    if doctree is not None:
        page = Page(Path(app.env.doc2path(pagename)), Path(app.srcdir))
        if page.description:
            tags = {"og:description": page.description}
            context["meta"] = (context.get("meta") or {}) | tags


def setup(app):
    """Register the handler."""
    app.connect("html-page-context", add_meta, priority=400)  # before the library's
    return {"parallel_read_safe": True, "parallel_write_safe": True}
