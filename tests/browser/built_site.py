"""Where the built site and axe-core lie, what a page weighs, and an audit of it."""

import gzip
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

BUILD = Path(__file__).resolve().parents[2] / "docs/_build"
SITE = BUILD / "html"
FILES = SITE.as_uri() + "/"  # the address of a site that is opened without a server
AXE = BUILD / "npm/node_modules/axe-core/axe.min.js"
AUDIT = """async within => {
    const options = {
        resultTypes: ["violations"],
        preload: false, // it fetches styles
        rules: {region: {enabled: false}}, // of moderate impact, and dear
    };
    const {violations} = await axe.run(within, options);
    const grave = violations.filter(({impact}) => /serious|critical/.test(impact));
    return grave.flatMap(({id, nodes}) =>
        nodes.map(each => `${id}: ${each.target.join(" ")}`));
}"""
STILL = "document.getAnimations().every(each => each.playState != 'running')"
OVERFLOW = "document.documentElement.scrollWidth > innerWidth"
THEME = "document.documentElement.dataset.theme"


def set_look(screen, scheme, width):
    """Show a page in a scheme and a width, with the colours of its scheme."""
    screen.emulate_media(color_scheme=scheme)
    screen.set_viewport_size({"width": width, "height": 900})
    screen.wait_for_function(f"{THEME} == '{scheme}'")


def audit(screen, within="html"):
    """List what axe finds, and finds again once nothing fades in or moves."""
    if not screen.evaluate("'axe' in window"):
        screen.evaluate(AXE.read_text())
    if not screen.evaluate(AUDIT, within):
        return []
    screen.wait_for_function(STILL)
    return screen.evaluate(AUDIT, within)


# -------------------------------------------------------------- over a slow line

TEXTS = {".css", ".html", ".js", ".json", ".svg"}
MOST, REQUESTS = 400 * 1024, 20  # bytes and requests of a page, images included
FIRST = 205 * 1024  # bytes before it is painted: a second, at 1.6 Mbit/s
HEAD = 300  # bytes before each file, as browsers report them
LOADED = """["navigation", "resource"].flatMap(
    kind => performance.getEntriesByType(kind).map(each => each.name))"""


@cache
def sent_bytes(name):
    """Return how much a server sends for a file of the site: texts as gzip."""
    data = (SITE / name).read_bytes()
    return HEAD + len(gzip.compress(data, 6) if Path(name).suffix in TEXTS else data)


def assert_light(screen):
    """Fail if a page asks for too much, or is not painted soon."""
    files = {urlsplit(url).path[1:] for url in screen.evaluate(LOADED)}
    assert "_static/bundle.css" in files
    assert len(files) <= REQUESTS
    assert sum(map(sent_bytes, files)) <= MOST
    first = [file for file in files if file.endswith((".html", ".css"))]
    assert sum(map(sent_bytes, first)) <= FIRST
