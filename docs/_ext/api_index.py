"""Generate the index of API names: the sections whose cells use a name of JAX.

The directive `api-index` becomes a table: each name of `jax`, `jnp` and `lax` that is
in an open cell of some page, and the sections with these cells, the best first. Those
are of a page whose title has the name, then those with it in their heading, then those
with more of such cells; two of a page at most, five in all. What is folded does not
count.

Names are collected when a page is read; the table is made when all have been read.
"""

import ast
import re
from collections import Counter
from html import escape
from posixpath import relpath

from cells import cell_source, is_code
from docutils import nodes
from sources import page_of
from sphinx.util.docutils import SphinxDirective

from book import contents

LINKS, OF_A_PAGE = 5, 2
ROOTS = {"jax": "jax", "jnp": "jax.numpy", "lax": "jax.lax"}
SHORT = {"jax.numpy.": "jnp.", "jax.lax.": "lax."}
SAME = {  # two names of one thing
    "jax.PartitionSpec": "jax.P",
    "jax.sharding.NamedSharding": "jax.NamedSharding",
    "jax.sharding.P": "jax.P",
    "jax.sharding.PartitionSpec": "jax.P",
}
FOLDED = {"check", "fold", "exercise", "solution", "hide-cell", "hide-input"}
PLACE = '<div class="api-index"></div>'
TABLE = """\
<table class="table listing api"><thead><tr><th>name</th><th>shown in</th></tr></thead>
<tbody>{}</tbody></table>"""
ROW = '<tr><td><p id="api-{}"><code>{}</code></p></td><td><p>{}</p></td></tr>'
LINK = '<a class="reference internal" href="{}.html{}">{}</a>'


class ApiIndex(SphinxDirective):
    """A place for the table."""

    def run(self):
        """Return the place."""
        self.env.metadata[self.env.docname]["has_api_index"] = True
        return [nodes.raw("", PLACE, format="html")]


# ----------------------------------------------------------------- the names of a page


def parse_cell(code) -> ast.Module:
    """Return a cell as a tree; a line for IPython is none of it."""
    try:
        return ast.parse(re.sub(r"(?m)^\s*[%!].*", "", code))
    except SyntaxError:  # as some errors that are shown
        return ast.Module([], [])


def find_aliases(cells) -> dict[str, str]:
    """Return the short names of a page, of what it imports from JAX or names anew."""
    found = dict(ROOTS)
    for node in (node for cell in cells for node in ast.walk(cell)):
        pairs = []
        match node:
            case ast.Import():
                pairs = [(each.asname, each.name) for each in node.names if each.asname]
            case ast.ImportFrom():
                start = f"{node.module}."
                pairs = [(e.asname or e.name, start + e.name) for e in node.names]
            case ast.Assign(targets=[left], value=right):  # as in P, S = jax.P, jax.S
                sides = [getattr(side, "elts", [side]) for side in (left, right)]
                pairs = [map(ast.unparse, pair) for pair in zip(*sides, strict=False)]
                pairs = [(short, expand(name, found)) for short, name in pairs]
        found |= {a: b for a, b in pairs if re.fullmatch(r"jax\.[\w.]+", b)}  # no calls
    return found


def expand(name, aliases) -> str:
    """Return a name whose first part is replaced by its full name, or nothing."""
    first, dot, rest = name.partition(".")
    return f"{aliases[first]}{dot}{rest}" if first in aliases else ""


def names_in(cell, aliases) -> set[str]:
    """Return the names of JAX that a cell uses, each as the book writes it."""
    every = [n for n in ast.walk(cell) if isinstance(n, ast.Name | ast.Attribute)]
    inner = {id(node.value) for node in every if isinstance(node, ast.Attribute)}
    texts = (ast.unparse(node) for node in every if id(node) not in inner)
    dotted = (text for text in texts if re.fullmatch(r"[\w.]+", text))
    return {book_name(expand(text, aliases)) for text in dotted} - {""}


def book_name(name) -> str:
    """Return a name of JAX as the book writes it, without attributes of a class."""
    name = re.match(r"[a-z_\d.]*(?:[A-Z]\w*)?", name)[0].rstrip(".")
    name = SAME.get(name, name)
    if "." not in name or f"{name}." in SHORT or "._" in name:
        return ""
    start = next((s for s in SHORT if name.startswith(s)), "")
    return SHORT.get(start, "") + name.removeprefix(start)


