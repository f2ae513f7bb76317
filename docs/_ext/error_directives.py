"""The page of errors: the directive `error-index`, of the entries of `error_index`.

The build warns where a message that a cell raised fits another entry than the one that
its cell counts for, or two of them.
"""

import json
from pathlib import Path

from cells import cell_source, is_code
from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from book.error_index import (
    ENOUGH,
    GROUPS,
    OWN,
    entries_of,
    entry_text,
    group_cells,
    index_text,
    mask_values,
    matches,
    own_error_text,
    raising_cells,
    read_entries,
    table_file,
)
from book.page import Page

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


class Part(SphinxDirective):
    """A part of the list, with the page and the cells that all parts use."""

    @property
    def page(self):
        """The page that is read."""
        return Page(Path(self.env.doc2path(self.env.docname)), Path(self.env.srcdir))

    @property
    def cells(self):
        """The cells of each entry, those of each module, and those of neither."""
        known = self.env.temp_data
        if "error_index" not in known:
            known["error_index"] = group_cells(self.page.docs)
        return known["error_index"]


class ErrorIndex(Part):
    """The list, generated again when its text changes."""

    def run(self):
        """Return the sections of the list."""
        table = table_file(self.page.docs)
        self.env.note_dependency(str(table))
        self.env.metadata[self.env.docname]["errors"] = index_text(self.page)
        for each in self.cells[2]:
            message = f"{each.kind} {each.phrase}: no entry in errors.toml fits it"
            log.warning(message, location=(each.page.name, each.line), type="errors")
        lines = []
        for group, title in GROUPS.items():
            lines.append(f"(errors-{group})=\n\n## {title}")
            names = [each.name for each in read_entries(table) if each.group == group]
            lines += [f"```{{error-entry}} {name}\n```" for name in names]
        lines.append(f"(errors-own)=\n\n## {OWN}\n\n```{{error-own}}\n```")
        shown = "\n\n".join(lines)
        return self.parse_text_to_nodes(shown, allow_section_headings=True)


class ErrorEntryDirective(Part):
    """An entry."""

    required_arguments = 1

    def run(self):
        """Return the node of the entry, with a target for links."""
        (name,) = self.arguments
        table = read_entries(table_file(self.page.docs))
        entry = next(each for each in table if each.name == name)
        node = ErrorEntry(words=list(entry.patterns))
        node["names"].append(f"error-{entry.name}")
        self.state.document.note_explicit_target(node)
        text = entry_text(entry, self.cells[0][name], self.page)
        node.extend(self.parse_text_to_nodes(text))
        return [node]


class ErrorOwn(Part):
    """The errors of the book's modules, folded."""

    def run(self):
        """Return them by module."""
        count = sum(map(len, self.cells[1].values()))
        start = f'<details class="own-errors"><summary>{count} errors'
        found = [html_node(f"{start} that say themselves what to pass</summary>")]
        for module, cells in self.cells[1].items():
            found.append(nodes.rubric("", module))
            for each in cells:
                has_words = len(each.phrase) >= ENOUGH
                node = ErrorEntry(words=[mask_values(each.phrase)] * has_words)
                node["classes"].append("own")
                node.extend(self.parse_text_to_nodes(own_error_text(each, self.page)))
                found.append(node)
        return [*found, html_node("</details>")]


def html_node(text):
    """Return a node with text of HTML."""
    return nodes.raw("", text, format="html")


def outdated_pages(app, env, added, changed, removed):
    """Handle `env-get-outdated`: read the list again if its text has changed."""
    if not added | changed | removed:
        return []
    docs = Path(app.srcdir)
    texts = {n: of["errors"] for n, of in env.metadata.items() if "errors" in of}
    pages = {n: Page(Path(env.doc2path(n)), docs) for n in {*texts} & env.found_docs}
    return [name for name, page in pages.items() if texts[name] != index_text(page)]


def add_script(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: load the script and the style where the list is."""
    if app.env.metadata.get(pagename, {}).get("errors"):
        app.add_js_file("errors.js", loading_method="defer")
        app.add_css_file("errors.css")


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
        page = Page(Path(self.env.doc2path(self.env.docname)), Path(self.env.srcdir))
        for node, each in cells_in(self.document, page):
            node["ids"].append(each.anchor)  # no label: other pages have the same


def compare_messages(app, doctree):
    """Handle `doctree-read`: warn of a message that fits another entry."""
    name, docs = app.env.docname, Path(app.srcdir)
    if not table_file(docs).exists():
        return
    page = Page(Path(app.env.doc2path(name)), docs)
    table = read_entries(table_file(docs))
    slugs = app.env.metadata[name].setdefault("myst_slugs", {})
    for node, each in cells_in(doctree, page):
        slugs[each.anchor] = each.line, each.anchor, each.title
        wanted = {entry.name for entry in entries_of(each.kind, each.phrase, table)}
        for box in node.findall(is_error):
            message = box[-1].astext()
            got = {entry.name for entry in matches(message, table)}
            if wanted and got != wanted:
                fault = f"fits {sorted(got)} in errors.toml, not {sorted(wanted)}"
                log.warning(fault, location=(name, each.line), type="errors")


def setup(app):
    """Register the directive, its node, the transform and the handlers."""
    app.add_node(ErrorEntry, html=(open_entry, close_entry))
    app.add_directive("error-index", ErrorIndex)
    app.add_directive("error-entry", ErrorEntryDirective)
    app.add_directive("error-own", ErrorOwn)
    app.add_transform(Targets)
    app.connect("env-get-outdated", outdated_pages)
    app.connect("doctree-read", compare_messages, priority=450)  # after `cells`
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
