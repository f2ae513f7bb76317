"""A page of the book, read once, by the parser that MyST brings.

Page    a file: its front matter, its cells, its exercises, what it needs
Cell    a piece of text, or code with its tags and options
Block   a fenced part of a text: code, or a directive
"""

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain, count, pairwise, takewhile
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
PARSER = create_md_parser(SYNTAX, RendererHTML)
DIRECTIVE = re.compile(r"\{([^}]+)\}\s*(.*)")  # behind a fence; code has a language
SHORT = re.compile(r":(?:[\w-]+:|#)")  # an option on a line of its own, or a comment
OPTION = re.compile(r":?([\w-]+):|---")  # or an end of the options
FENCES = "fence", "colon_fence"
GUARDS = "expect", "raises", "check", "fold"  # the options that `guards` knows
MODULE = re.compile(r"\bexamples(?:[./]| import )(\w+)")
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
SUMMARY = re.compile(r".{39,}?[.?](?=\s)|.*")  # enough sentences for 40 characters
PAGES_OF_MODULES = "reference/modules"  # a list and a folder, of `module_reference`


@lru_cache(maxsize=1024)  # a build asks several times for each page
def parse(text) -> list:
    """Return the tokens that MyST's parser makes of a text."""
    return PARSER.parse(text)


def rewrite(text, forms) -> list[str]:
    """Return the lines of a text, and what `forms[type](token, source)` makes of it."""
    lines, last, found = text.split("\n"), 0, []
    for token in parse(text):
        if token.type in forms and token.map[0] >= last:
            start, end = token.map
            source = "\n".join(lines[start:end])
            found += [*lines[last:start], forms[token.type](token, source)]
            last = end
    return [*found, *lines[last:]]


@dataclass(frozen=True)
class Block:
    """A fenced part of a text: code, or a directive."""

    name: str | None  # of the directive; None for code
    argument: str  # what follows the name, or the language of code
    options: dict  # the option's name -> its value, of texts alone
    header: int  # the number of lines with options
    content: str  # what stands below the options
    source: str  # all of it
    lines: tuple[int, int]  # the first and the one after the last, from 0


def read_block(token, source) -> Block:
    """Return the block of a token."""
    info = token.info.strip()
    directive = DIRECTIVE.match(info)
    name, argument = directive.groups() if directive else (None, info)
    lines = token.content.rstrip("\n").split("\n")
    header, count = split_options(lines) if name else ([], 0)
    options = read_options("\n".join(header), token.map[0] + 1)
    content = "\n".join(lines[count:]).strip("\n")
    return Block(name, argument, options, count, content, source, tuple(token.map))


def split_options(lines) -> tuple[list[str], int]:
    """Return the options at the start of a block in YAML, and their number of lines."""
    if lines[0] == "---":
        end = lines.index("---", 1)
        return lines[1:end], end + 1
    header = [line[1:] for line in takewhile(SHORT.match, lines)]
    return header, len(header)


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


# -------------------------------------------------------------------------- pages


@dataclass(frozen=True)
class Cell:
    """A part of a page: Markdown, or code that runs."""

    code: bool
    source: str
    line: int  # of its fence in the file, or its first one, from 1
    tags: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)  # those of GUARDS
    others: dict = field(default_factory=dict)
    header: int = 0  # the number of lines with options, below its fence


@dataclass(frozen=True)
class Exercise:
    """An exercise: the tag of its stub, its title, what it asks, its line from 0."""

    name: str
    title: str
    asks: str
    line: int


