"""What a page costs a reader who comes for the first time, over a slow line."""

import functools
import gzip
import re
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from posixpath import dirname, normpath

import pytest
from built_site import LIMIT, SITE, serve
from test_site import PAGES

MOST, REQUESTS = 400 * 1024, 20  # bytes and requests of a page, images included
EXPLORER = 150 * 1024  # bytes of an explorer's script and data
HEAD = 300  # bytes before each file; a browser says fewer
LINE = 1500  # milliseconds for the line, of 2000 until a page is painted
JOURNEYS = 3  # there and back: to connect, for the page, for its style sheet
LATENCY, RATE = 150, 1.6e6 / 8 / 1000  # milliseconds there and back; bytes in each
TEXTS = {".css", ".html", ".js", ".json", ".svg"}
PAINTED = "performance.getEntriesByName('first-contentful-paint').length"
TOP = "place => place.getBoundingClientRect().top"
UNNAMED = {".woff2"}  # icons
NEAR = 300  # px below the window, in which an explorer begins


@functools.cache
def compress(file):
    """Return what the server sends of a file: texts as gzip."""
    data = file.read_bytes()
    return gzip.compress(data, 6) if file.suffix in TEXTS else data


class Handler(SimpleHTTPRequestHandler):
    """A server as they are: with gzip, and many files in one connection."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Write no log."""

    def do_GET(self):
        """Send a file."""
        file = Path(self.translate_path(self.path))
        if not file.is_file():
            self.send_error(404)
            return
        data = compress(file)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(file))
        if file.suffix in TEXTS:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class FileParser(HTMLParser):
    """Gathers the files that a page names for itself."""

    ATTRIBUTES = {  # noqa: RUF012
        "embed": "src",
        "iframe": "src",
        "img": "src",
        "link": "href",
        "object": "data",
        "script": "src",
        "source": "src",
    }
    LOADED = {"icon", "modulepreload", "preload", "stylesheet"}  # noqa: RUF012

    def __init__(self, page):
        """Read a page of the site."""
        super().__init__()
        self.page, self.files = page, {page}
        self.feed((SITE / page).read_text())

    def handle_starttag(self, tag, attrs):
        """Store a file that the tag loads."""
        found = dict(attrs)
        target = found.get(self.ATTRIBUTES.get(tag), "")
        other = tag == "link" and not self.LOADED & {*found.get("rel", "").split()}
        if target and not other and not re.match(r"data:|https?:|//", target):
            path = re.split(r"[?#]", target)[0]
            self.files.add(normpath(f"{dirname(self.page)}/{path}".lstrip("/")))


@functools.cache
def page_files(page):
    """Return the files that a page names."""
    return FileParser(page).files


def weight(files):
    """Return what a server sends of files of the site, in bytes."""
    return sum(len(compress(SITE / file)) + HEAD for file in files)


BY_WEIGHT = sorted(PAGES, key=lambda page: weight(page_files(page)))
SEEN = "index.html", BY_WEIGHT[-1], BY_WEIGHT[len(BY_WEIGHT) // 2]


class Meter:
    """A window with an empty cache, and the files that it was sent."""

    def __init__(self, context, address):
        """Open an empty page."""
        self.page, self.address = context.new_page(), address
        self.cdp = context.new_cdp_session(self.page)
        self.cdp.send("Network.enable")
        self.cdp.send("Network.setCacheDisabled", {"cacheDisabled": True})
        self.names, self.bytes = {}, {}
        self.cdp.on("Network.requestWillBeSent", self.ask)
        self.cdp.on("Network.loadingFinished", self.get)

    def ask(self, event):
        """Store the requests of the page, without data URLs."""
        if event["request"]["url"].startswith(self.address):
            name = event["request"]["url"].removeprefix(self.address)
            self.names[event["requestId"]] = name.partition("?")[0]

    def get(self, event):
        """Store the number of bytes received."""
        self.bytes[event["requestId"]] = event["encodedDataLength"]

    def open(self, path):
        """Load a page, and all that it asks for."""
        self.page.goto(self.address + path, wait_until="networkidle")
        return self.page


@pytest.fixture(scope="module")
def address():
    """Serve the site with gzip."""
    with serve(Handler) as address:
        yield address


@pytest.fixture(scope="module")
def meter(browser, address):
    """Return a function that makes a `Meter`, in a window of its own."""
    contexts = []

    def make():
        contexts.append(browser.new_context(viewport={"width": 1280, "height": 900}))
        contexts[-1].set_default_timeout(LIMIT)
        return Meter(contexts[-1], address)

    yield make
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def visits(meter):
    """Open three pages: the first, the heaviest, one between."""
    found = {page: meter() for page in SEEN}
    for page, each in found.items():
        each.open(page)
    return found


@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "heaviest", "median"])
def test_a_browser_loads_what_a_page_names_and_little_more(visits, place):
    """What it loads beyond that is the font of the icons."""
    page = SEEN[place]
    loaded = visits[page].names.values()
    assert page_files(page) <= {*loaded}
    more = {*loaded} - page_files(page)
    assert {Path(name).suffix for name in more if "explore" not in name} <= UNNAMED
    assert len(loaded) <= REQUESTS
    heaviest = weight(page_files(page)), sum(visits[page].bytes.values())
    assert 0 < heaviest[0] <= heaviest[1] + HEAD * len(loaded) <= MOST


