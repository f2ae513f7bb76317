"""A listing of a function has the first line of its docstring, and all of its code."""

import pytest
from tiny_site import Site

from book import export

CODE = '''\
import functools


@functools.cache
def half(x):
    """Return half of `x`.

    Nothing is rounded.
    """

    def inside():
        """Return it.

        This is code, as it is.
        """
        return x / 2

    return inside()


class Both:
    """Two of them."""

    pair = 2
'''


@pytest.fixture
def module(tmp_path):
    """A module beside the pages."""
    file = tmp_path / "src/less.py"
    file.parent.mkdir()
    file.write_text(CODE)
    return file


def test_a_listing_begins_with_its_decorators_and_ends_with_its_code(module):
    text = export.source_of(module, "half")
    assert text.startswith(
        '@functools.cache\ndef half(x):\n    """Return half of `x`."""\n\n'
    )
    assert "Nothing is rounded" not in text
    assert "This is code" in text
    assert text.endswith("    return inside()")
    assert export.source_of(module, "Both") == CODE[CODE.index("class") :].rstrip()
    with pytest.raises(ValueError, match=r"less.py has no third"):
        export.source_of(module, "third")


def test_a_page_shows_the_same_listing(module, tmp_path):
    fence = "```{{literalinclude}} ../src/less.py\n{}```\n"
    page = "# Less\n\n" + fence.format(":pyobject: half\n") + fence.format("")
    settings = {"extensions": ["myst_nb", "listings"], "nb_execution_mode": "off"}
    site = Site(tmp_path, {"index.md": page}, **settings)
    assert site.warnings == ""
    assert site("index.html").count("Nothing is rounded") == 1  # in the whole file
    assert site("index.html").count("This is code, as it is") == 2
