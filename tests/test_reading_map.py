"""The front page's map and ways have the titles and minutes of the pages."""

import re
from pathlib import Path

import pytest

from book import reading_map
from book.page import Page

DOCS = Path(__file__).parents[1] / "docs"
MAP = "One: What is `one`?\nTwo < One: And two?\nThree < One: Or three?\nLists: Where?"
WAYS = """\
Both
- one/x: You do x.
- two/y
At its end you know `y`.

Only one
- two/y"""
PAGES = {  # the parts, their pages, and what these are about
    "One": {"one/x": "# The x & more\n\n*Before this page: no. About 25 minutes.*\n"},
    "Two": {
        "two/y": "# `y` itself\n\n*Before this page: [x](x.md). About 40\nminutes.*",
        "two/z": "# Z",
    },
    "Three": {"three/u": "# U"},
    "Lists": {"lists/list": "# A list"},
}


@pytest.fixture
def index(tmp_path):
    text = "# Book\n"
    for part, pages in PAGES.items():
        text += f"\n```{{toctree}}\n:caption: {part}\n" + "\n".join(pages) + "\n```\n"
        for name, source in pages.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / f"{name}.md").write_text(source)
    (tmp_path / "index.md").write_text(text)
    return Page(tmp_path / "index.md", tmp_path)


def words(html):
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_the_map_has_a_box_for_each_part_below_the_one_that_leads_there(index):
    html = reading_map.map_html(index, MAP)
    assert words(html) == (
        "One What is one ? 1 page, 25 min The x &amp; more "
        "Two after One And two? 2 pages, over 40 min y itself Z "
        "Three after One Or three? 1 page U Lists Where? 1 page A list"
    )
    assert 'href="two/y.html"><code>y</code> itself</a>' in html
    places = re.findall(r"--column: (\d); --row: (\d)", html)
    assert places == [("1", "1"), ("3", "1"), ("3", "2"), ("1", "3")]
    text = reading_map.map_text(index, MAP)
    assert "- **[Two](two/y.md)** (after One; 2 pages, over 40 min): And two?\n" in text
    with pytest.raises(ValueError, match="needs these parts, in order: One, Two"):
        reading_map.map_html(index, MAP.replace("One:", "None:"))


def test_a_way_has_the_sum_of_its_minutes(index):
    assert words(reading_map.ways_html(index, WAYS)) == (
        "Both 1 h 5 min The x &amp; more 25 min You do x. y itself 40 min "
        "At its end you know y . Only one 40 min y itself 40 min"
    )
    assert reading_map.ways_text(index, WAYS) == (
        "**Both** (1 h 5 min)\n\n- [The x & more](one/x.md), 25 min: You do x.\n"
        "- [`y` itself](two/y.md), 40 min\n\nAt its end you know `y`.\n\n"
        "**Only one** (40 min)\n\n- [`y` itself](two/y.md), 40 min"
    )
    with pytest.raises(ValueError, match=r"no pages whose heads state .*two/z"):
        reading_map.ways_html(index, WAYS.replace("two/y", "two/z"))


def test_an_hour_is_enough_for_the_pages_of_an_hour():
    blocks = Page(DOCS / "index.md", DOCS).blocks
    hour, through = (each.content for each in blocks if each.name == "ways")
    ((_, steps, _),) = reading_map.read_ways(hour, DOCS)
    assert 45 <= sum(map(reading_map.minutes, steps)) <= 60
    assert len([*reading_map.read_ways(through, DOCS)]) == 3
