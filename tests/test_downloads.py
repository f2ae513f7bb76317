"""Every page offers a notebook that runs in an empty folder, and its Markdown."""

import base64
import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import jax
import nbformat
import pytest
import tiny_site
from tiny_site import Site

from book import export
from book.page import Page

HEAD = f"""{tiny_site.HEAD.removesuffix("---\n")}\
needs: jax rich
data: data/times.csv
myst:
  html_meta:
    description: How to send less.
---
"""
ROOT = Path(__file__).parents[1]
PAGE = f"""{HEAD}
# Less

See {{py:func}}`jax.jit`, and [the rest](../index.md).

```{{literalinclude}} ../../src/examples/less.py
:pyobject: half
```

![A block](../block.svg)

```{{code-cell}}
import jax

jax.config.update("jax_num_cpu_devices", 8)
```

```{{code-cell}}
from examples.less import half

assert half(len(jax.devices())) == 4
assert len(open("data/times.csv").read().split()) == 2
```

```{{code-cell}}
---
tags: [solution, less, hide-cell]
mystnb:
  code_prompt_show: Show a solution
---
1
```
"""
INDEX = """# Book

```{toctree}
:caption: First part

part/less
```
"""
LESS = '''"""Less: half of everything.

No message is sent.
"""


def other():
    """Return nothing."""


@staticmethod
def half(x):
    """Return half of `x`."""
    return x // 2
'''
PROJECT = """\
[project]
requires-python = ">=3.12"
dependencies = ["jax>=0.12"]
[dependency-groups]
pages = ["rich>=15"]
"""


