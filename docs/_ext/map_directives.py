"""The maps of the book: the directives `part-map` and `ways`, and the sidebar."""

from functools import lru_cache

from docutils import nodes
from sources import make_text
from sphinx.util.docutils import SphinxDirective

from book import contents
from book.page import PAGES_OF_MODULES
from book.reading_map import HTML, directive_html


class ReadingMap(SphinxDirective):
    """A map, made again when another page's head changes."""

    has_content = True

    def run(self):
        """Return the map as HTML."""
        content = "\n".join(self.content)
        try:
            html = make_text(self.env, directive_html, self.name, content)
        except ValueError as error:
            raise self.error(str(error)) from error
        return [nodes.raw("", html, format="html")]


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
    if app.builder.format != "html":
        return
    parts = list_parts(app.builder)
    of_module = pagename.startswith(f"{PAGES_OF_MODULES}/")
    name = PAGES_OF_MODULES if of_module else pagename
    here = (caption for caption, pages in parts if name in pages)
    context |= {"book_parts": parts, "open_part": next(here, parts[0][0])}


def setup(app):
    """Register the directives and the handler."""
    app.setup_extension("sources")
    for name in HTML:
        app.add_directive(name, ReadingMap)
    app.connect("html-page-context", add_parts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
