"""A shared link has a title, a sentence and a picture, where there is an address."""

import re

import pytest
from tiny_site import Site

ADDRESS = "https://book.example.org/edition"
PAGE = """---
myst:
  html_meta:
    description: How to {verb} less.
---
# To {verb}

*Before this page: nothing.*

Words.
"""
PAGES = {
    "index.md": "# Book\n\n```{toctree}\nsend\nhold\n```\n",
    "send.md": PAGE.format(verb="send"),
    "hold.md": PAGE.format(verb="hold"),
}
HOW = {
    "extensions": ["myst_nb", "downloads", "link_preview", "sphinxext.opengraph"],
    "ogp_site_url": f"{ADDRESS}/",
    "ogp_enable_meta_description": False,
    "nb_execution_mode": "off",
    "project": "Book",
    "execution_modules": "",
}
META = r'<meta property="og:(\S+)" content="([^"]*)"'


@pytest.fixture
def shown(tmp_path):
    site = Site(tmp_path, PAGES, **HOW)
    texts = {name: site(f"{name}.html") for name in ("send", "hold")}
    return site, {name: dict(re.findall(META, text)) for name, text in texts.items()}


def test_each_page_has_a_title_and_a_sentence_of_its_own(shown):
    for name, found in shown[1].items():
        assert found["title"] == f"To {name}"
        assert found["description"] == f"How to {name} less."
        assert found["url"] == f"{ADDRESS}/{name}.html"
        assert found["site_name"] == "Book"


def test_each_page_has_a_picture_of_its_own(shown):
    site, found = shown
    pictures = [each["image"] for each in found.values()]
    assert len({*pictures}) == 2
    for picture in pictures:
        file = site.out / picture.removeprefix(f"{ADDRESS}/")
        assert file.read_bytes().startswith(b"\x89PNG")
