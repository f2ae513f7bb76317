"""Judge the cells of a page while the site is built, and show what they prove.

The options are those of `guards`. Every cell runs, and all are judged, whenever a page
is read. One that failed is read again in each build until it passes, so that no later
build is green without it; one that raised an error also runs again.
"""

import re

import nbformat
from docutils import nodes
from execution import outputs_of
from sources import page_of
from sphinx.util import logging

from book import exercises, guards, predictions

log = logging.getLogger(__name__)
LINE = re.compile(r'(?<=(?:collapsed|.expanded) admonition-title">).*(?=</p>)')


def executed_notebook(app, name):
    """Return the notebook of a page as it ran, or None where it did not."""
    file = getattr(app.env, "played", {}).get(name)
    return nbformat.read(file, as_version=4) if file and file.exists() else None


def judge_page(app, doctree):
    """Handle `doctree-read`: compare each cell with its options, then show it so."""
    name = app.env.docname
    if (played := executed_notebook(app, name)) is None:
        return
    page = page_of(app.env)
    cells = list(zip(page.code, outputs_of(played), strict=True))
    found = [*cell_faults(cells), *question_faults(page, cells, played)]
    for line, option, words in found:
        app.env.metadata[name]["failed"] = True
        log.warning(words, location=(name, line), type="cells", subtype=option)
    if {"error", "check"} & {option for _, option, _ in found}:
        app.env.played[name].unlink()  # the cause may lie outside the page
    for node, (cell, outputs) in zip(doctree.findall(is_code), cells, strict=True):
        show_cell(node, cell, outputs)


def cell_faults(cells):
    """Yield the faults of cells: line, option, words."""
    for number, (cell, outputs) in enumerate(cells, 1):
        for option, words in guards.faults(cell, outputs):
            yield cell.line, option, f"cell {number} {words}"
            if option == "error":
                return  # what stands below may only follow from it


def question_faults(page, cells, played):
    """Yield the faults of predictions, and of answers to exercises."""
    for line, words in predictions.faults(page, cells):
        yield line, "predict", words
    outcomes = exercises.read_outcomes(played)
    for exercise in page.exercises:
        for words in exercises.faults(exercise.name, outcomes.get(exercise.name, [])):
            yield exercise.line + 1, "exercise", words


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
    """Put the error into a box, and fold the code behind the words of an option."""
    if "raises" in cell.options and (error := guards.find_error(outputs)):
        show_error(node, *error[:2])
    for option, mode, start in ("check", "all", "Checked: "), ("fold", "input", ""):
        if option in cell.options:
            node["hide_mode"] = mode  # MyST-NB's own way to fold a cell
            words = start + cell.options[option].strip()
            node["prompt_show"] = node["prompt_hide"] = words
            node["classes"].append(option)


def show_error(node, kind, message):
    """Show an error as its kind and its message, in place of the traceback."""
    for block in [*node.findall(nodes.literal_block)]:
        if "traceback" in block["classes"]:
            block.parent.remove(block)
    name = nodes.paragraph(kind, kind, classes=["kind"])
    says = nodes.literal_block(message, message, language="none", classes=["output"])
    node[-1] += nodes.container("", name, says, classes=["output", "raised"])
    node["classes"].append("raises")


def format_fold_lines(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: show what has backticks in the lines of folded cells.

    MyST-NB writes these lines as plain text.
    """
    body = context.get("body", "")
    context["body"] = LINE.sub(
        lambda line: re.sub(r"`([^`]+)`", r"<code>\1</code>", line[0]), body
    )


def setup(app):
    """Register the handlers."""
    app.setup_extension("execution")
    app.connect("doctree-read", judge_page, priority=400)  # before all that read code
    app.connect("html-page-context", format_fold_lines)
    app.connect("env-get-outdated", failed_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 3}