def section_of(node) -> tuple[str, str]:
    """Return the anchor and the title of the section that a node stands in."""
    while not isinstance(node, nodes.section):
        node = node.parent
    anchor = "" if isinstance(node.parent, nodes.document) else f"#{node['ids'][0]}"
    return anchor, node.next_node(nodes.title).astext()


def collect_names(app, doctree):
    """Handle `doctree-read`: store the names that each section of a page uses."""
    cells = [(node, parse_cell(cell_source(node))) for node in doctree.findall(is_code)]
    aliases = find_aliases([cell for _, cell in cells])
    folded = {
        each.source.strip()
        for each in page_of(app.env).code
        if FOLDED & {*each.options, *each.tags}
    }
    found = app.env.metadata[app.env.docname].setdefault("api", {})
    for node, cell in cells:
        if cell_source(node).strip() not in folded:
            for name in names_in(cell, aliases):
                found.setdefault(name, Counter())[section_of(node)] += 1


# ---------------------------------------------------------------------------- the table


def find_places(env) -> dict[str, list[tuple[str, str, str]]]:
    """Return the best places of each name: page, anchor, text, the best first."""
    order = {page.name: n for n, page in enumerate(contents.pages(env.srcdir))}
    found = {}
    for page, metadata in env.metadata.items():
        title = env.titles[page].astext()
        for name, sections in metadata.get("api", {}).items():
            for (anchor, heading), count in sections.items():
                place = page, anchor, f"{title}: {heading}" if anchor else title
                key = lacks(name, title), lacks(name, heading), -count
                key += order.get(page, len(order)), anchor
                found.setdefault(name, []).append((key, place))
    names = sorted(found, key=lambda name: (name.lower(), name))
    return {name: best_places(found[name]) for name in names}


def lacks(name, text) -> bool:
    """Return whether a text has no such name: `all_gather` equals all-gather."""
    last = name.rpartition(".")[2]
    plain = [re.sub(r"[-_ ]", "", each).lower() for each in (last, text)]
    short = len(last) <= 3 or plain[0] not in plain[1]
    return short and not re.search(rf"\b{re.escape(last)}\b", text)


def best_places(found) -> list[tuple[str, str, str]]:
    """Return the first places, not too many of one page."""
    counts, places = Counter(), []
    for _, place in sorted(found):
        counts[place[0]] += 1
        if counts[place[0]] <= OF_A_PAGE:
            places.append(place)
    return places[:LINKS]


def to_html(table, name) -> str:
    """Return the table for the page of this name."""
    rows = []
    for api, places in table.items():
        links = (
            LINK.format(relpath(page, f"{name}/.."), anchor, escape(text))
            for page, anchor, text in places
        )
        shown = api.replace(".", ".<wbr>")  # a long one breaks behind a dot
        rows.append(ROW.format(api, shown, " · ".join(links)))
    return TABLE.format("\n".join(rows))


def to_markdown(block, page, env) -> str:
    """Return the table for the page's Markdown."""
    rows = ["| name | shown in |", "|---|---|"]
    for api, places in env.api_index.items():
        links = (
            f"[{text}]({relpath(name, f'{page.name}/..')}.md{anchor})"
            for name, anchor, text in places
        )
        rows.append(f"| `{api}` | {' · '.join(links)} |")
    return "\n".join(rows)


def update_table(app, env):
    """Handle `env-updated`: write the page with the table again if it changed."""
    names = [name for name, of in env.metadata.items() if "has_api_index" in of]
    table = find_places(env) if names else {}
    changed = table != getattr(env, "api_index", None)
    env.api_index = table
    return names if changed else []


def fill_place(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: put the table in its place."""
    if PLACE in context.get("body", ""):
        table = to_html(app.env.api_index, pagename)
        context["body"] = context["body"].replace(PLACE, table)


def setup(app):
    """Register the directive."""
    app.setup_extension("filters")
    app.add_directive("api-index", ApiIndex)
    app.connect("doctree-read", collect_names, priority=600)  # after `cells`
    app.connect("env-updated", update_table)
    app.connect("html-page-context", fill_place)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
