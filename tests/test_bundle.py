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
    "_static/own.css": 'body { background: url("ground.svg") }\n',
    "_static/ground.svg": '<svg xmlns="http://www.w3.org/2000/svg"/>',
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


def test_a_page_loads_one_style_sheet_and_one_script(site):
    assert LOADED.findall(site("index.html")) == [bundle.STYLES, bundle.SCRIPTS]
    assert LOADED.findall(site("search.html"))[:2] == [bundle.STYLES, bundle.SCRIPTS]


def test_what_one_page_needs_stays_apart_and_comes_later(site):
    loaded = LOADED.findall(site("list.html"))
    assert site("list.html").index(bundle.SCRIPTS) > site("list.html").index("</main>")
    assert loaded == [bundle.STYLES, bundle.SCRIPTS, "_static/explore.js"]
    assert "class Explorer" not in site(bundle.SCRIPTS)


def test_the_script_does_not_keep_a_page_from_being_seen(site):
    tags = re.findall(r"<script\b[^>]*\bsrc=[^>]*>", site("list.html"))
    assert tags
    assert all("defer" in tag for tag in tags)
    assert "DOCUMENTATION_OPTIONS" not in site("list.html")


def test_a_bundle_has_all_files_that_pages_loaded_before(site):
    styles, scripts = site(bundle.STYLES), site(bundle.SCRIPTS)
    for words in (".bd-article", ".cell_output", "button.copybtn", "body {"):
        assert words in styles, words
    for words in (
        "DOCUMENTATION_OPTIONS = {",
        "ClipboardJS",
        "const first",
        "bootstrap",
    ):
        assert words in scripts, words
    assert scripts.index("const DOCUMENTATION_OPTIONS") < scripts.index("const first")


def test_the_style_sheet_has_the_colours_that_the_theme_writes_last(site):
    assert site("_static/pygments.css") in site(bundle.STYLES)
    assert 'html[data-theme="dark"] .highlight' in site(bundle.STYLES)


def test_icons_that_no_page_has_are_left_out(site):
    rules = re.findall(r"((?:\.fa-[\w-]+,?)+)\{--fa:", site(bundle.STYLES))
    icons = {*re.findall(r"\.fa-([\w-]+)", "".join(rules))}
    assert icons >= bundle.ICONS
    assert len(rules) == len(bundle.ICONS)
    assert ".fa-solid" in site(bundle.STYLES)


def test_links_of_a_style_sheet_lead_on(site):
    styles = site(bundle.STYLES)
    assert "url(ground.svg)" in styles
    assert "@import" not in styles
    assert styles.count("@charset") == 1
    targets = re.findall(r"url\((?![\"']?data:|#)[\"']?([^)\"']+)", styles)
    fonts = [target for target in targets if target.endswith("woff2")]
    assert fonts
    assert all((site.out / "_static" / font).exists() for font in fonts)


def test_files_are_joined_so_that_each_ends(site):
    text = site(bundle.SCRIPTS)
    assert "no semicolon\n;\n(() => first)();" in text
    assert "sourceMappingURL" not in text + site(bundle.STYLES)


def test_an_import_is_put_where_it_stood(tmp_path):
    (tmp_path / "_static/deep").mkdir(parents=True)
    (tmp_path / "_static/deep/a.css").write_text('@import "../b.css";\na {}\n')
    (tmp_path / "_static/b.css").write_text("b { x: url(c/d.png) }\n")
    found = bundle.styles(tmp_path, ["_static/deep/a.css"])
    assert found.splitlines()[1:] == ["b { x: url(c/d.png) }", "", "a {}"]


def test_a_page_names_a_bundle_by_its_content(site, tmp_path):
    other = Site(tmp_path, PAGES | {"_static/own.css": "p { margin: 0 }\n"}, **HOW)
    (styles, scripts), found = (
        re.findall(r"bundle\.\w+\?v=\w+", each("index.html")) for each in (site, other)
    )
    assert found[0] != styles
    assert found[1] == scripts
    assert "p { margin: 0 }" in other(bundle.STYLES)
