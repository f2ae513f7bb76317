"""Each cell and figure has a link that stays, and a way to report a false claim."""

import re
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest
from tiny_site import HEAD, Site

PAGE = """
# A page

```{code-cell}
1 + 1
```

![A block](block.svg)

```{code-cell}
2 + 2
```

```{code-cell}
1 + 1
```
"""
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'
PROJECT = """[project]
dependencies = []
requires-python = ">=3.12"
"""
LINKS = re.compile(r'<span class="cell-links">.*?</span>')


@pytest.fixture
def build(tmp_path):
    """Return a function that builds a book with a page of three cells."""

    (tmp_path / "pyproject.toml").write_text(PROJECT)

    def made(**settings):
        pages = {"index.md": HEAD + PAGE, "block.svg": SVG}
        return Site(
            tmp_path,
            pages,
            extensions=["myst_nb", "downloads", "cell_links"],
            execution_modules=str(tmp_path),
            nb_execution_mode="off",
            suppress_warnings=["myst-nb.lexer"],
            **settings,
        )

    return made


def names(site):
    """Return the names of the cells, in order."""
    return re.findall(r'id="(cell-[\w-]+)"', site("index.html"))


def test_a_cell_keeps_its_link_when_others_change(build):
    site = build()
    first, second, third = names(site)
    assert re.fullmatch(r"cell-[0-9a-f]{6}", first)
    assert third == f"{first}-2"
    page = site.folder / "docs/index.md"
    page.write_text(page.read_text().replace("2 + 2", "3 + 3").replace("# A", "# Any"))
    site.build()
    assert names(site)[::2] == [first, third]
    assert names(site)[1] != second
    assert site.warnings == ""


def test_a_figure_is_named_after_its_file(build):
    assert re.search(r'<img[^>]*id="figure-block"', build()("index.html"))


def test_a_cell_shows_its_link_alone_where_there_is_no_repository(build):
    site = build()
    found = LINKS.findall(site("index.html"))
    assert [re.findall('href="([^"]*)"', each) for each in found] == [
        [f"#{name}"] for name in names(site)
    ]


def test_a_false_claim_is_reported_with_page_cell_and_versions(build):
    site = build(repository="https://github.com/someone/book.git")
    own, form = re.findall('href="([^"]*)"', LINKS.findall(site("index.html"))[1])
    url = urlsplit(unescape(form))
    query = parse_qs(url.query)
    assert url.path == "/someone/book/issues/new"
    assert query["template"] == ["a-claim-is-wrong.yaml"]
    assert query["page"] == [f"index, {own}"]
    assert query["versions"][0].startswith("JAX 0.")
