"""The index of the search: the sections of all pages, as their readers see them."""

import json
from pathlib import Path

import pytest
import search_index
from docutils import nodes
from error_directives import ErrorEntry
from tiny_site import HEAD, Site

ROOT = Path(__file__).resolve().parents[1]
PAGE = f"""\
{HEAD}
# A page

It begins with *words*.

(old-name)=
## A section with `code`

```{{code-cell}}
import jax
total = psum(block)
print("a line of output")
print(1.25, 3)
```

- a list, with a [link](other.md)

```{{code-cell}}
:tags: [solution]
hidden_solution = 1
```

### Below it

| a | table |
|---|---|
| of | cells |

$$ \\alpha $$
"""
OTHER = "# Other\n\nAnother page.\n"
LIST = "# All modules\n\nA list of all.\n"
SETTINGS = {
    "extensions": ["myst_nb", "search_index"],
    "nb_execution_mode": "force",
    "myst_enable_extensions": ["dollarmath"],
    "html_theme": "sphinx_book_theme",
    "html_theme_options.disable_search": True,
    "html_theme_options.article_header_start": ["front.html"],
    "templates_path": [str(ROOT / "docs/_templates")],
    "html_static_path": [str(ROOT / "docs/_static")],
    "html_sidebars": {"**": ["find.html"]},
    "suppress_warnings": ["toc.not_included"],
}


def index_of(site) -> dict:
    """Return what the script gives to the search."""
    text = site(search_index.INDEX).removeprefix("finder.data = ").removesuffix(";\n")
    return json.loads(text)


def sections_of(site, page) -> list:
    """Return the sections of a page: anchor, title, text, code."""
    index = index_of(site)
    number = [each[0] for each in index["pages"]].index(page)
    return [rest for of, *rest in index["sections"] if of == number]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pages = {"index.md": PAGE, "other.md": OTHER, "reference/modules.md": LIST}
    return Site(tmp_path_factory.mktemp("find"), pages, **SETTINGS)


def test_each_section_has_its_own_text(site):
    head, section, below = sections_of(site, "index.html")
    assert head == ["a-page", "A page", "It begins with words.", ""]
    assert section[:2] == ["old-name", "A section with code"]
    assert "a list, with a link" in section[2]
    assert below[0] == "below-it"
    assert "of cells" in below[2]
    assert "cells" not in section[2]


def test_of_code_there_are_words_and_of_outputs_lines(site):
    _, (_, _, text, code), _ = sections_of(site, "index.html")
    assert {"import", "jax", "total", "psum", "block", "print"} <= {*code.split()}
    assert "1.25" not in text


def test_a_line_of_output_whose_words_are_known_is_left_out(site):
    _, (_, _, text, code), _ = sections_of(site, "index.html")
    assert {"line", "output"} <= {*code.split()}
    assert "a line of output" not in text


def test_solutions_are_not_found(site):
    assert "hidden_solution" not in site(search_index.INDEX)


def test_lists_of_everything_are_marked(site):
    pages = {url: last for url, _, last, _ in index_of(site)["pages"]}
    assert pages == {
        "index.html": 1,  # it names what others explain
        "other.html": 0,
        "reference/modules.html": 2,
    }


def test_an_entry_has_its_words_and_the_length_of_cause_and_cure():
    entry = ErrorEntry(words=["the words"])
    texts = "the words  ValueError", "The cause. Do: the cure.", "a link"
    entry.extend(nodes.paragraph("", text) for text in texts)
    words, length = search_index.entry_words(entry)
    assert words == ["the words"]
    assert (
        search_index.section_words(entry)[0][:length]
        == "the words ValueError The cause. Do: the cure."
    )
    assert search_index.entry_words(nodes.section()) == []


def test_every_page_keeps_what_is_typed_before_its_scripts(site):
    for page, begun in {"index.html": "false", "search.html": "true"}.items():
        head = site(page).partition("</head>")[0]
        early = head.index(f"finderKeys = {{ open: {begun},")
        assert early < head.index("<link")
        assert early < head.index("<script src")


def test_the_front_page_alone_has_the_field_in_its_header(site):
    for page, fields in {"index.html": 1, "other.html": 0, "search.html": 0}.items():
        header = site(page).partition('class="bd-header-article')[2]
        header = header.partition("</article>")[0].partition("<h1")[0]
        assert header.count('role="search"') == fields


def test_anchors_are_those_of_the_page(site):
    html = site("index.html")
    for anchor, *_ in sections_of(site, "index.html"):
        assert f'id="{anchor}"' in html


def test_no_page_loads_more_than_one_small_script(site):
    for page in "index.html", "search.html":
        html = site(page)
        assert "find.js" in html
        unwanted = search_index.INDEX, *search_index.UNUSED
        assert not any(Path(name).name in html for name in unwanted)
    assert not any((site.out / name).exists() for name in search_index.UNUSED)
    assert (site.out / "_static/vendor/minisearch.js").exists()


def test_the_page_of_results_leads_on_without_a_script(site):
    html = site("search.html")
    assert "To search needs JavaScript" in html
    assert 'href="reference/modules.html"' in html
    assert "glossary" not in html


def test_a_page_that_changes_or_goes_is_not_found_as_it_was(tmp_path):
    site = Site(tmp_path, {"index.md": OTHER, "more.md": LIST}, **SETTINGS)
    before = site(search_index.INDEX)
    (tmp_path / "docs/more.md").unlink()
    (tmp_path / "docs/index.md").write_text("# New\n\nOther words.\n")
    site.build()
    assert sections_of(site, "index.html") == [["new", "New", "Other words.", ""]]
    assert len(index_of(site)["pages"]) == 1
    (tmp_path / "docs/index.md").write_text(OTHER)
    (tmp_path / "docs/more.md").write_text(LIST)
    site.build()
    assert site(search_index.INDEX) == before


def test_the_words_of_an_output_of_html_are_found_without_its_drawing():
    html = "<table><tr><td>sent</td></tr><tr><td>&lt;4 B</td></tr></table><svg>x</svg>"
    assert search_index.html_words(html).split() == ["sent", "<4", "B"]


def test_the_kept_library_has_its_licence():
    vendor = ROOT / "docs/_static/vendor"
    assert "MiniSearch" in (vendor / "minisearch.js").read_text()
    assert (
        "Permission is hereby granted"
        in (vendor / "minisearch-LICENSE.txt").read_text()
    )
