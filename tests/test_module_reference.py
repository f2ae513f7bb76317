"""The module reference lists every module, without being edited."""

import re

import pytest
from tiny_site import Site

MODULE = '''"""{name}: one idea, in
one sentence.

More about `{name}`, in prose.

    x    [N@x]    an array

And its cost.
"""


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


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Build a book with one page about the module `first`, and the reference."""
    examples = tmp_path / "src/examples"
    examples.mkdir(parents=True)
    (examples / "first.py").write_text(MODULE.format(name="first"))
    monkeypatch.syspath_prepend(examples)
    monkeypatch.setattr("book.module_reference.PACKAGE", "")
    toctree = "# Book\n\n```{toctree}\npart/first\nreference/modules\n```\n"
    pages = {
        "index.md": toctree,
        "part/first.md": "# The first page\n",
        "reference/modules.md": "# Modules\n\n```{module-reference}\n```\n",
    }
    return Site(
        tmp_path,
        pages,
        extensions=[
            "myst_nb",
            "sphinx_design",
            "book.module_reference",
        ],
        myst_enable_extensions=["colon_fence"],
        execution_modules=str(examples),
        nb_execution_cache_path=str(tmp_path / "cache"),
        nitpicky=True,
        nitpick_ignore=[("py:class", "int")],
    )


def test_a_module_has_its_idea_its_file_its_page_and_its_functions(site):
    html = site("reference/modules.html")
    words = " ".join(re.sub("<[^>]*>", "", html).split())
    assert "first: one idea, in one sentence." in words
    assert 'href="../modules/first.py" download' in html
    assert '<a class="reference internal" href="../part/first.html">' in html
    assert "The first page" in words
    assert 'id="first.first"' in html
    assert "Return x again, as ints are." in words
    assert "<p>In words: the pair.</p>" in html
    assert site.warnings == ""


def test_the_rest_of_the_docstring_is_prose_and_its_legend_stays_laid_out(site):
    html = site("reference/modules.html")
    assert "<p>And its cost.</p>" in html
    assert "x    [N@x]    an array" in re.sub("<[^>]*>", "", html)


def test_a_new_module_appears_and_a_removed_one_goes(site):
    examples = site.folder / "src/examples"
    (examples / "second.py").write_text(MODULE.format(name="second"))
    site.build()
    assert 'id="module-second"' in site("reference/modules.html")
    (examples / "second.py").unlink()
    site.build()
    assert 'id="module-second"' not in site("reference/modules.html")
