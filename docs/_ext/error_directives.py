"""The page of errors: its entries fold, and links lead to them and to their cells.

The build warns where a message that a cell raised fits another entry than the one that
its cell counts for, or two of them.
"""

import json
from html import escape

from cells import is_code
from docutils import nodes
from markup import raw
from sources import page_of
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

from book import error_index

log = logging.getLogger(__name__)
OWN = "<summary>{} errors that say themselves what to pass</summary>"


class Entries(SphinxTransform):
    """Fold each entry of the list to its message, and the errors of modules to one."""

    default_priority = 400  # before Sphinx collects what links may lead to

    def apply(self):
        """Change the list, if this page has it."""
        table, _ = error_index.read_table(page_of(self.env).docs)
        entries = {f"error-{entry.name}": entry for entry in table}
        for box in self.document.findall(nodes.container):
            if "error-entry" in box["classes"]:
                fold_entry(box, entries[box["names"][0]].patterns)
        for own in self.document.findall(nodes.section):
            if "errors-own" in own["ids"]:
                count = len([*own.findall(nodes.list_item)])
                own.insert(1, raw(f'<details class="own-errors">{OWN.format(count)}'))
                own.append(raw("</details>"))


def fold_entry(box, patterns):
    """Fold an entry, and leave on it the words that find it."""
    message, meaning, *links = box.children
    record = {"title": message[0].astext(), "text": meaning.astext(), "code": ""}
    box["search"] = record | {"words": patterns}
    words = escape(json.dumps(patterns, ensure_ascii=False))
    title = nodes.inline("", "", *message.children)
    start = raw(f'<details data-words="{words}"><summary>')
    box[:] = [start, title, raw("</summary>"), meaning, *links, raw("</details>")]


# ------------------------------------------------------------------ in all other pages


def add_cells(app, doctree):
    """Handle `doctree-read`: name each cell that raises, for links; check its message.

    There is no label: cells of other pages have the same name.
    """
    page = page_of(app.env)
    raising = {each.line: each for each in error_index.raising_cells(page)}
    slugs = app.env.metadata[page.name].setdefault("myst_slugs", {})
    for node, cell in zip(doctree.findall(is_code), page.code, strict=True):
        if each := raising.get(cell.line):
            node["ids"].insert(0, each.anchor)
            slugs[each.anchor] = each.line, each.anchor, each.title
            for box in node.findall(nodes.container):
                if "raised" in box["classes"]:  # an error: see `cells.show_error`
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


def setup(app):
    """Register the transform and the handler."""
    app.add_transform(Entries)
    app.connect("doctree-read", add_cells, priority=450)  # after `cells`
    return {"parallel_read_safe": True, "parallel_write_safe": True}
