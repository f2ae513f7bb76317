"""The reference has a line and a page for each module, with what one cell gave."""

import re
import tomllib
from pathlib import Path

import pytest
from tiny_site import HEAD, Site

from book import module_reference

ROOT = Path(__file__).parents[1]
MODULES = module_reference.files(ROOT / "src/examples")

MODULE = '''"""first: one idea, in
one sentence.

More about `first`, in prose.

    x    [N@x]    an array

And its cost.

    JAX_NUM_CPU_DEVICES=8 python first.py

Copy this file alone: it needs JAX only.
"""

from jax import lax  # noqa: F401


def first(x: int) -> int:
    """Return `x` again, as `int`s are."""
    return x


class Pair:
    """Two things."""

    left: int

    @property
    def words(self):
        """In words: the pair."""
        return ""
'''
PAGE = f"""{HEAD}
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
PICTURE = '[first]\npage = "first"\ncell = \'{}\'\nshows = "A half, `drawn`."\n'
LIST = "# Modules\n\n[It](modules.md#module-first)\n\n```{module-reference}\n```\n"
EXTENSIONS = ["myst_nb", "cell_links", "downloads", "module_directives"]
EXTENSIONS += ["sphinx_design"]
FILES = {
    "src/examples/first.py": MODULE,
    "tests/first/test_first.py": "def test_two_of_x_are_a_pair():\n    pass\n",
    f"docs/{module_reference.FORMER}": 'first = ["gone"]',
    "docs/index.md": "# Book\n\n```{toctree}\nfirst\nreference/modules\n```\n",
    "docs/first.md": PAGE,
    "docs/reference/modules.md": LIST,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build a book with a page about the module `first`."""
    folder = tmp_path_factory.mktemp("site")
    docs, examples = folder / "docs", folder / "src/examples"
    for path, text in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (docs / "reference/modules").mkdir()
    for file, text in module_reference.stubs(docs, examples).items():
        file.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("book.module_reference.PACKAGE", "")
        patch.syspath_prepend(examples)
        yield Site(
            folder,
            {module_reference.PICTURES: PICTURE.format("The drawing")},
            extensions=EXTENSIONS,
            myst_enable_extensions=["colon_fence"],
            execution_modules=str(examples),
            nb_execution_allow_errors=True,
            nb_execution_mode="cache",
            nitpicky=True,
            nitpick_ignore=[("py:class", "int")],
        )


def words(html):
    return " ".join(re.sub("<[^>]*>", "", html).split())


def test_the_list_has_a_line_for_each_module_which_old_ids_lead_to(site):
    (line,) = re.findall(r"<tr.*?</tr>", site("reference/modules.html"), re.S)[1:]
    assert words(line) == "first first: one idea, in one sentence The first page 31 JAX"
    ids = {"module-first", "first", "first.first", "first.Pair.left", "first.gone"}
    assert ids <= {*re.findall(r'id="([^"]+)"', line)}
    assert site.warnings == ""


def test_a_page_has_the_docstrings_in_words_and_the_tests_names(site):
    html = site("reference/modules/first.html")
    for part in (
        "Return x again, as ints are.",
        "In words: the pair.",
        "1 sentences, each the name of a test in tests/first/test_first.py",
        "Two of x are a pair.",
    ):
        assert part in words(html)
    assert {"first.first", "first.gone"} <= {*re.findall(r'id="([^"]+)"', html)}


def test_a_picture_is_what_the_cell_gave_and_a_missing_one_is_a_fault(site):
    html = site("reference/modules/first.html").partition('class="module-picture')[2]
    shown = html.partition("<section")[0]
    assert '<svg role="img" aria-label="a half">' in shown
    assert "IPython" not in shown  # the other form of that output
    assert 'A half, <code class="docutils literal' in shown
    assert 'href="../../first.html#cell-' in shown
    for start, fault in (
        (
            "The painting",
            "0 cells of first have a line that begins with 'The painting'",
        ),
        ("half = 4", "'half = 4' gives nothing to see"),
        ("print(half", ""),
    ):
        picture = site.folder / "docs" / module_reference.PICTURES
        picture.write_text(PICTURE.format(start))
        site.build()
        assert fault in site.warnings
    assert site.warnings == ""
    text = site("reference/modules/first.md")
    assert "A half, `drawn`.\n\n```text\n4 of eight\n```\n" in text


def test_every_module_has_a_picture_and_no_other():
    declared = tomllib.loads((ROOT / "docs" / module_reference.PICTURES).read_text())
    assert [*declared] == [file.stem for file in MODULES]


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.stem)
def test_a_module_says_what_it_costs(file):
    assert module_reference.COST.search(module_reference.description(file)[0])
