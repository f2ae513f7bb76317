"""Generate the page of errors: each message, its meaning and its cure, all checked.

There is an entry for each table of `data/errors.toml`: the constant words of the
message, what it means, the cure, and links to the cells that raise it. Those are found
by what the cells expect (`raises`, `--raises`), so an entry needs no edit when a page
shows its error once more. Errors of the book's own modules say what to pass: they are
listed by module.

    RaisingCell   a cell that expects an error
    Entry         the meaning and the cure of an error
    matches       the entries that fit a text that a reader pastes; `_static/find.js`
                  does the same for the search and for the box of the page
"""

import ast
import json
import re
import shlex
import tomllib
from dataclasses import dataclass
from functools import cache
from itertools import chain, combinations, pairwise
from pathlib import Path
from posixpath import relpath

from docutils.nodes import make_id
from myst_parser.mdit_to_docutils.base import default_slugify

from book import contents
from book.page import Page, unique_name

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
OWN = "Errors of the book's own modules"
PROCESSES = "%%every"
GAP = 400  # characters that `...` may stand for
LINKS = 4  # cells that an entry leads to
ENOUGH = 7  # characters that a module says of what a cell expects
ENTRY = """\
:::::{{error-entry}} {words}
{option}

{text}
:::::"""
VARIES = re.compile(r"\d[\d.,]*|'[^']*'")  # numbers and names in a message


# ------------------------------------------------------------------- what cells raise


@dataclass(frozen=True)
class RaisingCell:
    """A cell that expects an error.

    Attributes:
        page: that it stands on.
        kind: the class that it expects.
        phrase: the words of the message that it expects, or none.
        source: its code.
        line: where it is in the page.
        title: of its section.
        anchor: of the cell itself.
    """

    page: Page
    kind: str
    phrase: str
    source: str
    line: int
    title: str
    anchor: str


def expected_error(cell) -> tuple[str, str] | None:
    """Return the class and the words that a cell expects of an error, if it does."""
    option = cell.options.get("raises", "")
    first = cell.source.partition("\n")[0]
    if first.startswith(PROCESSES) and "--raises" in first:
        words = shlex.split(first)
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
            found.append(
                RaisingCell(page, *error, cell.source, cell.line, title, anchor)
            )
    return found


def headings(page) -> list[tuple[int, str, list[str]]]:
    """List the headings of a page: their lines, from 1, their texts, and labels."""
    found, labels = [], []
    for token, text in pairwise(page.tokens):
        if token.type == "myst_target":
            labels.append(token.content)
        elif token.type == "heading_open":
            found.append((token.map[0] + 1, text.content, labels))
            labels = []
    return found


# -------------------------------------------------------------------- what is said


@dataclass(frozen=True)
class Entry:
    """An entry of the list: see `docs/reference/data/errors.toml`."""

    name: str
    group: str
    kind: str
    words: str
    means: str
    cure: str
    also: list[str] = ()
    short: list[str] = ()
    page: list[str] = ()
    source: str = ""
    date: str = ""

    @property
    def patterns(self) -> list[str]:
        """All words by which a message is known."""
        return [self.words, *self.also]


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


def normalize_traceback(text) -> str:
    """Return a traceback as one line, without what tools write before its lines."""
    lines = (
        re.sub(r"^\s*(?:\[[a-z ]*\d+\]:?|E(?= )|[>!|])\s*", "", x)
        for x in text.splitlines()
    )
    return " ".join(" ".join(lines).replace("`", "").split())


def matches(text, table) -> list[Entry]:
    """Return the entries whose words stand in a text."""
    text = normalize_traceback(text)
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


@cache
def texts_of(file) -> str:
    """Return the texts in the code of a module, on one line."""
    nodes = ast.walk(ast.parse(file.read_text()))
    found = (node.value for node in nodes if isinstance(node, ast.Constant))
    return " ".join(" ".join(each for each in found if isinstance(each, str)).split())


def longest_run(phrase, text) -> int:
    """Return the length of the longest words of a phrase that a text has together."""
    words = phrase.split()
    runs = (" ".join(words[i:j]) for i, j in combinations(range(len(words) + 1), 2))
    return max((len(run) for run in runs if run in text), default=0)


def module_of(each) -> str:
    """Return the module of the book with the message that a cell expects, or nothing.

    Its texts have some of these words together; the modules of the page come first.
    A cell that expects a class and no words counts for the module of its page.
    """
    if not each.phrase:
        return each.page.file.stem
    folder = each.page.docs.parent / "src/examples"
    own = each.page.modules(folder)
    files = [*own, *sorted(set(folder.glob("*.py")) - {*own})]
    runs = {file.stem: longest_run(each.phrase, texts_of(file)) for file in files}
    best = max(runs, key=runs.get, default="")
    return best if best and runs[best] >= ENOUGH else ""


