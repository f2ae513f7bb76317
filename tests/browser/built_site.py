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
# They take most of an audit: three texts or links that look alike stand for all, on a
# page and on those that passed in the same tab before.
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
    const counts = JSON.parse(sessionStorage.getItem("passed") ?? "{}");
    let samples = 0;
    for (const each of document.querySelectorAll(`:is(${include.flat()}) *`)) {
        const text = [...each.childNodes].some(n => n.nodeType == 3 && n.data.trim());
        const shows = text || each.matches("a, input, select, textarea");
        if (!shows || !each.checkVisibility({visibilityProperty: true})) continue;
        const looks = [look(each), look(each.parentElement), ground(each)];
        counts[looks] = (counts[looks] ?? 0) + 1;
        samples += each.toggleAttribute("data-sample", all || counts[looks] <= 3);
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
