"""The front page's map has each part; its ways, the minutes of their pages."""

import re

import pytest

from book import contents
from book.facts import ROOT
from book.page import Page

DOCS = ROOT / "docs"
INDEX = (DOCS / "index.md").read_text()
MINUTES = re.compile(r"^\*Before this page:.*?\bAbout\s+(\d+)\s+minutes\b", re.M | re.S)
STEP = re.compile(r"^- \[(.+)\]\((\S+\.md)\), (\d+) min", re.M)
WAYS = re.findall(r"container\} way\n(\*\*.+?)\n:::", INDEX, re.S)


def test_the_map_leads_to_the_first_page_of_each_part():
    found = re.findall(r"^ *- \*\*\[(.+)\]\((.+)\.md\)\*\*", INDEX, re.M)
    wanted = [(name, pages[0].name) for name, pages in contents.parts(DOCS)]
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.splitlines()[0])
def test_a_way_has_the_titles_and_minutes_of_its_pages_and_their_sum(way):
    steps = STEP.findall(way)
    assert len(steps) == way.count("\n- ")
    for title, file, minutes in steps:
        page = Page(DOCS / file, DOCS)
        assert (title, minutes) == (page.title, MINUTES.search(page.text)[1])
    hours, rest = divmod(sum(int(minutes) for *_, minutes in steps), 60)
    assert f"** ({hours} h {rest} min)\n".replace("(0 h ", "(") in way


def test_an_hour_is_enough_for_the_pages_of_an_hour():
    assert 45 <= sum(int(minutes) for *_, minutes in STEP.findall(WAYS[0])) <= 60
