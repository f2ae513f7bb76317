"""The directives `module-reference` and `module-page`: see book/module_reference.py."""

import re

from docutils import nodes
from sources import make_text, page_of
from sphinx.ext.napoleon import GoogleDocstring
from sphinx.util.docutils import SphinxDirective

from book.module_reference import (
    FORMER,
    PACKAGE,
    files,
    objects,
    old_names,
    page_text,
    table_text,
)

CODE = re.compile(r"(?<![`:\w])`([^`]+)`(?!`)(?=(\w?))")  # perhaps with a plural's s


class ModuleReference(SphinxDirective):
    """The list of all modules, made again when its text changes."""

    def run(self):
        """Return the table; the ids that the page had once lead to a module's line."""
        docs = page_of(self.env).docs
        modules = files(docs.parent / "src/examples")
        for file in [docs / FORMER, *modules]:
            self.env.note_dependency(file)
        found = self.parse_text_to_nodes(make_text(self.env, table_text))
        table = found[0].next_node(nodes.table, include_self=True)
        table["classes"] += ["listing", "modules"]
        rows = table.next_node(nodes.tbody).findall(nodes.row)
        for file, line in zip(modules, rows, strict=True):
            name, place = file.stem, line.next_node(nodes.paragraph)
            place["names"] += dict.fromkeys([f"module-{name}", name])
            self.state.document.note_explicit_target(place)
            ids = [f"module-{name}", f"module-{PACKAGE}{name}", name]
            ids += [name.replace("_", "-"), *objects(file), *old_names(docs, file)]
            place["ids"] = [*dict.fromkeys([*place["ids"], *ids])]
        return found


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


def convert_docstring(app, what, name, *details):
    """Handle `autodoc-process-docstring`: write reStructuredText as autodoc reads it.

    The book writes `code` as Markdown does, and sections such as `Args:` as Google
    does; a property has none. What a module says of itself stands on the page already.
    """
    value, _, lines = details
    text = "" if what == "module" else "\n".join(lines)
    text = CODE.sub(lambda code: f"``{code[1]}``{'\\ ' * bool(code[2])}", text)
    lines[:] = text.split("\n")
    if what not in ("attribute", "data", "property"):
        lines[:] = GoogleDocstring(lines, what=what, name=name, obj=value).lines()


def setup(app):
    """Register the directives and the handler."""
    for name in "filters", "module_pictures", "sphinx.ext.autodoc":
        app.setup_extension(name)
    app.add_directive("module-reference", ModuleReference)
    app.add_directive("module-page", ModulePage)
    app.connect("autodoc-process-docstring", convert_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
