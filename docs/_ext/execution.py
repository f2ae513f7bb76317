"""Play a page when what it runs has changed, and give MyST-NB what its cells showed.

The folder of a page's key has the notebook as it ran, beside its programs: see `notes`.
"""

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import nbformat
from myst_nb.core.read import read_myst_markdown_notebook
from sources import page_of
from sphinx.errors import ExtensionError
from sphinx.util.logging import getLogger

from book import exercises, marks, notes, play, program_table
from book.page import SYNTAX

LOG = getLogger(__name__)
COLUMNS = "program", "machine", "collectives", "temporaries", "note"


# ----------------------------------------------------------------------------- keys


def digest_environment(variables, files) -> str:
    """Digest the Python, variables and files; where the checkout lies is no part."""
    state = [sys.version, *(file.read_text() for file in files), *variables.items()]
    return sha256(repr(state).replace(str(marks.ROOT), "ROOT").encode()).hexdigest()


def page_key(app, page) -> str:
    """Return the digest of all that decides what a page shows when it is played."""
    try:
        notebook = play.make_notebook(page, Path(app.config.execution_modules))
    except ValueError as error:
        raise ExtensionError(f"{page.name}, {error}") from error
    own = iter(page.code)  # other words above its code need no run
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    code = [(next(own) if play.is_own(cell) else cell).source for cell in cells]
    rows = [row for row in other_rows() if page.name in row["pages"].split()]
    rows = sorted([row[column] for column in COLUMNS] for row in rows)
    state = [app.config.execution_environment, page.needs, code, rows]
    return sha256(repr(state).encode()).hexdigest()[:16]


def other_rows() -> list[dict]:
    """Return the rows of programs for other machines."""
    return [row for row in program_table.read_rows() if row["machine"] != "CPU"]


def add_dependencies(app, docname, source):
    """Handle `source-read`: read a page again when a file changes that is played."""
    page = page_of(app.env)
    if page.is_notebook:
        files = [*page.modules(Path(app.config.execution_modules)), *page.data]
        files += [exercises.wrong_answers_file(each.name) for each in page.exercises]
        if "communication" in [file.stem for file in files]:  # it measures
            files.append(program_table.TABLE)
        for file in filter(Path.exists, files):
            app.env.note_dependency(file)


# ------------------------------------------------------------------- what was played


def played_notebook(env, page):
    """Return the notebook of a page as it ran, or None where it did not."""
    file = getattr(env, "played", {}).get(page.name)
    return nbformat.read(file, as_version=4) if file and file.exists() else None


def outputs_of(notebook) -> list:
    """Return the outputs of each cell that a page has itself, in order."""
    return [cell.outputs for cell in notebook.cells if play.is_own(cell)]


def read_played(text, file):
    """Return a page's text as MyST-NB reads it, with the outputs that a file has."""
    notebook = read_myst_markdown_notebook(text, SYNTAX, add_source_map=True)
    played = nbformat.read(file, as_version=4)
    notebook.metadata["language_info"] = played.metadata["language_info"]
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, outputs in zip(cells, outputs_of(played), strict=True):
        cell.outputs = outputs
    return notebook


def store_page(app, page, file, kernel):
    """Play a page, and store its notebook in a file."""
    LOG.info("%s: Executing notebook", page.file)
    shutil.rmtree(file.parent, ignore_errors=True)
    variables = app.config.execution_variables | {"BOOK_NOTES": str(file.parent)}
    modules = Path(app.config.execution_modules)
    notebook = play.play_page(page, modules, kernel, variables)
    file.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, file.with_suffix(".part"))
    file.with_suffix(".part").rename(file)


def play_pages(app, env, names):
    """Handle `env-before-read-docs`: play pages side by side, those that wait too.

    MyST-NB reads what was played, and runs nothing.
    """
    if app.config.nb_execution_mode != "cache":
        return
    env.mystnb_config.execution_mode = "off"
    env.played, jobs = getattr(env, "played", {}), []
    for page in (page_of(env, name) for name in names):
        if page.is_notebook:
            folder = notes.notes_folder(page.name, page_key(app, page))
            file = env.played[page.name] = folder / "played.ipynb"
            reader = "execution.read_played", {"file": file}, False
            env.mystnb_config.custom_formats[str(page.file)] = reader
            if not file.exists():
                kernel = "python3"
                if kernels := app.config.execution_kernels:
                    kernel = play.make_kernel(tuple(page.needs), Path(kernels))
                jobs.append((page, file, kernel))
    jobs.sort(key=lambda job: job[0].file.name)  # pages that wait, among others
    with ThreadPoolExecutor((os.cpu_count() or 1) + 2) as pool:
        list(pool.map(lambda job: store_page(app, *job), jobs))
    warn_of_missing(env)


def warn_of_missing(env):
    """Warn of pages with programs that are not compiled for other machines."""
    known = {row["program"] for row in other_rows()}
    for name in sorted(env.found_docs) if known else ():
        programs = {file.stem for file in notes.note_files(name)}
        if missing := len(programs - known):
            message = f"{missing} of its programs are not kept for other machines: run "
            LOG.warning(f"{message}`nox -s remeasure -- programs`", location=name)


def setup(app):
    """Register the settings and the handlers."""
    app.setup_extension("sources")
    for name in "environment", "modules", "kernels":
        app.add_config_value(f"execution_{name}", "", "env", str)
    app.add_config_value("execution_variables", {"JAX_PLATFORMS": "cpu"}, "env", dict)
    app.connect("env-before-read-docs", play_pages, priority=900)  # all is set
    app.connect("source-read", add_dependencies)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
