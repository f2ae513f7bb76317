"""Run a page again when what it depends on has changed, and only then.

MyST-NB keeps a page's outputs under a key made of its cells and its `kernelspec`. The
key knows nothing of the modules that the cells import, nor of the environment, so a
page would keep its old outputs when one of them changes. Here both go into the
kernelspec, as one digest, and Sphinx is told which files the page depends on. So do the
files that a page reads: its front matter lists them as `data`, from the page's folder.
And so does what is kept of the programs that a page measures (see tools/elsewhere.py).
"""

import hashlib
import importlib.metadata
import json
import logging
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from jupyter_cache import get_cache
from myst_nb.core.execute import create_client
from myst_nb.core.read import create_nb_reader
from sphinx.errors import ExtensionError
from sphinx.util.logging import SphinxLoggerAdapter, getLogger
from sphinx.util.parallel import ParallelTasks, SerialTasks, parallel_available

from book import answers, marks, notes
from book.page import Page, quiet

LOG = getLogger(__name__)
MEASURING = "communication.py"  # pages whose cells import it may measure programs
SHOWN = "program", "machine", "collectives", "temporaries", "note"  # columns


def environment(variables) -> str:
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


def with_key(page, key) -> str:
    """Write `key` into the kernelspec of a page, without moving any line."""
    kernel = page.front["kernelspec"] | {"key": key}
    front = json.dumps(page.front | {"kernelspec": kernel})  # so it is one line
    lines, count = page.text.split("\n"), page.tokens[0].map[1]
    return "\n".join(["---", front, *[""] * (count - 3), "---", *lines[count:]])


def keyed(app, page) -> tuple[str, str, list[Path]]:
    """Return a page's key, its text with that, and the files that it depends on."""
    try:
        page = replace(page, source=quiet(page))
    except ValueError as error:
        raise ExtensionError(f"{page.name}, {error}") from error
    files = [*page.modules(Path(app.config.execution_modules)), *page.data]
    digest = hashlib.sha256(app.config.execution_environment.encode())
    for file in files:
        digest.update(file.name.encode() + file.read_bytes())
    table = Path(app.config.execution_kept)
    if MEASURING in (file.name for file in files) and table.is_file():
        digest.update(repr(shown(table, page.name)).encode())
        files.append(table)
    key = digest.hexdigest()[:16]
    return key, with_key(page, key), files


def shown(table, name) -> list[list[str]]:
    """Return what a page may show of its programs on other machines."""
    rows = (row for row in answers.rows(table) if name in row["pages"].split())
    return sorted([row[k] for k in SHOWN] for row in rows if row["machine"] != "CPU")


def warn_of_missing(app):
    """Name the pages with programs that nobody compiled for other machines."""
    table = Path(app.config.execution_kept)
    if table.is_file():
        rows = answers.rows(table)
        known = {row["program"] for row in rows if row["machine"] != "CPU"}
        for name in sorted(app.env.found_docs):
            noted = {file.stem for file in notes.note_files(name)}
            if missing := len(noted - known):
                told = f"{missing} of its programs are not kept for other machines"
                LOG.warning("%s: run `nox -s programs`", told, location=name)


def add_key(app, docname, source):
    """Handle `source-read`: make the page depend on its files and environment."""
    page = Page(Path(app.env.doc2path(docname)), Path(app.srcdir), source=source[0])
    if page.is_notebook:
        _, source[0], files = keyed(app, page)
        for file in files:
            app.env.note_dependency(file)


class Log(SphinxLoggerAdapter):
    """A log that says of each line which page it is about."""

    def process(self, message, options):
        """Add the page; MyST-NB gives the rest."""
        return super().process(message, options | {"type": "mystnb", **self.extra})


def execute(app, name):
    """Execute a page for MyST-NB's cache, if it has cells and the cache has it not."""
    page = Page(Path(app.env.doc2path(name)), Path(app.srcdir))
    if page.is_notebook:
        key, text, _ = keyed(app, page)
        settings = app.env.mystnb_config
        # each page has a process of its own here
        os.environ["BOOK_NOTES"] = str(notes.begin_notes(name, key))
        reader = create_nb_reader(str(page.file), app.env.myst_config, settings, text)
        log = Log(logging.getLogger(f"sphinx.{__name__}"), {"location": name})
        told = reader.read(text), str(page.file), settings, log, reader.read_fmt
        with create_client(*told):
            pass


def execute_all(app, env, names):
    """Handle `env-before-read-docs`: execute pages side by side, those that wait too.

    Sphinx would give each of its readers a fixed share of the pages, and execute one
    page after the other in each of them. MyST-NB finds these here in its cache.
    """
    if app.config.nb_execution_mode == "cache":
        many = (os.cpu_count() or 1) + 1
        tasks = ParallelTasks(many) if parallel_available else SerialTasks()
        for name in names:
            tasks.add_task(partial(execute, app), name)
        tasks.join()
        warn_of_missing(app)


def make_cache(app, config):
    """Handle `config-inited`: create the database before Sphinx forks its readers."""
    _ = get_cache(config.nb_execution_cache_path).db


def setup(app):
    """Register the three settings and the handlers."""
    app.add_config_value("execution_environment", "", "env", str)
    app.add_config_value("execution_modules", "", "env", str)
    app.add_config_value("execution_kept", "", "env", str)
    app.connect("config-inited", make_cache)
    app.connect("env-before-read-docs", execute_all, priority=900)  # all is set by then
    app.connect("source-read", add_key)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
