"""Write a page as a notebook that runs in an empty folder, and as one Markdown file.

Both are made from the page's source alone, without Sphinx, and without running it. The
notebook carries the modules that the page imports and the data that it reads.
"""

import ast
import base64
import re
import textwrap
import tomllib
from pathlib import Path

import jupytext
import nbformat
from execution import data, modules
from nbformat.v4 import new_code_cell, new_markdown_cell
from plain import front_matter, plain

INCLUDE = re.compile(
    r"^(?P<indent> *)(?P<marks>`{3,}|:{3,})\{literalinclude\} +(?P<path>\S+) *\n"
    r"(?P<options>(?: *:[\w-]+:.*\n)*)(?P=indent)(?P=marks) *$",
    re.M,
)
OPTION = re.compile(r"^ *:([\w-]+): *(.*)$", re.M)
IMAGE = re.compile(r"(!\[[^\]]*\]\()(?!\w+:)([^)\s]+)(\))")
COLLAPSED = {"solution", "hide-cell", "hide-input"}
LANGUAGES = {".py": "python", ".sh": "bash", ".sbatch": "bash", ".yaml": "yaml"}
LOOKS = {"caption", "class", "dedent", "emphasize-lines", "language", "linenos", "name"}
IMAGES = {".svg": "image/svg+xml", ".png": "image/png"}

NOTE = """\
> **Shardbook: {title}**
>
> When there is no accelerator, this notebook simulates eight devices on the CPU. The
> shardings, the collectives, the bytes and the memory are what JAX's compiler really
> produces for eight devices. Time is not: the devices share the cores of one machine.
>
> It needs Python {python} or later and `pip install {needs}`."""

DEVICES = r"""
import jax

# Eight simulated devices, unless JAX finds accelerators.
jax.config.update("jax_num_cpu_devices", 8)
if len(jax.devices()) < 8:
    raise RuntimeError(
        f"This notebook needs eight devices; JAX found {len(jax.devices())} "
        f"({jax.default_backend()}). Set JAX_PLATFORMS=cpu and restart:\n"
        "write the line %env JAX_PLATFORMS=cpu at the top of this cell,\n"
        "restart the kernel, and run all cells again."
    )
""".strip()

FOLDER = """\
from pathlib import Path

Path("examples").mkdir(exist_ok=True)  # for the modules that this page imports"""


def title(text) -> str:
    """Return the first heading of a page."""
    return re.search(r"^# +(.+)$", text, re.M)[1]


def description(text) -> str:
    """Return what a page says to search engines, or nothing."""
    settings = front_matter(text).get("myst", {})
    return " ".join(settings.get("html_meta", {}).get("description", "").split())


def needs(text) -> list[str]:
    """List the packages that a page says its cells need."""
    return str(front_matter(text).get("needs", "")).replace(",", " ").split()


