"""A page offers a notebook that runs in an empty folder, Markdown, and the archive."""

import base64
import json
import os
import re
import shutil
import zipfile
from importlib import metadata
from pathlib import Path

import archive
import jax
import pytest
import tiny_site
from tiny_site import Site

from book import export
from book.page import Page

ROOT = Path(__file__).parents[1]
ADDRESS = "https://book.example"
COLAB = "https://colab.research.google.com/github/someone/book/blob/gh-pages/"
OFFLINE = '<span class="offline"></span>'
HEAD = f"""{tiny_site.HEAD.removesuffix("---\n")}\
needs: jax rich
data: data/times.csv
myst:
  html_meta:
    description: How to send less.
---
"""
PAGE = f"""{HEAD}
# Less

See [the rest](../index.md).

```{{literalinclude}} ../../src/examples/less.py
:pyobject: half
```

![A block](../block.svg)

{OFFLINE}

```{{code-cell}}
import jax

jax.config.update("jax_num_cpu_devices", 8)
```

```{{code-cell}}
from examples.less import half

assert half(len(jax.devices())) == 4
assert len(open("data/times.csv").read().split()) == 2
```

```{{admonition}} Exercise: less of it
:class: exercise
Send less.
```

```{{code-cell}}
:tags: [exercise, less]

answer = 0
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

```{toctree}
:caption: Another

words
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
dependencies = ["jax>=0.14"]
[dependency-groups]
pages = ["rich>=15"]
"""


