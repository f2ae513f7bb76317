"""The list of errors: each message, its meaning and its cure, all checked.

An entry is a table of `data/errors.toml`, with links to the cells that raise the error:
those that expect it (`raises`, `--raises`). Errors of the book's own modules are listed
by module.
"""

import re
import shlex
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise
from posixpath import relpath

from myst_parser.mdit_to_docutils.base import default_slugify

from book import contents
from book.page import Page, read_page, unique_name

GROUPS = {
    "mesh": "Meshes, specs and places",
    "types": "`ShardingTypeError`: Explicit axes",
    "shard_map": "`jax.shard_map`",
    "collectives": "Collectives, and what the compiler says",
    "operators": "Derivatives, `vmap`, callbacks and kernels",
    "processes": "Many processes and GPUs",
    "memory": "Memory and donation",
    "checkpoints": "Checkpoints",
    "porting": "Old code",
}
GAP = 400  # characters that `...` may stand for
LINKS = 4  # cells that an entry leads to
ENTRY = """\
:::{{container}} error-entry
:name: error-{entry.name}

{code} *{entry.kind}*

{entry.means} **Do:** {entry.cure}

{links}
:::"""


@dataclass(frozen=True)
class RaisingCell:
    """A cell that expects an error, the section it stands in, and its own anchor."""

    page: Page
    kind: str
    phrase: str
    line: int
    title: str
    anchor: str

    @property
    def place(self) -> str:
        """The cell as `part/name#anchor`."""
        return f"{self.page.name}#{self.anchor}"


@dataclass(frozen=True)
class Entry:
    """An entry of the list: see `docs/reference/data/errors.toml`."""

    name: str
    group: str
    kind: str
    words: str
    means: str
    cure: str
    also: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    page: tuple[str, ...] = ()
    source: str = ""
    date: str = ""

    @property
    def patterns(self) -> list[str]:
        """All words by which a message is known."""
        return [self.words, *self.also]


def expected_error(cell) -> tuple[str, str] | None:
    """Return the class and the words that a cell expects of an error, if it does."""
    option = cell.options.get("raises", "")
    if every := re.match("%%every .*--raises .*", cell.source):
        words = shlex.split(every[0])
        option = words[words.index("--raises") + 1]
    kind, _, phrase = option.strip().partition(" ")
    return (kind.rstrip(":"), " ".join(phrase.split())) if kind else None


def raising_cells(page) -> list[RaisingCell]:
    """List the cells of a page that expect an error."""
    titles, found, taken = headings(page), [], set()
    for cell in page.code:
        if error := expected_error(cell):
            words = re.findall(r"[a-z]+", " ".join(error).lower())[:7]
            anchor = unique_name("-".join(["raises", *words]), taken)
            title = [text for line, text, _ in titles if line < cell.line][-1]
            found.append(RaisingCell(page, *error, cell.line, title, anchor))
    return found


@cache
def headings(page) -> list[tuple[int, str, set[str]]]:
    """List the headings of a page: their lines, from 1, their texts, their anchors."""
    found, anchors = [], set()
    for token, text in pairwise(page.tokens):
        if token.type == "myst_target":
            anchors.add(token.content)
        elif token.type == "heading_open":
            title = text.content
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", title)
            found.append((token.map[0] + 1, title, anchors | {default_slugify(words)}))
            anchors = set()
    return found


@cache  # a build asks for it on each page
def read_table(docs) -> tuple[list[Entry], dict[str, list[str]]]:
    """Return the entries, and the errors of the book's own modules, by module."""
    table = tomllib.loads((docs / "reference/data/errors.toml").read_text())
    own = table.pop("own", {})
    return [Entry(name, **row) for name, row in table.items()], own


@cache
def pattern(words) -> re.Pattern:
    """Return words with `...` as a pattern of text with single blanks."""
    words = words.replace("`", "")  # who copies from a rendered page has none
    parts = (re.escape(" ".join(part.split())) for part in words.split("..."))
    return re.compile(f".{{0,{GAP}}}?".join(parts), re.IGNORECASE)


