"""Judge the cells of a page while the site is built, show what they prove; link them.

A page that failed is read again in each build until it passes, so that no later build
is green without it; one that raised an error also runs again.
"""

import re
from hashlib import sha256
from html import escape
from urllib.parse import urlencode

from docutils import nodes
from execution import outputs_of, played_notebook
from sources import page_of
from sphinx.util import logging

from book import exercises, guards, predictions
from book.facts import locked_version
from book.page import unique_name

log = logging.getLogger(__name__)
LINE = re.compile(r'(?<=(?:collapsed|.expanded) admonition-title">).*(?=</p>)')
CODE = re.compile(r"`([^`]+)`")
FORM = {
    "template": "a-claim-is-wrong.yaml",
    "versions": f"JAX {locked_version('jax')}, as the site was built",
}
CORRECTIONS = {  # faults of accessibility
    # MyST-NB's label hides the text by which voice control would press it
    '<summary aria-label="Toggle hidden content">': "<summary>",
    # the keyboard could not scroll the theme's wide tables
    '<div class="pst-scrollable-table-container">': (
        '<div class="pst-scrollable-table-container" tabindex="0">'
    ),
}


def judge_page(app, doctree):
    """Handle `doctree-read`: compare each cell with its options, then show it so."""
    page = page_of(app.env)
    if (played := played_notebook(app.env, page)) is None:
        return
    cells = list(zip(page.code, outputs_of(played), strict=True))
    found = [*cell_faults(cells)]
    found += [(line, "predict", w) for line, w in predictions.faults(page, cells)]
    found += [(line, "exercise", w) for line, w in exercises.faults(page, played)]
    for line, option, words in found:
        app.env.metadata[page.name]["failed"] = True
        log.warning(words, location=(page.name, line), type="cells", subtype=option)
    if {"error", "check"} & {option for _, option, _ in found}:
        app.env.played[page.name].unlink()  # the cause may lie outside the page
    for node, (cell, outputs) in zip(doctree.findall(is_code), cells, strict=True):
        show_cell(node, cell, outputs)


def cell_faults(cells):
    """Yield the faults of cells: line, option, words."""
    for number, (cell, outputs) in enumerate(cells, 1):
        for option, words in guards.faults(cell, outputs):
            yield cell.line, option, f"cell {number} {words}"
            if option == "error":
                return  # what stands below may only follow from it


def failed_pages(app, env, *changes):
    """Handle `env-get-outdated`: return the pages that failed when they were read."""
    return [name for name, metadata in env.metadata.items() if "failed" in metadata]


# ---------------------------------------------------------------------------- nodes


def is_code(node) -> bool:
    """Return whether a node is a code cell of MyST-NB."""
    return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code"


def cell_source(node) -> str:
    """Return the code of a cell."""
    return next((block.astext() for block in node.findall(nodes.literal_block)), "")


def output_nodes(node) -> list:
    """Return the nodes of outputs of cells."""
    kind = "cell_code_output"
    return [n for n in node.findall(nodes.container) if n.get("nb_element") == kind]


def show_cell(node, cell, outputs):
    """Show an error as its kind and message; fold the code behind words."""
    if "raises" in cell.options and (error := guards.find_error(outputs)):
        for block in [*node.findall(nodes.literal_block)]:
            if "traceback" in block["classes"]:
                block.parent.remove(block)
        kind, message, _ = error
        title = nodes.paragraph(kind, kind, classes=["kind"])
        text = nodes.literal_block(message, message, language="none")
        text["classes"].append("output")
        node[-1] += nodes.container("", title, text, classes=["output", "raised"])
        node["classes"].append("raises")
    if cell.words:  # MyST-NB's own way to fold a cell
        node["hide_mode"] = "all" if "check" in cell.options else "input"
        node["prompt_show"] = node["prompt_hide"] = cell.words
        node["classes"] += {"check", "fold"} & cell.options.keys()


def correct_html(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: correct what MyST-NB and the theme write.

    It writes the lines of folded cells as plain text; there backticks are code.
    """
    body = context.get("body", "")
    for found, better in CORRECTIONS.items():
        body = body.replace(found, better)
    code = r"<code>\1</code>"
    context["body"] = LINE.sub(lambda line: CODE.sub(code, line[0]), body)


# ---------------------------------------------------------------------------- links


def add_links(app, doctree):
    """Handle `doctree-read`: name each cell, by its code, and end it with its links.

    The ids that it has stay first. One link reports a claim.
    """
    names = set()
    for node in doctree.findall(is_code):
        digest = sha256(cell_source(node).strip().encode()).hexdigest()
        name = unique_name(f"cell-{digest[:6]}", names)
        node["ids"].append(name)
        links = f'<a href="#{name}" title="Link to this cell">#</a>'
        if place := app.config.repository.removesuffix(".git"):
            query = urlencode(FORM | {"page": f"{app.env.docname}, #{name}"})
            url = escape(f"{place}/issues/new?{query}")
            links += f' <a href="{url}" title="Report a false claim">report</a>'
        html = f'<span class="cell-links">{links}</span>'
        node.append(nodes.raw("", html, format="html"))


def setup(app):
    """Register the handlers."""
    app.setup_extension("execution")
    app.connect("doctree-read", judge_page, priority=400)  # before all that read code
    app.connect("doctree-read", add_links, priority=950)  # no word of it is searched
    app.connect("html-page-context", correct_html)
    app.connect("env-get-outdated", failed_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 4}
