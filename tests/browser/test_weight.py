"""What a page costs a reader who comes for the first time, over a slow line."""

import functools
import re
import zlib
from pathlib import Path
from posixpath import dirname, normpath

import pytest
from built_site import SITE, compress
from test_site import PAGES

MOST, REQUESTS = 400 * 1024, 20  # bytes and requests of a page, images included
EXPLORER = 150 * 1024  # bytes of an explorer's script and data
HEAD = 300  # bytes before each file, as browsers report them
LINE = 1500  # milliseconds for the line, of 2000 until a page is painted
JOURNEYS = 3  # there and back: to connect, for the page, for its style sheet
LATENCY, RATE = 150, 1.6e6 / 8 / 1000  # milliseconds there and back; bytes in each
PAINTED = "performance.getEntriesByName('first-contentful-paint').length"
TOP = "place => place.getBoundingClientRect().top"
NEAR = 300  # px below the window, in which an explorer begins
TAGS = "embed|iframe|img|link|object|script|source"
LINKED = re.compile(rf'<(?:{TAGS})\b[^>]*?\s(?:data|href|src)="([^"#?:]+)[?"]')
LOADED = """["navigation", "resource"].flatMap(
    kind => performance.getEntriesByType(kind).map(e => [e.name, e.transferSize]))"""
EXPLORERS = sorted(file.stem for file in (SITE / "_static/explorers").glob("*.js"))


@functools.cache
def page_files(page):
    """Return a page and the files that it loads."""
    paths = LINKED.findall((SITE / page).read_text())
    files = [normpath(f"{dirname(page)}/{path}".lstrip("/")) for path in paths]
    return {page, *(file for file in files if not file.endswith(".html"))}


def weight(files):
    """Return what a server sends of files of the site, in bytes."""
    return sum(len(compress(SITE / file)) + HEAD for file in files)


def load(visit, server, page, **window):
    """Open a page; return it, and a function that lists its files and their bytes."""
    screen = visit(**window).page

    def loaded():
        screen.wait_for_load_state("networkidle")
        found = screen.evaluate(LOADED)
        return {url.removeprefix(server).partition("?")[0]: n for url, n in found}

    screen.goto(server + page)
    return screen, loaded


BY_WEIGHT = sorted(PAGES, key=lambda page: weight(page_files(page)))
OPENED = "index.html", BY_WEIGHT[-1], BY_WEIGHT[len(BY_WEIGHT) // 2]


def test_no_page_is_heavier_than_allowed(visit, server):
    """Three are loaded: with what they name, and beyond it the font of the icons."""
    more = set()
    for page in OPENED:
        _, loaded = load(visit, server, page)
        sizes, files = loaded(), page_files(page)
        assert files <= {*sizes}
        assert len(sizes) <= REQUESTS
        assert weight(files) <= sum(sizes.values()) <= MOST
        more |= {file for file in {*sizes} - files if "explore" not in file}
    assert {Path(file).suffix for file in more} == {".woff2"}
    whole = {page: page_files(page) | more for page in PAGES}
    assert max(map(len, whole.values())) <= REQUESTS
    assert max(map(weight, whole.values())) <= MOST


def test_each_page_loads_one_style_sheet_one_script_and_its_own():
    """The script by its content, or a browser would go on with an old one."""
    script = (SITE / "_static/bundle.js").read_bytes()
    common = f"bundle.js?v={zlib.crc32(script):08x}"
    for page in PAGES:
        text = (SITE / page).read_text()
        files = {Path(file).name for file in page_files(page)}
        files = {file for file in files if file.endswith((".css", ".js"))}
        assert files >= {"bundle.css", "bundle.js"}, page
        assert len({Path(file).stem for file in files}) <= 2, page
        assert text.index(common) > text.index("</main>"), page
        assert re.search(r"bundle\.css\?v=\w", text), page
        scripts = re.findall(r"<script\b[^>]*\bsrc=[^>]*>", text)
        assert all("defer" in script for script in scripts), page


@pytest.mark.parametrize("name", EXPLORERS)
def test_an_explorer_is_light_and_loaded_when_it_is_reached(visit, server, name):
    files = {f"_static/explore_{name}.js", f"_static/explorers/{name}.js"}
    assert weight(files) <= EXPLORER
    mark = f"explorer explorer-{name} "
    page = next(page for page in PAGES if mark in (SITE / page).read_text())
    screen, loaded = load(visit, server, page, height=200)
    place = screen.locator(f".explorer-{name}").first
    assert (place.evaluate(TOP) <= 200 + NEAR) == bool(files & {*loaded()})
    place.scroll_into_view_if_needed()
    place.locator("form").wait_for()
    assert files <= {*loaded()}


def test_the_line_leaves_time_to_paint_each_page():
    """A page is painted when its HTML and its style sheets are there."""
    for page in PAGES:
        files = [f for f in page_files(page) if f == page or f.endswith(".css")]
        assert JOURNEYS * LATENCY + weight(files) / RATE <= LINE, page


def test_each_icon_of_a_page_is_in_the_style_sheet():
    """_ext/bundle.py leaves out those that no page has."""
    icons = re.compile(r'<i class="fa\w?(?:-solid)? fa-([\w-]+)')
    found = {
        icon for page in PAGES for icon in icons.findall((SITE / page).read_text())
    }
    styles = (SITE / "_static/bundle.css").read_text()
    assert "magnifying-glass" in found
    assert [icon for icon in found if f".fa-{icon}" not in styles] == []


def test_html_and_styles_are_all_that_a_page_is_painted_with(visit, server):
    """What else it asks for never comes."""
    screen, others = visit().page, []

    def answer(route):
        if route.request.resource_type in ("document", "stylesheet"):
            route.continue_()
        else:
            others.append(route)

    screen.route("**", answer)
    screen.goto(server + BY_WEIGHT[-1], wait_until="commit")
    screen.wait_for_function(PAINTED)
    assert others
