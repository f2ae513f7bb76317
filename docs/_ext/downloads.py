"""Write the notebook and the Markdown of each page, and `llms.txt`.

    arrays/meshes.html   the page
    arrays/meshes.ipynb  the page as a notebook that runs in an empty folder
    arrays/meshes.md     its source, with the code that it includes
    modules/NAME.py      the modules
    llms.txt             all of these, each with a line on what it is

Where `published` (the site's address) and `repository` (its address on GitHub) are set,
a page also has links to its notebook on Colab and on Binder. Both read the branch that
holds the site.
"""

from operator import attrgetter
from pathlib import Path
from posixpath import basename
from typing import NamedTuple
from urllib.parse import quote

import api_index
import cells
import exercise_index
import explorers
import module_pictures
from sphinx.util import logging

from book import contents, error_index, export, module_reference, reading_map
from book.page import Block, Page, parts

log = logging.getLogger(__name__)
BRANCH = "gh-pages"  # where the built site, and so each notebook, lies on GitHub


def folder_of_modules(app) -> Path:
    """Return the folder with the modules that pages import."""
    return Path(app.config.execution_modules)


def page_of(app, name) -> Page:
    """Return a page by its name in the site."""
    file = Path(app.env.doc2path(name))
    return Page(file, Path(app.srcdir), app.config.published)


class Entry(NamedTuple):
    """A line of a menu: a file to save, or another place for the page."""

    text: str
    icon: str
    tooltip: str
    url: str
    saves: bool = False


def downloads(name, has_notebook) -> list[Entry]:
    """Return what a page offers to save."""
    stem = basename(name)
    files = [Entry(".md", "file", "Download the page as Markdown", f"{stem}.md", True)]
    if has_notebook:
        text = "Download the page as a notebook"
        files.insert(0, Entry(".ipynb", "code", text, f"{stem}.ipynb", True))
    return files


def launches(name, repository) -> list[Entry]:
    """Return the places that run a page."""
    place = repository.removesuffix(".git").rstrip("/").partition("github.com/")[2]
    colab = (
        f"https://colab.research.google.com/github/{place}/blob/{BRANCH}/{name}.ipynb"
    )
    path = quote(f"lab/tree/{name}.ipynb", safe="")
    binder = f"https://mybinder.org/v2/gh/{place}/{BRANCH}?urlpath={path}"
    return [
        Entry("Colab", "play", "Run the page on Colab", colab),
        Entry("Binder", "play", "Run the page on Binder", binder),
    ]


def add_menus(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: pass the files of the page to `menus.html`."""
    if doctree is None:
        return
    has_notebook = page_of(app, pagename).is_notebook
    context["downloads"] = downloads(pagename, has_notebook)
    if has_notebook and app.config.published and app.config.repository:
        context["launches"] = launches(pagename, app.config.repository)


def write_beside(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: write the other forms of a page that is written."""
    if doctree is None or app.builder.name != "html":
        return
    page, out = page_of(app, pagename), Path(app.outdir)
    try:
        ran = cells.executed_notebook(app, pagename)
        outputs = cells.outputs_of(ran) if ran else None
        page = api_index.insert_table(page, app.env)
        page = module_pictures.insert_text(page, app.env)
        write_page(page, folder_of_modules(app), out, outputs)
    except ValueError as error:
        log.warning("%s", error, location=pagename, type="downloads")


def note_changes(app, env, names):
    """Handle `env-before-read-docs`: store whether any page is read."""
    env.downloads_are_old = bool(names)


def write_files(app, exception):
    """Handle `build-finished`: write the files of the whole site, if a page changed."""
    out = Path(app.outdir)
    is_new = (out / "llms.txt").exists() and not app.env.downloads_are_old
    if exception or app.builder.name != "html" or is_new:
        return
    for file in sorted(folder_of_modules(app).glob("*.py")):
        write_file(out / "modules" / file.name, file.read_text())
    write_file(out / "llms.txt", format_llms(app))
    if app.config.repository:
        write_file(out / "binder/requirements.txt", "\n".join(packages(app)) + "\n")


def write_page(page, modules, out, outputs):
    """Write a page's Markdown and, where it has cells, its notebook."""
    text = export.markdown(fill_lists(page, modules), page.file.parent)
    if page.is_notebook:
        text = export.insert_outputs(page, text, outputs)
    write_file(out / f"{page.name}.md", text)
    if page.is_notebook:
        text = export.notebook_text(page, modules, outputs)
        write_file(out / f"{page.name}.ipynb", text)


def fill_lists(page, modules) -> str:
    """Return the text of a page with the lists that write themselves."""
    write = {
        "error-index": lambda part: error_index.index_text(page),
        "exercise-index": lambda part: exercise_index.index_text(page),
        "explorer": explorers.directive_text,
        "module-page": lambda part: module_reference.text(page, modules, part.argument),
        "module-reference": lambda part: module_reference.table_text(page, modules),
        "part-map": lambda part: reading_map.directive_text(part, page),
        "ways": lambda part: reading_map.directive_text(part, page),
    }
    found = []
    for part in parts(page.text):
        if isinstance(part, Block):
            found.append(write.get(part.name, attrgetter("source"))(part))
        else:
            found.append(part)
    return "\n".join(found)


def write_file(file, text):
    """Write a file, and its folder where there is none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def packages(app) -> list[str]:
    """List what Binder installs: everything that some page needs, and JupyterLab."""
    found = (page_of(app, name) for name in app.env.found_docs)
    names = sorted({need for page in found for need in page.needs})
    return [*export.requirements(names, Path(app.srcdir).parent), "jupyterlab"]


def format_llms(app) -> str:
    """Return the list of pages and modules for machines."""
    start = f"{app.config.published.rstrip('/')}/" if app.config.published else ""
    root = page_of(app, app.config.root_doc)
    lines = [f"# {app.config.project}", "", f"> {root.description}"]
    for caption, pages in contents.parts(Path(app.srcdir)):
        entries = (llms_line(page, start) for page in pages)
        lines += ["", f"## {caption or app.config.project}", "", *entries]
    lines += ["", "## Modules, each one file to copy", ""]
    for file in module_reference.files(folder_of_modules(app)):
        summary = module_reference.summary(file)
        lines.append(f"- [{file.name}]({start}modules/{file.name}): {summary}")
    return "\n".join(lines) + "\n"


def llms_line(page, start) -> str:
    """Return a page's line in the list."""
    about = f": {page.description}" if page.description else ""
    return f"- [{page.title}]({start}{page.name}.md){about}"


def setup(app):
    """Register the settings and the handlers."""
    app.setup_extension("execution")  # it owns the setting `execution_modules`
    for name in "published", "repository":
        app.add_config_value(name, "", "env", str)
    app.connect("env-before-read-docs", note_changes)
    app.connect("html-page-context", add_menus)
    app.connect("html-page-context", write_beside)
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
