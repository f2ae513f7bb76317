"""A site of a few lines, built in a moment, for the tests of the Sphinx extensions."""

import io
from pathlib import Path
from warnings import catch_warnings

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

HEAD = """\
---
file_format: mystnb
kernelspec:
  display_name: Python 3
  name: python3
---
"""


class Site:
    """A built site: call it with a path to read that file of the output."""

    def __init__(self, folder: Path, pages: dict, **settings):
        """Write `pages` (path: text) below `folder`/docs and build them."""
        self.folder, self.out = folder, folder / "html"
        self.settings = {"nb_execution_cache_path": str(folder / "cache")} | settings
        for path, text in pages.items():
            file = folder / "docs" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        self.build()

    def __call__(self, path) -> str:
        """Return the text of a file in the output."""
        return (self.out / path).read_text()

    def build(self):
        """Build what has changed; store the warnings, and what else is printed."""
        folders = self.folder / "docs", None, self.out, self.folder / "trees"
        status, warnings = io.StringIO(), io.StringIO()
        options = {"confoverrides": self.settings, "status": status}
        with catch_warnings(action="ignore"), docutils_namespace():
            # Those that are ignored are the theme's own, about Sphinx 11.
            Sphinx(*folders, "html", **options, warning=warnings).build()
        self.warnings, self.status = warnings.getvalue(), status.getvalue()
