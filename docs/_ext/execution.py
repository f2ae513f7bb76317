"""Run a page again when what it depends on has changed, and only then.

MyST-NB caches a page's outputs under a key made of its cells and its `kernelspec`. The
key does not contain the modules that the cells import, nor the environment, so the
outputs would stay when one of them changes. Here both go into the kernelspec, as one
digest, and Sphinx gets the files that the page depends on as dependencies. So do the
files that a page reads: its front matter lists them as `data`, from the page's folder.
So do the rows of the programs that a page measures (see tools/measure_hook.py).
"""

import hashlib
import importlib.metadata
import json
import os
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import create_nb_reader
from sphinx.errors import ExtensionError
from sphinx.util.logging import getLogger
from sphinx.util.parallel import ParallelTasks, SerialTasks, parallel_available

from book import exercises, marks, notes, play
from book.page import Page, comment_options
from book.program_table import read_rows

LOG = getLogger(__name__)
MEASURING = "communication.py"  # pages whose cells import it may measure programs
COLUMNS = "program", "machine", "collectives", "temporaries", "note"  # columns


def digest_environment(variables) -> str:
    """Digest the Python, every installed package and the named variables.

    Where the checkout lies is no part of it.
    """
    packages = importlib.metadata.distributions()
    state = [
        sys.version,
        *sorted({f"{package.name}=={package.version}" for package in packages}),
        *(f"{name}={os.environ.get(name, '')}" for name in sorted(variables)),
    ]
    state = [each.replace(str(marks.ROOT), "ROOT") for each in state]
    return hashlib.sha256("\n".join(state).encode()).hexdigest()


def insert_key(page, key) -> str:
    """Write `key` into the kernelspec of a page, without moving any line."""
    kernel = page.front["kernelspec"] | {"key": key}
    front = json.dumps(page.front | {"kernelspec": kernel})  # so it is one line
    lines, count = page.text.split("\n"), page.tokens[0].map[1]
    return "\n".join(["---", front, *[""] * (count - 3), "---", *lines[count:]])


def page_key(app, page) -> tuple[str, str, list[Path]]:
    """Return a page's key, its text with that, and the files that it depends on.

    The key is a digest of the code that is played: the page's, the modules, the data
    and the answers to exercises with it.
    """
    try:
        page = replace(page, source=comment_options(page))
    except ValueError as error:
        raise ExtensionError(f"{page.name}, {error}") from error
    modules = Path(app.config.execution_modules)
    files = [*page.modules(modules), *page.data]
    files += [
        file
        for exercise in page.exercises
        if (file := exercises.wrong_answers_file(exercise.name)).exists()
    ]
    cells = play.notebook_with_answers(page, modules).cells
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    state = [app.config.execution_environment, page.needs, code]
    table = Path(app.config.execution_programs)
    if MEASURING in (file.name for file in files) and table.is_file():
        state.append(program_rows(table, page.name))
        files.append(table)
    key = hashlib.sha256(repr(state).encode()).hexdigest()[:16]
    return key, insert_key(page, key), files


def program_rows(table, name) -> list[list[str]]:
    """Return the table's rows for a page's programs on other machines."""
    rows = (row for row in read_rows(table) if name in row["pages"].split())
    return sorted([row[k] for k in COLUMNS] for row in rows if row["machine"] != "CPU")


def warn_of_missing(app):
    """Warn of pages with programs that are not compiled for other machines."""
    table = Path(app.config.execution_programs)
    if table.is_file():
        rows = read_rows(table)
        known = {row["program"] for row in rows if row["machine"] != "CPU"}
        for name in sorted(app.env.found_docs):
            programs = {file.stem for file in notes.note_files(name)}
            if missing := len(programs - known):
                message = f"{missing} of its programs are not kept for other machines"
                message += ": run `nox -s remeasure -- programs`"
                LOG.warning(message, location=name)


def add_key(app, docname, source):
    """Handle `source-read`: make the page depend on its files and environment."""
    page = Page(Path(app.env.doc2path(docname)), Path(app.srcdir), source=source[0])
    if page.is_notebook:
        _, source[0], files = page_key(app, page)
        for file in files:
            app.env.note_dependency(file)


