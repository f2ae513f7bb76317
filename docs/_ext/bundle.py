"""Bundle what all pages load into one style sheet and one script, not 24 files.

Each request costs a journey there and back, and a page stays white while a style sheet
is missing. `_static/bundle.css` and `_static/bundle.js` join the files that the theme
and the extensions ask for on every page, in their order. Scripts stand at a page's end,
where they do not take the line from the style sheet, and run when the page has been
read. A file that only some pages ask for stays apart. The theme names its own files in
a template, which `_templates/bundled` replaces, and names 1970 icons: those that no
page has are left out, a fifth of the style sheet.
"""

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath
from weakref import WeakKeyDictionary

STYLES, SCRIPTS = "_static/bundle.css", "_static/bundle.js"
THEME_STYLES = "_static/styles/theme.css", "_static/styles/pydata-sphinx-theme.css"
THEME_SCRIPTS = (
    "_static/scripts/bootstrap.js",
    "_static/scripts/pydata-sphinx-theme.js",
)
IMPORT = re.compile(r'@import\s+"([^"]+)";')
ICONS = {
    "angle-left",
    "angle-right",
    "arrow-up",
    "bars",
    "circle-half-stroke",
    "code",
    "download",
    "file",
    "list",
    "magnifying-glass",
    "moon",
    "play",
    "print",
    "rocket",
    "sun",
}
ICON = re.compile(r"((?:\.fa-[\w-]+,?)+)\{--fa:[^}]*\}")
CHARSET = re.compile(r'^\s*@charset "UTF-8";', re.I)
URL = re.compile(r"""url\(\s*(["']?)(?!data:|https?:|#)([^"')]+)\1\s*\)""")
MAP = re.compile(r"^(?://# sourceMappingURL=.*|/\*# sourceMappingURL=.*\*/)\s*$", re.M)
LATE = re.compile(r"\.[0-9a-f]{64}\.css$")  # of MyST-NB, with its digest
COMMON = WeakKeyDictionary()  # a builder: what all of its pages load, as Sphinx has it


def styles(folder, names) -> str:
    """Return style sheets below a folder as one sheet in `_static`."""
    return "\n".join(f"/* {name} */\n{sheet(folder, name)}" for name in names)


def sheet(folder, name) -> str:
    """Return a style sheet with those that it imports, its links led on."""

    def move_link(found):
        target = normpath(f"{dirname(name)}/{found[2]}")
        return f"url({relpath(target, dirname(STYLES))})"

    def insert_sheet(found):
        return sheet(folder, normpath(f"{dirname(name)}/{found[1]}"))

    def filter_icon(found):
        return found[0] if ICONS & {*re.findall(r"\.fa-([\w-]+)", found[1])} else ""

    text = MAP.sub("", CHARSET.sub("", (folder / name).read_text("utf-8")))
    text = ICON.sub(filter_icon, text)
    return IMPORT.sub(insert_sheet, URL.sub(move_link, text))


def scripts(folder, names) -> str:
    """Return scripts below a folder as one."""
    texts = ((folder / name).read_text("utf-8") for name in names)
    return "\n;\n".join(MAP.sub("", text).strip() for text in texts) + "\n"


def names(files) -> list[str]:
    """Return the names of those that are files, in the order of loading."""
    ordered = sorted(files, key=lambda each: each.priority)
    return [str(each.filename) for each in ordered if each.filename]


def write_bundles(app, finished):
    """Write both bundles; files of the end of a build join the finished ones only."""
    out = Path(app.outdir)
    sheets, programs = COMMON[app.builder]
    found = [*THEME_STYLES, *names(sheets)]
    text = styles(out, [name for name in found if finished or not LATE.search(name)])
    (out / STYLES).write_text(f'@charset "UTF-8";\n{text}', encoding="utf-8")
    text = scripts(out, [*names(programs), *THEME_SCRIPTS])
    (out / SCRIPTS).write_text(text, encoding="utf-8")


def collect_common(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`, first: before a page adds what it alone loads."""
    if app.builder not in COMMON:
        COMMON[app.builder] = [*context["css_files"]], [*context["script_files"]]
        write_bundles(app, finished=False)  # now, since each page names its digest


def use_bundles(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`, last: a page loads the bundles and its own files."""
    sheets, programs = COMMON[app.builder]
    own = [sheet for sheet in context["css_files"] if sheet not in sheets]
    rest = [script for script in context["script_files"] if is_apart(script, programs)]
    app.add_css_file(Path(STYLES).name, priority=0)
    app.add_js_file(Path(SCRIPTS).name, priority=0, loading_method="defer")
    context["css_files"] = [context["css_files"][-1], *own]
    context["scripts_last"] = [context["script_files"][-1], *rest]
    context["script_files"] = []


def is_apart(script, common) -> bool:
    """Return whether a page needs a script that is not in the bundle.

    The theme's lines about the page are for a menu of versions, which no page has. They
    would run before what they change.
    """
    line = script.attributes.get("body") or ""
    return script not in common and not line.startswith("DOCUMENTATION_OPTIONS.")


def finish_bundles(app, exception):
    """Handle `build-finished`, last: the theme has written the colours of code."""
    if not exception and app.builder in COMMON:
        write_bundles(app, finished=True)


def setup(app):
    """Register the handlers."""
    app.connect("html-page-context", collect_common, priority=0)
    app.connect("html-page-context", use_bundles, priority=999)
    app.connect("build-finished", finish_bundles, priority=999)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
