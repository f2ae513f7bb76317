"""A page of the book, read once, by the parser that MyST brings.

Page    a file: its front matter, its cells, its exercises, what it needs
Cell    a piece of text, or code with its tags and options
Block   a fenced part of a text: code, or a directive
"""

import re
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from itertools import chain, count
from pathlib import Path
from posixpath import normpath

import yaml
from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

SYNTAX = MdParserConfig(
    enable_extensions={"colon_fence", "dollarmath", "substitution"},
    disable_syntax=["inline"],  # blocks are enough, and twice as fast
)
SHORT = re.compile(r":(?:[\w-]+:|#)")  # an option on a line of its own, or a comment
OPTION = re.compile(r":?([\w-]+):|---")  # or an end of the options
FENCES = "fence", "colon_fence"
GUARDS = "expect", "raises", "check", "fold"  # the options that `guards` knows
MODULE = re.compile(r"\bexamples(?:[./]| import )(\w+(?:, \w+)*)")
PIECE = re.compile(  # a role, a link or a picture; or what is plain, to pass it
    r"""(?P<plain>\\. | (?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)
        | (?P<dollars>\$\$?)[^$]+(?P=dollars))
    | \{(?P<role>[\w:-]+)\}`(?P<given>[^`]+)`
    | (?P<image>!?)\[(?P<text>(?:`[^`]*`|\[[^][]*\]|[^][`])*)\]\((?P<target>[^()\s]*)\)
    """,
    re.S | re.X,
)
SENTENCE = re.compile(r".+?(?:[.?](?=\s)|$)")
ENOUGH = 40  # characters of a statement
PAGES_OF_MODULES = "reference/modules"  # a list and a folder, of `module_reference`


@cache
def parser():
    """Return MyST's parser, for blocks."""
    return create_md_parser(SYNTAX, RendererHTML)


# ------------------------------------------------------------------------- blocks


@dataclass(frozen=True)
class Block:
    """A fenced part of a text: code, or a directive.

    Attributes:
        name: of the directive; None for code.
        argument: what follows the name, or the language of code.
        options: the option's name -> its value, of texts alone.
        header: the number of lines with options.
        content: what stands below the options.
        source: all of it.
        lines: of the whole block, the first and the one after the last, from 0.
    """

    name: str | None
    argument: str
    options: dict
    header: int
    content: str
    source: str
    lines: tuple[int, int]


def block(token, text) -> Block:
    """Return a token of the parser as a block of this text."""
    name, argument = split_info(token.info.strip())
    lines = token.content.rstrip("\n").split("\n")
    header, count = split_options(lines) if name else ("", 0)
    options = read_options(header, token.map[0] + 1)
    source = "\n".join(text.split("\n")[slice(*token.map)])
    content = "\n".join(lines[count:]).strip("\n")
    return Block(name, argument, options, count, content, source, tuple(token.map))


def split_info(info) -> tuple[str | None, str]:
    """Return the name and the argument behind a fence; code has a language alone."""
    name, brace, argument = info.removeprefix("{").partition("}")
    return (name, argument.strip()) if brace and info[0] == "{" else (None, info)


def read_options(header, line) -> dict:
    """Return the options of the directive in this line, without types."""
    try:
        options = yaml.load(header, yaml.BaseLoader) or {}
        for name in GUARDS:
            if not isinstance(options.get(name, ""), str):
                raise yaml.YAMLError(f"{name} is no text")
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"line {line}: the options of a cell need quotes, or a block "
            f"(`|`, `|2`): {reason}"
        ) from error
    return options


def split_options(lines) -> tuple[str, int]:
    """Return the options at the start of a block as YAML, and their number of lines."""
    if lines[:1] == ["---"]:
        end = lines.index("---", 1)
        return "\n".join(lines[1:end]), end + 1
    count = next((n for n, at in enumerate(lines) if not SHORT.match(at)), len(lines))
    return "\n".join(line[1:] for line in lines[:count]), count


def rewrite_blocks(text, change, change_line=str) -> str:
    """Return a text with `change(block)` in the place of each block."""
    lines, last, found = text.split("\n"), 0, []
    for each in blocks(text):
        start, end = each.lines
        between = lines[last:start] or [""]  # no block touches another
        found += [*map(change_line, between), change(each)]
        last = end
    return "\n".join([*found, *map(change_line, lines[last:] or [""])])


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
    """Return running text with `change(match)` in the place of each match of PIECE."""
    return PIECE.sub(lambda m: m[0] if m["plain"] else change(m), text)


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
        others: its other options.
        header: the number of lines with options, below its fence.
    """

    code: bool
    source: str
    line: int
    tags: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    others: dict = field(default_factory=dict)
    header: int = 0


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
        first = self.tokens[0]
        return yaml.safe_load(first.content) if first.type == "front_matter" else {}

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
        lines, found = self.text.split("\n"), []
        last = self.tokens[0].map[1] if self.front else 0
        for each in self.blocks:
            if each.name == "code-cell":
                found += [markdown_cell(lines, last, each.lines[0]), code_cell(each)]
                last = each.lines[1]
        found.append(markdown_cell(lines, last, len(lines)))
        return [cell for cell in found if cell.code or cell.source]

    @property
    def code(self) -> list[Cell]:
        """Its cells that run."""
        return [cell for cell in self.cells if cell.code]

    def modules(self, folder) -> list[Path]:
        """List the modules of `folder` that its cells name."""
        found = (names for cell in self.code for names in MODULE.findall(cell.source))
        names = {name for each in found for name in each.split(", ")}
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


def markdown_cell(lines, first, last) -> Cell:
    """Return the lines of a page between two others as a cell of Markdown."""
    while first < last and not lines[first].strip():
        first += 1
    return Cell(False, "\n".join(lines[first:last]).rstrip(), first + 1)


def code_cell(each) -> Cell:
    """Return a block of code that runs as a cell."""
    own = {name: each.options[name] for name in GUARDS if name in each.options}
    others = {k: value for k, value in each.options.items() if k not in GUARDS}
    tags = tuple(others.get("tags", ()))
    return Cell(True, each.content, each.lines[0] + 1, tags, own, others, each.header)


def unique_name(stem, taken) -> str:
    """Return a name, with a number if it is taken, and add it to those taken."""
    names = chain([stem], (f"{stem}-{n}" for n in count(2)))
    name = next(each for each in names if each not in taken)
    taken.add(name)
    return name


def first_sentence(text) -> str:
    """Return how a statement in MyST begins, on one line, its links without targets.

    That is its first sentence, or a few if the first says little.
    """
    start = text.strip().partition("\n\n")[0]
    text = rewrite_text(start, lambda m: m["text"] or m[0])
    words = " ".join(text.split())
    found = ""
    for sentence in SENTENCE.findall(words):
        if len(found) < ENOUGH:
            found += sentence
    return found.strip().rstrip(".,:;?") + "."


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
        for n in option_lines(lines, cell, GUARDS):
            mark = ":" if lines[n].startswith(":") else ""
            lines[n] = f"{mark}#{lines[n].removeprefix(':')}"
    return "\n".join(lines)


def option_lines(lines, cell, names) -> list[int]:
    """List the places of a cell's options of these names in the lines of its page."""
    found, name = [], ""
    for n in range(cell.line, cell.line + cell.header):
        if start := OPTION.match(lines[n]):  # else it continues an option
            name = start[1]
        if name in names:
            found.append(n)
    return found
