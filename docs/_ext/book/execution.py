"""Run a page again when what it depends on has changed, and only then.

MyST-NB keeps a page's outputs under a key made of its cells and its `kernelspec`. The
key knows nothing of the modules that the cells import, nor of the environment, so a
page would keep its old outputs when one of them changes. Here both go into the
kernelspec, as one digest, and Sphinx is told which files the page depends on. So do the
files that a page reads: its front matter lists them as `data`, from the page's folder.
"""

import hashlib
import importlib.metadata
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from jupyter_cache import get_cache
from sphinx.errors import ExtensionError

from book.page import Page, quiet


def environment(variables) -> str:
    """Digest the Python, every installed package and the named variables."""
    packages = importlib.metadata.distributions()
    state = [
        sys.version,
        *sorted({f"{package.name}=={package.version}" for package in packages}),
        *(f"{name}={os.environ.get(name, '')}" for name in sorted(variables)),
    ]
    return hashlib.sha256("\n".join(state).encode()).hexdigest()


def with_key(page, key) -> str:
    """Write `key` into the kernelspec of a page, without moving any line."""
    kernel = page.front["kernelspec"] | {"key": key}
    front = json.dumps(page.front | {"kernelspec": kernel})  # so it is one line
    lines, count = page.text.split("\n"), page.tokens[0].map[1]
    return "\n".join(["---", front, *[""] * (count - 3), "---", *lines[count:]])


def add_key(app, docname, source):
    """Handle `source-read`: make the page depend on its files and environment."""
    file = Path(app.env.doc2path(docname))
    page = Page(file, Path(app.srcdir), source=source[0])
    if not page.is_notebook:
        return
    try:
        page = replace(page, source=quiet(page))
    except ValueError as error:
        raise ExtensionError(f"{docname}, {error}") from error
    digest = hashlib.sha256(app.config.execution_environment.encode())
    for file in [*page.modules(Path(app.config.execution_modules)), *page.data]:
        app.env.note_dependency(file)
        digest.update(file.name.encode() + file.read_bytes())
    source[0] = with_key(page, digest.hexdigest()[:16])


def make_cache(app, config):
    """Handle `config-inited`: create the database before Sphinx forks its readers."""
    _ = get_cache(config.nb_execution_cache_path).db


def setup(app):
    """Register the two settings and the handlers."""
    app.add_config_value("execution_environment", "", "env", str)
    app.add_config_value("execution_modules", "", "env", str)
    app.connect("config-inited", make_cache)
    app.connect("source-read", add_key)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
