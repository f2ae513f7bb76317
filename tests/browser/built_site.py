"""Where the built site and axe-core lie, what a server sends of it, and an audit."""

import functools
import gzip
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "docs/_build"
SITE = BUILD / "html"
FILES = SITE.as_uri() + "/"  # the address of a site that is opened without a server
AXE = BUILD / "npm/node_modules/axe-core/axe.min.js"
TEXTS = {".css", ".html", ".js", ".json", ".svg"}
COLORS = ["color-contrast", "link-in-text-block"]  # rules of what the scheme changes
AUDIT = """async ({include = [["html"]], only = null}) => {
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
}"""
STILL = "document.getAnimations().every(each => each.playState != 'running')"
OVERFLOW = "document.documentElement.scrollWidth > innerWidth"
THEME = "document.documentElement.dataset.theme"


@functools.cache
def compress(file):
    """Return what a server sends of a file: texts as gzip."""
    data = file.read_bytes()
    return gzip.compress(data, 6) if file.suffix in TEXTS else data


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