def write_book(folder):
    """Write a book of one page and two modules; return its folder."""
    files = {
        "docs/index.md": INDEX,
        "docs/part/less.md": PAGE,
        "docs/part/data/times.csv": "bytes,seconds\n8,0.1\n",
        "docs/block.svg": '<svg xmlns="http://www.w3.org/2000/svg"/>',
        "src/examples/__init__.py": '"""Examples."""\n',
        "src/examples/less.py": LESS,
        "src/examples/unused.py": '"""Unused: nothing."""\n',
        "pyproject.toml": PROJECT,
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.fixture
def book(tmp_path):
    """A book that a test may change."""
    return write_book(tmp_path)


@pytest.fixture
def cells(book):
    """Return the cells of the page's notebook, by their ids."""
    page = Page(book / "docs/part/less.md", book / "docs")
    notebook = json.loads(export.notebook_text(page, book / "src/examples"))
    return {cell["id"]: cell for cell in notebook["cells"]}


def source(cell):
    return "".join(cell["source"])


def test_a_notebook_opens_with_the_title_and_the_text_of_its_page(cells):
    first = next(iter(cells.values()))
    assert first["cell_type"] == "markdown"
    assert source(first).startswith("# Less\n\nSee `jax.jit`")


def test_a_notebook_says_what_is_simulated_and_what_to_install(cells):
    words = source(cells["note"])
    assert "simulates eight devices" in words
    assert 'pip install "jax>=0.12" "rich>=15"' in words
    assert "Python 3.12 or later" in words


def test_the_first_cells_with_code_compare_versions_and_ask_for_eight_devices(cells):
    code = [name for name, cell in cells.items() if cell["cell_type"] == "code"]
    assert code[:3] == ["version", "devices", "files"]
    assert source(cells["devices"]) == export.DEVICES
    assert "jupyter" not in cells["version"]["metadata"] | cells["devices"]["metadata"]


def version_output(cells, monkeypatch, capsys, here):
    """Return what the cell prints where this version of JAX is installed, or none."""

    def version(name):
        assert name == "jax"
        if here is None:
            raise metadata.PackageNotFoundError(name)
        return here

    monkeypatch.setattr(metadata, "version", version)
    exec(source(cells["version"]), {})
    return capsys.readouterr().out


@pytest.mark.parametrize("here", ["0.12", "0.12.0.1", "0.12.9", "0.12.0.dev20260801"])
def test_the_book_s_jax_is_passed_over_in_silence(cells, monkeypatch, capsys, here):
    assert version_output(cells, monkeypatch, capsys, here) == ""


@pytest.mark.parametrize(
    ("here", "words"),
    [
        ("0.7.2", "JAX 0.7.2 is older than the book's, 0.12"),
        ("0.9.2", "JAX 0.9.2 is older than the book's, 0.12"),
        ("0.13.0rc1", "JAX 0.13.0rc1 is newer than the book's, 0.12"),
        ("1.0", "JAX 1.0 is newer than the book's, 0.12"),
        (None, "JAX is not installed."),
    ],
)
def test_another_jax_is_told_with_one_line_to_run(
    cells, monkeypatch, capsys, here, words
):
    message, how, line = version_output(cells, monkeypatch, capsys, here).splitlines()
    assert message.startswith(words)
    assert how == "Run this line in a cell, then restart the kernel:"
    assert line == '%pip install "jax==0.12.*" "rich>=15"'


def test_the_release_is_the_one_that_the_book_is_for(book, monkeypatch, capsys):
    project = book / "pyproject.toml"
    project.write_text(PROJECT.replace("jax>=0.12", "jax>=0.13"))
    page = Page(book / "docs/part/less.md", book / "docs")
    cells = {"version": {"source": export.version_cell(page).source}}
    assert "JAX 0.12 is older" in version_output(cells, monkeypatch, capsys, "0.12")


def test_a_page_of_processes_asks_for_no_devices_of_its_own(book):
    page = book / "docs/part/less.md"
    page.write_text(page.read_text().replace("needs:", "devices: later\nneeds:"))
    text = export.notebook_text(Page(page, book / "docs"), book / "src/examples")
    assert "This notebook needs eight devices" not in text


def test_the_modules_and_the_data_stand_at_the_end_collapsed(cells):
    names = [*cells]
    last = names[names.index("last") :]
    assert last == ["last", "module-__init__", "module-less", "data-times"]
    assert names.index("last") > names.index("cell-4")
    for name in last[1:]:
        assert cells[name]["metadata"]["jupyter"] == {"source_hidden": True}
    text = source(cells["module-less"])
    assert text == f"%%writefile examples/less.py\n{LESS.rstrip()}"
    assert source(cells["data-times"]).startswith("%%writefile data/times.csv\nbytes")


def test_one_cell_writes_them_and_what_a_reader_changed_stays(
    cells, tmp_path, monkeypatch
):
    """Before they are needed; what is lost comes back."""
    monkeypatch.chdir(tmp_path)
    assert cells["files"]["metadata"]["jupyter"] == {"source_hidden": True}
    exec(source(cells["files"]), {})
    assert (tmp_path / "examples/less.py").read_text() == LESS
    for _ in range(2):
        assert (tmp_path / "data/times.csv").read_text() == "bytes,seconds\n8,0.1\n"
        (tmp_path / "examples/less.py").write_text("mine = 1\n")
        (tmp_path / "data/times.csv").unlink()
        exec(source(cells["files"]), {})
        assert (tmp_path / "examples/less.py").read_text() == "mine = 1\n"
    assert (tmp_path / "data/times.csv").exists()


def test_a_newer_notebook_replaces_what_an_older_one_wrote(
    book, cells, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    exec(source(cells["files"]), {})
    (book / "src/examples/less.py").write_text(LESS + "more = 1\n")
    page = Page(book / "docs/part/less.md", book / "docs")
    newer = export.notebook(page, book / "src/examples").cells
    exec(next(cell.source for cell in newer if cell.id == "files"), {})
    assert (tmp_path / "examples/less.py").read_text().endswith("more = 1\n")


def test_a_page_without_modules_carries_nothing(book):
    page = book / "docs/part/less.md"
    text = page.read_text().replace("data: data/times.csv\n", "")
    page.write_text(text.replace("from examples.less import half", "half = len"))
    found = export.notebook(Page(page, book / "docs"), book / "src/examples").cells
    assert not {"files", "last"} & {cell.id for cell in found}


def test_included_code_and_pictures_stand_in_the_notebook(cells):
    text = source(cells["cell-1"])
    assert "```python\n@staticmethod\ndef half(x):\n" in text
    assert "def other" not in text
    assert "![A block](attachment:block.svg)" in text
    data = cells["cell-1"]["attachments"]["block.svg"]["image/svg+xml"]
    assert base64.b64decode("".join(data)).startswith(b"<svg")


def test_solutions_are_collapsed(cells):
    assert cells["cell-4"]["metadata"] == {
        "jupyter": {"source_hidden": True},
        "tags": ["solution", "less", "hide-cell"],
    }


def test_a_notebook_is_valid_and_the_same_each_time(book):
    page = Page(book / "docs/part/less.md", book / "docs")
    first, second = (export.notebook_text(page, book / "src/examples") for _ in "ab")
    assert first == second
    nbformat.validate(json.loads(first))


def test_a_notebook_runs_in_an_empty_folder(book, tmp_path):
    page = Page(book / "docs/part/less.md", book / "docs")
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "less.ipynb").write_text(
        export.notebook_text(page, book / "src/examples")
    )
    mine = re.compile("JAX_|XLA_|PYTHONPATH")
    clean = {name: text for name, text in os.environ.items() if not mine.match(name)}
    subprocess.run(
        [sys.executable, "-m", "jupyter", "execute", "less.ipynb"],
        cwd=folder,
        env=clean | {"JAX_PLATFORMS": "cpu", "IPYTHONDIR": str(tmp_path / "ipython")},
        check=True,
        capture_output=True,
        timeout=120,
    )
    assert (folder / "examples/less.py").exists()


def test_too_few_devices_are_met_with_what_to_do(monkeypatch):
    exec(export.DEVICES, {})  # enough are welcome
    monkeypatch.setattr(jax.config, "update", lambda name, value: None)
    monkeypatch.setattr(jax, "devices", lambda: ["a GPU"])
    with pytest.raises(RuntimeError, match=r"JAX found 1 .*Set JAX_PLATFORMS=cpu and"):
        exec(export.DEVICES, {})


def test_unknown_functions_and_kinds_of_include_are_refused(book):
    with pytest.raises(ValueError, match=r"less\.py has no third"):
        export.source_of(book / "src/examples/less.py", "third")
    text = "```{literalinclude} conftest.py\n:lines: 1-2\n```\n"
    with pytest.raises(ValueError, match=r"literalinclude of conftest\.py with"):
        export.markdown(text, Path(__file__).parent)


def test_code_that_is_included_in_an_indented_box_stands_there(book):
    text = """\
- a list

  :::{dropdown} The code
  ```{literalinclude} src/examples/less.py
  :pyobject: half
  ```
  :::
"""
    found = export.markdown(text, book)
    assert "  ```python\n  @staticmethod\n  def half(x):\n" in found
    assert "literalinclude" not in found


def build_site(book, **settings):
    """Build a book, by default one that is not published."""
    settings = {
        "extensions": ["myst_nb", "downloads"],
        "nb_execution_mode": "off",
        "nb_execution_cache_path": str(book / "cache"),
        "html_theme": "sphinx_book_theme",
        "html_theme_options.use_download_button": False,
        "html_theme_options.article_header_end": ["menus.html"],
        "templates_path": [str(ROOT / "docs/_templates")],
        "html_copy_source": False,
        "execution_modules": str(book / "src/examples"),
        "project": "Book",
        "suppress_warnings": ["misc.highlighting_failure"],
        **settings,
    }
    return Site(book, {}, **settings)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site of the book, which no test changes."""
    return build_site(write_book(tmp_path_factory.mktemp("book")))


def links(html):
    """List what the buttons above a page lead to."""
    return re.findall(
        r'<a href="([^"]+)" (?:download|target="_blank") class="btn', html
    )


def test_a_page_offers_exactly_its_notebook_and_its_markdown(site):
    assert links(site("part/less.html")) == ["less.ipynb", "less.md"]
    assert links(site("index.html")) == ["index.md"]
    assert all(
        (site.out / "part" / name).exists() for name in ("less.ipynb", "less.md")
    )
    assert "window.print()" in site("part/less.html")
    assert links(site("search.html")) == []


def test_the_markdown_holds_the_code_that_the_page_includes(site):
    text = site("part/less.md")
    assert text.startswith(HEAD)
    assert "```python\n@staticmethod\ndef half(x):\n" in text
    assert "literalinclude" not in text


def test_each_module_has_an_address(site):
    assert site("modules/less.py") == LESS


def test_nothing_is_launched_from_a_book_that_is_not_published(site):
    assert "colab" not in site("part/less.html")
    assert not (site.out / "binder").exists()


def test_a_published_page_can_be_launched(book):
    page = build_site(
        book,
        published="https://book.example",
        repository="https://github.com/someone/book",
    )
    found = links(page("part/less.html"))
    assert found[:2] == [
        "https://colab.research.google.com/github/someone/book/blob/gh-pages/part/less.ipynb",
        "https://mybinder.org/v2/gh/someone/book/gh-pages?urlpath=lab%2Ftree%2Fpart%2Fless.ipynb",
    ]
    assert len(links(page("index.html"))) == 1
    assert page("binder/requirements.txt") == "jax>=0.12\nrich>=15\njupyterlab\n"
    assert "(https://book.example/part/less.md)" in page("llms.txt")
    assert "[Less](https://book.example/part/less.html)" in page("part/less.ipynb")


def test_llms_txt_lists_every_page_and_module(site):
    text = site("llms.txt")
    assert "## First part\n\n- [Less](part/less.md): How to send less.\n" in text
    assert "- [less.py](modules/less.py): Less: half of everything.\n" in text


def test_a_page_that_cannot_be_exported_fails_the_build(book):
    page = book / "docs/part/less.md"
    page.write_text(PAGE + "\n```{list-table}\n- - a\n```\n")
    warnings = build_site(book).warnings
    assert "the directive 'list-table' has no form in a notebook" in warnings
