"""The directives `module-reference` and `module-page`: see book/module_reference.py."""

import re

from docutils import nodes
from sources import make_text, page_of
from sphinx.ext.napoleon import GoogleDocstring
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from book import module_reference
from book.module_reference import (
    FORMER,
    PAGES_OF_MODULES,
    files,
    folder_of,
    objects,
    old_names,
    page_text,
    table_text,
)

log = logging.getLogger(__name__)
CODE = re.compile(r"(?<![`:\w])`([^`]+)`(?!`)(?=(\w?))")
SHORT = ("attribute", "data", "property")


class ModuleReference(SphinxDirective):
    """The list of all modules, made again when its text changes."""

    def run(self):
        """Return the table, each line with the ids that links may lead to."""
        docs = page_of(self.env).docs
        modules = files(folder_of(docs))
        self.env.note_dependency(docs / FORMER)
        for file in modules:
            self.env.note_dependency(file)
            if not (docs / PAGES_OF_MODULES / f"{file.stem}.md").exists():
                message = f"{file.name} has no page yet: run `python tools/copies.py`"
                log.warning(message, location=self.env.docname, type="modules")
        found = self.parse_text_to_nodes(make_text(self.env, table_text))
        (table,) = (each for node in found for each in node.findall(nodes.table))
        table["classes"] += ["listing", "modules"]
        rows = table.next_node(nodes.tbody).findall(nodes.row)
        for file, line in zip(modules, rows, strict=True):
            self.mark(line[0], file, old_names(docs, file))
        return found

    def mark(self, entry, file, former):
        """Add to a line the ids of the former section, and of its objects."""
        place = entry.next_node(nodes.paragraph)
        place["names"] += dict.fromkeys([f"module-{file.stem}", file.stem])
        self.state.document.note_explicit_target(place)
        more = [
            f"module-{file.stem}",
            f"module-{module_reference.PACKAGE}{file.stem}",
            file.stem,
            file.stem.replace("_", "-"),
            *objects(file),
            *former,
        ]
        place["ids"] = [*dict.fromkeys([*place["ids"], *more])]


class ModulePage(SphinxDirective):
    """The page of a module, made again when its text changes."""

    required_arguments = 1

    def run(self):
        """Insert the nodes before the sections, which MyST has added already."""
        text = make_text(self.env, page_text, self.arguments[0])
        found = self.parse_text_to_nodes(text, allow_section_headings=True)
        page = self.state.document.next_node(nodes.section)
        page.insert(page.first_child_matching_class(nodes.title) + 1, found)
        return []


def rst_literal(code) -> str:
    """Write `code` as reStructuredText does, also before a plural's s."""
    return f"``{code[1]}``" + ("\\ " if code[2] else "")


def convert_docstring(app, what, name, *details):
    """Handle `autodoc-process-docstring`: write reStructuredText as autodoc reads it.

    The book writes `code` as Markdown does, and sections such as `Args:` as Google
    does; a property has none. What a module says of itself stands on the page already.
    """
    value, _, lines = details
    if what == "module":
        lines.clear()
    lines[:] = CODE.sub(rst_literal, "\n".join(lines)).split("\n")
    if what not in SHORT:
        lines[:] = GoogleDocstring(lines, what=what, name=name, obj=value).lines()


def setup(app):
    """Register the directives and the handlers."""
    app.setup_extension("filters")
    app.setup_extension("module_pictures")
    app.setup_extension("sphinx.ext.autodoc")
    app.add_directive("module-reference", ModuleReference)
    app.add_directive("module-page", ModulePage)
    app.connect("autodoc-process-docstring", convert_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
