"""The reference has a line and a page for each module, with what one cell gave."""

import posixpath
import re
import tomllib
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile
from tiny_site import HEAD, Site

from book import module_reference

ROOT = Path(__file__).parents[1]
MODULES = module_reference.files(ROOT / "src/examples")

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
TAUGHT = f"""{HEAD}
# The first page

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
CHOICE = """[first]
page = "part/first"
cell = '{}'
shows = "A half, `drawn`."
"""
FILES = {
    "src/examples/first.py": MODULE.format(name="first"),
    "tests/first/test_first.py": TESTS,
    f"docs/{module_reference.FORMER}": 'first = ["gone", "first"]',
    "docs/index.md": "# Book\n\n```{toctree}\npart/first\nreference/modules\n```\n",
    "docs/part/first.md": TAUGHT,
    "docs/reference/modules.md": LIST,
}


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Return what builds a book with a page about the module `first`."""
    cache = tmp_path_factory.mktemp("cache")  # so that its cells run once
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("book.module_reference.PACKAGE", "")

        def build(folder, line="The drawing"):
            docs, examples = folder / "docs", folder / "src/examples"
            patch.syspath_prepend(examples)
            (docs / "reference/modules").mkdir(parents=True)
            for path, text in FILES.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text)
            for file, text in module_reference.stubs(docs, examples).items():
                file.write_text(text)
            own = "sphinx_design", "downloads", "module_directives"
            return Site(
                folder,
                {module_reference.PICTURES: CHOICE.format(line)},
                extensions=["myst_nb", *own],
                myst_enable_extensions=["colon_fence"],
                execution_modules=str(examples),
                nb_execution_allow_errors=True,
                nb_execution_cache_path=str(cache),
                nb_execution_mode="cache",
                nitpicky=True,
                nitpick_ignore=[("py:class", "int")],
            )

        yield build


@pytest.fixture(scope="module")
def site(build, tmp_path_factory):
    """The book that no test changes."""
    return build(tmp_path_factory.mktemp("site"))


def words(html):
    return " ".join(re.sub("<[^>]*>", "", html).split())


def test_the_list_has_a_line_for_each_module_which_old_ids_lead_to(site):
    html = site("reference/modules.html")
    (line,) = re.findall(r"<tr.*?</tr>", html.split("<tbody>")[1], re.S)
    assert words(line) == "first first: one idea, in one sentence The first page 32 JAX"
    assert 'href="modules/first.html"' in line
    assert 'href="../part/first.html"' in line
    names = "module-first", "first", "first.first", "first.Pair.words", "first.gone"
    for name in names:
        assert line.count(f'id="{name}"') == 1
    assert site.warnings == ""


def test_a_module_has_its_idea_its_functions_its_cost_and_its_tests(site):
    html = site("reference/modules/first.html")
    text = words(html)
    for part in (
        "first: one idea, in one sentence. Save first.py",
        "free to use without a notice",
        "And its cost.",
        "Return x again, as ints are.",
        "In words: the pair.",
        "python first.py",
        "it needs JAX only",
        "2 sentences, each the name of a test in tests/first/test_first.py",
        "It returns x. Two of x are a pair.",
    ):
        assert part in text
    assert 'href="../../modules/first.py" download' in html
    assert '<a class="reference internal" href="../../part/first.html">' in html
    for name in "first.first", "first.gone":
        assert html.count(f'id="{name}"') == 1
    assert "Two things." in words(html.split('id="source-first"')[1])
    with (site.out / "objects.inv").open("rb") as file:
        names = InventoryFile.load(file, "", posixpath.join)["py:function"]
    assert names["first.first"].uri == "reference/modules/first.html#first.first"


def test_a_module_shows_what_a_cell_gave_and_links_to_it(site):
    html = site("reference/modules/first.html").partition('class="module-picture')[2]
    shown = html.partition("<section")[0]
    assert '<svg role="img" aria-label="a half">' in shown
    assert "HTML(" not in shown
    assert "IPython" not in shown  # the other form of that output
    assert 'A half, <code class="docutils literal' in shown
    assert 'href="../../part/first.html' in shown


def test_a_cell_that_is_gone_fails_each_build_until_it_is_back(build, tmp_path):
    site = build(tmp_path, "The painting")
    for _ in range(2):
        assert "no cell has a line that begins with 'The painting'" in site.warnings
        assert "reference/modules/first.md" in site.warnings
        site.build()
    (tmp_path / "src/examples/third.py").write_text(MODULE.format(name="third"))
    picture = tmp_path / "docs" / module_reference.PICTURES
    picture.write_text(CHOICE.format("half = 4"))
    site.build()
    assert "that cell gives nothing to see" in site.warnings
    assert "third.py has no page yet: run `python tools/copies.py`" in site.warnings
    (tmp_path / "src/examples/third.py").unlink()
    picture.write_text(CHOICE.format("print(half"))
    site.build()
    assert site.warnings == ""
    text = site("reference/modules/first.md")
    assert "# first\n\nfirst: one idea" in text
    assert "A half, `drawn`.\n\n```text\n4 of eight\n```\n" in text


def test_every_module_has_a_picture_and_no_other():
    declared = tomllib.loads((ROOT / "docs" / module_reference.PICTURES).read_text())
    assert [*declared] == [file.stem for file in MODULES]


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.stem)
def test_a_module_says_what_it_costs(file):
    assert module_reference.COST.search(module_reference.description(file))
