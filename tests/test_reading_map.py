"""The front page's map and ways have the titles and minutes of the pages."""

import re
from pathlib import Path

import pytest

from book import reading_map
from book.page import Page

DOCS = Path(__file__).parents[1] / "docs"
MAP = """\
One: What is `one`?
Two < One: And two?
Two more < One: Or two more?
Three < Two: And three?
Lists: Where is it?"""
WAYS = """\
Both
- a/x: You do x.
- b/y
At its end you know `y`.

Only one
- b/y"""
TREE = "```{{toctree}}\n:caption: {}\n{}\n```\n"
TREES = ("One", "a/x"), ("Two", "b/y\nb/z\nb/w"), ("Two more", "c/u")
TREES += ("Three", "c/v"), ("Lists", "d/list")
HEAD = "*Before this page: [The x](../a/x.md). About {}\nminutes.*\n"
PAGES = {
    "index.md": "# Book\n\n" + "\n".join(TREE.format(*each) for each in TREES),
    "a/x.md": "# The x & more\n\n*Before this page: nothing. About 25 minutes.*\n",
    "b/y.md": "# `y` itself\n\n" + HEAD.format(40),
    "b/z.md": "# Z\n\n" + HEAD.format(20),
    "b/w.md": "# W\n",
    "c/u.md": "# U\n\n" + HEAD.format(7),
    "c/v.md": "# V\n",
    "d/list.md": "# A list\n",
}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    docs = tmp_path_factory.mktemp("docs")
    for path, text in PAGES.items():
        (docs / path).parent.mkdir(exist_ok=True)
        (docs / path).write_text(text)
    return Page(docs / "index.md", docs)


def words(html):
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_the_map_has_a_box_for_each_part_below_the_one_that_leads_there(index):
    html = reading_map.map_html(index, MAP)
    boxes = html.split('<div class="part')[2:]
    assert [words(box.partition(">")[2])[:35] for box in boxes] == [
        "One What is one ? 1 page, 25 min Th",
        "Two after One And two? 3 pages, ove",
        "Three after Two And three? 1 page V",
        "Two more after One Or two more? 1 p",
        "Lists Where is it? 1 page A list",
    ]
    assert "over 1 h" in boxes[1]
    assert 'href="b/y.html"><code>y</code> itself</a>' in boxes[1]
    places = re.findall(r"--column: (\d); --row: (\d)", html)
    assert places == [("1", "1"), ("3", "1"), ("5", "1"), ("3", "2"), ("1", "3")]
    assert html.count("<i ") == 4
    with pytest.raises(ValueError, match="needs these parts, in order: One, Two"):
        reading_map.map_html(index, MAP.replace("One:", "None:"))


def test_a_way_has_the_sum_of_its_minutes(index):
    assert words(reading_map.ways_html(index, WAYS)) == (
        "Both 1 h 5 min The x &amp; more 25 min You do x. y itself 40 min "
        "At its end you know y . Only one 40 min y itself 40 min"
    )
    with pytest.raises(ValueError, match=r"no pages whose heads state .*b/w"):
        reading_map.ways_html(index, WAYS.replace("b/y", "b/w"))


def test_a_notebook_has_them_as_lists(index):
    text = reading_map.map_text(index, MAP)
    assert "- **[Two](b/y.md)** (after One; 3 pages, over 1 h): And two?\n" in text
    assert reading_map.ways_text(index, WAYS) == (
        "**Both** (1 h 5 min)\n\n- [The x & more](a/x.md), 25 min: You do x.\n"
        "- [`y` itself](b/y.md), 40 min\n\nAt its end you know `y`.\n\n"
        "**Only one** (40 min)\n\n- [`y` itself](b/y.md), 40 min"
    )


def test_an_hour_is_enough_for_the_pages_of_an_hour():
    blocks = Page(DOCS / "index.md", DOCS).blocks
    hour, through = (each.content for each in blocks if each.name == "ways")
    ((_, steps, _),) = reading_map.read_ways(hour, DOCS)
    assert 45 <= sum(map(reading_map.minutes, steps)) <= 60
    assert len([*reading_map.read_ways(through, DOCS)]) == 3
