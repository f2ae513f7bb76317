"""The directives of the reference whose text is made of other files, and docstrings.

`module-reference`, `module-page`, `exercise-index` and `api-index` stand for MyST that
notebooks and Markdown have, too: see the modules of `book` that write it.
"""

import re

from docutils import nodes
from sources import make_text, page_of
from sphinx.ext.napoleon import GoogleDocstring
from sphinx.transforms import SphinxTransform

from book import api_index, exercise_list
from book.module_reference import (
    PACKAGE,
    PAGES_OF_MODULES,
    files,
    objects,
    old_names,
    page_text,
    table_text,
)
from book.page import FENCES, read_block, rewrite

TEXTS = {
    "api-index": api_index.index_text,
    "exercise-index": exercise_list.index_text,
    "module-page": page_text,
    "module-reference": table_text,
}
NAMES = "reference/api_index"
CODE = re.compile(r"(?<![`:\w])`([^`]+)`(?!`)(?=(\w?))")  # perhaps with a plural's s


def insert_texts(app, docname, source):
    """Handle `source-read`: write the texts; they are made again when they change."""

    def insert(token, text):
        block = read_block(token, text)
        if block.name not in TEXTS:
            return text
        arguments = [block.argument] if block.argument else []
        return make_text(app.env, TEXTS[block.name], *arguments)

    if any(f"{{{name}}}" in source[0] for name in TEXTS):
        lines = rewrite(source[0], dict.fromkeys(FENCES, insert))
        source[0] = "\n".join(lines)


class Targets(SphinxTransform):
    """Let names lead to a line of the list of API names, and ids to one of modules."""

    default_priority = 400  # before Sphinx collects what links may lead to

    def apply(self):
        """Add the ids to each line."""
        if self.env.docname not in (PAGES_OF_MODULES, NAMES):
            return
        docs, table = page_of(self.env).docs, self.document.next_node(nodes.table)
        rows = table.next_node(nodes.tbody).findall(nodes.row)
        places = [line.next_node(nodes.paragraph) for line in rows]
        if self.env.docname == NAMES:
            table["classes"] += ["listing", "api"]
            for place in places:
                place["ids"].append(f"api-{place.astext()}")
            return
        table["classes"] += ["listing", "modules"]
        modules = files(docs.parent / "src/examples")
        for file, place in zip(modules, places, strict=True):
            self.env.note_dependency(file)
            name = file.stem
            place["names"] += dict.fromkeys([f"module-{name}", name])
            self.document.note_explicit_target(place)
            ids = [f"module-{name}", f"module-{PACKAGE}{name}", name]
            ids += [name.replace("_", "-"), *objects(file), *old_names(docs, file)]
            place["ids"] = [*dict.fromkeys([*place["ids"], *ids])]


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
    """Register the handlers and the transform."""
    for name in "filters", "module_pictures", "sources", "sphinx.ext.autodoc":
        app.setup_extension(name)
    app.connect("source-read", insert_texts)
    app.add_transform(Targets)
    app.connect("autodoc-process-docstring", convert_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
