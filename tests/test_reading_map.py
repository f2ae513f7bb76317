"""The front page's map and ways have the titles and minutes of the pages."""

import re

import pytest

from book import contents, reading_map
from book.facts import ROOT
from book.page import Page

DOCS = ROOT / "docs"
INDEX = Page(DOCS / "index.md", DOCS)
MAP, *WAYS = (b.content for b in INDEX.blocks if b.name in ("part-map", "ways"))
MINUTES = re.compile(r", (\d+)\xa0min")  # of one page


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
        hours, minutes = divmod(sum(map(int, MINUTES.findall(way))), 60)
        assert way.startswith(f"{hours} h {minutes} min)".removeprefix("0 h "))


def test_an_hour_is_enough_for_the_pages_of_an_hour():
    minutes = MINUTES.findall(reading_map.ways_text(INDEX, WAYS[0]))
    assert 45 <= sum(map(int, minutes)) <= 60
