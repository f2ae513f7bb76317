"""Add to the markup of pages what the style sheet, Pygments and readers need.

A badge of a mode, such as `Auto`, gets the class `mode-auto`; a paragraph that begins
with *Before this page*, in italics, gets the class `before`. A page with `wide: true`
in its front matter has wide tables: its section gets the class `wide`, and its contents
open at a button. In cells that every process runs (`%%every`) all but the first line is
Python, where Pygments knows no more than plain text. A `literalinclude` of a function
has the first line of its docstring; the page of the module has all of it.
"""

from pathlib import Path
from typing import ClassVar

from docutils import nodes
from pygments.lexer import bygroups, inherit
from pygments.lexers.python import PythonLexer
from pygments.token import Keyword, Text
from sphinx.directives.code import LiteralInclude

from book.export import source_of

MODES = {"auto", "explicit", "manual", "processes"}
CORRECTIONS = {  # faults of accessibility
    # MyST-NB's label hides the text by which voice control would press it
    '<summary aria-label="Toggle hidden content">': "<summary>",
    # the keyboard could not scroll the theme's wide tables
    '<div class="pst-scrollable-table-container">': (
        '<div class="pst-scrollable-table-container" tabindex="0">'
    ),
}


class Listing(LiteralInclude):
    """The directive `literalinclude`."""

    def run(self):
        """Return the code as a block."""
        found = super().run()
        if name := self.options.get("pyobject"):
            _, path = self.env.relfn2path(self.arguments[0])
            block = next(found[0].findall(nodes.literal_block))
            block.rawsource = source_of(Path(path), name)
            block.children = [nodes.Text(block.rawsource)]
        return found


class EveryLexer(PythonLexer):
    """Python below a line that begins with `%%every`."""

    tokens: ClassVar = {
        "root": [(r"\A(%%every)(.*\n)", bygroups(Keyword, Text)), inherit]
    }


def add_classes(app, doctree):
    """Handle `doctree-read`: add the classes."""
    for badge in doctree.findall(nodes.inline):
        word = badge.astext().lower()
        if "sd-badge" in badge["classes"] and word in MODES:
            badge["classes"].append(f"mode-{word}")
    for line in doctree.findall(nodes.paragraph):
        alone = len(line) == 1 and isinstance(line[0], nodes.emphasis)
        if alone and line.astext().startswith("Before this page"):
            line["classes"].append("before")
    if app.env.metadata[app.env.docname].get("wide"):
        doctree.next_node(nodes.section)["classes"].append("wide")


def set_language(app, doctree):
    """Handle `doctree-read`: set the language of cells that every process runs."""
    for code in doctree.findall(nodes.literal_block):
        if code.astext().startswith("%%every"):
            code["language"] = "every"


def correct_html(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: correct the page's text."""
    for found, better in CORRECTIONS.items():
        context["body"] = context.get("body", "").replace(found, better)


def setup(app):
    """Register the directive, the language and the handlers."""
    app.add_directive("literalinclude", Listing, override=True)
    app.add_lexer("every", EveryLexer)
    app.connect("doctree-read", add_classes, priority=600)  # the metadata come at 500
    app.connect("doctree-read", set_language)
    app.connect("html-page-context", correct_html)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
