"""The directive `build-line`: a sentence with the counts of this build.

Each page is counted when it is read; the sentence is made when all have been.
"""

import subprocess
from collections import Counter
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from book import claims
from book.facts import ROOT, locked_version
from book.page import Page


class Line(nodes.General, nodes.Element):
    """The place of the sentence."""


class BuildLine(SphinxDirective):
    """A place for the sentence."""

    def run(self):
        """Return the place."""
        self.env.metadata[self.env.docname]["has_build_line"] = True
        return [Line()]


def commit_date() -> str:
    """Return the date of the commit, or nothing where there is no history."""
    ask = ["git", "log", "-1", "--format=%cs"]
    done = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def count_page(app, doctree):
    """Handle `doctree-read`: store the counts of the page."""
    name = app.env.docname
    page = Page(Path(app.env.doc2path(name)), Path(app.srcdir))
    if page.is_notebook:
        cells = list(page.code)
        app.env.metadata[name]["counts"] = {
            "pages": 1,
            "cells": len(cells),
            "facts": sum(map(claims.count_claims, cells)),
            "exercises": len(page.exercises),
        }


def format_line(env) -> str:
    """Return the sentence."""
    total = Counter()
    for metadata in env.metadata.values():
        total.update(metadata.get("counts", {}))
    found = {name: f"{number:,}" for name, number in total.items()}
    day = commit_date()
    return (
        f"This build{f', of {day},' if day else ''} ran {found['cells']} cells on "
        f"{found['pages']} pages with JAX {locked_version('jax')}; {found['facts']} "
        f"facts were proved, and {found['exercises']} exercises have answers that pass."
    )


def update_line(app, env):
    """Handle `env-updated`: write the pages with the sentence again if it changed."""
    places = [name for name, of in env.metadata.items() if "has_build_line" in of]
    line = format_line(env) if places else ""
    if line == getattr(env, "build_line", ""):
        return []
    env.build_line = line
    return places


def fill_places(app, doctree, name):
    """Handle `doctree-resolved`: put the sentence in its place."""
    for place in list(doctree.findall(Line)):
        line = app.env.build_line
        place.replace_self(nodes.paragraph(line, line, classes=["build-line"]))


def setup(app):
    """Register the directive."""
    app.add_directive("build-line", BuildLine)
    app.add_node(Line)
    app.connect("doctree-read", count_page)
    app.connect("env-updated", update_line)
    app.connect("doctree-resolved", fill_places)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
