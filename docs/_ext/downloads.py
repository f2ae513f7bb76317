"""Write the notebook and the Markdown of each page beside it, and `llms.txt`.

Where `published` (the site's address) and `repository` (its address on GitHub) are set,
a page also has a link to its notebook on Colab, and previews by sphinxext-opengraph.
"""

from functools import partial
from pathlib import Path
from posixpath import basename
from shutil import copy

import explorers
import module_pictures
import nbformat
from execution import outputs_of, played_notebook
from sources import is_unchanged, page_of
from sphinx.util import logging

from book import contents, export, module_reference

log = logging.getLogger(__name__)
COLAB = "https://colab.research.google.com/github/{}/blob/gh-pages/{}.ipynb"


def colab_url(name, repository) -> str:
    """Return the address that runs a page on Colab."""
    place = repository.removesuffix(".git").partition("github.com/")[2]
    return COLAB.format(place, name)


def add_page(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: write a page's files for `menus.html`."""
    if doctree is None or app.builder.name != "html":
        return
    page = page_of(app.env, pagename)
    context |= {"file_stem": basename(pagename), "is_notebook": page.is_notebook}
    if page.description:  # for sphinxext-opengraph
        meta = {"og:description": page.description}
        context["meta"] = (context.get("meta") or {}) | meta
    if page.is_notebook and app.config.published and app.config.repository:
        context["colab"] = colab_url(pagename, app.config.repository)
    try:
        write_page(app, page, Path(app.outdir, pagename))
    except ValueError as error:
        log.warning("%s", error, location=pagename, type="downloads")


def write_page(app, page, file):
    """Write the Markdown and the notebook of a page."""
    made = {"module-picture": partial(module_pictures.to_markdown, env=app.env)}
    file.parent.mkdir(parents=True, exist_ok=True)
    if page.is_notebook:
        played = played_notebook(app.env, page)
        outputs = outputs_of(played) if played else [[]] * len(page.code)
        made["code-cell"] = export.write_cells(page, outputs)
        modules = Path(app.config.execution_modules)
        notebook = export.notebook(page, modules, outputs)
        nbformat.write(notebook, f"{file}.ipynb")
    Path(f"{file}.md").write_text(export.markdown(page.text, page, export.MADE | made))


def write_files(app, exception):
    """Handle `build-finished`: write the modules and `llms.txt`."""
    if exception or app.builder.name != "html" or is_unchanged(app):
        return
    out, modules = Path(app.outdir), Path(app.config.execution_modules)
    (out / "modules").mkdir(exist_ok=True)
    for file in modules.glob("*.py"):
        copy(file, out / "modules")
    text = format_llms(app, module_reference.files(modules))
    (out / "llms.txt").write_text(text)


def format_llms(app, modules) -> str:
    """Return for machines what the front page shows, and lists of pages and modules."""
    start = f"{app.config.published.rstrip('/')}/" if app.config.published else ""
    root, name = page_of(app.env, app.config.root_doc), app.config.project
    sent = explorers.format_tables(explorers.load("sends").few())
    lines = [f"# {name}", "", f"> {root.description}", "", sent]
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
    app.connect("html-page-context", add_page, priority=400)  # before opengraph
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
