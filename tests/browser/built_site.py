"""Where the built site and axe-core lie, what a page weighs, and an audit of it."""

import gzip
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

BUILD = Path(__file__).resolve().parents[2] / "docs/_build"
SITE = BUILD / "html"
FILES = SITE.as_uri() + "/"  # the address of a site that is opened without a server
AXE = BUILD / "npm/node_modules/axe-core/axe.min.js"
COLORS = ["color-contrast", "link-in-text-block"]  # rules of what the scheme changes
# They take most of an audit: three texts or links that look alike stand for all.
AUDIT = """(async ({include = [["html"]], only = null, all = false}) => {
    const ground = each => {
        const color = getComputedStyle(each).backgroundColor, up = each.parentElement;
        return up && color.endsWith(", 0)") ? ground(up) : color;
    };
    const look = each => {
        const {color, font, textDecoration} = getComputedStyle(each);
        const names = [each.localName, each.getAttribute("class")];
        return [...names, color, font, textDecoration];
    };
    const counts = {};
    for (const each of document.querySelectorAll(`:is(${include.flat()}) *`)) {
        const text = [...each.childNodes].some(n => n.nodeType == 3 && n.data.trim());
        const shows = text || each.matches("a, input, select, textarea");
        if (!shows || !each.checkVisibility({visibilityProperty: true})) continue;
        const looks = [look(each), look(each.parentElement), ground(each)];
        counts[looks] = (counts[looks] ?? 0) + 1;
        each.toggleAttribute("data-sample", all || counts[looks] <= 3);
    }
    axe.configure({rules: [
        {id: "color-contrast", selector: "[data-sample]"},
        {id: "link-in-text-block", selector: "a[href][data-sample]"},
    ]});
    const options = {
        resultTypes: ["violations"],
        preload: false, // it fetches styles
        rules: {region: {enabled: false}}, // of moderate impact, and dear
    };
    if (only) options.runOnly = only;
    const {violations} = await axe.run({include}, options);
    const grave = violations.filter(({impact}) => /serious|critical/.test(impact));
    return grave.flatMap(({id, nodes}) =>
        nodes.map(each => `${id}: ${each.target.join(" ")}`));
})"""
STILL = "document.getAnimations().every(each => each.playState != 'running')"
OVERFLOW = "document.documentElement.scrollWidth > innerWidth"
THEME = "document.documentElement.dataset.theme"


def set_look(screen, scheme, width):
    """Show a page in a scheme and a width, with the colours of its scheme."""
    screen.emulate_media(color_scheme=scheme)
    screen.set_viewport_size({"width": width, "height": 900})
    screen.wait_for_function(f"{THEME} == '{scheme}'")


def audit(screen, **context):
    """List what axe finds, and finds again once nothing fades in or moves."""
    if not screen.evaluate("'axe' in window"):
        screen.evaluate(AXE.read_text())
    if not screen.evaluate(AUDIT, context):
        return []
    screen.wait_for_function(STILL)
    return screen.evaluate(AUDIT, context)


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
