"""The directives `part-map` and `ways`, filled when all pages have been read."""

from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

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


def setup(app):
    """Register the directives."""
    for name in HTML:
        app.add_directive(name, ReadingMap)
    app.add_node(WayPlace)
    app.connect("env-updated", update_maps)
    app.connect("doctree-resolved", fill_places)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
