"""The reference lists every module, and has a page for each, which writes itself."""

import posixpath
import re

import pytest
from sphinx.util.inventory import InventoryFile
from tiny_site import Site

from book import module_reference
from book.page import Page

MODULE = '''"""{name}: one idea, in
one sentence.

More about `{name}`, in prose.

    x    [N@x]    an array

And its cost.

    JAX_NUM_CPU_DEVICES=8 python {name}.py

Copy this file alone: it needs JAX only.
"""

import csv  # noqa: F401

import numpy.linalg  # noqa: F401
from jax import lax  # noqa: F401


def {name}(x: int) -> int:
    """Return `x` again, as `int`s are."""
    return x


class Pair:
    """Two things."""

    @property
    def words(self):
        """In words: the pair."""
        return ""
'''

LIST = """# Modules

<div class="list-filter" data-items="tr" data-what="modules"></div>

[The line](modules.md#module-first), [a name](modules.md#first).

```{module-reference}
```
"""
TESTS = """
def test_it_returns_x():
    pass


@mark
def test_two_of_x_are_a_pair(x):
    pass
"""


def write(folder, name):
    """Write a module, and its page."""
    (folder / f"src/examples/{name}.py").write_text(MODULE.format(name=name))
    docs = folder / "docs"
    (docs / "reference/modules").mkdir(parents=True, exist_ok=True)
    for file, text in module_reference.stubs(docs, folder / "src/examples").items():
        file.write_text(text)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Build a book with one page about the module `first`, and the reference."""
    examples = tmp_path / "src/examples"
    examples.mkdir(parents=True)
    (tmp_path / "tests/first").mkdir(parents=True)
    (tmp_path / "tests/first/test_first.py").write_text(TESTS)
    names = tmp_path / "docs" / module_reference.FORMER
    names.parent.mkdir(parents=True)
    names.write_text('first = ["before"]')
    write(tmp_path, "first")
    monkeypatch.syspath_prepend(examples)
    monkeypatch.setattr("book.module_reference.PACKAGE", "")
    toctree = "# Book\n\n```{toctree}\npart/first\nreference/modules\n```\n"
    pages = {
        "index.md": toctree,
        "part/first.md": "# The first page\n",
        "reference/modules.md": LIST,
    }
    return Site(
        tmp_path,
        pages,
        extensions=[
            "myst_nb",
            "sphinx_design",
            "module_directives",
        ],
        myst_enable_extensions=["colon_fence"],
        execution_modules=str(examples),
        nb_execution_cache_path=str(tmp_path / "cache"),
        nitpicky=True,
        nitpick_ignore=[("py:class", "int")],
    )


def words(html):
    return " ".join(re.sub("<[^>]*>", "", html).split())


def test_the_list_has_a_line_for_each_module(site):
    html = site("reference/modules.html")
    (line,) = re.findall(r"<tr.*?</tr>", html.split("<tbody>")[1], re.S)
    assert words(line) == "first first: one idea, in one sentence The first page 32 JAX"
    assert 'href="modules/first.html"' in line
    assert 'href="../part/first.html"' in line
    assert site.warnings == ""


def test_what_once_stood_on_the_list_leads_to_the_line_of_its_module(site):
    line = site("reference/modules.html").split("<tbody>")[1]
    old = "module-first", "first", "module-first", "first.first", "first.Pair.words"
    for name in old:
        assert f'id="{name}"' in line


def test_a_name_that_a_module_had_once_still_leads_there_and_one_it_has_is_not_told(
    site,
):
    names = site.folder / "docs" / module_reference.FORMER
    for gone in "gone", "Pair.left":
        names.write_text(f'first = ["{gone}", "first"]')
        site.build()
        for page in "reference/modules.html", "reference/modules/first.html":
            html = site(page)
            assert html.count(f'id="first.{gone}"') == 1
            assert html.count('id="first.first"') == 1
    assert site.warnings == ""


def test_a_list_with_a_place_for_a_filter_loads_it(site):
    assert "filter.js" in site("reference/modules.html")
    assert "filter.js" not in site("part/first.html")


def test_a_module_has_its_idea_its_file_its_page_and_its_functions(site):
    html = site("reference/modules/first.html")
    head = words(html.partition("<h1>first")[2].partition("<h2>")[0])
    assert "first: one idea, in one sentence. Save first.py" in head
    assert "licence" not in head
    assert 'href="../../modules/first.py" download' in html
    assert '<a class="reference internal" href="../../part/first.html">' in html
    assert '<a class="reference internal" href="../modules.html">' in html
    assert "The first page" in words(html)
    assert 'id="first.first"' in html
    assert "Return x again, as ints are." in words(html)
    assert "<p>In words: the pair.</p>" in html
    assert site.warnings == ""


@pytest.mark.parametrize(
    ("name", "end"), [("MIT-0", "free to use without a notice"), ("ISC", "ISC")]
)
def test_a_module_page_says_what_its_file_says_of_the_licence(name, end, tmp_path):
    (file := tmp_path / "a.py").write_text(f"# SPDX-License-Identifier: {name}\n")
    [words] = module_reference.licence(file)
    assert words.startswith("licence ")
    assert words.endswith(end)


def test_the_rest_of_the_docstring_is_prose_and_its_legend_stays_laid_out(site):
    html = site("reference/modules/first.html")
    assert "<p>And its cost.</p>" in html
    assert "x    [N@x]    an array" in re.sub("<[^>]*>", "", html)
    _, run = html.split('id="copy-it-and-run-it"')
    assert "python first.py" in words(run)
    assert "it needs JAX only" in words(run)


def test_the_names_of_its_tests_are_sentences(site):
    html = words(site("reference/modules/first.html"))
    assert "2 sentences, each the name of a test in tests/first/test_first.py" in html
    assert "It returns x. Two of x are a pair." in html
    (site.folder / "tests/first/test_first.py").write_text(
        "def test_x_stays():\n    pass\n"
    )
    site.build()
    html = words(site("reference/modules/first.html"))
    assert "X stays." in html
    assert "It returns x." not in html


def test_objects_are_in_the_inventory_with_the_page_of_their_module(site):
    with (site.out / "objects.inv").open("rb") as file:
        names = InventoryFile.load(file, "", posixpath.join)["py:function"]
    assert names["first.first"].uri == "reference/modules/first.html#first.first"


def test_the_whole_file_stands_on_the_page_and_in_its_markdown(site):
    html = site("reference/modules/first.html")
    whole = words(html.split('id="source-first"')[1])
    assert "Two things." in whole
    page = Page(site.folder / "docs/reference/modules/first.md", site.folder / "docs")
    text = module_reference.text(page, site.folder / "src/examples", "first")
    assert "literalinclude} ../../../src/examples/first.py" in text


def test_a_new_module_appears_and_a_removed_one_goes(site):
    write(site.folder, "second")
    site.build()
    assert 'id="module-second"' in site("reference/modules.html")
    (site.folder / "src/examples/second.py").unlink()
    (site.folder / "docs/reference/modules/second.md").unlink()
    site.build()
    assert 'id="module-second"' not in site("reference/modules.html")


def test_a_module_without_a_page_is_told(site):
    (site.folder / "src/examples/third.py").write_text(MODULE.format(name="third"))
    site.build()
    assert "third.py has no page yet: run `python tools/copies.py`" in site.warnings
