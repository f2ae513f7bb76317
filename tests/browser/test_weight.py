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
TAGS = "embed|iframe|img|link|object|script|source"
LINKED = re.compile(rf'<(?:{TAGS})\b[^>]*?\s(?:data|href|src)="([^"#?:]+)[?"]')
ICON = re.compile(r'<i class="fa\w?(?:-solid)? fa-([\w-]+)')
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


def loaded_files(screen, server):
    """Return the files that a page has loaded, and their bytes."""
    screen.wait_for_load_state("networkidle")
    found = screen.evaluate(LOADED)
    return {url.removeprefix(server).partition("?")[0]: n for url, n in found}


def test_no_page_is_heavier_than_allowed(visit, server):
    """Two are loaded: with what they name, and beyond it the font of the icons."""
    more = set()
    for page in "index.html", max(PAGES, key=lambda page: weight(page_files(page))):
        screen = visit().page
        screen.goto(server + page)
        sizes, files = loaded_files(screen, server), page_files(page)
        assert files <= {*sizes}
        assert weight(files) <= sum(sizes.values()) <= MOST
        more |= {file for file in {*sizes} - files if "explore" not in file}
    assert {Path(file).suffix for file in more} == {".woff2"}
    for page in PAGES:
        files = page_files(page) | more
        assert len(files) <= REQUESTS, page
        assert weight(files) <= MOST, page


def test_each_page_loads_two_bundles_and_paints_soon():
    """The script by its content, or a browser would go on with an old one."""
    script = zlib.crc32((SITE / "_static/bundle.js").read_bytes())
    icons = {*re.findall(r"\.fa-([\w-]+)", (SITE / "_static/bundle.css").read_text())}
    for page in PAGES:
        text, files = (SITE / page).read_text(), page_files(page)
        assert {*ICON.findall(text)} <= icons, page
        loaded = {Path(file).stem for file in files if file.endswith((".css", ".js"))}
        assert "bundle" in loaded, page
        assert len(loaded) <= 2, page  # the other is of the page's own
        assert text.index(f"bundle.js?v={script:08x}") > text.index("</main>"), page
        assert re.search(r"bundle\.css\?v=\w", text), page
        scripts = re.findall(r"<script\b[^>]*\bsrc=[^>]*>", text)
        assert all("defer" in script for script in scripts), page
        needed = [f for f in files if f == page or f.endswith(".css")]
        assert JOURNEYS * LATENCY + weight(needed) / RATE <= LINE, page


@pytest.mark.parametrize("name", EXPLORERS)
def test_an_explorer_is_light_and_loads_late(visit, server, name):
    files = {f"_static/explorers/{name}.js"}
    assert weight(files) <= EXPLORER
    mark = f"explorer explorer-{name} "
    page = next(page for page in PAGES if mark in (SITE / page).read_text())
    screen = visit(height=200).page
    screen.goto(server + page)
    place = screen.locator(f".explorer-{name}").first
    near = place.evaluate("place => place.getBoundingClientRect().top <= 200 + 300")
    assert near == bool(files & {*loaded_files(screen, server)})
    place.scroll_into_view_if_needed()
    place.locator("form").wait_for()
    assert files <= {*loaded_files(screen, server)}
