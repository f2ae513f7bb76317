"""The front page's map and ways have the titles and minutes of the pages."""

import re
from pathlib import Path

import pytest

from book import reading_map
from book.page import Page

DOCS = Path(__file__).parents[1] / "docs"
MAP = "One: What is `one`?\nTwo < One: And two?\nThree < One: Or three?\nLists: Where?"
WAY = "Both\n- x: You do x.\n- y\nAt its end you know `y`."
INDEX = "".join(
    f"```{{toctree}}\n:caption: {part}\n{pages}\n```\n\n"
    for part, pages in {"One": "x", "Two": "y\nz", "Three": "z", "Lists": "z"}.items()
)
PAGES = {
    "index": f"# Book\n\n{INDEX}",
    "x": "# The x & more\n\n*Before this page: nothing. About 25 minutes.*\n",
    "y": "# `y` itself\n\n*Before this page: [x](x.md). About 40\nminutes.*\n",
    "z": "# Z\n",
}


@pytest.fixture
def index(tmp_path):
    for name, text in PAGES.items():
        (tmp_path / f"{name}.md").write_text(text)
    return Page(tmp_path / "index.md", tmp_path)


def words(html):
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_the_map_has_a_box_for_each_part_below_the_one_that_leads_there(index):
    html = reading_map.map_html(index, MAP)
    assert words(html) == (
        "One What is one ? 1 page, 25 min The x &amp; more "
        "Two after One And two? 2 pages, over 40 min y itself Z "
        "Three after One Or three? 1 page Z Lists Where? 1 page Z"
    )
    assert 'href="y.html"><code>y</code> itself</a>' in html
    assert html.count('</div><ul><li><div class="part">') == 1  # Two, after One
    line = "- **[Two](y.md)** (after One; 2 pages, over 40 min): And two?"
    assert line in reading_map.map_text(index, MAP).splitlines()
    with pytest.raises(ValueError, match="needs these parts, in order: One, Two"):
        reading_map.map_html(index, MAP.replace("One:", "None:"))


def test_a_way_has_the_sum_of_its_minutes(index):
    text = "Both 1 h 5 min The x &amp; more 25 min You do x. y itself 40 min At its end"
    assert words(reading_map.ways_html(index, WAY)) == f"{text} you know y ."
    assert reading_map.ways_text(index, WAY) == (
        "**Both** (1 h 5 min)\n\n- [The x & more](x.md), 25 min: You do x.\n"
        "- [`y` itself](y.md), 40 min\n\nAt its end you know `y`."
    )
    with pytest.raises(ValueError, match=r"no pages whose heads state .*'z'"):
        reading_map.ways_html(index, WAY.replace("- y", "- z"))


def test_an_hour_is_enough_for_the_pages_of_an_hour():
    hour = next(
        each for each in Page(DOCS / "index.md", DOCS).blocks if each.name == "ways"
    )
    ((_, steps, _),) = reading_map.read_ways(hour.content, DOCS)
    assert 45 <= sum(map(reading_map.minutes, steps)) <= 60
