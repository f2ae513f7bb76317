"""The front page's map and ways have the titles and minutes of the pages."""

import re

import pytest

from book import contents, reading_map
from book.facts import ROOT
from book.page import Page

DOCS = ROOT / "docs"
INDEX = Page(DOCS / "index.md", DOCS)
MAP, *WAYS = (b.content for b in INDEX.blocks if b.name in ("part-map", "ways"))
TIME = re.compile(r"(?:(\d+) h)?(?: ?(\d+) min)?")


def read_time(text):
    """Return the minutes of `1 h 20 min`."""
    hours, minutes = TIME.fullmatch(text).groups("0")
    return 60 * int(hours) + int(minutes)


def test_the_map_has_each_part_with_its_pages():
    text = reading_map.map_text(INDEX, MAP)
    for name, pages in contents.parts(DOCS):
        _, box = text.split(f"- **[{name}]({pages[0].name}.md)**")
        box, *_ = box.partition("</details>")
        assert f"<summary>{len(pages)} page" in box
        links = [f"[{page.title}]({page.name}.md)" for page in pages]
        assert re.findall(r"^ +- (.*)", box, re.M) == links


@pytest.mark.parametrize("content", WAYS)
def test_a_way_has_the_minutes_of_its_pages_and_their_sum(content):
    text = reading_map.ways_text(INDEX, content)
    for name in re.findall(r"^- ([\w/-]+)", content, re.M):
        page = Page(DOCS / f"{name}.md", DOCS)
        stated = re.search(r"About\s+(\d+)\s+minutes", page.text)[1]
        assert f"- [{page.title}]({name}.md), {stated}\xa0min" in text
    for way in text.split("** (")[1:]:
        total, _, pages = way.partition(")\n")
        minutes = re.findall(r"^- \[.*\), (\d+)\smin", pages, re.M)
        assert read_time(total) == sum(map(int, minutes))


def test_an_hour_is_enough_for_the_pages_of_an_hour():
    total = re.search(r"\((.*)\)", reading_map.ways_text(INDEX, WAYS[0]))[1]
    assert 45 <= read_time(total) <= 60
