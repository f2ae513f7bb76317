"""Write the notebook and the Markdown of each page, and `llms.txt`.

They lie beside the page, `llms.txt` lists them all. Where `published` (the site's
address) and `repository` (its address on GitHub) are set, a page also has a link to its
notebook on Colab, and previews by sphinxext-opengraph with its own description.
"""

from functools import partial
from pathlib import Path
from posixpath import basename

import cells
import module_pictures
from sources import page_of
from sphinx.util import logging

from book import contents, export, module_reference

log = logging.getLogger(__name__)
BRANCH = "gh-pages"  # where the built site, and so each notebook, lies on GitHub
MADE = {  # what is known when all pages have been read
    "module-picture": module_pictures.to_markdown,
}


def launches(name, repository) -> dict[str, str]:
    """Return the places that run a page, with their addresses."""
    place = repository.removesuffix(".git").rstrip("/").partition("github.com/")[2]
    colab = "https://colab.research.google.com/github"
    return {"Colab": f"{colab}/{place}/blob/{BRANCH}/{name}.ipynb"}


def add_menus(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: pass the files of the page to `menus.html`."""
    if doctree is None:
        return
    page = page_of(app.env, pagename)
    context |= {"file_stem": basename(pagename), "is_notebook": page.is_notebook}
    if page.description:  # for sphinxext-opengraph
        meta = {"og:description": page.description}
        context["meta"] = (context.get("meta") or {}) | meta
    if page.is_notebook and app.config.published and app.config.repository:
        context["launches"] = launches(pagename, app.config.repository)


def write_page(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: write the Markdown and the notebook of a page."""
    if doctree is None or app.builder.name != "html":
        return
    page, out = page_of(app.env, pagename), Path(app.outdir)
    made = {name: partial(make, env=app.env) for name, make in MADE.items()}
    try:
        if page.is_notebook:
            ran = cells.executed_notebook(app, page.name)
            outputs = cells.outputs_of(ran) if ran else [[]] * len(page.code)
            made["code-cell"] = export.write_cells(outputs)
            modules = Path(app.config.execution_modules)
            notebook = export.notebook_text(page, modules, outputs)
            write_file(out / f"{page.name}.ipynb", notebook)
        text = export.markdown(page.text, page, export.MADE | made)
        write_file(out / f"{page.name}.md", text)
    except ValueError as error:
        log.warning("%s", error, location=pagename, type="downloads")


def write_files(app, exception):
    """Handle `build-finished`: write the modules and `llms.txt`."""
    if exception or app.builder.name != "html":
        return
    out, modules = Path(app.outdir), Path(app.config.execution_modules)
    for file in modules.glob("*.py"):
        write_file(out / "modules" / file.name, file.read_text())
    write_file(out / "llms.txt", format_llms(app, module_reference.files(modules)))


def write_file(file, text):
    """Write a file, and its folder where there is none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def format_llms(app, modules) -> str:
    """Return the list of pages and modules for machines."""
    start = f"{app.config.published.rstrip('/')}/" if app.config.published else ""
    root, name = page_of(app.env, app.config.root_doc), app.config.project
    lines = [f"# {name}", "", f"> {root.description}"]
    for caption, pages in contents.parts(Path(app.srcdir)):
        lines += ["", f"## {caption or name}", ""]
        for page in pages:
            about = f": {page.description}" if page.description else ""
            lines.append(f"- [{page.title}]({start}{page.name}.md){about}")
    lines += ["", "## Modules, each one file to copy", ""]
    for file in modules:
        summary = module_reference.summary(file)
        lines.append(f"- [{file.name}]({start}modules/{file.name}): {summary}")
    return "\n".join(lines) + "\n"


def setup(app):
    """Register the handlers."""
    app.setup_extension("execution")  # it owns the setting `execution_modules`
    app.setup_extension("sources")
    app.connect("html-page-context", add_menus, priority=400)  # before opengraph
    app.connect("html-page-context", write_page)
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
