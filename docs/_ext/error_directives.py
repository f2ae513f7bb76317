"""The page of errors: the directive `error-index`, of the entries of `error_index`.

The build warns where a message that a cell raised fits another entry than the one that
its cell counts for, or two of them.
"""

import json
from html import escape

from cells import cell_source, is_code
from docutils import nodes
from sources import make_text, page_of
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from book import error_index

log = logging.getLogger(__name__)
OWN = "<summary>{} errors that say themselves what to pass</summary>"


def raw(html):
    """Return a node of HTML."""
    return nodes.raw("", html, format="html")


class ErrorIndex(SphinxDirective):
    """The list, made again when its text changes."""

    def run(self):
        """Return the sections of the list."""
        text = make_text(self.env, error_index.index_text)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def is_message(node) -> bool:
    """Return whether a node is the message that an entry begins with."""
    inner = node.children if isinstance(node, nodes.paragraph) else []
    kinds = [type(each) for each in inner]
    return kinds == [nodes.literal, nodes.Text, nodes.emphasis]


class Entries(SphinxTransform):
    """Fold each entry of the list to its message, and the errors of modules to one."""

    default_priority = 400  # before Sphinx collects what links may lead to

    def apply(self):
        """Change the sections of the list, if this page has it."""
        found = [*self.document.findall(nodes.section)]
        own = next((each for each in found if "errors-own" in each["ids"]), None)
        if not own:
            return
        parts = own.parent.children[: own.parent.index(own)]
        sections = [each for each in parts if isinstance(each, nodes.section)]
        for group, section in zip(error_index.GROUPS, sections, strict=True):
            starts = [n for n, node in enumerate(section) if is_message(node)]
            entries = error_index.entries_in(group, page_of(self.env).docs)
            ends = [*starts[1:], len(section)]
            parts = [section[slice(*ends)] for ends in zip(starts, ends, strict=True)]
            rows = zip(entries, parts, strict=True)
            section[1:] = [self.fold(entry, *each) for entry, each in rows]
        count = len([*own.findall(nodes.list_item)])
        own.insert(1, raw(f'<details class="own-errors">{OWN.format(count)}'))
        own += raw("</details>")

    def fold(self, entry, message, meaning, *links):
        """Return an entry, with the words that find it, as a target for links."""
        words = escape(json.dumps(entry.patterns, ensure_ascii=False))
        record = {"title": message[0].astext(), "text": meaning.astext(), "code": ""}
        record["words"] = entry.patterns
        box = nodes.container(classes=["error-entry"], search=record)
        box["names"].append(f"error-{entry.name}")
        self.document.note_explicit_target(box)
        box += raw(f'<details data-words="{words}"><summary>')
        box += nodes.inline("", "", *message.children)
        box += [raw("</summary>"), meaning, *links, raw("</details>")]
        return box


# ------------------------------------------------------------------ in all other pages


class Targets(SphinxTransform):
    """Name each cell that raises after what it expects, for links to lead to it."""

    default_priority = 400  # before Sphinx collects what links may lead to

    def apply(self):
        """Name the cells of this page; no label, since other pages have the same."""
        waiting = error_index.raising_cells(page_of(self.env))
        for node in self.document.findall(is_code) if waiting else ():
            source = cell_source(node).strip()
            each = next((e for e in waiting if e.source.strip() == source), None)
            if each:
                waiting.remove(each)
                node["ids"].append(each.anchor)


def check_cells(app, doctree):
    """Handle `doctree-read`: let MyST link to the cells, and check their messages."""
    page = page_of(app.env)
    cells = {each.anchor: each for each in error_index.raising_cells(page)}
    slugs = app.env.metadata[page.name].setdefault("myst_slugs", {})
    for node in doctree.findall(is_code):
        for each in (cells[anchor] for anchor in node["ids"] if anchor in cells):
            slugs[each.anchor] = each.line, each.anchor, each.title
            for box in node.findall(is_error):
                compare_message(each, box[-1].astext())


def compare_message(cell, message):
    """Warn of a message that fits another entry than the one its cell counts for."""
    table, _ = error_index.read_table(cell.page.docs)
    wanted = error_index.entries_of(cell.kind, cell.phrase, table)
    found = error_index.matches(message, table)
    if wanted and found != wanted:
        names = [[entry.name for entry in entries] for entries in (found, wanted)]
        fault = "fits {} in errors.toml, not {}".format(*names)
        log.warning(fault, location=(cell.page.name, cell.line), type="errors")


def is_error(node) -> bool:
    """Return whether a node is the box of an error: see `cells.show_error`."""
    return isinstance(node, nodes.container) and "raised" in node["classes"]


def setup(app):
    """Register the directive, the transform and the handler."""
    app.setup_extension("filters")
    app.add_directive("error-index", ErrorIndex)
    app.add_transform(Entries)
    app.add_transform(Targets)
    app.connect("doctree-read", check_cells, priority=450)  # after `cells`
    return {"parallel_read_safe": True, "parallel_write_safe": True}
