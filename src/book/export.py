"""Write a page as a notebook that runs in an empty folder, and as one Markdown file.

Both are made from the page's source alone, without Sphinx, and without running it. The
notebook carries the modules that the page imports and the data that it reads: packed
before its first cell with code, and to be read in its last cells.
"""

import ast
import base64
import hashlib
import json
import re
import textwrap
import tomllib
import zlib
from pathlib import Path

import explorers
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell

from book import error_index, exercises, guards, module_reference, reading_map
from book.facts import fill_facts
from book.page import code_cell, rewrite_blocks, rewrite_markdown
from book.plain_markdown import to_markdown

COLLAPSED = {"hide-cell", "check", "fold"}
HIDDEN = {"cellView": "form", "jupyter": {"source_hidden": True}}  # Colab, Jupyter
LANGUAGES = {".py": "python", ".sh": "bash", ".sbatch": "bash", ".yaml": "yaml"}
INCLUDED = {"dedent", "language", "pyobject"}  # the options of code that is included
IMAGES = {".svg": "image/svg+xml", ".png": "image/png"}

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


def requirements(names, root) -> list[str]:
    """List packages with the lower bounds of pyproject.toml."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    groups = settings.get("dependency-groups", {})
    stated = [*settings["project"]["dependencies"], *groups.get("pages", [])]
    bounds = {re.match(r"[\w-]+", line)[0]: line for line in stated}
    return [bounds.get(name, name) for name in names]


def source_of(path, name) -> str:
    """Return the source of a function or class of a file, decorators included.

    Of its docstring only the first line: the page of the module has all of it.

    Raises:
        ValueError: when the file has no such thing.
    """
    text = path.read_text()
    node = ast.parse(text)
    for part in name.split("."):
        found = (n for n in node.body if getattr(n, "name", None) == part)
        if not (node := next(found, None)):
            raise ValueError(f"{path.name} has no {name}")
    first = min(n.lineno for n in [node, *node.decorator_list])
    lines = text.splitlines()
    doc = node.body[0]
    if ast.get_docstring(node) and doc.end_lineno > doc.lineno:
        lines[doc.lineno - 1 : doc.end_lineno] = [f'{lines[doc.lineno - 1]}"""']
    last = node.end_lineno - len(text.splitlines()) + len(lines)
    return textwrap.dedent("\n".join(lines[first - 1 : last]))


def include_file(block, page) -> str:
    """Return a `literalinclude` as a fence with the code in it."""
    path = page.file.parent / block.argument
    if other := block.options.keys() - INCLUDED:
        raise ValueError(f"literalinclude of {path.name} with {sorted(other)}")
    name = block.options.get("pyobject")
    code = source_of(path, name) if name else path.read_text().rstrip("\n")
    language = block.options.get("language", LANGUAGES.get(path.suffix, "text"))
    marks = "````" if "```" in code else "```"
    return f"{marks}{language}\n{code}\n{marks}"


MADE = {  # directives that make their text -> their MyST, which may have others in it
    "error-index": lambda block, page: error_index.index_text(page),
    "exercise-index": lambda block, page: exercises.index_text(page),
    "explorer": lambda block, page: explorers.directive_text(block),
    "module-page": lambda block, page: module_reference.page_text(page, block.argument),
    "module-reference": lambda block, page: module_reference.table_text(page),
    "part-map": reading_map.directive_text,
    "ways": reading_map.directive_text,
}


def markdown(text, page, made=MADE) -> str:
    """Return a text in MyST with the facts, the code and the lists that it names.

    Args:
        text: the source of a page, or of a part.
        page: the page, from whose folder its paths lead.
        made: what makes the text of a directive.

    Raises:
        ValueError: for a function that the included file does not have.
    """

    def fill(block):
        if block.name == "literalinclude":
            return include_file(block, page)
        if block.name in made:
            text = made[block.name](block, page)
            return markdown(f"{text}\n", page, made).removesuffix("\n")
        if block.name in (None, "code-cell") or not block.content:
            return block.source
        filled = markdown(block.content, page, made)
        return block.source.replace(block.content, filled)

    return rewrite_blocks(text, fill, fill_facts)


def insert_outputs(page, text, outputs) -> str:
    """Return a page's text with its cells as code, and their text outputs below.

    text: the page's, of which only what stands between cells may differ.
    """
    gave = iter(outputs or [[]] * len(page.code))

    def show(block):
        if block.name != "code-cell":
            return block.source
        code, given = cell_code(code_cell(block)), next(gave)
        error = guards.find_error(given)
        texts = [guards.visible_text(given), ": ".join(error[:2]) if error else ""]
        shown = "\n".join(filter(None, texts))
        output = f"\n\n```text\n{shown}\n```" if shown else ""
        return f"```python\n{code}\n```{output}"

    return rewrite_blocks(text, show)


