"""A module's page shows what a cell gave, and the build fails where it cannot."""

import re
import tomllib
from pathlib import Path

import module_pictures
import pytest
from docutils import nodes
from tiny_site import HEAD, Site

from book import module_reference
from book.page import Page

ROOT = Path(__file__).parents[1]
DECLARED = tomllib.loads((ROOT / "docs" / module_reference.PICTURES).read_text())
MODULES = module_reference.files(ROOT / "src/examples")

PROJECT = """[project]
name = "book"
requires-python = ">=3.12"
dependencies = []
"""
TAUGHT = f"""{HEAD}
# Less

```{{code-cell}}
:fold: The drawing

from IPython.display import HTML

HTML('<svg role="img" aria-label="a half"><title>one half</title></svg>')
```

```{{code-cell}}
half = 4
```

```{{code-cell}}
:expect: 4 of eight

print(half, "of eight")
```
"""
CHOICE = """[less]
page = "taught"
cell = '{}'
shows = "A half, `drawn`."
"""
DRAWN = CHOICE.format("The drawing")
PRINTED = CHOICE.format("print(half")


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Return what builds a book of a page, of a module, and of the module's page."""
    examples = tmp_path / "src/examples"
    examples.mkdir(parents=True)
    (examples / "less.py").write_text('"""Less: half of it."""\n')
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    monkeypatch.syspath_prepend(examples)
    monkeypatch.setattr("book.module_reference.PACKAGE", "")
    docs = tmp_path / "docs"
    stubs = module_reference.stubs(docs, examples)
    pages = {f"{file.relative_to(docs)}": text for file, text in stubs.items()}
    tree = "# Book\n\n```{toctree}\ntaught\nreference/modules\n```\n"

    def built(choice):
        more = {
            "reference/modules.md": "# Modules\n",
            "index.md": tree,
            "taught.md": TAUGHT,
            module_reference.PICTURES: choice,
        }
        return Site(
            tmp_path,
            pages | more,
            extensions=["myst_nb", "downloads", "module_directives"],
            myst_enable_extensions=["colon_fence"],
            execution_modules=str(examples),
            nb_execution_mode="cache",
            nb_execution_allow_errors=True,
        )

    return built


def picture(site):
    """Return the part of the module's page with the picture."""
    html = site("reference/modules/less.html").partition('class="module-picture')[2]
    assert 'id="the-whole-file"' in html or 'id="source-less"' in html
    return html.partition("<section")[0]


def choose(site, choice):
    """Select another cell, and build the site again."""
    (site.folder / "docs" / module_reference.PICTURES).write_text(choice)
    site.build()


def test_a_page_shows_what_the_cell_gave_and_links_to_it(build):
    site = build(DRAWN)
    shown = picture(site)
    assert '<svg role="img" aria-label="a half">' in shown
    assert "The drawing" not in shown
    assert "HTML(" not in shown
    assert "IPython" not in shown  # the other form of that output
    assert 'A half, <code class="docutils literal' in shown
    assert 'href="../../taught.html' in shown
    assert site.warnings == ""


def test_a_cell_that_is_gone_fails_each_build_until_it_is_back(build):
    site = build(CHOICE.format("The painting"))
    for _ in range(2):
        assert "no cell has a line that begins with 'The painting'" in site.warnings
        assert "reference/modules/less.md" in site.warnings
        assert "A half, " in site("reference/modules/less.html")
        site.build()
    choose(site, DRAWN.replace("taught", "removed"))
    assert "there is no such page" in site.warnings
    choose(site, CHOICE.format("half = 4"))
    assert "that cell gives nothing to see" in site.warnings
    choose(site, DRAWN)
    assert site.warnings == ""
    assert 'aria-label="a half"' in picture(site)


