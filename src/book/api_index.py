"""Write the index of API names in MyST: the sections whose cells use a name of JAX.

Each name of `jax`, `jnp` and `lax` that is in an open cell of some page has a row, with
the sections of these cells, the best first. Those are of a page whose title has the
name, then those with it in their heading, then those with more of such cells; two of a
page at most, five in all. What is folded does not count.
"""

import re
from collections import Counter
from posixpath import relpath

from book import contents
from book.error_index import headings
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
NO_CODE = re.compile(
    r"""(?s:\"{3}.*?\"{3})|(?<!f)"[^"\n]*"|(?<!f)'[^'\n]*'|#.*|^\s*[%!].*""", re.M
)  # texts, comments, lines for IPython
MODULE = r"(jax(?:\.\w+)*)"
IMPORT = re.compile(
    rf"from {MODULE} import (\([^)]*\)|.*)|import {MODULE} as (\w+)|import .*"
)
EQUAL = re.compile(r"^(\w+(?:, \w+)*) = ((?:jax|jnp|lax)\.[\w., ]+)$", re.M)
NAME = re.compile(r"(?<![\w.])([A-Za-z_]\w*)((?:\.\w+)*)\b(?! *=[^=])")


# ----------------------------------------------------------------- the names of a page


def find_aliases(code) -> dict[str, str]:
    """Return the short names of a page, of what it imports from JAX or names anew."""
    found = dict(ROOTS)
    for module, names, whole, short in IMPORT.findall(code):
        pairs = [name.split(" as ") for name in re.findall(r"\w+(?: as \w+)?", names)]
        found |= {pair[-1]: f"{module}.{pair[0]}" for pair in pairs}
        found |= {short: whole} if whole else {}
    for left, right in EQUAL.findall(code):  # as in P, S = jax.P, jax.S
        pairs = zip(left.split(", "), right.split(", "), strict=False)
        found |= {short: expand(name, found) for short, name in pairs}
    return found


def expand(name, aliases) -> str:
    """Return a name whose first part is replaced by its full name, or nothing."""
    first, dot, rest = name.partition(".")
    return f"{aliases[first]}{dot}{rest}" if first in aliases else ""


def names_in(code, aliases) -> set[str]:
    """Return the names of JAX that code uses, each as the book writes it."""
    code = IMPORT.sub(" ", NO_CODE.sub(" ", code))
    found = ("".join(parts) for parts in NAME.findall(code))
    return {book_name(expand(name, aliases)) for name in found} - {""}


def book_name(name) -> str:
    """Return a name of JAX as the book writes it, without attributes of a class."""
    name = re.match(r"[a-z_\d.]*(?:[A-Z]\w*)?", name)[0].rstrip(".")
    name = SAME.get(name, name)
    if "." not in name or f"{name}." in SHORT or "._" in name:
        return ""
    start = next((s for s in SHORT if name.startswith(s)), "")
    return SHORT.get(start, "") + name.removeprefix(start)


# ---------------------------------------------------------------------------- the table


def count_names(page) -> dict[str, Counter]:
    """Return how many open cells use a name: name -> (heading, anchor) -> count."""
    cells = [each for each in page.code if not FOLDED & {*each.options, *each.tags}]
    aliases = find_aliases("\n".join(each.source for each in page.code))
    sections = [
        (line, (text, min(anchors, key=len))) for line, text, anchors in headings(page)
    ]
    found = {}
    for cell in cells:
        section = [place for line, place in sections if line < cell.line][-1]
        for name in names_in(cell.source, aliases):
            found.setdefault(name, Counter())[section] += 1
    return found


def find_places(docs) -> dict[str, list[str]]:
    """Return the best places of each name: page, title, anchor, the best first."""
    found = {}
    for order, page in enumerate(contents.pages(docs)):
        for name, sections in count_names(page).items():
            for (heading, anchor), count in sections.items():
                at = heading != page.title
                place = (
                    page,
                    *((f"{page.title}: {heading}", anchor) if at else (page.title, "")),
                )
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


def best_places(found) -> list:
    """Return the first places, not too many of one page."""
    counts, places = Counter(), []
    for _, *place in sorted(found, key=lambda each: each[0]):
        counts[place[0].name] += 1
        if counts[place[0].name] <= OF_A_PAGE:
            places.append(place)
    return places[:LINKS]


def index_text(page) -> str:
    """Return the table, to stand on a page."""
    rows = ["| name | shown in |", "|---|---|"]
    for name, places in find_places(page.docs).items():
        links = []
        for other, title, anchor in places:
            path = relpath(other.file, page.file.parent)
            links.append(
                f"[{LINK.sub(r'\1', title)}]({path}{'#' * bool(anchor)}{anchor})"
            )
        rows.append(f"| `{name}` | {' · '.join(links)} |")
    return "\n".join(rows)
