"""A page as a notebook that runs in an empty folder, and the site as an archive."""

import ast
import os
import shutil
from importlib import metadata

import archive
import jax
import pytest

from book import export
from book.facts import ROOT, facts
from book.page import Page
from book.plain_markdown import to_markdown

DOCS = ROOT / "docs"
PAGE = Page(DOCS / "per-device/rings.md", DOCS)
NOTEBOOK = export.notebook(PAGE, ROOT / "src/examples")
CELLS = {cell.id: cell.source for cell in NOTEBOOK.cells}
MODULE, DATA = "examples/collectives.py", "data/collectives.csv"


@pytest.mark.parametrize(
    ("here", "words"),
    [
        (f"{facts().jax}.1.dev20260801", ""),
        ("0.9.2", "JAX 0.9.2 is older than the book's"),
        ("99.0", "JAX 99.0 is newer than the book's"),
        (None, "JAX is not installed."),
    ],
)
def test_another_jax_prints_one_line_to_install(monkeypatch, capsys, here, words):
    versions = {"jax": here} if here else {}
    monkeypatch.setattr(metadata, "PackageNotFoundError", KeyError)
    monkeypatch.setattr(metadata, "version", versions.__getitem__)
    exec(CELLS["version"], {})
    printed = capsys.readouterr().out
    assert printed.startswith(words)
    assert printed.endswith('"\n') == bool(words) == ("%pip install" in printed)


def test_too_few_devices_raise_with_a_cure(monkeypatch):
    exec(CELLS["devices"], {})  # enough are welcome
    monkeypatch.setattr(jax.config, "update", lambda name, value: None)
    monkeypatch.setattr(jax, "devices", lambda: ["a GPU"])
    with pytest.raises(RuntimeError, match=r"JAX found 1 .*Set JAX_PLATFORMS=cpu and"):
        exec(CELLS["devices"], {})


def test_files_are_written_but_not_over_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module, data = tmp_path / MODULE, tmp_path / DATA
    exec(CELLS["files"], {})
    text = module.read_text()
    assert CELLS["module-collectives"] == f"%%writefile {MODULE}\n{text.rstrip()}"
    module.write_text("mine = 1\n")
    data.unlink()
    exec(CELLS["files"], {})
    assert module.read_text() == "mine = 1\n"
    assert data.read_text() == (PAGE.file.parent / DATA).read_text()
    exec(CELLS["files"].replace(".shardbook-", ".shardbook-newer-"), {})
    assert module.read_text() == text


def test_a_listing_has_one_line_of_docstring():
    file = ROOT / "src/examples/lu.py"
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef) and (doc := ast.get_docstring(node)):
            (shown,) = ast.parse(export.source_of(file, node.name)).body
            assert ast.get_docstring(shown) == doc.partition("\n")[0]
            shown.body[0] = node.body[0]
            assert ast.unparse(shown) == ast.unparse(node)


SAME = """\
`{py:func}` and ``a `b` c`` and `[text](other.md)`, $a[0](b)$, and $$\\frac{a}{b}$$

```python
:::{note}


{py:func}`jax.jit`
```

[JAX](https://docs.jax.dev/i.html#top), \\[a](b.md), ![a *block*](../figures/a.svg)"""
BOX = """\
::::{dropdown} More
:::{admonition} Exercise: `a`
:class: exercise
Do [it](b.md).
:::
::::"""
MARKDOWN = {
    SAME: SAME,
    "{bdg-primary-line}`Explicit`": "**Explicit**",
    "{download}`a.py <../a.py>`": "a.py",
    "- a [`long`\n  name](../start/x.md#y)\n\n  - d": "- a `long`\n  name\n\n  - d",
    BOX: "> **More**\n>\n> > **Exercise: `a`**\n> >\n> > Do it.",
    "```{glossary}\nmesh axis\n  One `x`\n  of two.\n\nspec\n  A row.\n```": (
        "- **mesh axis**: One `x`\n  of two.\n\n- **spec**: A row."
    ),
    "(cost)=\n## Cost\n\n```{toctree}\nb\n```\n\nc": "## Cost\n\nc",
}


@pytest.mark.parametrize("myst", MARKDOWN)
def test_a_notebook_has_plain_markdown(myst):
    assert to_markdown(myst, PAGE) == MARKDOWN[myst]


@pytest.mark.parametrize("text", ["```{list-table}\n- a\n```", "{ref}`a`"])
def test_what_has_no_plain_form_is_refused(text):
    with pytest.raises(ValueError, match=r"rings: .* has no form in a notebook"):
        to_markdown(text, PAGE)


def test_an_option_of_a_listing_that_would_be_lost_is_refused():
    text = "```{literalinclude} rings.md\n:lines: 1-3\n```"
    with pytest.raises(ValueError, match="rings: a listing cannot have lines"):
        export.markdown(text, PAGE)


def test_archives_of_a_site_have_the_same_bytes(tmp_path):
    site, page = tmp_path / "html", '<p><span class="offline"></span></p>'
    (site / "part").mkdir(parents=True)
    for name in "part/less.html", "part/less.ipynb", "less.js.map", ".buildinfo":
        (site / name).write_text(page)
    archive.write_archive(site)
    first = (site / archive.NAME).read_bytes()
    shown = (site / "part/less.html").read_text()
    assert '<a href="../shardbook.zip" download>' in shown
    assert "1 MB" in shown
    os.utime(site / "part/less.ipynb", (1e9, 1e9))
    archive.write_archive(site)  # the page has the link now
    assert (site / "part/less.html").read_text() == shown
    assert (site / archive.NAME).read_bytes() == first
    shutil.unpack_archive(site / archive.NAME, tmp_path)
    files = [file for file in tmp_path.glob("shardbook/**/*") if file.is_file()]
    found = {file.name: file.read_text() for file in files}
    assert found == {"less.html": page, "less.ipynb": page}
