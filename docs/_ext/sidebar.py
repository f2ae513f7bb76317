"""The parts of the book for the sidebar."""

from functools import lru_cache

from book import contents
from book.page import PAGES_OF_MODULES


@lru_cache(maxsize=1)  # the theme's list of all pages is made anew for each page
def list_parts(builder):
    """Return the caption of each part, and its pages: name and title, as HTML."""

    def title(page):
        return builder.render_partial(builder.env.titles[page.name])["title"]

    return [
        (caption, {page.name: title(page) for page in pages})
        for caption, pages in contents.parts(builder.srcdir)
    ]


def add_parts(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: pass the parts of the book to `contents.html`."""
    parts = list_parts(app.builder)
    of_module = pagename.startswith(f"{PAGES_OF_MODULES}/")
    name = PAGES_OF_MODULES if of_module else pagename
    here = (caption for caption, pages in parts if name in pages)
    context |= {"book_parts": parts, "open_part": next(here, parts[0][0])}


def setup(app):
    """Register the handler."""
    app.connect("html-page-context", add_parts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
