"""The front page's map and ways say what the contents and the heads of pages say."""

import re
from pathlib import Path

import pytest
from tiny_site import Site

from book import export, reading_map
from book.page import Page
from book.plain_markdown import to_markdown

DOCS = Path(__file__).parents[1] / "docs"
INDEX = """\
# Book

```{part-map}
One: What is `one`?
Two < One: And two?
Two more < One: Or two more?
Three < Two: And three?
Lists: Where is it?
```

```{ways}
Both
- a/x: You do x.
- b/y
At its end you know `y`.

Only one
- b/y
```

"""
TREE = "```{{toctree}}\n:caption: {}\n{}\n```\n"
TREES = {
    "One": "a/x",
    "Two": "b/y\nb/z",
    "Two more": "c/u",
    "Three": "c/v",
    "Lists": "d/list",
}
HEAD = "*Before this page: [The x](../a/x.md). About {}\nminutes.*\n"
PAGES = {
    "index.md": INDEX + "\n".join(TREE.format(*each) for each in TREES.items()),
    "a/x.md": "# The x & more\n\n*Before this page: nothing. About 25 minutes.*\n",
    "b/y.md": "# `y` itself\n\n" + HEAD.format(40),
    "b/z.md": "# Z\n\nSee [x](../a/x.md#the-x-more).\n",
    "c/u.md": "# U\n\n" + HEAD.format(7),
    "c/v.md": "# V\n\nSee [y](../b/y.md).\n",
    "d/list.md": "# A list\n",
}
SETTINGS = {"extensions": ["myst_nb", "map_directives"], "nb_execution_mode": "off"}
SETTINGS["myst_heading_anchors"] = 1


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return Site(tmp_path_factory.mktemp("ways"), PAGES, **SETTINGS)


def test_the_map_has_a_box_for_each_part_and_a_way_the_sum_of_its_minutes(site):
    assert not site.warnings
    html = site("index.html")
    words = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    parts = [
        "One What is one ? 1 page, 25 min The x &amp; more",
        "Two after One And two? 2 pages, over 40 min",
        "Three after Two",
        "Two more after One",
        "1 page A list",
        "Both 1 h 5 min The x &amp; more 25 min You do x. y itself 40 min At its end",
        "Only one 40 min y itself 40 min",
    ]
    places = [words.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)
    assert 'href="b/y.html"><code>y</code> itself</a>' in html
    assert html.count('class="part alone"') == 1


WRONG = [
    ("One: What is `one`?", "None: What?", "needs these parts, in order"),
    ("Lists: W", "Lists < Three: W", "no arrow from Three to Lists"),
    ("- b/y\nAt", "- b/z\nAt", "b/z is no page whose head tells"),
]


def test_what_cannot_be_drawn_is_an_error_where_it_stands(site):
    page = site.folder / "docs/index.md"
    for old, new, words in WRONG:
        page.write_text(PAGES["index.md"].replace(old, new))
        site.build()
        line = 11 if "b/z" in new else 3
        assert words in site.warnings
        assert f"docs/index.md:{line}: " in site.warnings


def test_a_notebook_has_them_as_lists(site):
    docs = site.folder / "docs"
    page = Page(docs / "index.md", docs, "https://b.example")
    text = to_markdown(export.markdown(PAGES["index.md"], page), page)
    assert "- **[One](https://b.example/a/x.html)** (1 page, 25 min): What is" in text
    assert "(after One; 2 pages, over 40 min): And two?" in text
    assert "**Both** (1 h 5 min)" in text
    assert "- [The x & more](https://b.example/a/x.html), 25 min: You do x." in text
    assert "\n\nAt its end you know `y`.\n\n**Only one** (40 min)" in text


def test_an_hour_is_enough_for_the_pages_of_an_hour():
    book, blocks = reading_map.Book(DOCS), Page(DOCS / "index.md", DOCS).blocks
    hour, ways_through = (each.content for each in blocks if each.name == "ways")
    (way,) = reading_map.read_ways(hour, book)
    assert 45 <= sum(book.minutes[page] for page, _ in way["steps"]) <= 60
    assert len(reading_map.read_ways(ways_through, book)) == 3
