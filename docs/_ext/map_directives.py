"""The maps of the book: `part-map` and `ways`, filled at the end, and the sidebar."""

from functools import lru_cache
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from book import contents
from book.page import PAGES_OF_MODULES
from book.reading_map import HTML, Book

log = logging.getLogger(__name__)


class WayPlace(nodes.General, nodes.Element):
    """The place of the output of a directive."""


class ReadingMap(SphinxDirective):
    """A place that is filled when all pages have been read."""

    has_content = True

    def run(self):
        """Return the place."""
        self.env.metadata[self.env.docname]["has_ways"] = True
        place = WayPlace(kind=self.name, content="\n".join(self.content))
        self.set_source_info(place)
        return [place]


def update_maps(app, env):
    """Handle `env-updated`: write these pages again if another page's head changed."""
    places = [name for name, of in env.metadata.items() if "has_ways" in of]
    if not places:
        return []
    book = Book(Path(app.srcdir))
    heads = [(name, book.title(name), book.minutes.get(name)) for name in book.pages]
    sizes = [(name, book.size(name)) for name in book.parts]
    if [heads, sizes] == getattr(env, "ways", None):
        return []
    env.ways = [heads, sizes]
    return places


def fill_places(app, doctree, name):
    """Handle `doctree-resolved`: put the HTML in its place."""
    for place in list(doctree.findall(WayPlace)):
        try:
            made = HTML[place["kind"]](
                place["content"],
                Book(Path(app.srcdir)),
                lambda page: app.builder.get_relative_uri(name, page),
            )
        except ValueError as error:
            log.warning("%s", error, location=place, type="ways")
            made = ""
        place.replace_self(nodes.raw("", made, format="html"))


@lru_cache(maxsize=1)  # the theme's list of all pages is made anew for each page
def list_parts(builder):
    """Return the caption of each part, and its pages: name and title, as HTML."""
    return [
        (
            caption,
            {
                page.name: builder.render_partial(builder.env.titles[page.name])[
                    "title"
                ]
                for page in pages
            },
        )
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
    """Register the directives and the handlers."""
    for name in HTML:
        app.add_directive(name, ReadingMap)
    app.add_node(WayPlace)
    app.connect("env-updated", update_maps)
    app.connect("doctree-resolved", fill_places)
    app.connect("html-page-context", add_parts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
