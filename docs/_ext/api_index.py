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


class Table(nodes.General, nodes.Element):
    """The place of the table."""


class ApiIndex(SphinxDirective):
    """A place for the table."""

    def run(self):
        """Return the place."""
        self.env.metadata[self.env.docname]["has_api_index"] = True
        return [Table()]


# ----------------------------------------------------------------- the names of a page


def parse_cell(code) -> ast.Module:
    """Return a cell as a tree; a line for IPython is none of it."""
    lines = ("" if re.match(r"\s*[%!]", line) else line for line in code.splitlines())
    try:
        return ast.parse("\n".join(lines))
    except SyntaxError:  # as some errors that are shown
        return ast.Module([], [])


def name_of(node) -> str:
    """Return `a.b.c` for a name and its attributes, or nothing for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    start = name_of(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{start}.{node.attr}" if start else ""


def find_aliases(cells) -> dict[str, str]:
    """Return the short names of a page, of what it imports from JAX or names anew."""
    found = dict(ROOTS)
    for node in (node for cell in cells for node in ast.walk(cell)):
        if isinstance(node, ast.Import):
            pairs = [(each.asname, each.name) for each in node.names if each.asname]
        elif isinstance(node, ast.ImportFrom):
            start = f"{node.module}."
            pairs = [
                (each.asname or each.name, start + each.name) for each in node.names
            ]
        elif isinstance(node, ast.Assign):
            pairs = assignment_pairs(node, found)
        else:
            continue
        found |= {short: full for short, full in pairs if full.startswith("jax.")}
    return found


def assignment_pairs(node, known):
    """List the pairs of an assignment such as `P, S = jax.P, jax.NamedSharding`."""
    sides = node.targets[0], node.value
    left, right = (s.elts if isinstance(s, ast.Tuple) else [s] for s in sides)
    pairs = zip(left, right, strict=False)
    return [(name_of(a), expand(name_of(b), known)) for a, b in pairs if name_of(b)]


def expand(name, known) -> str:
    """Return a name whose first part is replaced by its full name."""
    first, dot, rest = name.partition(".")
    return f"{known[first]}{dot}{rest}" if first in known else ""


def names_in(cell, known) -> set[str]:
    """Return the names of JAX that a cell uses, each as the book writes it.

    known: the full name of each short name of the page.
    """
    every = [n for n in ast.walk(cell) if isinstance(n, ast.Name | ast.Attribute)]
    inner = {id(node.value) for node in every if isinstance(node, ast.Attribute)}
    whole = (name_of(node) for node in every if id(node) not in inner)
    return {book_name(expand(name, known)) for name in whole} - {""}


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
    anchor = "" if isinstance(node.parent, nodes.document) else node["ids"][0]
    return anchor, node.next_node(nodes.title).astext()


def collect_names(app, doctree):
    """Handle `doctree-read`: store the names that each section of a page uses."""
    cells = [(node, parse_cell(cell_source(node))) for node in doctree.findall(is_code)]
    known = find_aliases([cell for _, cell in cells])
    folded = {
        each.source.strip()
        for each in page_of(app.env).code
        if FOLDED & {*each.options, *each.tags}
    }
    found = {}
    for node, cell in cells:
        if cell_source(node).strip() in folded:
            continue
        for name in names_in(cell, known):
            found.setdefault(name, Counter())[section_of(node)] += 1
    if found:
        app.env.metadata[app.env.docname]["api"] = found


# ---------------------------------------------------------------------------- the table


def squash(text) -> str:
    """Return a text without case and hyphens: `all_gather` equals all-gather."""
    return re.sub(r"[-_ ]", "", text).lower()


def find_places(env) -> dict[str, list[tuple[str, str, str]]]:
    """Return the best places of each name: page, anchor, text, the best first."""
    order = [page.name for page in contents.pages(env.srcdir)]
    order = {name: n for n, name in enumerate(order)}
    found = {}
    for page, metadata in env.metadata.items():
        for name, sections in metadata.get("api", {}).items():
            for (anchor, title), count in sections.items():
                key = (*rank(name, title, env.titles[page].astext()), -count)
                key += order.get(page, len(order)), anchor
                found.setdefault(name, []).append((key, (page, anchor, title)))
    return {
        name: [link_parts(env, *place) for place in best_places(found[name])]
        for name in sorted(found, key=lambda name: (name.lower(), name))
    }


def rank(name, title, page) -> tuple[bool, bool]:
    """Return whether a name is missing in the title of a page, and of its section."""
    last = name.rpartition(".")[2]
    words = re.compile(rf"\b{re.escape(last)}\b")
    return tuple(
        not (words.search(text) or (len(last) > 3 and squash(last) in squash(text)))
        for text in (page, title)
    )


def best_places(found) -> list[tuple[str, str, str]]:
    """Return the first places, not too many of one page."""
    counts, places = Counter(), []
    for _, place in sorted(found):
        counts[place[0]] += 1
        if counts[place[0]] <= OF_A_PAGE:
            places.append(place)
    return places[:LINKS]


def link_parts(env, page, anchor, title) -> tuple[str, str, str]:
    """Return the page of a link to a section, its anchor, and its text."""
    head = env.titles[page].astext()
    return (page, f"#{anchor}", f"{head}: {title}") if anchor else (page, "", head)


def to_html(table, name) -> str:
    """Return the table for the page of this name."""
    rows = []
    for api, found in table.items():
        links = (
            f'<a class="reference internal" href="'
            f'{relpath(page, f"{name}/..")}.html{anchor}">{escape(text)}</a>'
            for page, anchor, text in found
        )
        shown = api.replace(".", ".<wbr>")  # a long one breaks behind a dot
        cell = f'<p id="api-{api}"><code>{shown}</code></p>'
        rows.append(f"<tr><td>{cell}</td><td><p>{' · '.join(links)}</p></td></tr>")
    head = "<thead><tr><th>name</th><th>shown in</th></tr></thead>"
    body = "\n".join(rows)
    return f'<table class="table listing api">{head}\n<tbody>{body}</tbody></table>'


def to_markdown(block, page, env) -> str:
    """Return the table for the page's Markdown."""
    rows = ["| name | shown in |", "|---|---|"]
    for api, found in env.api_index.items():
        links = (
            f"[{text}]({relpath(name, f'{page.name}/..')}.md{anchor})"
            for name, anchor, text in found
        )
        rows.append(f"| `{api}` | {' · '.join(links)} |")
    return "\n".join(rows)


def update_table(app, env):
    """Handle `env-updated`: write the page with the table again if it changed."""
    names = [name for name, of in env.metadata.items() if "has_api_index" in of]
    table = find_places(env) if names else {}
    if table == getattr(env, "api_index", None):
        return []
    env.api_index = table
    return names


def fill_places(app, doctree, name):
    """Handle `doctree-resolved`: put the table in its place."""
    for place in list(doctree.findall(Table)):
        html = to_html(app.env.api_index, name)
        place.replace_self(nodes.raw("", html, format="html"))


def setup(app):
    """Register the directive."""
    app.setup_extension("filters")
    app.add_directive("api-index", ApiIndex)
    app.add_node(Table)
    app.connect("doctree-read", collect_names, priority=600)  # after `cells`
    app.connect("env-updated", update_table)
    app.connect("doctree-resolved", fill_places)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
