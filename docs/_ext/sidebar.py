"""The parts of the book for the sidebar."""

from functools import lru_cache

from book import contents


@lru_cache(maxsize=1)  # the theme's list of all pages is made anew for each page
def list_parts(builder):
    """Return the caption of each part, and its pages: name and title, as HTML."""
    render, titles = builder.render_partial, builder.env.titles
    return [
        (caption, {page.name: render(titles[page.name])["title"] for page in pages})
        for caption, pages in contents.parts(builder.srcdir)
    ]


def add_parts(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: pass the parts of the book to `contents.html`."""
    context["book_parts"] = list_parts(app.builder)


def setup(app):
    """Register the handler."""
    app.connect("html-page-context", add_parts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
