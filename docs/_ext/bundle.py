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
THEME = "bootstrap", "pydata-sphinx-theme"  # its scripts
THEME_STYLES = "_static/basic.css", "_static/styles/pydata-sphinx-theme.css"
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


def list_files(files) -> list[str]:
    """Return the names of those that are files, in the order of loading."""
    ordered = sorted(files, key=lambda each: each.priority)
    return [str(each.filename) for each in ordered if each.filename]


def write_bundles(app, exception=None):
    """Handle `build-finished`, last: the theme has written the colours of code."""
    if exception or not hasattr(app, "common_files"):
        return
    out, (sheets, scripts) = Path(app.outdir), app.common_files
    names = [*THEME_STYLES, *list_files(sheets)]
    text = "\n".join(read_sheet(out, name) for name in names)
    (out / STYLES).write_text(f'@charset "UTF-8";\n{text}\n', encoding="utf-8")
    names = [*list_files(scripts), *(f"_static/scripts/{name}.js" for name in THEME)]
    text = "\n;\n".join(read_file(out, name) for name in names)
    (out / SCRIPTS).write_text(f"{text}\n", encoding="utf-8")


def collect_common(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`, first: before a page adds what it alone loads."""
    if not hasattr(app, "common_files"):
        app.common_files = [*context["css_files"]], [*context["script_files"]]
        write_bundles(app)  # now, since each page names its digest


def use_bundles(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`, last: a page loads the bundles and its own files.

    The theme's lines about the page are for a menu of versions, which no page has.
    """
    sheets, scripts = app.common_files
    own = [sheet for sheet in context["css_files"] if sheet not in sheets]
    rest = [script for script in context["script_files"] if script not in scripts]
    rest = [each for each in rest if "body" not in each.attributes]
    app.add_css_file(Path(STYLES).name, priority=0)
    app.add_js_file(Path(SCRIPTS).name, priority=0, loading_method="defer")
    context["css_files"] = [context["css_files"][-1], *own]
    context["scripts_last"] = [context["script_files"][-1], *rest]
    context["script_files"] = []


def setup(app):
    """Register the handlers."""
    app.connect("html-page-context", collect_common, priority=0)
    app.connect("html-page-context", use_bundles, priority=999)
    app.connect("build-finished", write_bundles, priority=999)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
