"""The front page's map and ways have the titles and minutes of the pages."""

import re

import pytest

from book import contents, reading_map
from book.facts import ROOT
from book.page import Page

DOCS = ROOT / "docs"
INDEX = Page(DOCS / "index.md", DOCS)
MAP, *WAYS = (each.content for each in INDEX.blocks if each.name in reading_map.TEXT)
TIME = re.compile(r"(?:(\d+) h)?(?: ?(\d+) min)?")


def read_time(text):
    """Return the minutes of `1 h 20 min`."""
    hours, minutes = TIME.fullmatch(text).groups("0")
    return 60 * int(hours) + int(minutes)


def test_the_map_has_each_part_with_its_pages():
    html = reading_map.map_html(INDEX, MAP)
    lines = reading_map.map_text(INDEX, MAP).splitlines()
    for line, (name, pages) in zip(lines, contents.parts(DOCS), strict=True):
        assert line.startswith(f"- **[{name}]({pages[0].name}.md)** (")
        assert f"{len(pages)} page" in line
        assert all(f'href="{page.name}.html"' in html for page in pages)


@pytest.mark.parametrize("content", WAYS)
def test_a_way_has_the_minutes_of_its_pages_and_their_sum(content):
    text = reading_map.ways_text(INDEX, content)
    for name in re.findall(r"^- ([\w/-]+)", content, re.M):
        page = Page(DOCS / f"{name}.md", DOCS)
        stated = re.search(r"About\s+(\d+)\s+minutes", page.text)[1]
        assert f"- [{page.title}]({name}.md), {stated} min" in text
    for way in text.split("** ("):
        total, _, pages = way.partition(")\n")
        minutes = re.findall(r"^- \[.*\), (\d+) min", pages, re.M)
        assert not minutes or read_time(total) == sum(map(int, minutes))


def test_an_hour_is_enough_for_the_pages_of_an_hour():
    total = re.search(r"\((.*)\)", reading_map.ways_text(INDEX, WAYS[0]))[1]
    assert 45 <= read_time(total) <= 60
