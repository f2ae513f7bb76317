"""Generate the reference of modules: a list of them, and a page for each.

The directive `module-reference` becomes a table with a line for each file in the folder
of modules: its name, its idea, the page that teaches it, its lines, what it needs. The
ids that stood on the list when it had everything lead to the module's line, and
`_static/filter.js` sends them on to its page.

The directive `module-page NAME` becomes that page: the idea, links to the file and to
the pages that explain it, a picture (`module_pictures`), the rest of the docstring, the
names of its tests, functions and classes, and the whole source. The pages lie in
`docs/reference/modules`, a few lines each; `tools/copies.py` writes them (`stubs`).
"""

import ast
import json
import re
import sys
import tomllib
from functools import lru_cache
from pathlib import Path
from posixpath import relpath
from textwrap import dedent

from book.page import PAGES_OF_MODULES, Page, pages

PACKAGE = "examples."
PICTURES = "reference/data/modules.toml"
FORMER = "reference/data/former.toml"
LICENCE = "licence MIT-0: free to use without a notice"  # each file says so
NAMES = {"jax": "JAX", "numpy": "NumPy", "optax": "Optax", "orbax": "Orbax"}
COST = re.compile(
    r"\b([Cc]ost|sen[dt]s?|messages?|compilation|reads|Nothing runs|looked at)\b"
)
COMMAND = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:python|srun|mpirun)\b")
PLACE = """\
```{{module-picture}} {page}
:cell: {cell}

{shows}
```"""
STUB = """\
---
orphan: true
myst:
  html_meta:
    description: {description}
---

# {name}

```{{module-page}} {name}
```
"""
PAGE = """\
{summary}

{links}

{picture}

{about}

{tests}

(api-{name})=

## Functions and classes

{former}

```{{eval-rst}}
.. automodule:: {package}{name}
   :members:
```

(source-{name})=

## The whole file

:::{{literalinclude}} {path}
:language: python
:::
"""


# ------------------------------------------------------------------ what a file says


def folder_of(docs) -> Path:
    """Return the folder of modules."""
    return docs.parent / "src/examples"


def files(folder) -> list[Path]:
    """List the modules of a folder."""
    return [file for file in sorted(folder.glob("*.py")) if file.stem != "__init__"]


@lru_cache(maxsize=128)  # a build asks several times for each module
def parse(text) -> ast.Module:
    """Return what Python's parser makes of a module."""
    return ast.parse(text)


def docstring(file) -> str:
    """Return the docstring of a module."""
    return ast.get_docstring(parse(file.read_text())) or ""


def summary(file) -> str:
    """Return the first paragraph of a module's docstring, on one line."""
    return " ".join(docstring(file).partition("\n\n")[0].split())


def description(file) -> str:
    """Return the rest of a module's docstring: prose, and indented text as it is.

    Prose goes below a heading, and what runs the file below another one.
    """
    parts = re.split(r"\n\n(?=\S|    )|(?<=:)\n(?=    )", docstring(file))[1:]
    commands = [n for n, part in enumerate(parts) if COMMAND.match(part.strip())]
    start = commands[0] if commands else len(parts)
    if needs(file) == "Python alone" and not COST.search(docstring(file)):
        parts.insert(start, "It imports no JAX: it sends nothing, and asks no device.")
        start += 1
    sections = {
        "What it does, and what it costs": parts[:start],
        "Copy it and run it": parts[start:],
    }
    return "\n\n".join(
        "\n\n".join([f"## {title}", *map(format_part, found)])
        for title, found in sections.items()
        if found
    )


def format_part(part) -> str:
    """Return a part of a docstring in MyST."""
    if not part.startswith(" "):
        return part
    language = "console" if COMMAND.match(part.strip()) else "text"
    return f"```{language}\n{dedent(part)}\n```"


def count_lines(file) -> int:
    """Count the lines of a module."""
    return len(file.read_text().splitlines())


def needs(file) -> str:
    """Return the packages that a module imports at its top, as text."""
    found = {}
    for node in parse(file.read_text()).body:
        names = [each.name for each in getattr(node, "names", ())]
        if isinstance(node, ast.ImportFrom):
            names = [node.module]
        elif not isinstance(node, ast.Import):
            continue
        found |= dict.fromkeys(name.partition(".")[0] for name in names)
    packages = [name for name in found if name not in sys.stdlib_module_names]
    if "jax" in packages:  # which brings NumPy
        packages = ["jax", *(name for name in packages if name not in ("jax", "numpy"))]
    return ", ".join(NAMES.get(name, name) for name in packages) or "Python alone"


def objects(file) -> list[str]:
    """List the public functions, classes, and methods of a module."""
    found = members(parse(file.read_text()))
    return [f"{PACKAGE}{file.stem}.{name}" for name in found]


