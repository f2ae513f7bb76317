"""Give each page a title, a sentence and a picture for previews of links to it.

Where the site has an address, conf.py uses sphinxext-opengraph, which writes these into
a page's head, and draws the picture. The sentence is the page's own description.
"""

from sources import page_of


def add_meta(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: pass on the description of the page."""
    if doctree is not None and (words := page_of(app.env, pagename).description):
        context["meta"] = (context.get("meta") or {}) | {"og:description": words}


def setup(app):
    """Register the handler."""
    app.setup_extension("sources")
    app.connect("html-page-context", add_meta, priority=400)  # before the library's
    return {"parallel_read_safe": True, "parallel_write_safe": True}