def notebook(page, modules_folder, outputs=None):
    """Return a page as a notebook that runs in an empty folder.

    It opens with the page's title and text. The first cell with code compares versions
    of JAX. The next looks for eight devices, unless `devices: later` stands at the top
    of the page: it starts processes, or tells what comes before JAX looks for devices.

    Args:
        page: a `page.Page`.
        modules_folder: the folder with the modules that pages import.
        outputs: what each code cell gave when the site ran it; without, there is none.

    Returns:
        A notebook, whose bytes depend on its sources and these outputs alone.

    Raises:
        ValueError: for a directive that has no form in a notebook.
    """
    start = [note_cell(page), version_cell(page)]
    if page.front.get("devices") != "later":
        start.append(new_code_cell(DEVICES, id="devices"))
    gave = iter(outputs or [[]] * len(page.code))
    cells = [
        notebook_cell(n, cell, page, next(gave) if cell.code else ())
        for n, cell in enumerate(page.cells, 1)
    ]
    modules = page.modules(modules_folder)
    if modules:  # what makes a package of them
        modules.insert(0, modules_folder / "__init__.py")
    files = {f"examples/{file.name}": file.read_text() for file in modules}
    files |= {f"data/{file.name}": file.read_text() for file in page.data}
    text = next((n for n, cell in enumerate(page.cells) if cell.code), len(cells))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(
        cells=[
            *cells[:text],
            *start,
            *files_cell(files),
            *cells[text:],
            *file_cells(files),
        ],
        metadata={"kernelspec": kernel},
    )


def note_cell(page):
    """Return the cell about simulated devices and packages to install."""
    root, name = page.docs.parent, page.title
    url = page.url(page.file.name)
    asked = (f'"{line}"' for line in requirements(page.needs, root))
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    words = NOTE.format(
        title=f"[{name}]({url})" if url else name,
        python=settings["project"]["requires-python"].lstrip(">="),
        needs=" ".join(asked),
    )
    return new_markdown_cell(words, id="note")


def version_cell(page):
    """Return the cell that compares the JAX that is here with the book's."""
    jax, *others = requirements(["jax", *page.needs], page.docs.parent)
    release = jax.removeprefix("jax>=")
    names = [f"jax=={release}.*", *(line for line in others if line != jax)]
    needs = " ".join(f'"{name}"' for name in names)
    return new_code_cell(VERSION.format(jax=release, needs=needs), id="version")


def files_cell(files) -> list:
    """Return the cell that writes files beside the notebook, if there are any.

    The first cells of a page import the modules, so they are packed here, unread.
    """
    if not files:
        return []
    text = json.dumps(files, ensure_ascii=False)
    mark = hashlib.sha256(text.encode()).hexdigest()[:12]
    packed = base64.b85encode(zlib.compress(text.encode(), 9)).decode()
    code = FILES.format(packed=packed, mark=mark)
    return [new_code_cell(code, id="files", metadata=dict(HIDDEN))]


def file_cells(files) -> list:
    """Return the last cells, each with a file, which it writes."""
    if not files:
        return []
    cells = [new_markdown_cell(LAST, id="last")]
    for path, text in files.items():
        name = re.sub(r"[^\w-]", "-", Path(path).stem)
        kind = {"examples": "module"}.get(Path(path).parent.name, "data")
        code = f"%%writefile {path}\n{text.rstrip()}"
        cells.append(new_code_cell(code, id=f"{kind}-{name}", metadata=dict(HIDDEN)))
    return cells


def notebook_cell(number, cell, page, outputs):
    """Return a cell of the page as a cell of the notebook.

    Run All does not stop at an error that a cell shows; what is folded on the page is
    collapsed, below a comment of its words.
    """
    tags = [*cell.tags, *["raises-exception"] * ("raises" in cell.options)]
    metadata = {"tags": tags} if tags else {}
    if COLLAPSED & {*tags, *cell.options}:
        metadata["jupyter"] = {"source_hidden": True}
    name = f"cell-{number}"
    if not cell.code:
        text = to_markdown(markdown(cell.source, page), page)
        return attach_pictures(new_markdown_cell(text, id=name), page)
    found = new_code_cell(cell_code(cell), id=name, metadata=metadata)
    found.outputs = [  # without logs, which no page shows
        clean_output(output) for output in outputs if output.get("name") != "stderr"
    ]
    return found


def cell_code(cell) -> str:
    """Return a cell's code, below a comment of the words that stand for it."""
    for option, start in (("check", "Checked: "), ("fold", "")):
        if option in cell.options and not cell.source.startswith("%%"):
            return f"# {start}{cell.options[option].strip()}\n{cell.source}"
    return cell.source


def clean_output(output):
    """Return an output for the notebook: of an error without its traceback."""
    output = nbformat.from_dict(output)
    if output.output_type == "error":
        output.evalue = guards.clean_message(output.evalue)
        bases = [line for line in output.traceback if line.startswith(guards.BASES)]
        output.traceback = [f"{output.ename}: {output.evalue}", *bases]
    output.pop("execution_count", None)
    if output.output_type == "execute_result":
        output.execution_count = None
    return output


def attach_pictures(cell, page):
    """Put the pictures that a cell shows into the cell."""
    pictures = {}

    def attach(piece):
        if not piece["image"] or ":" in piece["target"]:
            return piece[0]
        file = Path(page.file.parent, piece["target"])
        data = base64.b64encode(file.read_bytes()).decode()
        pictures[file.name] = {IMAGES[file.suffix]: data}
        return f"![{piece['text']}](attachment:{file.name})"

    cell.source = rewrite_markdown(cell.source, attach)
    if pictures:
        cell["attachments"] = pictures
    return cell


def notebook_text(page, modules_folder, outputs=None) -> str:
    """Return a page's notebook as the text of a file."""
    found = notebook(page, modules_folder, outputs)
    return nbformat.writes(found, indent=1) + "\n"
