"""One Chromium and one server on the loopback, for all tests of the built site."""

import functools
import os
import shutil
import threading
from http.server import ThreadingHTTPServer

import pytest
from built_site import LIMIT, SITE, Handler
from playwright.sync_api import sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Visit:
    """A page in the browser, and what went wrong on it."""

    def __init__(self, context, base):
        """Open an empty page in `context`, on a site at `base`."""
        self.page, self.base, self.faults = context.new_page(), base, []
        self.page.on("console", self.hear)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", self.follow)
        self.page.on("response", self.answer)

    def hear(self, message):
        """Store the errors and warnings of the console."""
        if message.type in ("error", "warning"):
            self.faults.append(message.text)

    def follow(self, request):
        """Store requests to another host."""
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.faults.append(f"request to {request.url}")

    def answer(self, response):
        """Store responses with an error status."""
        if response.status >= 400:
            self.faults.append(f"{response.status} {response.url}")

    def open(self, path):
        """Load a page of the site, with everything in it."""
        self.page.goto(self.base + path)
        return self.page


@pytest.fixture(scope="session")
def browser():
    """Start Chromium: `$CHROMIUM`, the one on the path, or Playwright's own."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=program, args=FLAGS, timeout=LIMIT
        )
        yield chromium
        chromium.close()


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
    context = browser.new_context(reduced_motion="reduce")
    context.set_default_timeout(LIMIT)  # of navigation, too
    yield Visit(context, server)
    context.close()


@pytest.fixture
def visit(browser, server):
    """Return a function that makes a `Visit` in a window of its own; all stay quiet."""
    visits = []

    def make(base=server, width=1280, height=900, scheme="light", **options):
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            **{"reduced_motion": "reduce"} | options,
        )
        context.set_default_timeout(LIMIT)  # of navigation, too
        visits.append(Visit(context, base))
        return visits[-1]

    yield make
    for tab in visits:
        tab.page.context.close()
    assert [tab.faults for tab in visits] == [[] for _ in visits]


def pytest_terminal_summary(terminalreporter):
    """Print how many pages had passed before."""
    passed = terminalreporter.stats.get("passed", ())
    count = sum(("had_passed", 1) in report.user_properties for report in passed)
    if count:
        terminalreporter.write_line(f"{count} pages had passed")