def write_book(folder):
    """Write a book of two pages and two modules; return its folder."""
    files = {
        "docs/index.md": INDEX,
        "docs/part/less.md": PAGE,
        "docs/words.md": "# Words\n",
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


# ------------------------------------------------------------------------ the notebook


@pytest.fixture
def book(tmp_path):
    """A book that a test may change."""
    return write_book(tmp_path)


def read_cells(book):
    """Return the cells of the page's notebook, by their ids."""
    page = Page(book / "docs/part/less.md", book / "docs")
    text = export.notebook_text(page, book / "src/examples")
    assert text == export.notebook_text(page, book / "src/examples")
    return {cell["id"]: cell for cell in json.loads(text)["cells"]}


def source(cell):
    return "".join(cell["source"])


def test_a_notebook_has_the_text_of_its_page_then_compares_versions(book):
    cells = read_cells(book)
    start = next(iter(cells.values()))
    assert start["cell_type"] == "markdown"
    assert source(start).startswith("# Less\n\nSee the rest.\n\n```python\n@static")
    assert "def other" not in source(start)
    assert "![A block](attachment:block.svg)" in source(start)
    data = start["attachments"]["block.svg"]["image/svg+xml"]
    assert base64.b64decode("".join(data)).startswith(b"<svg")
    words = source(cells["note"])
    assert "simulates eight devices" in words
    assert 'pip install "jax>=0.14" "rich>=15"' in words
    assert "Python 3.12 or later" in words
    code = [name for name, cell in cells.items() if cell["cell_type"] == "code"]
    assert code[:3] == ["version", "devices", "files"]
    assert cells["cell-6"]["metadata"]["jupyter"] == {"source_hidden": True}


@pytest.mark.parametrize(
    ("here", "words"),
    [
        ("0.14.9", None),
        ("0.14.0.dev20260801", None),
        ("0.9.2", "JAX 0.9.2 is older than the book's, 0.14"),
        ("1.0", "JAX 1.0 is newer than the book's, 0.14"),
        (None, "JAX is not installed."),
    ],
)
def test_another_jax_is_met_with_one_line_to_run(
    book, monkeypatch, capsys, here, words
):
    code = source(read_cells(book)["version"])

    def version(name):
        if here is None:
            raise metadata.PackageNotFoundError(name)
        return here

    monkeypatch.setattr(metadata, "version", version)
    exec(code, {})
    printed = capsys.readouterr().out.splitlines()
    assert bool(printed) == bool(words)
    if words:
        message, how, line = printed
        assert message.startswith(words)
        assert how == "Run this line in a cell, then restart the kernel:"
        assert line == '%pip install "jax==0.14.*" "rich>=15"'


def test_too_few_devices_are_met_with_what_to_do(book, monkeypatch):
    code = source(read_cells(book)["devices"])
    exec(code, {})  # enough are welcome
    monkeypatch.setattr(jax.config, "update", lambda name, value: None)
    monkeypatch.setattr(jax, "devices", lambda: ["a GPU"])
    with pytest.raises(RuntimeError, match=r"JAX found 1 .*Set JAX_PLATFORMS=cpu and"):
        exec(code, {})


def test_a_page_of_processes_asks_for_no_devices_of_its_own(book):
    page = book / "docs/part/less.md"
    page.write_text(page.read_text().replace("needs:", "devices: later\nneeds:"))
    assert "devices" not in read_cells(book)


def test_the_files_of_a_page_stand_at_its_end_and_one_cell_writes_them(
    book, tmp_path, monkeypatch
):
    """What a reader changed stays, what is lost comes back, a newer one is written."""
    monkeypatch.chdir(tmp_path)
    cells = read_cells(book)
    assert [*cells][-4:] == ["last", "module-__init__", "module-less", "data-times"]
    assert cells["data-times"]["metadata"]["jupyter"] == {"source_hidden": True}
    text = source(cells["module-less"])
    assert text == f"%%writefile examples/less.py\n{LESS.rstrip()}"
    module, data = tmp_path / "examples/less.py", tmp_path / "data/times.csv"
    exec(source(cells["files"]), {})
    assert module.read_text() == LESS
    module.write_text("mine = 1\n")
    data.unlink()
    exec(source(cells["files"]), {})
    assert module.read_text() == "mine = 1\n"
    assert data.read_text() == "bytes,seconds\n8,0.1\n"
    (book / "src/examples/less.py").write_text(f"{LESS}more = 1\n")
    exec(source(read_cells(book)["files"]), {})
    assert module.read_text().endswith("more = 1\n")


# ---------------------------------------------------------------------------- the site


def build_site(folder, *extensions, **settings):
    """Build the book, by default one that is not published."""
    settings |= {
        "html_theme_options.use_download_button": False,
        "html_theme_options.article_header_end": ["menus.html"],
    }
    return Site(
        write_book(folder),
        {},
        extensions=["myst_nb", "downloads", "exercise_index", *extensions],
        nb_execution_mode="off",
        html_theme="sphinx_book_theme",
        templates_path=[str(ROOT / "docs/_templates")],
        html_copy_source=False,
        execution_modules=str(folder / "src/examples"),
        project="Book",
        suppress_warnings=["misc.highlighting_failure"],
        **settings,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site of a book without an address."""
    return build_site(tmp_path_factory.mktemp("book"))


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The site of a book with an address."""
    return build_site(
        tmp_path_factory.mktemp("published"),
        "sphinxext.opengraph",
        ogp_site_url=f"{ADDRESS}/",
        ogp_enable_meta_description=False,
        published=ADDRESS,
        repository="https://github.com/someone/book",
    )


def links(html):
    """List what the buttons above a page lead to."""
    return re.findall(
        r'<a href="([^"]+)" (?:download|target="_blank") class="btn', html
    )


def test_a_page_and_its_exercises_offer_exactly_its_files(site):
    html = site("part/less.html")
    assert links(html) == ["less.ipynb", "less.md"]
    assert html.count('<a href="less.ipynb" download>Download it') == 1
    assert links(site("index.html")) == ["index.md"]
    text = site("part/less.md")
    assert text.startswith(HEAD)
    assert "```python\n@staticmethod\ndef half(x):\n" in text
    assert "literalinclude" not in text


def test_without_an_address_nothing_leads_out_of_the_book(site):
    assert not (site.out / "binder").exists()
    for file in site.out.rglob("*.html"):
        assert not re.search('colab|mybinder|"og:', file.read_text()), file


def test_with_an_address_pages_and_exercises_can_be_launched(published):
    html = published("part/less.html")
    assert links(html)[:2] == [
        f"{COLAB}part/less.ipynb",
        "https://mybinder.org/v2/gh/someone/book/gh-pages?urlpath=lab%2Ftree%2Fpart%2Fless.ipynb",
    ]
    assert len(links(published("index.html"))) == 1
    assert f'href="{COLAB}part/less.ipynb#scrollTo=cell-5"' in html
    notebook = json.loads(published("part/less.ipynb"))
    (stub,) = (cell for cell in notebook["cells"] if cell["id"] == "cell-5")
    assert stub["metadata"]["tags"] == ["exercise", "less"]
    assert published("binder/requirements.txt") == "jax>=0.14\nrich>=15\njupyterlab\n"
    assert f"({ADDRESS}/part/less.md)" in published("llms.txt")
    assert f"[Less]({ADDRESS}/part/less.html)" in published("part/less.ipynb")


def test_a_shared_link_has_a_title_a_sentence_and_a_picture(published):
    tags = r'<meta property="og:(\S+)" content="([^"]*)"'
    found = dict(re.findall(tags, published("part/less.html")))
    assert found["title"] == "Less"
    assert found["description"] == "How to send less."
    assert found["url"] == f"{ADDRESS}/part/less.html"
    picture = published.out / found["image"].removeprefix(f"{ADDRESS}/")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_llms_txt_lists_pages_in_their_order_and_modules(site):
    text = site("llms.txt")
    first = "## First part\n\n- [Less](part/less.md): How to send less.\n"
    assert f"{first}\n## Another\n\n- [Words](words.md)\n" in text
    assert "- [less.py](modules/less.py): Less: half of everything.\n" in text


# ------------------------------------------------------------------------- the archive


@pytest.fixture(scope="module")
def copy(site, tmp_path_factory):
    """A copy of the site, with its archive."""
    folder = tmp_path_factory.mktemp("copy")
    html = shutil.copytree(site.out, folder / "html")
    archive.write_archive(html)
    return html


def test_the_archive_has_the_site_and_each_time_the_same_bytes(copy, tmp_path):
    packed = copy / archive.NAME
    with zipfile.ZipFile(packed) as file:
        file.extractall(tmp_path)
    folder, first = tmp_path / archive.FOLDER, packed.read_bytes()
    for name in ("index.html", "part/less.html", "part/less.ipynb", "modules/less.py"):
        assert (folder / name).stat().st_size, name
    assert not [*folder.rglob("*.map"), *folder.rglob("*.zip")]
    for number, file in enumerate(sorted(copy.rglob("*.html"))):
        os.utime(file, (number, number))
    archive.write_archive(copy)  # the pages have the link now
    assert packed.read_bytes() == first
    assert OFFLINE in (folder / "part/less.html").read_text()


def test_the_link_to_the_archive_stands_where_there_is_one(site, copy):
    assert OFFLINE in site("part/less.html")
    html = (copy / "part/less.html").read_text()
    shown = re.search(r'<span class="offline">(.*?)</span>', html)[1]
    assert '<a href="../shardbook.zip" download>' in shown
    assert "1 MB" in shown
