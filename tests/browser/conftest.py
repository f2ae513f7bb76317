"""One Chromium and one server on the loopback, for all tests of the built site."""

import functools
import os
import shutil
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from built_site import SITE
from playwright.sync_api import sync_playwright

PROBLEMS = "error", "warning"  # of the console
LIMIT = 300_000  # milliseconds, which only end a hang


class Handler(SimpleHTTPRequestHandler):
    """A server that sends many files in one connection, and writes no log."""

    protocol_version, log_message = "HTTP/1.1", lambda *_: None


class Visit:
    """A window with one page, and what went wrong on it."""

    def __init__(self, browser, base, **options):
        self.page = browser.new_page(base_url=base, **options)
        self.page.set_default_timeout(LIMIT)  # of navigation, too
        self.faults = []
        add, own = self.faults.append, (base, "data:", "blob:")
        self.page.on("console", lambda e: e.type in PROBLEMS and add(e.text))
        self.page.on("pageerror", lambda e: add(str(e)))
        self.page.on("request", lambda e: e.url.startswith(own) or add(f"asks {e.url}"))
        self.page.on("response", lambda e: e.status < 400 or add(f"{e.status} {e.url}"))

    def open(self, path):
        """Load a page of the site, with everything in it."""
        self.page.goto(path)
        return self.page


@pytest.fixture(scope="session")
def browser():
    """Start Chromium: `$CHROMIUM`, the one on the path, or Playwright's own."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    options = {"executable_path": program, "args": ["--disable-gpu"], "timeout": LIMIT}
    with sync_playwright() as engine, engine.chromium.launch(**options) as chromium:
        yield chromium


@pytest.fixture(scope="session")
def server():
    """Serve the built site on the loopback; return its address."""
    handler = functools.partial(Handler, directory=SITE)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()


@pytest.fixture(scope="module")
def tab(browser, server):
    """Return one `Visit` for many pages: a new window costs more than a page."""
    yield (visit := Visit(browser, server, reduced_motion="reduce"))
    visit.page.close()


@pytest.fixture
def visit(browser, server):
    """Return a function that makes a `Visit` in a window of its own."""
    visits = []

    def make(base=server, width=1280, height=900, scheme="light", **options):
        options = {"reduced_motion": "reduce", "color_scheme": scheme} | options
        window = {"width": width, "height": height}
        visits.append(Visit(browser, base, viewport=window, **options))
        return visits[-1]

    yield make
    for each in visits:
        each.page.close()
    assert [fault for each in visits for fault in each.faults] == []