def test_another_output_is_shown_by_the_next_build_also_in_markdown(build):
    site = build(PRINTED)
    assert "4 of eight" in picture(site)
    text = site("reference/modules/less.md")
    assert "A half, `drawn`.\n\n```text\n4 of eight\n```\n" in text
    assert "# less\n\nLess: half of it." in text
    assert "module-picture" not in text
    page = site.folder / "docs/taught.md"
    page.write_text(TAUGHT.replace("half = 4", "half = 3").replace(": 4 of", ": 3 of"))
    site.build()
    assert "3 of eight" in picture(site)
    assert "3 of eight" in site("reference/modules/less.md")
    assert site.warnings == ""


# -------------------------------------------------------------------------- a cell


def cell(code, *given, **more):
    """Return a cell as MyST-NB makes it."""
    source = nodes.container("", nodes.literal_block(code, code))
    shown = nodes.container("", *given, nb_element="cell_code_output")
    return nodes.container("", source, shown, nb_element="cell_code", **more)


def bundle(**forms):
    """Return an output in several forms."""
    types = {"html": "text/html", "plain": "text/plain"}
    parts = [
        nodes.container("", nodes.literal_block(text, text), mime_type=types[form])
        for form, text in forms.items()
    ]
    return nodes.container("", *parts, nb_element="mime_bundle")


def test_a_cell_is_named_by_its_fold_or_by_how_a_line_begins():
    folded = cell("draw(a)\nb = 1", prompt_show="The drawing")
    page = nodes.container("", folded, cell("    b = 2\nprint(draw(a))"))
    assert module_pictures.find_cell(page, "The drawing") is folded
    assert module_pictures.find_cell(page, "draw(") is folded
    assert module_pictures.find_cell(page, "b = 2") is page[1]
    with pytest.raises(ValueError, match="several cells have a line that begins with"):
        module_pictures.find_cell(page, "b =")
    with pytest.raises(ValueError, match="no cell has a line that begins with '= 1'"):
        module_pictures.find_cell(page, "= 1")


def test_what_is_drawn_stands_without_what_is_printed_beside_it():
    printed, drawn = nodes.literal_block("", "of eight"), bundle(html="<b>", plain="b")
    assert module_pictures.outputs(cell("", printed, drawn)) == [drawn]
    assert module_pictures.outputs(cell("", printed)) == [printed]
    assert module_pictures.describe(cell("", printed, drawn)) == "b"


def test_what_has_no_text_is_told_by_its_text_alternative_or_not_at_all():
    plot = bundle(html="", plain="<Figure with 1 Axes>")
    image = {"mystnb": {"image": {"alt": "One\n half."}}}
    assert module_pictures.describe(cell("", plot)) == ""
    assert module_pictures.describe(cell("", plot, cell_metadata=image)) == "One half."


def test_an_error_that_a_cell_shows_is_told_with_its_kind():
    kind, says = nodes.paragraph("", "ValueError"), nodes.literal_block("", "odd")
    shown = cell("", nodes.container("", kind, says, classes=["output", "raised"]))
    assert module_pictures.describe(shown) == "ValueError\nodd"


# -------------------------------------------------------------- the modules of the book


def test_every_module_has_a_picture_and_no_other():
    assert [*DECLARED] == [file.stem for file in MODULES]


@pytest.mark.parametrize("name", DECLARED)
def test_the_cell_of_a_module_is_there_once_and_what_it_shows_is_a_sentence(name):
    page, start, shows = (DECLARED[name][key] for key in ("page", "cell", "shows"))
    cells = Page(ROOT / f"docs/{page}.md", ROOT / "docs").code
    lines = [
        [each.options.get("fold", ""), *map(str.strip, each.source.splitlines())]
        for each in cells
    ]
    assert sum(any(line.startswith(start) for line in own) for own in lines) == 1
    assert re.fullmatch(r"[A-Z`].{20,160}\.", shows)


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.stem)
def test_a_module_says_what_it_costs(file):
    assert module_reference.COST.search(module_reference.description(file))
