"""The module reference writes itself: one section for each module of the book.

A line `{module-reference}` on a page becomes, for each file in the folder of modules, a
heading, its idea in one line, links to its page and to the file, the whole source in a
dropdown, and its functions and classes. A new module appears without editing the page.
"""

import ast
import re
from pathlib import Path
from posixpath import relpath
from textwrap import dedent

from book.page import Page

PLACE = "{module-reference}"
PACKAGE = "examples."
CODE = re.compile(r"(?<![`:\w])`([^`]+)`(?!`)(?=(\w?))")
SHORT = ("attribute", "data", "property")
PARKED = {}  # docstrings of attributes, while Napoleon runs
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


def explained(file, docs) -> list[Path]:
    """List the pages that bear a module's name or show some of its code."""
    shown = f"src/examples/{file.name}"
    pages = (p for p in sorted(docs.glob("[!_]*/*.md")) if PLACE not in p.read_text())
    return [p for p in pages if p.stem == file.stem or shown in p.read_text()]


def links(file, page) -> str:
    """Return the links of a module: the file, and the pages that explain it."""
    up = relpath(".", Path(page.name).parent.as_posix())
    url = f"{up}/modules/{file.name}"
    found = [f'<a class="module-file" href="{url}" download>{file.name}</a>']
    for other in explained(file, page.docs):
        name = Page(other, page.docs).title
        found.append(f"[{name}]({relpath(other, page.file.parent)})")
    return " · ".join(found)


def section(file, page) -> str:
    """Return the MyST text for one module."""
    return SECTION.format(
        name=file.stem,
        package=PACKAGE,
        summary=summary(file),
        about=about(file),
        links=links(file, page),
        path=relpath(file, page.file.parent),
    )


def expanded(text, folder, page) -> str:
    """Return a page's text with the sections of all modules in the place for them."""
    if PLACE not in text:
        return text
    sections = "\n".join(section(file, page) for file in files(folder))
    return text.replace(PLACE, sections)


def fill(app, docname, source):
    """Handle `source-read`: write the sections."""
    if PLACE not in source[0]:
        return
    folder = Path(app.config.execution_modules)
    for file in files(folder):
        app.env.note_dependency(file)
    page = Page(Path(app.env.doc2path(docname)), Path(app.srcdir))
    source[0] = expanded(source[0], folder, page)


def outdated(app, env, added, changed, removed):
    """Handle `env-get-outdated`: read the page again when a module comes or goes."""
    names = [file.name for file in files(Path(app.config.execution_modules))]
    before, env.example_modules = getattr(env, "example_modules", names), names
    if before == names:
        return []
    return [name for name in env.found_docs if PLACE in env.doc2path(name).read_text()]


def literal(code) -> str:
    """Write `code` as reStructuredText does, also before a plural's s."""
    return f"``{code[1]}``" + ("\\ " if code[2] else "")


def mark_code(app, what, name, *details):
    """Handle `autodoc-process-docstring`: the book writes `code` as Markdown does.

    The module's own docstring stands on the page already, laid out as in the file.
    """
    lines = details[-1]
    if what == "module":
        lines.clear()
    lines[:] = CODE.sub(literal, "\n".join(lines)).split("\n")
    if what in SHORT:
        PARKED[name], lines[:] = lines[:], ["-"]


def restore(app, what, name, *details):
    """Undo what Napoleon makes of a property: it takes `words: words` for a type."""
    if what in SHORT:
        details[-1][:] = PARKED.pop(name)


def setup(app):
    """Register the handlers."""
    app.setup_extension("book.execution")  # it owns the setting `execution_modules`
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("source-read", fill)
    app.connect("env-get-outdated", outdated)
    app.connect("autodoc-process-docstring", mark_code, priority=400)
    app.connect("autodoc-process-docstring", restore, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
