"""Bundle what all pages load into one style sheet and one script, not 24 files.

Each request costs a journey there and back, and a page stays white while a style sheet
is missing; scripts stand at its end. The theme loads its own files by a template, which
`_templates/bundled` replaces.
"""

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath

STYLES, SCRIPTS = "_static/bundle.css", "_static/bundle.js"
THEME_STYLES = "_static/basic.css", "_static/styles/pydata-sphinx-theme.css"
THEME_SCRIPTS = "_static/scripts/bootstrap.js", "_static/scripts/pydata-sphinx-theme.js"
ICONS = "angle-left angle-right arrow-up bars circle-half-stroke code download file"
ICONS += " list magnifying-glass moon play print rocket sun"  # of 1970
ICON = re.compile(r"(?:\.fa-[\w-]+,?)+\{--fa:[^}]*\}")
USED = re.compile(rf"\.fa-(?:{'|'.join(ICONS.split())})[,{{]")
URL = re.compile(r"""url\(\s*(["']?)(?!data:|https?:|#)([^"')]+)\1\s*\)""")


def read_file(folder, name) -> str:
    """Return a file of the site as a part of a bundle; MyST-NB's comes at the end."""
    file = folder / name
    text = file.read_text("utf-8") if file.exists() else ""
    if not name.endswith(".css"):
        return text
    base = relpath(dirname(name), dirname(STYLES))
    text = URL.sub(lambda url: f"url({normpath(f'{base}/{url[2]}')})", text)
    return ICON.sub(lambda icon: icon[0] if USED.search(icon[0]) else "", text)


def write_bundles(app, exception=None):
    """Handle `build-finished`, last: the theme has written the colours of code."""
    if exception or not hasattr(app, "bundled"):
        return
    for bundle, separator in (STYLES, "\n"), (SCRIPTS, "\n;\n"):
        parts = [read_file(Path(app.outdir), name) for name in app.bundled[bundle]]
        Path(app.outdir, bundle).write_text(separator.join(parts), encoding="utf-8")


def use_bundles(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`, last: a page loads the bundles alone.

    The theme's lines of script are for a menu of versions, which no page has.
    """
    if not hasattr(app, "bundled"):
        sheets = [*THEME_STYLES, *file_names(context["css_files"])]
        scripts = [*file_names(context["script_files"]), *THEME_SCRIPTS]
        app.bundled = {STYLES: sheets, SCRIPTS: scripts}
        for late in Path(app.outdir, "_static").glob("mystnb.*"):
            late.unlink()  # of an older build: the digest is that of a new one
        write_bundles(app)  # now, since each page names its digest
    app.add_css_file(Path(STYLES).name)
    app.add_js_file(Path(SCRIPTS).name, loading_method="defer")
    context["css_files"] = context["css_files"][-1:]
    context["scripts_last"] = context["script_files"][-1:]
    context["script_files"] = []


def file_names(files) -> list[str]:
    """Return the names of files in the order in which a page loads them."""
    ordered = sorted(files, key=lambda file: file.priority)
    return [str(file.filename) for file in ordered if file.filename]


def setup(app):
    """Register the handlers."""
    app.connect("html-page-context", use_bundles, priority=999)
    app.connect("build-finished", write_bundles, priority=999)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
