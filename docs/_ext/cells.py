"""Judge the cells of a page while the site is built, and show what they prove.

The options are those of `guards`. MyST-NB sees comments (`page.comment_options`), so
that a new expectation is compared with the cached outputs, and the page does not run.
Every cell runs (`nb_execution_allow_errors`), and all are judged. A page that failed is
read again in each build until it passes, so that no later build is green without it.
"""

import contextlib
import json
import re
from pathlib import Path

import nbformat
from docutils import nodes
from jupyter_cache import get_cache
from sources import page_of
from sphinx.util import logging

from book import exercises, guards, notes, predictions

log = logging.getLogger(__name__)
LINE = re.compile(r'(?<=(?:collapsed|.expanded) admonition-title">).*(?=</p>)')


def executed_notebook(app, name):
    """Return a page's notebook as MyST-NB ran it, or None where it did not."""
    if not getattr(app.env, "nb_metadata", {}).get(name, {}).get("exec_data"):
        return None
    settings = app.env.mystnb_config
    folder = Path(settings.output_folder)
    notebook = nbformat.read(folder / f"{name}.ipynb", as_version=4)
    with contextlib.suppress(KeyError):  # of a page that is not kept
        # MyST-NB writes the outputs that it ran, not those that it kept
        cache = get_cache(settings.execution_cache_path)
        _, notebook = cache.merge_match_into_notebook(notebook)
    return notebook


def outputs_of(notebook) -> list:
    """List the outputs of each code cell of a notebook."""
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


def judge_page(app, doctree):
    """Handle `doctree-read`: compare each cell with its options, then show it so."""
    name = app.env.docname
    if (ran := executed_notebook(app, name)) is None:
        return
    page = page_of(app.env)
    cells = list(zip(page.code, outputs_of(ran), strict=True))
    failed_options = {*faults_of(app.env, page, cells)} | stop_faults(app.env, cells)
    if failed_options & {"error", "check"}:  # the cause may lie outside the page
        remove_from_cache(app.env.mystnb_config, ran)
    judge_questions(app.env, page, cells)
    places = [n for n, cell in enumerate(ran.cells) if cell.cell_type == "code"]
    shown = {node["cell_index"]: node for node in doctree.findall(is_code)}
    for place, (cell, outputs) in zip(places, cells, strict=True):
        if place in shown:
            show_cell(shown[place], cell, outputs)


def judge_questions(env, page, cells):
    """Warn of predictions, and of answers to exercises, that turn out otherwise."""
    for line, words in predictions.faults(page, cells):
        warn(env, page, line, "predict", words)
    file = notes.answers_file(page.name) if page.exercises else None
    found = json.loads(file.read_text()) if file and file.exists() else {}
    for exercise in page.exercises:
        for words in exercises.faults(exercise.name, found.get(exercise.name, [])):
            warn(env, page, exercise.line + 1, "exercise", words)


def faults_of(env, page, cells):
    """Warn of each fault in the cells of a page, and yield the failed options."""
    for number, (cell, outputs) in enumerate(cells, 1):
        for option, words in guards.faults(cell, outputs):
            warn(env, page, cell.line, option, f"cell {number} {words}")
            yield option
            if option == "error":
                return  # what stands below may only follow from it


def stop_faults(env, cells) -> set[str]:
    """Return `{"error"}` if the page did not run to its end, as after a timeout."""
    if env.nb_metadata[env.docname]["exec_data"]["succeeded"]:
        return set()
    if any(guards.find_error(outputs) for _, outputs in cells):
        return set()
    env.metadata[env.docname]["failed"] = True
    return {"error"}


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
    for option, mode in (("check", "all"), ("fold", "input")):
        if option in cell.options:
            words = cell.options[option].strip()
            node["hide_mode"] = mode  # MyST-NB's own way to fold a cell
            start = "Checked: " if option == "check" else ""
            node["prompt_show"] = node["prompt_hide"] = start + words
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


def warn(env, page, line, option, words):
    """Warn of a fault on a page, and let the next build read the page again."""
    env.metadata[page.name]["failed"] = True
    log.warning(words, location=(page.name, line), type="cells", subtype=option)


def remove_from_cache(settings, notebook):
    """Remove a page from the cache, so that the next build runs it again."""
    cache = get_cache(settings.execution_cache_path)
    with contextlib.suppress(KeyError):
        cache.remove_cache(cache.match_cache_notebook(notebook).pk)


def failed_pages(app, env, *changes):
    """Handle `env-get-outdated`: return the pages that failed when they were read."""
    return [name for name, metadata in env.metadata.items() if "failed" in metadata]


def setup(app):
    """Register the handlers."""
    app.setup_extension("execution")
    app.setup_extension("sources")
    app.connect("doctree-read", judge_page, priority=400)  # before all that read code
    app.connect("html-page-context", format_fold_lines)
    app.connect("env-get-outdated", failed_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 2}