def old_names(docs, file) -> list[str]:
    """List names that a module had once: links to them still lead to it."""
    found = tomllib.loads((docs / FORMER).read_text())
    names = [f"{PACKAGE}{file.stem}.{name}" for name in found.get(file.stem, ())]
    return [name for name in names if name not in objects(file)]


def members(node):
    """Yield the names of what is defined in a module or class, and in its classes."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name[0] != "_":
            yield each.name
            if isinstance(each, ast.ClassDef):
                yield from (f"{each.name}.{name}" for name in members(each))
        elif isinstance(each, ast.AnnAssign) and isinstance(node, ast.ClassDef):
            yield each.target.id


def file_of_tests(file) -> Path:
    """Return the file with the tests of a module."""
    return file.parents[2] / f"tests/{file.stem}/test_{file.stem}.py"


def sentences(file) -> list[str]:
    """Return the names of a module's tests as sentences."""
    tests = file_of_tests(file)
    tree = parse(tests.read_text()) if tests.exists() else ast.Module([], [])
    names = [
        node.name.removeprefix("test_").replace("_", " ")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    return [f"{name[0].upper()}{name[1:]}." for name in names]


# ------------------------------------------------------------------------ the pages


def explaining_pages(file, others) -> list[Page]:
    """List the pages that bear a module's name or show some of its code, these last."""
    shown = f"src/examples/{file.name}"
    found = (page for page in others if page.name != "index")
    found = [p for p in found if p.file.stem == file.stem or shown in p.text]
    return sorted(found, key=lambda page: page.file.stem != file.stem)


def link(other, page) -> str:
    """Return a link from one page to another."""
    return f"[{other.title}]({relpath(other.file, page.file.parent)})"


def link_to_file(file, page) -> str:
    """Return a link that saves a module."""
    up = relpath(".", Path(page.name).parent.as_posix())
    return (
        f'<a class="module-file" href="{up}/modules/{file.name}" download>'
        f"{file.name}</a>"
    )


def links_line(file, page, others) -> str:
    """Return the line with the file, its size, needs and licence, and its pages."""
    back = relpath(page.docs / f"{PAGES_OF_MODULES}.md", page.file.parent)
    found = [
        f"Save {link_to_file(file, page)}",
        f"{count_lines(file)} lines",
        f"needs {needs(file)}",
        LICENCE,
        *(link(other, page) for other in explaining_pages(file, others)),
        f"[all modules]({back})",
    ]
    return " · ".join(found)


def tests_text(file) -> str:
    """Return the names of a module's tests as sentences, folded."""
    if not (found := sentences(file)):
        return ""
    name = file_of_tests(file).relative_to(file.parents[2]).as_posix()
    start = f"(tests-{file.stem})=\n\n## What its tests say"
    count = f"{len(found)} sentences, each the name of a test in `{name}`"
    listed = "\n".join(f"- {sentence}" for sentence in found)
    return f"{start}\n\n:::{{dropdown}} {count}\n{listed}\n:::"


def picture_directive(docs, name) -> str:
    """Return the place of a module's picture in MyST, or nothing if it has none."""
    found = tomllib.loads((docs / PICTURES).read_text())
    if name not in found:
        return ""
    quoted = json.dumps(found[name]["cell"], ensure_ascii=False)  # as YAML reads it
    return PLACE.format(**found[name] | {"cell": quoted})


def page_text(page, name) -> str:
    """Return the text of a module's own page, below its heading."""
    file = folder_of(page.docs) / f"{name}.py"
    if not file.exists():
        return ""
    return PAGE.format(
        name=name,
        package=PACKAGE,
        summary=summary(file),
        about=description(file),
        former="\n".join(f'<div id="{n}"></div>' for n in old_names(page.docs, file)),
        picture=picture_directive(page.docs, name),
        links=links_line(file, page, pages(page.docs)),
        tests=tests_text(file),
        path=relpath(file, page.file.parent),
    )


def row(file, page, others) -> str:
    """Return the line of a module in the list."""
    own = page.docs / PAGES_OF_MODULES / f"{file.stem}.md"
    taught = [link(other, page) for other in explaining_pages(file, others)[:1]]
    cells = [
        f"[{file.stem}]({relpath(own, page.file.parent)})",
        summary(file).rstrip("."),
        *(taught or [""]),
        str(count_lines(file)),
        needs(file),
    ]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def table_text(page) -> str:
    """Return the list of all modules, to stand on a page."""
    others, modules = pages(page.docs), files(folder_of(page.docs))
    head = ["| module | what it does | taught on | lines | needs |"]
    head += ["|---|---|---|---:|---|"]
    return "\n".join([*head, *(row(file, page, others) for file in modules)])


def stubs(docs, folder) -> dict[Path, str]:
    """Return the files of the pages of modules, and what stands in each."""
    return {
        docs / PAGES_OF_MODULES / f"{file.stem}.md": STUB.format(
            name=file.stem,
            description=json.dumps(summary(file).replace("`", ""), ensure_ascii=False),
        )
        for file in files(folder)
    }
