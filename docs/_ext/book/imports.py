"""Before anything runs: every module of the book can be imported.

If one cannot, the build ends at once with the list of the pages and cells that need it,
and not after the fifty tracebacks of pages that fail one by one.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from sphinx.errors import ExtensionError

from book.page import modules_in, pages

TRY = """
import importlib, json, sys

failed = {}
for name in sys.argv[2:]:
    try:
        importlib.import_module(f"{sys.argv[1]}.{name}")
    except BaseException as error:
        failed[name] = f"{type(error).__name__}: {error}".partition("\\n")[0]
print("\\n" + json.dumps(failed))
"""


def failures(folder) -> dict[str, str]:
    """Return the modules of a package that cannot be imported, each with its error."""
    names = [file.stem for file in sorted(folder.glob("[!_]*.py"))]
    done = subprocess.run(
        [sys.executable, "-c", TRY, folder.name, *names],
        env=os.environ | {"PYTHONPATH": str(folder.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout.splitlines()[-1])


def needed_by(name, docs):
    """Yield the pages, lines and cells that import a module."""
    for page in pages(docs):
        for number, cell in enumerate(page.code, 1):
            if name in modules_in(cell.source):
                yield f"    {page.name}.md:{cell.line}, cell {number}"


def look(app):
    """Handle `builder-inited`: look again when a module has changed."""
    folder = Path(app.config.execution_modules)
    files = sorted(folder.glob("*.py"))
    if not app.config.execution_modules or not files:
        return
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    stamp = Path(app.doctreedir) / "imported.txt"
    if stamp.exists() and stamp.read_text() == digest:
        return
    lines = []
    for name, error in failures(folder).items():
        lines += [f"{name}.py cannot be imported: {error}. It is needed by"]
        lines += needed_by(name, Path(app.srcdir))
    if lines:
        raise ExtensionError("\n".join(lines))
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(digest)


def setup(app):
    """Register the handler."""
    app.setup_extension("book.execution")  # it owns the setting `execution_modules`
    app.connect("builder-inited", look)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
