"""A page of the book, read once, by the parser that MyST brings.

Page    a file: its front matter, its cells, its exercises, what it needs
Cell    a piece of text, or code with its tags and options
Block   a fenced part of a text: code, or a directive
Piece   a role, a link or a picture in running text
"""

import re
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path
from posixpath import normpath

import yaml
from markdown_it.helpers import parseLinkLabel
from markdown_it.renderer import RendererHTML
from markdown_it.rules_inline import image, link
from mdit_py_plugins.myst_role.index import myst_role
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

SYNTAX = MdParserConfig(
    enable_extensions={"colon_fence", "dollarmath", "substitution"},
    disable_syntax=["inline"],  # blocks are enough, and twice as fast
)
SHORT = re.compile(r":(?:[\w-]+:|#)")  # an option on a line of its own, or a comment
FENCES = "fence", "colon_fence"
GUARDS = "expect", "raises", "check", "fold"  # the options that `guards` knows
MODULE = re.compile(r"\bexamples(?:[./]| import )(\w+(?:, \w+)*)")
SENTENCE = re.compile(r".+?(?:[.?](?=\s)|$)")
ENOUGH = 40  # characters of a statement
PAGES_OF_MODULES = "reference/modules"  # a list and a folder, of `module_reference`


@cache
def parser():
    """Return MyST's parser, for blocks; `pieces` uses it for running text."""
    found = create_md_parser(SYNTAX, RendererHTML)
    for name, rule in {"myst_role": myst_role, "link": link, "image": image}.items():
        found.inline.ruler.at(name, record_pieces(name.removeprefix("myst_"), rule))
    return found


# ------------------------------------------------------------------------- blocks


@dataclass(frozen=True)
class Block:
    """A fenced part of a text: code, or a directive.

    Attributes:
        name: of the directive; None for code.
        argument: what follows the name, or the language of code.
        options: the option's name -> its text, as it stands in the source.
        places: the option's name -> its lines, the first and the one after the last.
        header: the options as YAML, of code that runs.
        content: what stands below the options.
        source: all of it.
        lines: of the whole block, the first and the one after the last, from 0.
    """

    name: str | None
    argument: str
    options: dict[str, str]
    places: dict[str, tuple[int, int]]
    header: str
    content: str
    source: str
    lines: tuple[int, int]


def block(token, text) -> Block:
    """Return a token of the parser as a block of this text."""
    name, argument = split_info(token.info.strip())
    lines = token.content.rstrip("\n").split("\n")
    header, count = split_options(lines) if name else ("", 0)
    first = token.map[0] + 1 + (lines[0] == "---")
    options, places = (
        read_yaml(header, first) if name == "code-cell" else (raw_options(header), {})
    )
    source = "\n".join(text.split("\n")[slice(*token.map)])
    content = "\n".join(lines[count:]).strip("\n")
    rest = header, content, source, tuple(token.map)
    return Block(name, argument, options, places, *rest)


def split_info(info) -> tuple[str | None, str]:
    """Return the name and the argument behind a fence; code has a language alone."""
    name, brace, argument = info.removeprefix("{").partition("}")
    return (name, argument.strip()) if brace and info[0] == "{" else (None, info)


def read_yaml(header, first) -> tuple[dict[str, str], dict[str, tuple[int, int]]]:
    """Return the options of a cell as text, and their lines; the first has a number."""
    options, places = {}, {}
    try:
        for key, value, start, end in yaml_items(header):
            options[key], places[key] = value, (first + start, first + end)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"line {first}: the options of a cell need quotes, or a block "
            f"(`|`, `|2`): {reason}"
        ) from error
    return options, places


def raw_options(header) -> dict[str, str]:
    """Return the options of another directive: the raw text behind each colon."""
    pairs = (line.partition(": ") for line in f"{header}\n".splitlines())
    return {key.rstrip(":"): value.strip() for key, _, value in pairs}


def split_options(lines) -> tuple[str, int]:
    """Return the options at the start of a block as YAML, and their number of lines."""
    if lines[:1] == ["---"]:
        end = lines.index("---", 1)
        return "\n".join(lines[1:end]), end + 1
    count = next((n for n, at in enumerate(lines) if not SHORT.match(at)), len(lines))
    return "\n".join(line[1:] for line in lines[:count]), count


def yaml_items(header):
    """Yield from YAML each key and its value as text, and the lines that they take."""
    node = yaml.compose(header, yaml.BaseLoader) if header else None
    for key, value in node.value if node else ():
        last = value.end_mark
        end = last.line + (last.column > 0)
        yield key.value, yaml_text(value, header), key.start_mark.line, end


def yaml_text(node, header) -> str:
    """Return a value as text: `0.10` and `{}` stay what they are."""
    if isinstance(node, yaml.ScalarNode):
        return node.value
    return header[node.start_mark.index : node.end_mark.index].strip()


def parts(text) -> list[str | Block]:
    """Return the parts of a text: a string for what is not fenced, and blocks."""
    lines, found, last = text.split("\n"), [], 0
    for each in blocks(text):
        start, end = each.lines
        found += ["\n".join(lines[last:start]), each]
        last = end
    return [*found, "\n".join(lines[last:])]