@dataclass(frozen=True)
class Page:
    """A page of the book, and where the book is published, if it is."""

    file: Path  # the source, such as `docs/arrays/meshes.md`
    docs: Path  # the folder of all pages
    address: str = ""  # of the built site
    source: str | None = None  # where it is not to be read from the file

    @cached_property
    def text(self) -> str:
        """The page's source."""
        return self.file.read_text() if self.source is None else self.source

    @property
    def name(self) -> str:
        """The page's name in the site, such as `arrays/meshes`."""
        return self.file.relative_to(self.docs).with_suffix("").as_posix()

    @property
    def tokens(self) -> list:
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
        pairs = pairwise(self.tokens)
        return next(text.content for token, text in pairs if token.tag == "h1")

    @property
    def description(self) -> str:
        """What the page says to search engines, or nothing."""
        meta = self.front.get("myst", {}).get("html_meta", {})
        return " ".join(meta.get("description", "").split())

    @property
    def needs(self) -> list[str]:
        """The packages that its cells need."""
        return self.front.get("needs", "").split()

    @property
    def data(self) -> list[Path]:
        """The files that it reads, as its front matter states them."""
        return [self.file.parent / name for name in self.front.get("data", "").split()]

    @cached_property
    def blocks(self) -> list[Block]:
        """Its fenced parts."""
        lines = self.text.split("\n")
        return [
            read_block(token, "\n".join(lines[slice(*token.map)]))
            for token in self.tokens
            if token.type in FENCES
        ]

    @cached_property
    def cells(self) -> list[Cell]:
        """Its cells, in order; text without a word is none."""
        lines, found = self.text.split("\n"), []
        last = self.tokens[0].map[1] if self.front else 0
        for block in self.blocks:
            if block.name == "code-cell":
                start, end = block.lines
                found += [markdown_cell(lines, last, start), code_cell(block)]
                last = end
        found.append(markdown_cell(lines, last, len(lines)))
        return [cell for cell in found if cell.code or cell.source]

    @property
    def code(self) -> list[Cell]:
        """Its cells that run."""
        return [cell for cell in self.cells if cell.code]

    def modules(self, folder) -> list[Path]:
        """List the modules of `folder` that its cells name."""
        names = {name for cell in self.code for name in MODULE.findall(cell.source)}
        files = (folder / f"{name}.py" for name in sorted(names))
        return [file for file in files if file.exists()]

    @cached_property
    def exercises(self) -> list[Exercise]:
        """Its exercises: a box of the class `exercise`, and the next stub."""
        stubs, found = [cell for cell in self.code if "exercise" in cell.tags], []
        for box in self.blocks:
            tags = [stub.tags for stub in stubs if stub.line > box.lines[0]]
            if box.options.get("class") == "exercise" and tags:
                name = tags[0][tags[0].index("exercise") + 1]
                title = box.argument.removeprefix("Exercise: ")
                title, asks = title[0].upper() + title[1:], first_sentence(box.content)
                found.append(Exercise(name, title, asks, box.lines[0]))
        return found

    def url(self, target) -> str:
        """Return the address of a link on this page; one inside may have none yet."""
        path, mark, anchor = target.partition("#")
        if ":" in path or not self.address:
            return target if ":" in path else ""
        path = normpath(f"{self.name}/../{path}") if path else f"{self.name}.md"
        path = re.sub(r"\.md$", ".html", path)
        return f"{self.address.rstrip('/')}/{path}{mark}{anchor}"


def markdown_cell(lines, first, last) -> Cell:
    """Return the lines of a page between two others as a cell of Markdown."""
    while first < last and not lines[first].strip():
        first += 1
    return Cell(False, "\n".join(lines[first:last]).rstrip(), first + 1)


def code_cell(block) -> Cell:
    """Return a block of code that runs as a cell."""
    own = {name: block.options[name] for name in GUARDS if name in block.options}
    others = {k: value for k, value in block.options.items() if k not in GUARDS}
    tags, line = tuple(others.get("tags", ())), block.lines[0] + 1
    return Cell(True, block.content, line, tags, own, others, block.header)


def first_sentence(text) -> str:
    """Return how a statement in MyST begins, on one line, its links without targets."""
    start = LINK.sub(r"\1", text.strip().partition("\n\n")[0])
    words = SUMMARY.match(" ".join(start.split()))[0]
    return words.rstrip(".,:;?") + "."


def unique_name(stem, taken) -> str:
    """Return a name, with a number if it is taken, and add it to those taken."""
    names = chain([stem], (f"{stem}-{n}" for n in count(2)))
    name = next(each for each in names if each not in taken)
    taken.add(name)
    return name


def pages(docs) -> list[Page]:
    """Return all pages of a folder, by their names, without those of modules."""
    files = [*docs.glob("*.md"), *docs.glob("[!_]*/**/*.md")]  # not those in _build
    modules = docs / PAGES_OF_MODULES
    return [Page(file, docs) for file in sorted(files) if file.parent != modules]


def comment_options(page) -> str:
    """Return a page's text with the options in GUARDS as comments, on their lines.

    They are no part then of MyST-NB's key: no page runs for a new expectation.
    """
    lines = page.text.split("\n")
    for cell in page.code:
        for n in option_lines(lines, cell, GUARDS):
            lines[n] = re.sub(r"^:?", r"\g<0>#", lines[n])
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
