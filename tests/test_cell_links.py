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


@pytest.fixture(scope="module", params=["", "https://github.com/someone/book.git"])
def site(tmp_path_factory, request):
    """Build a book with a page of three cells, with a repository or without one."""
    folder = tmp_path_factory.mktemp("cells")
    (folder / "pyproject.toml").write_text(PROJECT)
    return Site(
        folder,
        {"index.md": HEAD + PAGE, "block.svg": SVG},
        extensions=["myst_nb", "downloads", "cell_links"],
        execution_modules=str(folder),
        nb_execution_mode="off",
        suppress_warnings=["myst-nb.lexer"],
        repository=request.param,
    )


def names(site):
    """Return the names of the cells, in order."""
    return re.findall(r'id="(cell-[\w-]+)"', site("index.html"))


def test_a_cell_shows_its_link_and_a_form_where_there_is_a_repository(site):
    found = [re.findall('href="([^"]*)"', x) for x in LINKS.findall(site("index.html"))]
    assert [links[0] for links in found] == [f"#{name}" for name in names(site)]
    if not site.settings["repository"]:
        assert {len(links) for links in found} == {1}
        return
    url = urlsplit(unescape(found[1][1]))
    query = parse_qs(url.query)
    assert url.path == "/someone/book/issues/new"
    assert query["template"] == ["a-claim-is-wrong.yaml"]
    assert query["page"] == [f"index, #{names(site)[1]}"]
    assert query["versions"][0].startswith("JAX 0.")


def test_a_link_stays_when_other_cells_change(site):
    first, second, third = names(site)
    assert re.fullmatch(r"cell-[0-9a-f]{6}", first)
    assert third == f"{first}-2"
    assert re.search(r'<img[^>]*id="figure-block"', site("index.html"))
    page = site.folder / "docs/index.md"
    page.write_text(page.read_text().replace("2 + 2", "3 + 3").replace("# A", "# Any"))
    site.build()
    assert names(site)[::2] == [first, third]
    assert names(site)[1] != second
    assert site.warnings == ""
