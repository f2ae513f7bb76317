"""A page as a notebook that runs in an empty folder, and the site as an archive."""

import ast
import os
import re
import shutil
from importlib import metadata

import archive
import jax
import pytest
from tiny_site import HEAD, Site

from book import export, module_reference
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
    def version(name):
        if here is None:
            raise metadata.PackageNotFoundError(name)
        return here

    monkeypatch.setattr(metadata, "version", version)
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
    for file in module_reference.files(ROOT / "src/examples"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and (doc := ast.get_docstring(node)):
                (shown,) = ast.parse(export.source_of(file, node.name)).body
                assert ast.get_docstring(shown) == doc.partition("\n")[0]
                shown.body[0] = node.body[0]
                assert ast.unparse(shown) == ast.unparse(node)


# -------------------------------------------------------------------- plain Markdown

SAME = [
    "`{py:func}` and ``a `b` c`` and `[text](other.md)`",
    "```python\n:::{note}\n\n\n{py:func}`jax.jit`\n```",
    "$a[0](b)$, and $$\\frac{a}{b}$$, and \\[a](b.md)",
    "[JAX](https://docs.jax.dev/en/latest/index.html#top)",
    "![a *block*](../figures/a.svg)",
]
MARKDOWN = [
    *(2 * (text,) for text in SAME),
    ("{bdg-primary-line}`Explicit`", "**Explicit**"),
    ("{download}`a.py <../a.py>`", "a.py"),
    ("a [`long`\nname](../start/x.md#y)", "a `long`\nname"),
    ("| [a](b.md) |\n|---|\n| 1 |", "| a |\n|---|\n| 1 |"),
    ("- a\n  [b](c.md)\n\n  - [d](e.md)", "- a\n  b\n\n  - d"),
    (
        "::::{dropdown} More\n"
        ":::{admonition} Exercise: `a`\n:class: exercise\nDo [it](b.md).\n:::\n::::",
        "> **More**\n>\n> > **Exercise: `a`**\n> >\n> > Do it.",
    ),
    (
        "```{glossary}\nmesh axis\n  One `x`\n  of two.\n\nspec\n  A row.\n```",
        "- **mesh axis**: One `x`\n  of two.\n\n- **spec**: A row.",
    ),
    ("(cost)=\n## Cost\n\n```{toctree}\nb\n```\n\nc", "## Cost\n\nc"),
]
PUBLISHED = {
    "[a](../start/first.md#why)": "[a](https://book.example/start/first.html#why)",
    "[a](#end)": "[a](https://book.example/per-device/rings.html#end)",
    "[a](../modules/meshes.py)": "[a](https://book.example/modules/meshes.py)",
}


@pytest.mark.parametrize(("myst", "plain"), MARKDOWN)
def test_a_notebook_has_plain_markdown(myst, plain):
    assert to_markdown(myst, PAGE) == plain


def test_links_lead_to_the_published_address():
    page = Page(PAGE.file, DOCS, "https://book.example/")
    assert {link: to_markdown(link, page) for link in PUBLISHED} == PUBLISHED


@pytest.mark.parametrize("text", ["```{list-table}\n- a\n```", "{ref}`a`"])
def test_what_has_no_plain_form_is_refused(text):
    with pytest.raises(ValueError, match=r"rings: .* has no form in a notebook"):
        to_markdown(text, PAGE)


# -------------------------------------------------------------------------- the site

EXERCISE = f"""{HEAD.removesuffix("---\n")}\
myst:
  html_meta:
    description: How to send less.
---
# Less

:::{{admonition}} Exercise: less of it
:class: exercise
Send less.
:::

```{{code-cell}}
:tags: [exercise, less]

answer = 0
```
"""


def test_an_address_adds_launching_and_sharing(tmp_path):
    site = Site(
        tmp_path,
        {
            "index.md": "# Book\n\n```{toctree}\npart/less\n```\n",
            "part/less.md": EXERCISE,
        },
        extensions=["myst_nb", "downloads", "exercise_index", "sphinxext.opengraph"],
        execution_modules=str(tmp_path),
        html_theme="sphinx_book_theme",
        myst_enable_extensions=["colon_fence"],
        nb_execution_mode="off",
        ogp_enable_meta_description=False,
        ogp_site_url="https://book.example/",
        published="https://book.example",
        repository="https://github.com/someone/book",
        templates_path=[str(DOCS / "_templates")],
        **{"html_theme_options.article_header_end": ["menus.html"]},
    )
    html = site("part/less.html")
    colab = "https://colab.research.google.com/github/someone/book/blob/gh-pages/part"
    assert f'href="{colab}/less.ipynb"' in html
    assert f'href="{colab}/less.ipynb#scrollTo=cell-2"' in html
    assert '"id": "cell-2",\n   "metadata": {\n    "tags"' in site("part/less.ipynb")
    assert "(https://book.example/part/less.md): How to send" in site("llms.txt")
    found = dict(re.findall(r'<meta property="og:(\S+)" content="([^"]*)"', html))
    assert found["title"] == "Less"
    assert found["description"] == "How to send less."
    assert found["url"] == "https://book.example/part/less.html"
    picture = site.out / found["image"].removeprefix("https://book.example/")
    assert picture.read_bytes().startswith(b"\x89PNG")


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
    assert (site / archive.NAME).read_bytes() == first
    shutil.unpack_archive(site / archive.NAME, tmp_path)
    found = {file.name: file.read_text() for file in tmp_path.glob("shardbook/*/*")}
    assert found == {"less.html": page, "less.ipynb": page}
    assert len([*tmp_path.glob("shardbook/*")]) == 1
