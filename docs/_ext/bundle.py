"""Bundle what all pages load into one style sheet and one script, not 24 files.

Each request costs a journey there and back, and a page stays white while a style sheet
is missing. A file that only some pages ask for stays apart. Scripts stand at a page's
end, where they do not take the line from the style sheet. The theme names its own files
in a template, which `_templates/bundled` replaces, and 1970 icons: those that no page
has, a fifth of the style sheet, are left out.
"""

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath

STYLES, SCRIPTS = "_static/bundle.css", "_static/bundle.js"
THEME_STYLES = "_static/basic.css", "_static/styles/pydata-sphinx-theme.css"
THEME_SCRIPTS = (
    "_static/scripts/bootstrap.js",
    "_static/scripts/pydata-sphinx-theme.js",
)
ICONS = "angle-left angle-right arrow-up bars circle-half-stroke code download file"
ICONS += " list magnifying-glass moon play print rocket sun"
ICON = re.compile(r"(?:\.fa-[\w-]+,?)+\{--fa:[^}]*\}")
USED = re.compile(rf"\.fa-(?:{'|'.join(ICONS.split())})[,{{]")
URL = re.compile(r"""url\(\s*(["']?)(?!data:|https?:|#)([^"')]+)\1\s*\)""")
USELESS = re.compile(  # in a bundle: the encoding, and maps of each file
    r'\A\s*@charset "UTF-8";|^(//# |/\*# )sourceMappingURL=.*$', re.I | re.M
)


def read_file(folder, name) -> str:
    """Return a file of the site as a part of a bundle; MyST-NB's may come later."""
    file = folder / name
    return USELESS.sub("", file.read_text("utf-8")).strip() if file.exists() else ""


def read_sheet(folder, name) -> str:
    """Return a style sheet with the icons that pages have, its links led on."""
    base = relpath(dirname(name), dirname(STYLES))
    text = URL.sub(
        lambda url: f"url({normpath(f'{base}/{url[2]}')})", read_file(folder, name)
    )
    return ICON.sub(lambda icon: icon[0] if USED.search(icon[0]) else "", text)


def write_bundles(app, exception=None):
    """Handle `build-finished`, last: the theme has written the colours of code."""
    if exception or not hasattr(app, "bundled"):
        return
    out, (sheets, scripts) = Path(app.outdir), app.bundled
    text = "\n".join(read_sheet(out, name) for name in [*THEME_STYLES, *sheets])
    (out / STYLES).write_text(f'@charset "UTF-8";\n{text}\n', encoding="utf-8")
    text = "\n;\n".join(read_file(out, name) for name in [*scripts, *THEME_SCRIPTS])
    (out / SCRIPTS).write_text(f"{text}\n", encoding="utf-8")


def use_bundles(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`, last: a page loads the bundles and its own files.

    The theme's lines of script are for a menu of versions, which no page has.
    """
    names = app.env.metadata.get(pagename, {}).get("files", ())
    sheets, scripts = context["css_files"], context["script_files"]
    if not hasattr(app, "bundled"):
        app.bundled = [list_files(files, names) for files in (sheets, scripts)]
        write_bundles(app)  # now, since each page names its digest
    app.add_css_file(Path(STYLES).name)
    app.add_js_file(Path(SCRIPTS).name, loading_method="defer")
    own = [[f for f in files if file_name(f) in names] for files in (sheets, scripts)]
    context["css_files"] = [sheets[-1], *own[0]]
    context["scripts_last"] = [scripts[-1], *own[1]]
    context["script_files"] = []


def list_files(files, own) -> list[str]:
    """Return the names of files in the order of loading, without a page's own."""
    ordered = sorted(files, key=lambda file: file.priority)
    return [str(f.filename) for f in ordered if f.filename and file_name(f) not in own]


def file_name(file) -> str:
    """Return the name by which a page loads a file."""
    return Path(str(file.filename)).name


def setup(app):
    """Register the handlers."""
    app.connect("html-page-context", use_bundles, priority=999)
    app.connect("build-finished", write_bundles, priority=999)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