def test_no_page_is_heavier_than_allowed(visits):
    """By what their HTML names, and with each what any of three loaded beyond it."""
    more = {n for page in SEEN for n in visits[page].names.values()}
    more -= {name for page in SEEN for name in page_files(page)}
    more = {name for name in more if "explore" not in name}  # seen below
    assert any(name.endswith(".woff2") for name in more)
    files_of = {page: page_files(page) | more for page in PAGES}
    found = [
        f"{page}: {len(files)} requests, {weight(files) // 1024} KiB"
        for page, files in files_of.items()
        if len(files) > REQUESTS or weight(files) > MOST
    ]
    assert found == []


EXPLORERS = sorted(file.stem for file in (SITE / "_static/explorers").glob("*.js"))


@pytest.mark.parametrize("name", EXPLORERS)
def test_an_explorer_is_light_and_loaded_when_it_is_reached(meter, name):
    files = f"_static/explore_{name}.js", f"_static/explorers/{name}.js"
    assert weight(files) <= EXPLORER
    mark = f"explorer explorer-{name} "
    (page, *_) = (page for page in PAGES if mark in (SITE / page).read_text())
    window = meter()
    window.page.set_viewport_size({"width": 1280, "height": 200})
    screen = window.open(page)
    place = screen.locator(f".explorer-{name}").first
    is_near = place.evaluate(TOP) <= 200 + NEAR
    assert is_near == bool({*files} & {*window.names.values()})
    place.scroll_into_view_if_needed()
    place.locator("form").wait_for()
    assert {*files} <= {*window.names.values()}


def test_the_line_leaves_time_to_paint_each_page():
    """A page is painted when its HTML and its style sheets are there."""
    late = {}
    for page in PAGES:
        files = [f for f in page_files(page) if f == page or f.endswith(".css")]
        if (took := JOURNEYS * LATENCY + weight(files) / RATE) > LINE:
            late[page] = took
    assert late == {}


def test_each_icon_of_a_page_is_in_the_style_sheet():
    """_ext/bundle.py leaves out those that no page has."""
    icons = re.compile(r'<i class="fa\w?(?:-solid)? fa-([\w-]+)')
    found = {
        icon for page in PAGES for icon in icons.findall((SITE / page).read_text())
    }
    styles = (SITE / "_static/bundle.css").read_text()
    assert "magnifying-glass" in found
    assert [icon for icon in found if f".fa-{icon}" not in styles] == []


@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "heaviest", "median"])
def test_html_and_styles_are_all_that_a_page_is_painted_with(meter, place):
    """What else it asks for never comes."""
    window, held = meter(), []

    def answer(route):
        needed = route.request.resource_type in ("document", "stylesheet")
        if needed:
            route.continue_()
        else:
            held.append(route)

    window.page.route("**", answer)
    window.page.goto(window.address + SEEN[place], wait_until="commit")
    window.page.wait_for_function(PAINTED)
    assert held
