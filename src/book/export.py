"""Write a page as a notebook that runs in an empty folder, and as one Markdown file."""

import ast
import base64
import hashlib
import json
import mimetypes
import re
import textwrap
import tomllib
import zlib
from pathlib import Path

import explorers
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from sphinx.pycode import ModuleAnalyzer

from book import (
    api_index,
    build_line,
    error_index,
    exercise_list,
    guards,
    module_reference,
)
from book.facts import ROOT, facts, fill_facts
from book.page import FENCES, read_block, rewrite
from book.plain_markdown import to_markdown

HIDDEN = {"cellView": "form", "jupyter": {"source_hidden": True}}  # Colab, Jupyter
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LISTING = {"dedent", "language", "pyobject"}  # options of `literalinclude`
IMAGE = re.compile(r"!\[([^]]*)\]\(([^():]+)\)")  # a file beside the page

NOTE = """\
> **Shardbook: {title}**
>
> When there is no accelerator, this notebook simulates eight devices on the CPU. The
> shardings, the collectives, the bytes and the memory are what JAX's compiler really
> produces for eight devices. Time is not: the devices share the cores of one machine.
>
> It needs Python {python} or later and `pip install {needs}`."""

VERSION = """\
# Compares your JAX with the book's, and says nothing if they are of one release.
import re
from importlib.metadata import PackageNotFoundError, version


def compare_jax(book, install):
    try:
        here = version("jax")
        mine, its = (tuple(map(int, re.findall("[0-9]+", v)[:2])) for v in (here, book))
        if mine == its:
            return
        state = "older" if mine < its else "newer"
        print(f"JAX {{here}} is {{state}} than the book's, {{book}}: cells may fail.")
    except PackageNotFoundError:
        print("JAX is not installed.")
    print("Run this line in a cell, then restart the kernel:")
    print(install)


compare_jax("{jax}", '%pip install {needs}')"""

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

FILES = """\
# Writes what this page imports and reads beside the notebook, once. The files stand in
# the last cells, to be read and changed; here they are packed.
import base64
import json
import zlib
from pathlib import Path


def write_files(packed, mark):
    files = json.loads(zlib.decompress(base64.b85decode(packed)))
    for name, text in files.items():
        if not (Path(mark).exists() and Path(name).exists()):
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(text, encoding="utf-8")
    Path(mark).touch()


write_files("{packed}", ".shardbook-{mark}")"""

LAST = """\
## The files of this page

A cell near the top wrote them beside the notebook. To change one, edit its cell, run
it, and restart the kernel: what you changed stays."""


# -------------------------------------------------------------------------- Markdown


def source_of(path, name) -> str:
    """Return the source of a part of a file, with the first line of its docstring."""
    tags = ModuleAnalyzer.for_file(path, "").find_tags()
    if name not in tags:
        raise ValueError(f"{path.name} has no {name}")
    _, start, end = tags[name]
    lines = path.read_text().splitlines()[start - 1 : end]
    lines = textwrap.dedent("\n".join(lines)).splitlines()
    (node,) = ast.parse("\n".join(lines)).body
    if ast.get_docstring(node) and (doc := node.body[0]).end_lineno > doc.lineno:
        lines[doc.lineno - 1 : doc.end_lineno] = [f'{lines[doc.lineno - 1]}"""']
    return "\n".join(lines)


def include_file(block, page) -> str:
    """Return a `literalinclude` as a fence with the code in it."""
    if unknown := block.options.keys() - LISTING:
        raise ValueError(f"{page.name}: a listing cannot have {', '.join(unknown)}")
    path, name = page.file.parent / block.argument, block.options.get("pyobject")
    code = source_of(path, name) if name else path.read_text().rstrip("\n")
    marks = "````" if "```" in code else "```"
    return f"{marks}{block.options.get('language', 'python')}\n{code}\n{marks}"


TEXTS = {  # directives that stand for a text -> its MyST, which may have others in it
    "api-index": lambda block, page: api_index.index_text(page),
    "build-line": lambda block, page: build_line.build_line(page),
    "error-index": lambda block, page: error_index.index_text(page),
    "exercise-index": lambda block, page: exercise_list.index_text(page),
    "explorer": lambda block, page: explorers.place_text(block),
    "literalinclude": include_file,
    "module-page": lambda block, page: module_reference.page_text(page, block.argument),
    "module-reference": lambda block, page: module_reference.table_text(page),
}
MADE = TEXTS | {  # the same for files
    "build-line": lambda block, page: "",
    "explorer": lambda block, page: explorers.tables_text(block),
}


def markdown(text, page, made=MADE) -> str:
    """Return a text of a page in MyST with the facts, code and lists that it names."""

    def fill(token, source):
        block = read_block(token, source)
        if block.name in made:
            return markdown(made[block.name](block, page), page, made)
        if block.name in (None, "code-cell") or not block.content:
            return source
        return source.replace(block.content, markdown(block.content, page, made))

    forms = dict.fromkeys(FENCES, fill)
    forms["inline"] = lambda _, source: fill_facts(source)
    return "\n".join(rewrite(text, forms))