def matches(text, table) -> list[Entry]:
    """Return the entries whose words stand in a text; `_static/find.js` does, too."""
    marks = re.compile(r"^\s*(?:\[[a-z ]*\d+\]:?|E(?= )|[>!|])\s*", re.M)
    text = " ".join(marks.sub(" ", text).replace("`", "").split())
    return [e for e in table if any(pattern(w).search(text) for w in e.patterns)]


def entries_of(kind, phrase, table) -> list[Entry]:
    """Return the entries that a cell with this expectation counts for.

    Those that name it; else those whose words it has, or whose words it is a part of.
    """
    exact = [e for e in table if phrase in e.short or (not phrase and kind in e.short)]
    if exact or not phrase:
        return exact
    found = matches(phrase, table)
    return found or [e for e in table if phrase.lower() in e.words.lower()]


def module_of(each, own) -> str:
    """Return the module of the book that raises what a cell expects, or nothing.

    It is in the table of errors, or the page's cells import it, and its code has words
    of the message together. A class without words is of the page's own module.
    """
    words = each.phrase or each.kind
    for module, phrases in own.items():
        if words in phrases:
            return module
    if not each.phrase:
        return each.page.file.stem
    pairs = [" ".join(pair) for pair in pairwise(words.split())]
    counts = {"": 0}
    for file in each.page.modules(each.page.docs.parent / "src/examples"):
        text = " ".join(file.read_text().split())
        counts[file.stem] = sum(pair in text for pair in pairs)
    return max(counts, key=counts.get)


def group_cells(docs):
    """Return the cells of each entry, those of each module, and those of neither."""
    table, own = read_table(docs)
    by_entry, by_module = {e.name: [] for e in table}, defaultdict(list)
    for each in chain.from_iterable(map(raising_cells, contents.pages(docs))):
        found = entries_of(each.kind, each.phrase, table)
        for entry in found:
            by_entry[entry.name].append(each)
        if not found:
            by_module[module_of(each, own)].append(each)
    rest = by_module.pop("", [])
    return by_entry, dict(sorted(by_module.items())), rest


def link(title, place, page) -> str:
    """Return a link from a page to `part/name#anchor`."""
    name, mark, anchor = place.partition("#")
    return f"[{title}]({relpath(f'{name}.md', f'{page.name}/..')}{mark}{anchor})"


def entry_links(entry, cells, page) -> str:
    """Return the links of an entry: where it is explained, and cells that raise it."""
    found = {}
    for place in entry.page:
        name, _, anchor = place.partition("#")
        other = read_page(page.docs / f"{name}.md", page.docs)
        titles = (title for _, title, anchors in headings(other) if anchor in anchors)
        found[next(titles, other.title)] = place
    for each in cells[:LINKS]:
        found.setdefault(each.title, each.place)
    lines = [link(*item, page) for item in found.items()]
    if entry.source:
        lines.append(f"[others met it]({entry.source}) ({entry.date}; not run here)")
    return " · ".join(lines)


def index_text(page) -> str:
    """Return the list in MyST: an entry is message, meaning and links."""
    by_entry, by_module, _ = group_cells(page.docs)
    found = []
    for group, title in GROUPS.items():
        found.append(f"(errors-{group})=\n\n## {title}")
        for entry in read_table(page.docs)[0]:
            if entry.group == group:
                code = format_code(entry.words)
                links = entry_links(entry, by_entry[entry.name], page)
                found.append(ENTRY.format(entry=entry, code=code, links=links))
    found.append("(errors-own)=\n\n## Errors of the book's own modules")
    for module, cells in by_module.items():
        words = (": ".join(filter(None, [each.kind, each.phrase])) for each in cells)
        links = (link(each.title, each.place, page) for each in cells)
        lines = map("- {} {}".format, map(format_code, words), links)
        found += [f"**{module}**", "\n".join(lines)]
    return "\n\n".join(found)


def format_code(words) -> str:
    """Return words as code in Markdown; they may have backquotes in them."""
    return f"`` {words} ``" if "`" in words else f"`{words}`"
