"""The style sheet can tell badges of modes apart, and the line of prerequisites."""

import pytest
from tiny_site import Site

PAGE = """\
---
wide: true
---
# Page

{bdg-primary-line}`Auto` {bdg-primary-line}`Manual` {bdg-primary-line}`TPU`

*Before this page: [another](index.md). About 15 minutes.*

*Before this page* nothing is needed.

*All in italics.*
"""
OTHER = "# Other\n\nNothing wide.\n"


def build_site(folder, page="index.html"):
    settings = {"extensions": ["myst_nb", "sphinx_design", "style_classes"]}
    return Site(folder, {"index.md": PAGE, "other.md": OTHER}, **settings)(page)


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    return build_site(tmp_path_factory.mktemp("heads"))


def test_a_badge_of_a_mode_has_a_class_of_its_own(html):
    assert 'sd-text-primary mode-auto">Auto<' in html
    assert 'sd-text-primary mode-manual">Manual<' in html
    assert 'sd-text-primary">TPU<' in html


def test_the_line_of_prerequisites_is_told_from_other_paragraphs(html):
    assert html.count('<p class="before">') == 1
    assert '<p class="before"><em>Before this page: <a' in html


def test_a_page_that_asks_for_it_is_wide(html, tmp_path):
    assert '<section class="wide" id="page">' in html
    assert "wide" not in build_site(tmp_path, "other.html").split("<section")[1][:40]
