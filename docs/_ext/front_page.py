"""The directives of the front page, and the parts of the book for the sidebar.

`part-map` and `ways` are maps of the book: see book/reading_map.py. `build-line` is a
sentence with the counts of this build.
"""

import subprocess
from functools import lru_cache

from docutils import nodes
from sources import make_text
from sphinx.util.docutils import SphinxDirective

from book import claims, contents, reading_map
from book.facts import ROOT, locked_version
from book.page import PAGES_OF_MODULES, pages


class FrontDirective(SphinxDirective):
    """HTML that is made of other pages, and made again when it would change."""

    has_content = True

    def run(self):
        """Return the HTML."""
        make = HTML[self.name]
        try:
            html = make_text(self.env, make, "\n".join(self.content))
        except ValueError as error:
            raise self.error(str(error)) from error
        return [nodes.raw("", html, format="html")]


def build_line(page, content) -> str:
    """Return the sentence about this build."""
    found = [each for each in pages(page.docs) if each.is_notebook]
    cells = [cell for each in found for cell in each.code]
    facts = sum(map(claims.count_claims, cells))
    exercises = sum(len(each.exercises) for each in found)
    ask = ["git", "log", "-1", "--format=, of %cs,"]
    date = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=False)
    return (
        f'<p class="build-line">This build{date.stdout.strip()} ran {len(cells):,} '
        f"cells on {len(found):,} pages with JAX {locked_version('jax')}; {facts:,} "
        f"facts were proved, and {exercises:,} exercises have answers that pass.</p>"
    )


HTML = reading_map.HTML | {"build-line": build_line}


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
    """Register the directives and the handler."""
    app.setup_extension("sources")
    for name in HTML:
        app.add_directive(name, FrontDirective)
    app.connect("html-page-context", add_parts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
