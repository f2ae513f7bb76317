"""Write the index of API names in MyST: the sections whose cells use a name of JAX.

Each name of `jax`, `jnp` and `lax` that is in an open cell of some page has a row, with
the sections of these cells, the best first. Those are of a page whose title has the
name, then those with it in their heading, then those with more of such cells; two of a
page at most, five in all. What is folded does not count.
"""

import ast
import re
from collections import Counter
from functools import cache
from itertools import chain

from book import contents
from book.error_index import headings, link
from book.page import LINK

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
EQUAL = re.compile(r"^(\w+(?:, \w+)*) = ((?:jax|jnp|lax)\.[\w., ]+)$", re.M)
MAGIC = re.compile(r"^\s*[%!].*", re.M)  # lines for IPython


@cache
def parse(code) -> ast.Module:
    """Return the tree of a cell's code."""
    return ast.parse(MAGIC.sub("", code))


def find_aliases(page) -> dict[str, str]:
    """Return the short names of a page, of what it imports from JAX or names anew."""
    found = dict(ROOTS)
    for node in chain.from_iterable(parse(cell.source).body for cell in page.code):
        if isinstance(node, ast.ImportFrom):
            found |= {n.asname or n.name: f"{node.module}.{n.name}" for n in node.names}
        elif isinstance(node, ast.Import):
            found |= {n.asname: n.name for n in node.names if n.asname}
    for left, right in EQUAL.findall(page.text):  # as in P, S = jax.P, jax.S
        pairs = zip(left.split(", "), right.split(", "), strict=False)
        found |= {short: expand(name, found) for short, name in pairs}
    return found


def expand(name, aliases) -> str:
    """Return a name whose first part is replaced by its full name, or nothing."""
    first, dot, rest = name.partition(".")
    return f"{aliases[first]}{dot}{rest}" if first in aliases else ""


def names_in(code, aliases) -> set[str]:
    """Return the names of JAX that code uses, each as the book writes it."""
    used = [n for n in ast.walk(parse(code)) if isinstance(n, ast.Attribute | ast.Name)]
    parts = {node.value for node in used if isinstance(node, ast.Attribute)}
    names = (ast.unparse(node) for node in used if node not in parts)
    return {book_name(expand(name, aliases)) for name in names} - {""}


def book_name(name) -> str:
    """Return a name of JAX as the book writes it, without attributes of a class."""
    name = re.match(r"[a-z_\d.]*(?:[A-Z]\w*)?", name)[0].rstrip(".")
    name = SAME.get(name, name)
    if not name.startswith("jax.") or f"{name}." in SHORT or "._" in name:
        return ""
    start = next((s for s in SHORT if name.startswith(s)), "")
    return SHORT.get(start, "") + name.removeprefix(start)


def count_names(page) -> dict[tuple, Counter]:
    """Return how many open cells of a section use a name: its title, anchor -> name."""
    aliases = find_aliases(page)
    found = {}
    for cell in page.code:
        if not FOLDED & {*cell.options, *cell.tags}:
            *_, (_, title, anchors) = (h for h in headings(page) if h[0] < cell.line)
            counts = found.setdefault((title, min(sorted(anchors), key=len)), Counter())
            counts.update(names_in(cell.source, aliases))
    return found


def find_places(docs) -> dict[str, list[tuple]]:
    """Return the best places of each name: name of the page, title, anchor."""
    found = {}
    for order, page in enumerate(contents.pages(docs)):
        for (heading, anchor), counts in count_names(page).items():
            place = page.name, f"{page.title}: {heading}", f"#{anchor}"
            if heading == page.title:
                place = page.name, heading, ""
            for name, count in counts.items():
                key = lacks(name, page.title), lacks(name, heading), -count, order
                found.setdefault(name, []).append((key, *place))
    names = sorted(found, key=lambda name: (name.lower(), name))
    return {name: best_places(found[name]) for name in names}


def lacks(name, text) -> bool:
    """Return whether a text has no such name: `all_gather` equals all-gather."""
    last = name.rpartition(".")[2]
    plain = [re.sub(r"[-_ ]", "", each).lower() for each in (last, text)]
    short = len(last) <= 3 or plain[0] not in plain[1]
    return short and not re.search(rf"\b{re.escape(last)}\b", text)


def best_places(found) -> list[tuple]:
    """Return the first places, not too many of one page."""
    counts, places = Counter(), []
    for _, name, *place in sorted(found, key=lambda each: each[0]):
        counts[name] += 1
        if counts[name] <= OF_A_PAGE:
            places.append((name, *place))
    return places[:LINKS]


def index_text(page) -> str:
    """Return the table, to stand on a page."""
    rows = ["| name | shown in |", "|---|---|"]
    for name, places in find_places(page.docs).items():
        links = [
            link(LINK.sub(r"\1", title), f"{other}{anchor}", page)
            for other, title, anchor in places
        ]
        rows.append(f"| `{name}` | {' · '.join(links)} |")
    return "\n".join(rows)