def requirements(names, root) -> list[str]:
    """Give each package the lower bound that pyproject.toml states for it."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    groups = settings.get("dependency-groups", {})
    stated = [*settings["project"]["dependencies"], *groups.get("pages", [])]
    bounds = {re.match(r"[\w-]+", line)[0]: line for line in stated}
    return [bounds.get(name, name) for name in names]


def source_of(path, name) -> str:
    """Return a function or class of a Python file, its decorators included.

    Args:
        path: the file.
        name: such as `shift`, or `Program.counts`.

    Raises:
        ValueError: when the file has no such thing.
    """
    text = path.read_text()
    node = ast.parse(text)
    for part in name.split("."):
        named = (n for n in node.body if getattr(n, "name", None) == part)
        if not (node := next(named, None)):
            raise ValueError(f"{path.name} has no {name}")
    first = min(n.lineno for n in [node, *node.decorator_list])
    lines = text.splitlines()[first - 1 : node.end_lineno]
    return textwrap.dedent("\n".join(lines))


def included(match, folder) -> str:
    """Return a `literalinclude` as a fence with the code in it."""
    options = dict(OPTION.findall(match["options"]))
    path = folder / match["path"]
    if other := options.keys() - LOOKS - {"pyobject"}:
        raise ValueError(f"literalinclude of {path.name} with {sorted(other)}")
    name = options.get("pyobject")
    code = source_of(path, name) if name else path.read_text().rstrip("\n")
    language = options.get("language", LANGUAGES.get(path.suffix, "text"))
    marks = "````" if "```" in code else "```"
    return textwrap.indent(f"{marks}{language}\n{code}\n{marks}", match["indent"])


def markdown(text, folder) -> str:
    """Return a page's source with the code that it includes in place.

    Args:
        text: the source.
        folder: the page's folder, from which its paths lead.

    Raises:
        ValueError: for a function that the included file does not have.
    """
    return INCLUDE.sub(lambda match: included(match, folder), text)


def is_notebook(text) -> bool:
    """Say whether a page has cells to run."""
    return "kernelspec" in front_matter(text)


def notebook(page, modules_folder):
    """Return a page as a notebook that runs in an empty folder.

    Its first cell looks for eight devices, unless `devices: later` stands at the top of
    the page: it starts processes, or tells what comes before JAX looks for devices.

    Args:
        page: a `plain.Page`.
        modules_folder: the folder with the modules that pages import.

    Returns:
        A notebook without outputs, whose bytes depend on nothing but its sources.

    Raises:
        ValueError: for a directive that has no form in a notebook.
    """
    text = markdown(page.file.read_text(), page.file.parent)
    cells = jupytext.reads(text, "md:myst").cells
    start = [note(text, page)]
    if front_matter(text).get("devices") != "later":
        start.append(new_code_cell(DEVICES, id="devices"))
    cells = [numbered(n, cell, page) for n, cell in enumerate(cells, 1)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(
        cells=[
            *start,
            *carried(modules(text, modules_folder)),
            *read_by(text, page.file.parent),
            *cells,
        ],
        metadata={"kernelspec": kernel},
    )


def note(text, page):
    """Return the first cell: what is simulated, and what to install."""
    root, name = page.docs.parent, title(text)
    url = page.url(page.file.name)
    asked = (f'"{line}"' for line in requirements(needs(text), root))
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    words = NOTE.format(
        title=f"[{name}]({url})" if url else name,
        python=settings["project"]["requires-python"].lstrip(">="),
        needs=" ".join(asked),
    )
    return new_markdown_cell(words, id="note")


def carried(files):
    """Return collapsed cells that write the modules into the folder `examples`."""
    if not files:
        return []
    files = [files[0].parent / "__init__.py", *files]
    writes = [
        new_code_cell(f"%%writefile examples/{file.name}\n{file.read_text().rstrip()}")
        for file in files
    ]
    cells = [new_code_cell(FOLDER), *writes]
    for name, cell in zip(
        ["folder", *(file.stem for file in files)], cells, strict=True
    ):
        cell["id"] = f"module-{name}"
        cell.metadata = {"jupyter": {"source_hidden": True}}
    return cells


def read_by(text, folder):
    """Return collapsed cells that write the data of a page into the folder `data`."""
    if not (files := data(text, folder)):
        return []
    codes = {"folder": 'from pathlib import Path\n\nPath("data").mkdir(exist_ok=True)'}
    for file in files:
        name = re.sub(r"[^\w-]", "-", file.stem)
        codes[name] = f"%%writefile data/{file.name}\n{file.read_text().rstrip()}"
    hidden = {"jupyter": {"source_hidden": True}}
    return [
        new_code_cell(code, id=f"data-{name}", metadata=hidden)
        for name, code in codes.items()
    ]


def numbered(number, cell, page):
    """Return a cell of the page as it stands in the notebook."""
    tags = cell.metadata.get("tags", [])
    metadata = {"tags": tags} if tags else {}
    if COLLAPSED & {*tags}:
        metadata["jupyter"] = {"source_hidden": True}
    name = f"cell-{number}"
    if cell.cell_type == "code":
        return new_code_cell(cell.source, id=name, metadata=metadata)
    return attached(new_markdown_cell(plain(cell.source, page), id=name), page)


def attached(cell, page):
    """Put the pictures that a cell shows into the cell."""
    pictures = {}

    def attach(match):
        file = Path(page.file.parent, match[2])
        data = base64.b64encode(file.read_bytes()).decode()
        pictures[file.name] = {IMAGES[file.suffix]: data}
        return f"{match[1]}attachment:{file.name}{match[3]}"

    cell.source = IMAGE.sub(attach, cell.source)
    if pictures:
        cell["attachments"] = pictures
    return cell


def notebook_text(page, modules_folder) -> str:
    """Return a page's notebook as the text of a file."""
    return nbformat.writes(notebook(page, modules_folder), indent=1) + "\n"
