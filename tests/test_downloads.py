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


def source(cell):
    return "".join(cell["source"])


def read_cells(book):
    """Return the cells of the page's notebook, by their ids."""
    page = Page(book / "docs/part/less.md", book / "docs")
    text = export.notebook_text(page, book / "src/examples")
    return {cell["id"]: cell for cell in json.loads(text)["cells"]}


@pytest.fixture
def cells(tmp_path):
    return read_cells(write_book(tmp_path))


def test_a_notebook_has_the_text_of_its_page_then_compares_versions(cells):
    start = next(iter(cells.values()))
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


@pytest.mark.parametrize(
    ("here", "words"),
    [
        ("0.14.0.dev20260801", None),
        ("0.9.2", "JAX 0.9.2 is older than the book's, 0.14"),
        ("1.0", "JAX 1.0 is newer than the book's, 0.14"),
        (None, "JAX is not installed."),
    ],
)
def test_another_jax_is_met_with_one_line_to_run(
    cells, monkeypatch, capsys, here, words
):
    def version(name):
        if here is None:
            raise metadata.PackageNotFoundError(name)
        return here

    monkeypatch.setattr(metadata, "version", version)
    exec(source(cells["version"]), {})
    printed = capsys.readouterr().out.splitlines()
    assert bool(printed) == bool(words)
    if words:
        message, how, line = printed
        assert message.startswith(words)
        assert how == "Run this line in a cell, then restart the kernel:"
        assert line == '%pip install "jax==0.14.*" "rich>=15"'


def test_too_few_devices_are_met_with_what_to_do(cells, monkeypatch, tmp_path):
    code = source(cells["devices"])
    exec(code, {})  # enough are welcome
    monkeypatch.setattr(jax.config, "update", lambda name, value: None)
    monkeypatch.setattr(jax, "devices", lambda: ["a GPU"])
    with pytest.raises(RuntimeError, match=r"JAX found 1 .*Set JAX_PLATFORMS=cpu and"):
        exec(code, {})
    page = tmp_path / "docs/part/less.md"
    page.write_text(page.read_text().replace("needs:", "devices: later\nneeds:"))
    assert "devices" not in read_cells(tmp_path)  # a page of processes


def test_the_files_of_a_page_stand_at_its_end_and_one_cell_writes_them(
    cells, tmp_path, monkeypatch
):
    """What a reader changed stays, what is lost comes back, a newer one is written."""
    monkeypatch.chdir(tmp_path)
    assert [*cells][-4:] == ["last", "module-__init__", "module-less", "data-times"]
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
    (tmp_path / "src/examples/less.py").write_text(f"{LESS}more = 1\n")
    exec(source(read_cells(tmp_path)["files"]), {})
    assert module.read_text().endswith("more = 1\n")


# ---------------------------------------------------------------------------- the site


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Return a function that builds the book, by default one that has no address."""

    def build(*extensions, **settings):
        folder = write_book(tmp_path_factory.mktemp("book"))
        settings |= {
            "html_theme_options.use_download_button": False,
            "html_theme_options.article_header_end": ["menus.html"],
        }
        return Site(
            folder,
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

    return build


@pytest.fixture(scope="module")
def site(build):
    return build()


def links(html):
    """List what the buttons above a page lead to."""
    return re.findall(
        r'<a href="([^"]+)" (?:download|target="_blank") class="btn', html
    )


def test_a_page_offers_its_files_and_without_an_address_leads_to_nothing_else(site):
    html, text = site("part/less.html"), site("part/less.md")
    assert links(html) == ["less.ipynb", "less.md"]
    assert html.count('<a href="less.ipynb" download>Download it') == 1
    assert links(site("index.html")) == ["index.md"]
    assert text.startswith(HEAD)
    assert "```python\n@staticmethod\ndef half(x):\n" in text
    assert "literalinclude" not in text
    assert not (site.out / "binder").exists()
    for file in site.out.rglob("*.html"):
        assert not re.search('colab|mybinder|"og:', file.read_text()), file
    text = site("llms.txt")
    first = "## First part\n\n- [Less](part/less.md): How to send less.\n"
    assert f"{first}\n## Another\n\n- [Words](words.md)\n" in text
    assert "- [less.py](modules/less.py): Less: half of everything.\n" in text


def test_with_an_address_a_page_can_be_launched_and_its_link_has_a_picture(build):
    site = build(
        "sphinxext.opengraph",
        ogp_site_url=f"{ADDRESS}/",
        ogp_enable_meta_description=False,
        published=ADDRESS,
        repository="https://github.com/someone/book",
    )
    html = site("part/less.html")
    assert links(html)[:2] == [
        f"{COLAB}part/less.ipynb",
        "https://mybinder.org/v2/gh/someone/book/gh-pages?urlpath=lab%2Ftree%2Fpart%2Fless.ipynb",
    ]
    assert len(links(site("index.html"))) == 1
    assert f'href="{COLAB}part/less.ipynb#scrollTo=cell-5"' in html
    notebook = json.loads(site("part/less.ipynb"))
    (stub,) = (cell for cell in notebook["cells"] if cell["id"] == "cell-5")
    assert stub["metadata"]["tags"] == ["exercise", "less"]
    assert site("binder/requirements.txt") == "jax>=0.14\nrich>=15\njupyterlab\n"
    assert f"({ADDRESS}/part/less.md)" in site("llms.txt")
    assert f"[Less]({ADDRESS}/part/less.html)" in site("part/less.ipynb")
    found = dict(re.findall(r'<meta property="og:(\S+)" content="([^"]*)"', html))
    assert found["title"] == "Less"
    assert found["description"] == "How to send less."
    assert found["url"] == f"{ADDRESS}/part/less.html"
    picture = site.out / found["image"].removeprefix(f"{ADDRESS}/")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_archive_has_the_site_each_time_the_same_bytes_and_a_link(site, tmp_path):
    copy, folder = tmp_path / "html", tmp_path / archive.FOLDER
    shutil.copytree(site.out, copy)
    archive.write_archive(copy)
    packed = copy / archive.NAME
    with zipfile.ZipFile(packed) as file:
        file.extractall(tmp_path)
    for name in ("index.html", "part/less.html", "part/less.ipynb", "modules/less.py"):
        assert (folder / name).stat().st_size, name
    assert not [*folder.rglob("*.map"), *folder.rglob("*.zip")]
    first = packed.read_bytes()
    for number, file in enumerate(sorted(copy.rglob("*.html"))):
        os.utime(file, (number, number))
    archive.write_archive(copy)  # the pages have the link now
    assert packed.read_bytes() == first
    assert OFFLINE in (folder / "part/less.html").read_text()
    html = (copy / "part/less.html").read_text()
    shown = re.search(r'<span class="offline">(.*?)</span>', html)[1]
    assert '<a href="../shardbook.zip" download>' in shown
    assert "1 MB" in shown