def write_cells(page, outputs):
    """Return what writes each cell of a page in turn as code and its text outputs."""
    cells = zip(page.code, outputs, strict=True)

    def write_cell(*_):
        cell, own = next(cells)
        shown = guards.text_and_error(own)
        code = f"```python\n{cell_code(cell)}\n```"
        return f"{code}\n\n```text\n{shown}\n```" if shown else code

    return write_cell


# -------------------------------------------------------------------------- notebook


def notebook(page, modules_folder, outputs=None):
    """Return a page as a notebook, with what each cell gave when the site ran it."""
    following = iter(outputs or [[]] * len(page.code))
    cells = [
        code_cell(n, cell, next(following)) if cell.code else text_cell(n, cell, page)
        for n, cell in enumerate(page.cells, 1)
    ]
    first = next(n for n, cell in enumerate(page.cells) if cell.code)
    start, end = file_cells(page, modules_folder)
    cells[first:first] = start_cells(page) + start
    return new_notebook(cells=cells + end, metadata={"kernelspec": KERNEL})


def requirements(names, root=ROOT) -> list[str]:
    """List packages with the lower bounds of pyproject.toml."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    stated = (
        settings["project"]["dependencies"] + settings["dependency-groups"]["pages"]
    )
    bounds = {re.match(r"[\w-]+", line)[0]: line for line in stated}
    return [bounds.get(name, name) for name in names]


def start_cells(page) -> list:
    """Return what stands before the code: a note, and a look at JAX and its devices."""
    url, release = page.url(page.file.name), facts().jax
    needs = [f'"{line}"' for line in requirements(page.needs)]
    others = [line for line in needs if not line.startswith('"jax>')]
    title = f"[{page.title}]({url})" if url else page.title
    note = NOTE.format(title=title, python=facts().python, needs=" ".join(needs))
    install = " ".join([f'"jax=={release}.*"', *others])
    version = VERSION.format(jax=release, needs=install)
    cells = [new_markdown_cell(note, id="note"), new_code_cell(version, id="version")]
    if page.front.get("devices") != "later":  # as where it starts processes
        cells.append(new_code_cell(DEVICES, id="devices"))
    return cells


def code_cell(number, cell, outputs):
    """Return a cell of the page as a cell of the notebook, without logs."""
    tags = [*cell.tags]
    if "raises" in cell.options:  # else Run All stops there
        tags.append("raises-exception")
    metadata = {"tags": tags} if tags else {}
    if cell.words or "hide-cell" in tags:
        metadata["jupyter"] = {"source_hidden": True}
    shown = [clean_output(each) for each in outputs if each.get("name") != "stderr"]
    more = {"id": f"cell-{number}", "metadata": metadata, "outputs": shown}
    return new_code_cell(cell_code(cell), **more)


def text_cell(number, cell, page):
    """Return a cell of Markdown that has its pictures with it."""
    pictures = {}

    def attach(image):
        file = page.file.parent / image[2]
        data = base64.b64encode(file.read_bytes()).decode()
        pictures[file.name] = {mimetypes.guess_type(file.name)[0]: data}
        return f"![{image[1]}](attachment:{file.name})"

    text = IMAGE.sub(attach, to_markdown(markdown(cell.source, page), page))
    more = {"attachments": pictures} if pictures else {}
    return new_markdown_cell(text, id=f"cell-{number}", **more)


def cell_code(cell) -> str:
    """Return a cell's code, below a comment of the words that stand for it."""
    words = "" if cell.source.startswith("%%") else cell.words
    return f"# {words}\n{cell.source}" if words else cell.source


def clean_output(output):
    """Return an output without a number; an error without its traceback."""
    output = nbformat.from_dict(output)
    if output.output_type == "error":
        output.evalue = guards.clean_message(output.evalue)
        output.traceback = [f"{output.ename}: {output.evalue}"]
    if "execution_count" in output:
        output.execution_count = None
    return output


def file_cells(page, modules_folder) -> tuple[list, list]:
    """Return the cell that writes all files, and the last cells, with one in each."""
    modules = page.modules(modules_folder)
    if modules:  # what makes a package of them
        modules.insert(0, modules_folder / "__init__.py")
    files = {f"examples/{file.name}": file.read_text() for file in modules}
    files |= {f"data/{file.name}": file.read_text() for file in page.data}
    if not files:
        return [], []
    text = json.dumps(files, ensure_ascii=False).encode()
    packed = base64.b85encode(zlib.compress(text, 9)).decode()
    code = FILES.format(packed=packed, mark=hashlib.sha256(text).hexdigest()[:12])
    cells = [new_markdown_cell(LAST, id="last")]
    for path, text in files.items():
        kind = "module" if path.startswith("examples/") else "data"
        name = f"{kind}-{re.sub(r'[^\w-]', '-', Path(path).stem)}"
        code_of_file = f"%%writefile {path}\n{text.rstrip()}"
        cells.append(new_code_cell(code_of_file, id=name, metadata=dict(HIDDEN)))
    return [new_code_cell(code, id="files", metadata=dict(HIDDEN))], cells