def group_cells(docs):
    """Return the cells of each entry, those of each module, and those of neither."""
    table, own = read_table(docs)
    by_entry, by_module, rest = {e.name: [] for e in table}, {}, []
    for each in chain.from_iterable(map(raising_cells, contents.pages(docs))):
        found = entries_of(each.kind, each.phrase, table)
        place = next((k for k, v in own.items() if (each.phrase or each.kind) in v), "")
        if place or (not found and (place := module_of(each))):
            by_module.setdefault(place, []).append(each)
        elif found:
            for entry in found:
                by_entry[entry.name].append(each)
        else:
            rest.append(each)
    return by_entry, dict(sorted(by_module.items())), rest


# ------------------------------------------------------------------------ as Markdown


def format_code(words) -> str:
    """Return words as code in Markdown; they may have backquotes in them."""
    return f"`` {words} ``" if "`" in words else f"`{words}`"


def link_target(path, page) -> str:
    """Return the target of a link from a page to `part/name#anchor`."""
    name, mark, anchor = path.partition("#")
    file = f"{name}.md"
    return f"{relpath(file, Path(page.name).parent.as_posix())}{mark}{anchor}"


def section_at(path, docs) -> tuple[str, str]:
    """Return the title of a section, or of a page, and its path for MyST."""
    name, _, anchor = path.partition("#")
    other = Page(docs / f"{name}.md", docs)
    for _, title, labels in headings(other):
        own = slug(title)
        if anchor in labels:
            return title, path
        if anchor in (own, make_id(own)):
            return title, f"{name}#{own}"
    return other.title, path


def slug(title) -> str:
    """Return the anchor that MyST makes of a heading."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
    return default_slugify(words)


def mask_values(phrase) -> str:
    """Return a phrase with `...` for its numbers and its quoted names."""
    return VARIES.sub("...", phrase)


def entry_links(entry, cells, page) -> str:
    """Return the links of an entry: where it is explained, and cells that raise it."""
    found = {
        path: title for title, path in (section_at(p, page.docs) for p in entry.page)
    }
    titles = {*found.values()}
    for each in cells[:LINKS]:
        if each.title not in titles:
            found[f"{each.page.name}#{each.anchor}"] = each.title
            titles.add(each.title)
    lines = [f"[{title}]({link_target(path, page)})" for path, title in found.items()]
    if entry.source:
        lines.append(f"[others met it]({entry.source}) ({entry.date}; not run here)")
    return " · ".join(lines)


def entry_text(entry, cells, page) -> str:
    """Return an entry in MyST."""
    head = f"{format_code(entry.words)} *{entry.kind}*"
    body = f"{entry.means} **Do:** {entry.cure}"
    return f"{head}\n\n{body}\n\n{entry_links(entry, cells, page)}"


def own_error_text(each, page) -> str:
    """Return the line of an error that a module of the book raises."""
    words = f"{each.kind}: {each.phrase}" if each.phrase else each.kind
    place = link_target(f"{each.page.name}#{each.anchor}", page)
    return f"{format_code(words)} [{each.title}]({place})"


def index_text(page) -> str:
    """Return the whole list in MyST, to stand on a page."""
    by_entry, by_module, _ = group_cells(page.docs)
    table, found = read_table(page.docs)[0], []
    for group, title in GROUPS.items():
        found.append(f"(errors-{group})=\n\n## {title}")
        own = (entry for entry in table if entry.group == group)
        found += [entry_text(entry, by_entry[entry.name], page) for entry in own]
    found.append(f"(errors-own)=\n\n## {OWN}")
    for module, cells in by_module.items():
        found.append(f"**{module}**")
        found.append("\n".join(f"- {own_error_text(each, page)}" for each in cells))
    return "\n\n".join(found)


def list_text(page) -> str:
    """Return the list for the site: each entry has the words that find it."""
    by_entry, by_module, _ = group_cells(page.docs)
    table, found = read_table(page.docs)[0], []
    for group, title in GROUPS.items():
        found.append(f"(errors-{group})=\n\n## {title}")
        for entry in (entry for entry in table if entry.group == group):
            text = entry_text(entry, by_entry[entry.name], page)
            found.append(frame(entry.patterns, f":name: error-{entry.name}", text))
    count = sum(map(len, by_module.values()))
    found.append(f"(errors-own)=\n\n## {OWN}")
    start = f'<details class="own-errors"><summary>{count} errors'
    found.append(f"{start} that say themselves what to pass</summary>")
    for module, cells in by_module.items():
        found.append(f"```{{rubric}} {module}\n```")
        for each in cells:
            words = [mask_values(each.phrase)] * (len(each.phrase) >= ENOUGH)
            found.append(frame(words, ":class: own", own_error_text(each, page)))
    return "\n\n".join([*found, "</details>"])


def frame(words, option, text) -> str:
    """Return an entry as a directive."""
    words = json.dumps(words, ensure_ascii=False)
    return ENTRY.format(words=words, option=option, text=text)
