"""A site of a few lines, built in a moment, for the tests of the Sphinx extensions."""

import io
from pathlib import Path
from warnings import catch_warnings

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

HEAD = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  name: python3
---
"""
PROJECT = '[project]\nrequires-python = ">=3.12"\ndependencies = []\n'


class Site:
    """A built site: call it with a path to read that file of the output."""

    def __init__(self, folder: Path, pages: dict, **settings):
        """Write `pages` (path: text) below `folder`/docs and build them."""
        self.folder, self.out = folder, folder / "html"
        for path, text in pages.items():
            file = folder / "docs" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        project = folder / "pyproject.toml"  # which each page with cells needs
        if not project.exists():
            project.write_text(PROJECT)
        if "myst_nb" in settings.get("extensions", ()):  # else it keeps them here
            settings.setdefault("nb_execution_cache_path", str(folder / "cache"))
        self.settings = settings
        self.build()

    def __call__(self, path) -> str:
        """Return the text of a file in the output."""
        return (self.out / path).read_text()

    def build(self):
        """Build what has changed; keep the warnings."""
        source, warnings = str(self.folder / "docs"), io.StringIO()
        with catch_warnings(action="ignore"), docutils_namespace():
            # The warnings are the theme's own, about Sphinx 11.
            app = Sphinx(
                source,
                None,
                str(self.out),
                str(self.folder / "trees"),
                "html",
                confoverrides=self.settings,
                status=None,
                warning=warnings,
            )
            app.build()
        self.warnings = warnings.getvalue()
