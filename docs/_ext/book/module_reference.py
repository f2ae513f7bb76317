"""The module reference writes itself: one section for each module of the book.

The directive `module-reference` becomes, for each file in the folder of modules, a
heading, its idea in one line, links to its page and to the file, the whole source in a
dropdown, and its functions and classes. A new module appears without editing the page.
"""

import ast
import re
from pathlib import Path
from posixpath import relpath
from textwrap import dedent

from sphinx.ext.napoleon import GoogleDocstring
from sphinx.util.docutils import SphinxDirective

from book.page import Page, pages

PACKAGE = "examples."
CODE = re.compile(r"(?<![`:\w])`([^`]+)`(?!`)(?=(\w?))")
LABEL = re.compile(r"^\(module-\w+\)=", re.M)
SHORT = ("attribute", "data", "property")
SECTION = """\
(module-{name})=
## {name}

{summary}

{links}

{about}

::::{{dropdown}} The whole file
:::{{literalinclude}} {path}
:language: python
:::
::::

```{{eval-rst}}
.. automodule:: {package}{name}
   :members:
```
"""


def files(folder) -> list[Path]:
    """List the modules of a folder."""
    return [file for file in sorted(folder.glob("*.py")) if file.stem != "__init__"]


def docstring(file) -> str:
    """Return the docstring of a module."""
    return ast.get_docstring(ast.parse(file.read_text())) or ""


def summary(file) -> str:
    """Return the first paragraph of a module's docstring, on one line."""
    return " ".join(docstring(file).partition("\n\n")[0].split())


def about(file) -> str:
    """Return the rest of a module's docstring: prose, and indented text as it is."""
    parts = re.split(r"\n\n(?=\S|    )", docstring(file))[1:]
    return "\n\n".join(
        f"```text\n{dedent(part)}\n```" if part.startswith(" ") else part
        for part in parts
    )


def explained(file, others) -> list[Page]:
    """List the pages that bear a module's name or show some of its code."""
    shown = f"src/examples/{file.name}"
    found = (page for page in others if page.name != "index")
    return [p for p in found if p.file.stem == file.stem or shown in p.text]


def links(file, page, others) -> str:
    """Return the links of a module: the file, and the pages that explain it."""
    up = relpath(".", Path(page.name).parent.as_posix())
    url = f"{up}/modules/{file.name}"
    found = [f'<a class="module-file" href="{url}" download>{file.name}</a>']
    for other in explained(file, others):
        found.append(f"[{other.title}]({relpath(other.file, page.file.parent)})")
    return " · ".join(found)


def section(file, page, others) -> str:
    """Return the MyST text for one module."""
    return SECTION.format(
        name=file.stem,
        package=PACKAGE,
        summary=summary(file),
        about=about(file),
        links=links(file, page, others),
        path=relpath(file, page.file.parent),
    )


def text(page, folder) -> str:
    """Return the sections of all modules of a folder, to stand on a page."""
    others = pages(page.docs)
    return "\n".join(section(file, page, others) for file in files(folder))


class ModuleReference(SphinxDirective):
    """The sections of all modules, made again when they would say something else."""

    def run(self):
        """Return the sections."""
        page = Page(Path(self.env.doc2path(self.env.docname)), Path(self.env.srcdir))
        folder = Path(self.config.execution_modules)
        for file in files(folder):
            self.env.note_dependency(file)
        found = self.env.metadata[self.env.docname]["modules"] = text(page, folder)
        return self.parse_text_to_nodes(found, allow_section_headings=True)


def outdated(app, env, added, changed, removed):
    """Handle `env-get-outdated`: read the page again if its text has changed.

    It names the modules, and the pages that explain each of them.
    """
    folder, docs = Path(app.config.execution_modules), Path(app.srcdir)
    kept = {n: of["modules"] for n, of in env.metadata.items() if "modules" in of}
    if not added | changed | removed:  # then a module may have come or gone, no more
        names = [f"(module-{file.stem})=" for file in files(folder)]
        return [name for name, said in kept.items() if LABEL.findall(said) != names]
    pages = {n: Page(Path(env.doc2path(n)), docs) for n in {*kept} & env.found_docs}
    return [name for name, page in pages.items() if kept[name] != text(page, folder)]


def literal(code) -> str:
    """Write `code` as reStructuredText does, also before a plural's s."""
    return f"``{code[1]}``" + ("\\ " if code[2] else "")


def as_rst(app, what, name, *details):
    """Handle `autodoc-process-docstring`: write reStructuredText as autodoc reads it.

    The book writes `code` as Markdown does, and sections such as `Args:` as Google
    does; a property has none. What a module says of itself stands on the page already.
    """
    value, _, lines = details
    if what == "module":
        lines.clear()
    lines[:] = CODE.sub(literal, "\n".join(lines)).split("\n")
    if what not in SHORT:
        lines[:] = GoogleDocstring(lines, what=what, name=name, obj=value).lines()


def setup(app):
    """Register the directive and the handlers."""
    app.setup_extension("book.execution")  # it owns the setting `execution_modules`
    app.setup_extension("sphinx.ext.autodoc")
    app.add_directive("module-reference", ModuleReference)
    app.connect("env-get-outdated", outdated)
    app.connect("autodoc-process-docstring", as_rst)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
