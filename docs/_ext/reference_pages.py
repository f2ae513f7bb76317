"""Targets in lists and in the boxes of exercises, and the docstrings of modules."""

import re
from html import escape
from posixpath import basename

from docutils import nodes
from downloads import colab_url
from sources import page_of
from sphinx.ext.napoleon import GoogleDocstring
from sphinx.transforms import SphinxTransform

from book.module_reference import PACKAGE, PAGES_OF_MODULES, files, objects, old_names

NAMES = "reference/api_index"
CODE = re.compile(r"(?<![`:\w])`([^`]+)`(?!`)(?=(\w?))")  # perhaps with a plural's s


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


class Boxes(SphinxTransform):
    """Put into the box of each exercise its target, and links to work on it."""

    default_priority = 400  # before Sphinx collects what links may lead to

    def apply(self):
        """Change the boxes of this page: they stand in the order of its exercises."""
        page = page_of(self.env)
        boxes = self.document.findall(nodes.admonition)
        boxes = [box for box in boxes if "exercise" in box["classes"]]
        for box, exercise in zip(boxes, page.exercises, strict=False):
            box["names"].append(f"exercise-{exercise.name}")
            self.document.note_explicit_target(box)
            html = links_html(self.config, page, exercise)
            box.append(nodes.raw("", html, format="html"))


def links_html(config, page, exercise) -> str:
    """Return in HTML a link that saves the notebook, and perhaps one to Colab.

    That opens it at the cell to change, where site and repository have an address.
    """
    file = f"{basename(page.name)}.ipynb"
    links = f'<a href="{file}" download>Download it as a notebook</a>'
    if config.published and config.repository:
        tags = {"exercise", exercise.name}
        cell = next(n for n, cell in enumerate(page.cells, 1) if tags <= {*cell.tags})
        url = colab_url(page.name, config.repository)
        url = escape(f"{url}#scrollTo=cell-{cell}")
        links += f', or <a href="{url}" target="_blank">run it on Colab</a>'
    return f'<p class="to-notebook d-print-none">{links}.</p>'


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
    """Register the transforms and the handler."""
    app.setup_extension("sphinx.ext.autodoc")
    app.add_transform(Boxes)
    app.add_transform(Targets)
    app.connect("autodoc-process-docstring", convert_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
