"""Where the built site and axe-core lie (`$SITE`, `$AXE` say otherwise); a server."""

import functools
import gzip
import os
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "docs/_build"
SITE = Path(os.environ.get("SITE", BUILD / "html")).resolve()
FILES = SITE.as_uri() + "/"  # the address of a site that is opened without a server
LIMIT = 300_000  # milliseconds, which only end a hang
AXE = Path(os.environ.get("AXE", BUILD / "npm/node_modules/axe-core/axe.min.js"))
TEXTS = {".css", ".html", ".js", ".json", ".svg"}
COLORS = ["color-contrast", "link-in-text-block"]  # rules of what the scheme changes
# They take most of an audit: three texts or links that look alike stand for all, on a
# page and on those that passed in the same tab before.
AUDIT = """(async ({include = [["html"]], only = null, all = false}) => {
    const words = each => each.localName +
        each.getAttribute("class") + each.getAttribute("style");
    const ground = each => {
        const {backgroundColor} = getComputedStyle(each), up = each.parentElement;
        return up && backgroundColor.endsWith(", 0)") ? ground(up) : backgroundColor;
    };
    const counts = JSON.parse(sessionStorage.getItem("passed") ?? "{}");
    let samples = 0;
    for (const each of document.querySelectorAll(`:is(${include.flat()}) *`)) {
        const text = [...each.childNodes].some(n => n.nodeType == 3 && n.data.trim());
        const shows = text || each.matches("a, input, select, textarea");
        if (!shows || !each.checkVisibility({visibilityProperty: true})) continue;
        const {color, font, textDecoration} = getComputedStyle(each);
        const up = each.parentElement;
        const around = [words(up), getComputedStyle(up).color, ground(each)];
        const look = [words(each), color, font, textDecoration, ...around];
        counts[look] = (counts[look] ?? 0) + 1;
        samples += each.toggleAttribute("data-sample", all || counts[look] <= 3);
    }
    if (only && !samples) return [];
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
    const found = grave.flatMap(({id, nodes}) =>
        nodes.map(each => `${id}: ${each.target.join(" ")}`));
    if (!found.length) sessionStorage.setItem("passed", JSON.stringify(counts));
    return found;
})"""
STILL = "document.getAnimations().every(each => each.playState != 'running')"
OVERFLOW = "document.documentElement.scrollWidth > innerWidth"


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


def audit(screen, **context):
    """List what axe finds, and finds again once nothing fades in or moves."""
    if not screen.evaluate("'axe' in window"):
        screen.evaluate(AXE.read_text())
    if not screen.evaluate(AUDIT, context):
        return []
    screen.wait_for_function(STILL)
    return screen.evaluate(AUDIT, context)
