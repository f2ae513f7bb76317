"""What a page costs a reader who comes for the first time, over a slow line."""

import functools
import re
import zlib
from pathlib import Path
from posixpath import dirname, normpath

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
    kind => performance.getEntriesByType(kind).map(each => each.name))"""
EXPLORERS = "_static/explorers"


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
    """Return the files that a page has loaded."""
    screen.wait_for_load_state("networkidle")
    urls = screen.evaluate(LOADED)
    return {url.removeprefix(server).partition("?")[0] for url in urls}


def test_no_page_is_heavier_than_allowed(visit, server):
    """Two are loaded: with what they name, and beyond it the font of the icons."""
    more = set()
    for page in "index.html", max(PAGES, key=lambda page: weight(page_files(page))):
        loaded = loaded_files(visit().open(page), server)
        assert page_files(page) <= loaded
        assert weight(loaded) <= MOST
        more |= {f for f in loaded - page_files(page) if "explore" not in f}
    assert {Path(file).suffix for file in more} == {".woff2"}
    for page in PAGES:
        files = page_files(page) | more
        assert len(files) <= REQUESTS, page
        assert weight(files) <= MOST, page


def test_each_page_paints_soon_with_its_icons_and_the_new_script():
    """The script by its content, or a browser would go on with an old one."""
    script = zlib.crc32((SITE / "_static/bundle.js").read_bytes())
    icons = {*re.findall(r"\.fa-([\w-]+)", (SITE / "_static/bundle.css").read_text())}
    for page in PAGES:
        text = (SITE / page).read_text()
        assert {*ICON.findall(text)} <= icons, page
        assert f'bundle.js?v={script:08x}"' in text.partition("</main>")[2], page
        scripts = re.findall(r"<script\b[^>]*\bsrc=[^>]*>", text)
        assert all("defer" in script for script in scripts), page
        needed = [f for f in page_files(page) if f == page or f.endswith(".css")]
        assert JOURNEYS * LATENCY + weight(needed) / RATE <= LINE, page


def test_an_explorer_is_light_and_loads_late(visit, server):
    files = [f"{EXPLORERS}/{file.name}" for file in SITE.glob(f"{EXPLORERS}/*.js")]
    assert max(weight({file}) for file in files) <= EXPLORER
    screen = visit(height=200).open("global-view/cost.html")
    assert not loaded_files(screen, server) & {*files}
    place = screen.locator(".explorer-costs")
    place.scroll_into_view_if_needed()
    place.locator("form").wait_for()
    assert f"{EXPLORERS}/costs.js" in loaded_files(screen, server)