@lru_cache(maxsize=256)  # a build asks several times for each page
def parse(text):
    """Return what MyST's parser makes of a text."""
    return parser().parse(text)


@lru_cache(maxsize=256)
def blocks(text) -> list[Block]:
    """Return the fenced parts of a text."""
    tokens = (token for token in parse(text) if token.type in FENCES)
    return [block(token, text) for token in tokens]


# ------------------------------------------------------------------- running text


@dataclass(frozen=True)
class Piece:
    """A role, a link or a picture in running text.

    Attributes:
        kind: role, link or image.
        name: of the role.
        text: what the role is given, or what stands in the brackets.
        target: of the link or the picture.
        source: all of it.
        start: where it begins in the text.
    """

    kind: str
    name: str
    text: str
    target: str
    source: str
    start: int


def record_pieces(kind, rule):
    """Return a rule of the parser that records each piece and its place."""

    def recording_rule(state, silent):
        start = state.pos
        found = rule(state, silent)
        if found and not silent:
            state.env["pieces"].append(piece(kind, state, start))
        return found

    return recording_rule


def piece(kind, state, start) -> Piece:
    """Return what a rule of the parser has just found."""
    source = state.src[start : state.pos]
    if kind == "role":
        token = state.tokens[-1]
        return Piece(kind, token.meta["name"], token.content, "", source, start)
    bracket = start + (kind == "image")
    text = state.src[bracket + 1 : parseLinkLabel(state, bracket)]
    key = "src" if kind == "image" else "href"
    target = next(t.attrs[key] for t in reversed(state.tokens) if key in t.attrs)
    return Piece(kind, "", text, target, source, start)


def pieces(text) -> list[Piece]:
    """Return the roles, links and pictures of running text, none inside another."""
    found, outer = [], []
    parser().inline.parse(text, parser(), {"pieces": found}, [])
    for each in sorted(found, key=lambda each: each.start):
        if not outer or each.start >= outer[-1].start + len(outer[-1].source):
            outer.append(each)
    return outer


def rewrite_markdown(text, change) -> str:
    """Return Markdown with its running text rewritten: not code, nor a directive."""
    lines, last, found = text.split("\n"), 0, []
    for token in parse(text):
        if token.type == "inline" and token.map[0] >= last:
            start, end = token.map
            own = "\n".join(lines[start:end])
            found += [*lines[last:start], rewrite_text(own, change)]
            last = end
    return "\n".join([*found, *lines[last:]])


def rewrite_text(text, change) -> str:
    """Return running text with `change(piece)` in the place of each piece."""
    found, last = [], 0
    for each in pieces(text):
        found += [text[last : each.start], change(each)]
        last = each.start + len(each.source)
    return "".join([*found, text[last:]])


# -------------------------------------------------------------------------- pages


@dataclass(frozen=True)
class Cell:
    """A part of a page: Markdown, or code that runs.

    Attributes:
        code: whether it runs.
        source: its text.
        line: where its fence is in the file, or its first line, from 1.
        tags: words for machines.
        options: those of GUARDS that it states.
        others: its other options, as YAML reads them.
        places: the lines of its options, from 0.
    """

    code: bool
    source: str
    line: int
    tags: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    others: dict = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Exercise:
    """An exercise: the tag of its stub, its title, what it asks, its line from 0."""

    name: str
    title: str
    asks: str
    line: int


