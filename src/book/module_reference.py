"""Write the reference of modules in MyST: a list of them, and a page for each.

The file of a module's page has a few lines, which `tools/copies.py` writes (`stubs`).
"""

import ast
import json
import re
import tomllib
from functools import cache
from pathlib import Path
from posixpath import relpath
from textwrap import dedent

from sphinx.pycode import ModuleAnalyzer

from book import contents
from book.error_index import link
from book.page import PAGES_OF_MODULES, Page

PACKAGE = "examples."
PICTURES = "reference/data/modules.toml"
FORMER = "reference/data/former.toml"
NEEDS = {"jax": "JAX", "optax": "Optax", "orbax": "Orbax"}
COST = re.compile(
    r"\b([Cc]ost|sen[dt]s?|messages?|compilation|reads|Nothing runs|looked at)\b"
)
COMMAND = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:python|srun|mpirun)\b")
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
HEAD = """\
| module | what it does | taught on | lines | needs |
|---|---|---|---:|---|"""
ROW = "| [{name}](modules/{name}.md) | {idea} | {page} | {lines} | {needs} |"
PAGE = """\
{summary}

Save <a class="module-file" href="../../modules/{name}.py" download>{name}.py</a> · \
{lines} lines · needs {needs} · licence MIT-0: free to use without a notice · \
{pages} · [all modules](../modules.md)

```{{module-picture}} {name}
```

## What it does, and what it costs

{about}

## Copy it and run it

{run}

(tests-{name})=

## What its tests say

:::{{dropdown}} {count} sentences, each the name of a test in `{tests}`
{sentences}
:::

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


def files(folder) -> list[Path]:
    """List the modules of a folder."""
    return [file for file in sorted(folder.glob("*.py")) if file.stem != "__init__"]


@cache  # asked for a dozen times
def docstring(file) -> str:
    """Return the docstring of a module."""
    return ast.get_docstring(ast.parse(file.read_text())) or ""


def summary(file) -> str:
    """Return the first paragraph of a module's docstring, on one line."""
    return " ".join(docstring(file).partition("\n\n")[0].split())


def description(file) -> tuple[str, str]:
    """Return the rest of a module's docstring in MyST: about it, and how to run it."""
    parts = re.split(r"\n\n(?=\S|    )|(?<=:)\n(?=    )", docstring(file))[1:]
    start = next(n for n, part in enumerate(parts) if COMMAND.match(part.strip()))
    about, run = parts[:start], parts[start:]
    if not needs(file) and not COST.search(docstring(file)):
        about.append("It imports no JAX: it sends nothing, and asks no device.")
    return "\n\n".join(map(format_part, about)), "\n\n".join(map(format_part, run))


def format_part(part) -> str:
    """Return a part of a docstring in MyST: what is indented is code."""
    if not part.startswith(" "):
        return part
    language = "console" if COMMAND.match(part.strip()) else "text"
    return f"```{language}\n{dedent(part)}\n```"


def needs(file) -> str:
    """Return the packages that a module imports at its top; JAX brings NumPy."""
    roots = re.findall(r"^(?:import|from) (\w+)", file.read_text(), re.M)
    return ", ".join(NEEDS[name] for name in NEEDS if name in roots)


def objects(file) -> list[str]:
    """List the public functions, classes, and members of classes of a module."""
    code = ModuleAnalyzer.for_file(file, file.stem)
    code.analyze()
    names = [*code.tags, *(f"{of}.{name}" for of, name in code.annotations if of)]
    return [f"{PACKAGE}{file.stem}.{n}" for n in names if not re.search(r"\b_", n)]


def old_names(docs, file) -> list[str]:
    """List names that a module had once: links to them still lead to it."""
    found = tomllib.loads((docs / FORMER).read_text()).get(file.stem, ())
    names = [f"{PACKAGE}{file.stem}.{name}" for name in found]
    again = {*objects(file)} if names else ()
    return [name for name in names if name not in again]


def explaining_pages(file, others) -> list[Page]:
    """List the pages that bear a module's name or show some of its code, these last."""
    shown = f"src/examples/{file.name}"
    found = [p for p in others if p.file.stem == file.stem or shown in p.text]
    return sorted(found, key=lambda page: (page.file.stem != file.stem, page.name))


def facts(file, page) -> dict[str, str]:
    """Return what the list and the page of a module both say of it."""
    others = explaining_pages(file, contents.pages(page.docs))
    links = [link(other.title, other.name, page) for other in others]
    return {
        "name": file.stem,
        "summary": summary(file),
        "idea": summary(file).rstrip("."),
        "page": links[0],
        "pages": " · ".join(links),
        "lines": len(file.read_text().splitlines()),
        "needs": needs(file) or "Python alone",
    }


def page_text(page, name) -> str:
    """Return the text of a module's own page, below its heading."""
    root = page.docs.parent
    file, tests = root / f"src/examples/{name}.py", f"tests/{name}/test_{name}.py"
    about, run = description(file)
    names = re.findall(r"^def test_(\w)(\w+)", (root / tests).read_text(), re.M)
    return PAGE.format(
        **facts(file, page),
        package=PACKAGE,
        about=about,
        run=run,
        count=len(names),
        tests=tests,
        sentences="\n".join(f"- {a.upper()}{b}.".replace("_", " ") for a, b in names),
        former="\n".join(f'<div id="{n}"></div>' for n in old_names(page.docs, file)),
        path=relpath(file, page.file.parent),
    )


def table_text(page) -> str:
    """Return the list of all modules, to stand on a page."""
    modules = files(page.docs.parent / "src/examples")
    return "\n".join([HEAD, *(ROW.format(**facts(file, page)) for file in modules)])


def stubs(docs, folder) -> dict[Path, str]:
    """Return the files of the pages of modules, and what stands in each."""
    return {
        docs / PAGES_OF_MODULES / f"{file.stem}.md": STUB.format(
            name=file.stem,
            description=json.dumps(summary(file).replace("`", ""), ensure_ascii=False),
        )
        for file in files(folder)
    }
