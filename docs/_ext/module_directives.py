"""The directives `module-reference` and `module-page`: see book/module_reference.py."""

import re
from pathlib import Path

from docutils import nodes
from sphinx.ext.napoleon import GoogleDocstring
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from book import module_reference
from book.module_reference import (
    FORMER,
    PAGES_OF_MODULES,
    file_of_tests,
    files,
    objects,
    old_names,
    text,
)
from book.page import Page

log = logging.getLogger(__name__)
CODE = re.compile(r"(?<![`:\w])`([^`]+)`(?!`)(?=(\w?))")
SHORT = ("attribute", "data", "property")


class Part(SphinxDirective):
    """A directive generated from the modules, again when its text changes."""

    @property
    def page(self):
        """The page that the directive stands on."""
        return Page(Path(self.env.doc2path(self.env.docname)), Path(self.env.srcdir))

    @property
    def folder(self):
        """The folder of modules."""
        return Path(self.config.execution_modules)

    def note_former(self):
        """Read the page again when the table of former names changes."""
        if (table := self.page.docs / FORMER).exists():
            self.env.note_dependency(table)

    def parse_content(self, name=""):
        """Return the nodes of the page's text, and store the text to notice changes."""
        found = text(self.page, self.folder, name)
        self.env.metadata[self.env.docname]["modules"] = (name, found)
        return self.parse_text_to_nodes(found, allow_section_headings=True)


class ModuleReference(Part):
    """The list of all modules."""

    def run(self):
        """Return the table, each line with the ids that links may lead to."""
        self.note_former()
        for file in files(self.folder):
            self.env.note_dependency(file)
            if not (self.page.docs / PAGES_OF_MODULES / f"{file.stem}.md").exists():
                message = f"{file.name} has no page yet: run `python tools/copies.py`"
                log.warning(message, location=self.env.docname, type="modules")
        found = self.parse_content()
        (table,) = (each for node in found for each in node.findall(nodes.table))
        table["classes"] += ["listing", "modules"]
        rows = table.next_node(nodes.tbody).findall(nodes.row)
        for file, line in zip(files(self.folder), rows, strict=True):
            self.mark(line[0], file)
        return found

    def mark(self, entry, file):
        """Add to a line the ids of the former section, and of its objects."""
        place = entry.next_node(nodes.paragraph)
        for name in dict.fromkeys([f"module-{file.stem}", file.stem]):
            place["names"].append(name)
        self.state.document.note_explicit_target(place)
        more = [
            f"module-{file.stem}",
            f"module-{module_reference.PACKAGE}{file.stem}",
            file.stem,
            file.stem.replace("_", "-"),
            *objects(file),
            *old_names(self.page.docs, file),
        ]
        place["ids"] = [*dict.fromkeys([*place["ids"], *more])]


class ModulePage(Part):
    """The page of a module."""

    required_arguments = 1

    def run(self):
        """Insert the nodes before the sections, which MyST has added already."""
        (name,) = self.arguments
        file = self.folder / f"{name}.py"
        self.note_former()
        for each in file, file_of_tests(file):
            if each.exists():
                self.env.note_dependency(each)
        page = self.state.document.next_node(nodes.section)
        page.insert(
            page.first_child_matching_class(nodes.title) + 1, self.parse_content(name)
        )
        return []


def outdated_pages(app, env, added, changed, removed):
    """Handle `env-get-outdated`: read the pages again whose text has changed.

    They name the modules, and the pages that explain each of them.
    """
    folder, docs = Path(app.config.execution_modules), Path(app.srcdir)
    texts = {n: of["modules"] for n, of in env.metadata.items() if "modules" in of}
    here = {n: Page(Path(env.doc2path(n)), docs) for n in {*texts} & env.found_docs}
    names = [file.stem for file in files(folder)]
    if not added | changed | removed:  # then a module may have come or gone, no more
        count = len(names) + 1  # line ends, with two lines of heads
        lists = {n: old for n, (name, old) in texts.items() if not name and n in here}
        return [n for n, old in lists.items() if old.count("\n") != count]
    return [n for n, at in here.items() if texts[n][1] != text(at, folder, texts[n][0])]


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
    app.setup_extension("execution")  # it owns the setting `execution_modules`
    app.setup_extension("filters")
    app.setup_extension("module_pictures")
    app.setup_extension("sphinx.ext.autodoc")
    app.add_directive("module-reference", ModuleReference)
    app.add_directive("module-page", ModulePage)
    app.connect("env-get-outdated", outdated_pages)
    app.connect("autodoc-process-docstring", convert_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
