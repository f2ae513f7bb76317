"""Every page loads one style sheet and one script, and what it alone needs."""

import re
from pathlib import Path

import bundle
import pytest
from tiny_site import Site

ROOT = Path(__file__).parents[1]
TEMPLATES = ROOT / "docs/_templates"
PAGES = {
    "index.md": "# Book\n\n```{toctree}\nlist\n```\n\n`code`\n",
    "list.md": "# A list\n\n```{explorer} costs\n```\n",
    "_static/own.css": "body { margin: 0 }\n",
    "_static/first.js": "const first = 1 // no semicolon",
    "_static/second.js": "(() => first)();\n//# sourceMappingURL=second.js.map\n",
}
HOW = {
    "extensions": ["myst_nb", "bundle", "explorers", "sphinx_copybutton"],
    "nb_execution_mode": "off",
    "html_theme": "sphinx_book_theme",
    "html_theme_options.disable_search": True,
    "html_theme_options.pygments_light_style": "a11y-high-contrast-light",
    "html_context": {"default_mode": "auto"},
    "html_static_path": ["_static", str(ROOT / "docs/_static")],
    "html_css_files": ["own.css"],
    "html_js_files": ["first.js", "second.js", "player.js"],
    "templates_path": [str(TEMPLATES), str(TEMPLATES / "bundled")],
}
LOADED = re.compile(r'<(?:link|script)\b[^>]*(?:href|src)="([^"]*\.(?:css|js))[^"]*"')


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return Site(tmp_path_factory.mktemp("bundle"), PAGES, **HOW)


def test_a_page_loads_one_style_sheet_one_script_and_what_it_alone_needs(site):
    common = [bundle.STYLES, bundle.SCRIPTS]
    assert LOADED.findall(site("index.html")) == common
    page = site("list.html")
    assert LOADED.findall(page) == [*common, "_static/explore.js"]
    assert page.index(bundle.SCRIPTS) > page.index("</main>")
    tags = re.findall(r"<script\b[^>]*\bsrc=[^>]*>", page)
    assert all("defer" in tag for tag in tags)
    assert "DOCUMENTATION_OPTIONS" not in page
    assert "class Explorer" not in site(bundle.SCRIPTS)


def test_a_bundle_has_all_files_that_pages_loaded_before(site):
    styles, scripts = site(bundle.STYLES), site(bundle.SCRIPTS)
    for words in ".bd-article", ".cell_output", "button.copybtn", "body {":
        assert words in styles, words
    for words in "ClipboardJS", "const first", "bootstrap":
        assert words in scripts, words
    assert scripts.index("const DOCUMENTATION_OPTIONS") < scripts.index("const first")
    assert site("_static/pygments.css") in styles  # the theme writes it last
    assert "no semicolon\n;\n(() => first)();" in scripts
    assert "sourceMappingURL" not in scripts + styles


def test_an_import_is_put_where_it_stood(tmp_path):
    (tmp_path / "_static/deep").mkdir(parents=True)
    (tmp_path / "_static/deep/a.css").write_text('@import "../b.css";\na {}\n')
    (tmp_path / "_static/b.css").write_text("b { x: url(c/d.png) }\n")
    found = bundle.styles(tmp_path, ["_static/deep/a.css"])
    assert found.splitlines()[1:] == ["b { x: url(c/d.png) }", "", "a {}"]


def test_a_page_names_a_bundle_by_its_content(site, tmp_path):
    """Or else a browser would go on with the old one."""
    other = Site(tmp_path, PAGES | {"_static/own.css": "p { margin: 0 }\n"}, **HOW)
    (styles, scripts), found = (
        re.findall(r"bundle\.\w+\?v=\w+", each("index.html")) for each in (site, other)
    )
    assert found[0] != styles
    assert found[1] == scripts
    assert "p { margin: 0 }" in other(bundle.STYLES)
