"""Beside each page its notebook and its Markdown, and `llms.txt` for machines.

    arrays/meshes.html   the page
    arrays/meshes.ipynb  the page as a notebook that runs in an empty folder
    arrays/meshes.md     its source, with the code that it includes
    modules/NAME.py      the modules
    llms.txt             all of these, each with a line on what it is

Where `published` (the site's address) and `repository` (its address on GitHub) are set,
a page also offers to launch its notebook on Colab and on Binder, from the branch that
holds the site.
"""

from pathlib import Path
from posixpath import basename
from urllib.parse import quote

from sphinx import addnodes
from sphinx.util import logging

from book import cells, exercise_index, export, module_reference
from book.page import Page

log = logging.getLogger(__name__)
BRANCH = "gh-pages"  # where the built site, and so each notebook, lies on GitHub


def folder_of_modules(app) -> Path:
    """Return the folder with the modules that pages import."""
    return Path(app.config.execution_modules)


def page_of(app, name) -> Page:
    """Return a page by its name in the site."""
    file = Path(app.env.doc2path(name))
    return Page(file, Path(app.srcdir), app.config.published)


def button(kind, text, url, tooltip):
    """Return an entry for one of the theme's menus."""
    look = {"text": text, "icon": f"fas fa-{kind}", "tooltip": tooltip}
    return {"type": "link", "url": url, "label": f"open-{text.lstrip('.')}", **look}


def file_button(kind, file, tooltip):
    """Return an entry that saves a file, for which the theme has no field."""
    return button(kind, Path(file).suffix, f'{file}" download="{file}', tooltip)


def menu(kind, tooltip, buttons):
    """Return a menu for the theme's header."""
    look = {"icon": f"fas fa-{kind}", "tooltip": tooltip, "label": f"{kind}-buttons"}
    return {"type": "group", "buttons": buttons, **look}


def downloads(name, has_notebook):
    """Return the menu that offers a page's files."""
    stem = basename(name)
    files = [file_button("file", f"{stem}.md", "Download the page as Markdown")]
    if has_notebook:
        text = "Download the page as a notebook"
        files.insert(0, file_button("code", f"{stem}.ipynb", text))
    paper = {
        "type": "javascript",
        "javascript": "window.print()",
        "text": "Print",
        "icon": "fas fa-print",
        "tooltip": "Print the page, or save it as PDF",
        "label": "print-page",
    }
    return menu("download", "Download this page", [*files, paper])


def launches(name, repository):
    """Return the menu that runs a page elsewhere."""
    place = repository.removesuffix(".git").rstrip("/").partition("github.com/")[2]
    colab = (
        f"https://colab.research.google.com/github/{place}/blob/{BRANCH}/{name}.ipynb"
    )
    path = quote(f"lab/tree/{name}.ipynb", safe="")
    binder = f"https://mybinder.org/v2/gh/{place}/{BRANCH}?urlpath={path}"
    buttons = [
        button("play", "Colab", colab, "Run the page on Colab"),
        button("play", "Binder", binder, "Run the page on Binder"),
    ]
    return menu("rocket", "Run this page", buttons)


def add_buttons(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: offer what is written for the page."""
    if doctree is None:
        return
    has_notebook = page_of(app, pagename).is_notebook
    menus = [downloads(pagename, has_notebook)]
    if has_notebook and app.config.published and app.config.repository:
        menus.append(launches(pagename, app.config.repository))
    context["header_buttons"] = menus + context.get("header_buttons", [])


def write_files(app, exception):
    """Handle `build-finished`: write the files beside the pages."""
    if exception or app.builder.name != "html":
        return
    out, modules = Path(app.outdir), folder_of_modules(app)
    for name in sorted(app.env.found_docs):
        try:
            ran = cells.executed(app, name)
            outputs = cells.outputs_of(ran) if ran else None
            write_page(page_of(app, name), modules, out, outputs)
        except ValueError as error:
            log.warning("%s", error, location=name, type="downloads")
    for file in sorted(modules.glob("*.py")):
        put(out / "modules" / file.name, file.read_text())
    put(out / "llms.txt", llms(app))
    if app.config.repository:
        put(out / "binder/requirements.txt", "\n".join(packages(app)) + "\n")


def write_page(page, modules, out, outputs):
    """Write a page's Markdown and, where it has cells, its notebook."""
    text = module_reference.expanded(page.text, modules, page)
    text = exercise_index.expanded(text, page)
    text = export.markdown(text, page.file.parent)
    if page.is_notebook:
        text = export.with_outputs(page, text, outputs)
    put(out / f"{page.name}.md", text)
    if page.is_notebook:
        text = export.notebook_text(page, modules, outputs)
        put(out / f"{page.name}.ipynb", text)


def put(file, text):
    """Write a file, and its folder where there is none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def packages(app) -> list[str]:
    """List what Binder installs: everything that some page needs, and JupyterLab."""
    found = (page_of(app, name) for name in app.env.found_docs)
    names = sorted({need for page in found for need in page.needs})
    return [*export.requirements(names, Path(app.srcdir).parent), "jupyterlab"]


def llms(app) -> str:
    """Return the list of pages and modules for machines."""
    start = f"{app.config.published.rstrip('/')}/" if app.config.published else ""
    root = page_of(app, app.config.root_doc)
    lines = [f"# {app.config.project}", "", f"> {root.description}"]
    for caption, names in parts(app):
        lines += ["", f"## {caption}", "", *(entry(app, name, start) for name in names)]
    lines += ["", "## Modules, each one file to copy", ""]
    for file in module_reference.files(folder_of_modules(app)):
        summary = module_reference.summary(file)
        lines.append(f"- [{file.name}]({start}modules/{file.name}): {summary}")
    return "\n".join(lines) + "\n"


def parts(app):
    """Yield the book's parts: a caption, and the pages below it."""
    tree = app.env.get_doctree(app.config.root_doc)
    for node in tree.findall(addnodes.toctree):
        yield (
            node["caption"] or app.config.project,
            [name for _, name in node["entries"]],
        )


def entry(app, name, start) -> str:
    """Return a page's line in the list."""
    page = page_of(app, name)
    about = f": {page.description}" if page.description else ""
    return f"- [{page.title}]({start}{name}.md){about}"


def setup(app):
    """Register the two settings and the handlers."""
    app.setup_extension("book.execution")  # it owns the setting `execution_modules`
    app.add_config_value("published", "", "html", str)
    app.add_config_value("repository", "", "html", str)
    app.connect("html-page-context", add_buttons, priority=502)  # after the theme's
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