def read_notebook(app, page, text):
    """Return a page's text, with its key, as MyST-NB reads it: without outputs."""
    settings = app.env.mystnb_config
    reader = create_nb_reader(str(page.file), app.env.myst_config, settings, text)
    return reader.read(text)


def is_played(app, page) -> bool:
    """Return whether a page's outputs are cached; select the notes of its key."""
    key, text, _ = page_key(app, page)
    notes.begin_notes(page.name, key)
    cache = get_cache(app.config.nb_execution_cache_path)
    try:
        cache.match_cache_notebook(read_notebook(app, page, text))
    except KeyError:
        return False
    return not page.exercises or notes.answers_file(page.name).exists()


def cache_outputs(cache, bundle):
    """Put a page's outputs into MyST-NB's cache, one process at a time.

    As it makes room for them, it deletes what another process puts there meanwhile.
    """
    with closing(sqlite3.connect(cache.path / "lock.db", timeout=600)) as lock:
        lock.execute("BEGIN EXCLUSIVE")  # until it is closed
        cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def execute_page(app, page, kernel):
    """Play a page, and put what its cells show into MyST-NB's cache."""
    LOG.info("%s: Executing notebook", page.file)
    folder = notes.notes_of(page.name)
    variables = app.config.execution_variables | {"BOOK_NOTES": str(folder)}
    modules = Path(app.config.execution_modules)
    played = play.play_page(page, modules, kernel, variables)
    notebook = read_notebook(app, page, page_key(app, page)[1])
    notebook.metadata["language_info"] = played.language
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    for number, cell in enumerate(page.cells, 1):
        if cell.code:
            own, ran = next(cells), played.cells[f"cell-{number}"]
            own.outputs, own.execution_count = ran.outputs, ran.execution_count
    cache = get_cache(app.config.nb_execution_cache_path)
    data = {"execution_seconds": played.seconds}
    cache_outputs(cache, CacheBundleIn(nb=notebook, uri=str(page.file), data=data))
    if page.exercises:
        notes.answers_file(page.name).parent.mkdir(parents=True, exist_ok=True)
        notes.answers_file(page.name).write_text(json.dumps(played.answers))
    LOG.info("%s: Executed notebook in %.2f seconds", page.file, played.seconds)


def execute_pages(app, env, names):
    """Handle `env-before-read-docs`: play pages side by side, those that wait too.

    MyST-NB finds what they show in its cache.
    """
    if app.config.nb_execution_mode != "cache":
        return
    found = (Page(Path(env.doc2path(name)), Path(app.srcdir)) for name in names)
    pages = [page for page in found if page.is_notebook and not is_played(app, page)]
    folder = app.config.execution_kernels
    kernels = {
        tuple(page.needs): play.make_kernel(page.needs, Path(folder))
        if folder
        else "python3"
        for page in pages
    }
    many = (os.cpu_count() or 1) + 1
    tasks = ParallelTasks(many) if parallel_available else SerialTasks()
    for page in pages:
        play_one = partial(execute_page, app, page)
        tasks.add_task(play_one, kernels[tuple(page.needs)])
    tasks.join()
    warn_of_missing(app)


def make_cache(app, config):
    """Handle `config-inited`: create the database before Sphinx forks its readers."""
    _ = get_cache(config.nb_execution_cache_path).db


def setup(app):
    """Register the settings and the handlers."""
    app.add_config_value("execution_environment", "", "env", str)
    app.add_config_value("execution_modules", "", "env", str)
    app.add_config_value("execution_programs", "", "env", str)
    app.add_config_value("execution_kernels", "", "env", str)
    app.add_config_value("execution_variables", {"JAX_PLATFORMS": "cpu"}, "env", dict)
    app.connect("config-inited", make_cache)
    app.connect("env-before-read-docs", execute_pages, priority=900)  # all is set
    app.connect("source-read", add_key)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
