"""The page of errors: the directive `error-index`, of the entries of `error_index`.

The build warns where a message that a cell raised fits another entry than the one that
its cell counts for, or two of them.
"""

import json

from cells import cell_source, is_code
from docutils import nodes
from docutils.parsers.rst import directives
from sources import load_files, make_text, page_of
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from book.error_index import (
    entries_of,
    group_cells,
    list_text,
    matches,
    raising_cells,
    read_table,
)

log = logging.getLogger(__name__)


class ErrorEntry(nodes.container):
    """An entry, with the words by which the script finds it."""


def open_entry(writer, node):
    """Write the start of an entry."""
    words = json.dumps(node["words"], ensure_ascii=False)
    attributes = {"data-words": words}
    writer.body.append(writer.starttag(node, "div", CLASS="error-entry", **attributes))


def close_entry(writer, node):
    """Write the end of an entry."""
    writer.body.append("</div>\n")


class ErrorIndex(SphinxDirective):
    """The list, made again when its text changes."""

    def run(self):
        """Return the sections of the list."""
        load_files(self.env, "errors.js", "errors.css")
        for each in group_cells(page_of(self.env).docs)[2]:
            message = f"{each.kind} {each.phrase}: no entry in errors.toml fits it"
            log.warning(message, location=(each.page.name, each.line), type="errors")
        text = make_text(self.env, list_text)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class ErrorEntryDirective(SphinxDirective):
    """An entry; its argument are the words that find it, in JSON."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = {  # noqa: RUF012
        "class": directives.class_option,
        "name": directives.unchanged,
    }

    def run(self):
        """Return the node of the entry, with a target for links if it has a name."""
        node = ErrorEntry(words=json.loads(self.arguments[0]))
        node["classes"] += self.options.get("class", [])
        self.add_name(node)
        node += self.parse_content_to_nodes()
        return [node]


# ------------------------------------------------------------------ in all other pages


def cells_in(doctree, page):
    """Yield each node of a cell that expects an error, and what it expects."""
    waiting = raising_cells(page)
    for node in doctree.findall(is_code) if waiting else ():
        for each in waiting:
            if each.source.strip() == cell_source(node).strip():
                waiting.remove(each)
                yield node, each
                break


def is_error(node) -> bool:
    """Return whether a node is the box of an error: see `cells.show_error`."""
    return isinstance(node, nodes.container) and "raised" in node["classes"]


class Targets(SphinxTransform):
    """Name each cell that raises after what it expects, for links to lead to it."""

    default_priority = 400  # before Sphinx collects what links may lead to

    def apply(self):
        """Name the cells of this page."""
        for node, each in cells_in(self.document, page_of(self.env)):
            node["ids"].append(each.anchor)  # no label: other pages have the same


def compare_messages(app, doctree):
    """Handle `doctree-read`: warn of a message that fits another entry."""
    page = page_of(app.env)
    table, _ = read_table(page.docs)
    slugs = app.env.metadata[page.name].setdefault("myst_slugs", {})
    for node, each in cells_in(doctree, page):
        slugs[each.anchor] = each.line, each.anchor, each.title
        wanted = {entry.name for entry in entries_of(each.kind, each.phrase, table)}
        for box in node.findall(is_error):
            message = box[-1].astext()
            got = {entry.name for entry in matches(message, table)}
            if wanted and got != wanted:
                fault = f"fits {sorted(got)} in errors.toml, not {sorted(wanted)}"
                log.warning(fault, location=(page.name, each.line), type="errors")


def setup(app):
    """Register the directive, its node, the transform and the handlers."""
    app.setup_extension("sources")
    app.add_node(ErrorEntry, html=(open_entry, close_entry))
    app.add_directive("error-index", ErrorIndex)
    app.add_directive("error-entry", ErrorEntryDirective)
    app.add_transform(Targets)
    app.connect("doctree-read", compare_messages, priority=450)  # after `cells`
    return {"parallel_read_safe": True, "parallel_write_safe": True}