@dataclass(frozen=True)
class Page:
    """A page of the book, and where the book is published, if it is.

    Attributes:
        file: the page's source, such as `docs/arrays/meshes.md`.
        docs: the folder of all pages.
        address: where the built site is, or nothing.
        source: the page's text, where it is not to be read from the file.
    """

    file: Path
    docs: Path
    address: str = ""
    source: str | None = None

    @cached_property
    def text(self) -> str:
        """The page's source."""
        return self.file.read_text() if self.source is None else self.source

    @property
    def name(self) -> str:
        """The page's name in the site, such as `arrays/meshes`."""
        return self.file.relative_to(self.docs).with_suffix("").as_posix()

    @cached_property
    def tokens(self):
        """What MyST's parser makes of the source."""
        return parse(self.text)

    @cached_property
    def front(self) -> dict:
        """The settings at the top."""
        return front_matter(self.text)

    @property
    def is_notebook(self) -> bool:
        """Whether there are cells to run."""
        return "kernelspec" in self.front

    @cached_property
    def title(self) -> str:
        """The first heading."""
        kinds = [token.type for token in self.tokens]
        return self.tokens[kinds.index("heading_open") + 1].content

    @property
    def description(self) -> str:
        """What the page says to search engines, or nothing."""
        meta = self.front.get("myst", {}).get("html_meta", {})
        return " ".join(meta.get("description", "").split())

    @property
    def needs(self) -> list[str]:
        """The packages that its cells need."""
        return str(self.front.get("needs", "")).replace(",", " ").split()

    @property
    def data(self) -> list[Path]:
        """The files that it reads, as its front matter states them."""
        return [self.file.parent / name for name in self.front.get("data", "").split()]

    @cached_property
    def blocks(self) -> list[Block]:
        """Its fenced parts."""
        return blocks(self.text)

    @cached_property
    def cells(self) -> list[Cell]:
        """Its cells, in order; text without a word is none."""
        return cells(self.text)

    @property
    def code(self) -> list[Cell]:
        """Its cells that run."""
        return [cell for cell in self.cells if cell.code]

    def modules(self, folder) -> list[Path]:
        """List the modules of `folder` that its cells name."""
        names = {name for cell in self.code for name in modules_in(cell.source)}
        files = (folder / f"{name}.py" for name in sorted(names))
        return [file for file in files if file.exists()]

    @cached_property
    def exercises(self) -> list[Exercise]:
        """Its exercises: a box of the class `exercise`, and the next stub."""
        stubs = [cell for cell in self.code if "exercise" in cell.tags]
        found = []
        for each in self.blocks:
            if each.options.get("class") != "exercise":
                continue
            line = each.lines[0]
            stub = next((cell for cell in stubs if cell.line > line), None)
            if stub is None:
                continue
            title = each.argument.removeprefix("Exercise: ")
            name = stub.tags[stub.tags.index("exercise") + 1]
            asks = first_sentence(each.content)
            found.append(Exercise(name, title[0].upper() + title[1:], asks, line))
        return found

    def url(self, target) -> str:
        """Return the published address of a link on this page, or nothing."""
        path, hash_, anchor = target.partition("#")
        if not self.address or ":" in path:
            return ""
        folder = Path(self.name).parent.as_posix()
        path = normpath(f"{folder}/{path}") if path else f"{self.name}.md"
        if path.endswith(".md"):
            path = f"{path.removesuffix('.md')}.html"
        return f"{self.address.rstrip('/')}/{path}{hash_}{anchor}"


@lru_cache(maxsize=256)
def front_matter(text) -> dict:
    """Return the settings at the top of a page's text."""
    first = next(iter(parse(text)), None)
    if first is None or first.type != "front_matter":
        return {}
    return yaml.safe_load(first.content) or {}


@lru_cache(maxsize=256)
def cells(text) -> list[Cell]:
    """Return the cells of a page's text, in order; text without a word is none."""
    lines, tokens, found = text.split("\n"), parse(text), []
    front = tokens and tokens[0].type == "front_matter"
    last = tokens[0].map[1] if front else 0
    for each in blocks(text):
        if each.name == "code-cell":
            found += [markdown_cell(lines, last, each.lines[0]), code_cell(each)]
            last = each.lines[1]
    found.append(markdown_cell(lines, last, len(lines)))
    return [cell for cell in found if cell.code or cell.source]


def markdown_cell(lines, first, last) -> Cell:
    """Return the lines of a page between two others as a cell of Markdown."""
    while first < last and not lines[first].strip():
        first += 1
    return Cell(False, "\n".join(lines[first:last]).rstrip(), first + 1)


def code_cell(each) -> Cell:
    """Return a block of code that runs as a cell."""
    read = yaml.safe_load(each.header) or {} if each.header else {}
    others = {name: value for name, value in read.items() if name not in GUARDS}
    own = {name: each.options[name] for name in GUARDS if name in each.options}
    tags = tuple(others.get("tags") or ())
    return Cell(True, each.content, each.lines[0] + 1, tags, own, others, each.places)


def modules_in(code) -> list[str]:
    """List the names that code imports from the package of modules, or runs."""
    return [name for names in MODULE.findall(code) for name in names.split(", ")]


def first_sentence(text) -> str:
    """Return how a statement in MyST begins, on one line, its links without targets.

    That is its first sentence, or a few if the first says little.
    """
    start = text.strip().partition("\n\n")[0]
    words = " ".join(rewrite_text(start, link_text).split())
    found = ""
    for sentence in SENTENCE.findall(words):
        if len(found) < ENOUGH:
            found += sentence
    return found.strip().rstrip(".,:;?") + "."


def link_text(piece) -> str:
    """Return the text of a link; roles and pictures stay."""
    return piece.text if piece.kind == "link" else piece.source


def pages(docs) -> list[Page]:
    """Return all pages of a folder, by their names, without those of modules."""
    files = [*docs.glob("*.md"), *docs.glob("[!_]*/**/*.md")]  # not those in _build
    modules = docs / PAGES_OF_MODULES
    return [Page(file, docs) for file in sorted(files) if file.parent != modules]


def comment_options(page) -> str:
    """Return a page's text with the options in GUARDS as comments; no line moves.

    MyST-NB's cache keys a page by all options of its cells: as comments they are no
    part of it, so that a page does not run again for a new expectation.
    """
    lines = page.text.split("\n")
    for cell in page.code:
        for name in cell.options:
            for n in range(*cell.places[name]):
                mark = ":" if lines[n].startswith(":") else ""
                lines[n] = f"{mark}#{lines[n].removeprefix(':')}"
    return "\n".join(lines)
