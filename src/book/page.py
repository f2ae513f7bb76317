"""A page of the book, read once, by the parser that MyST brings.

Page    a file: its front matter, its cells, its exercises, what it needs
Block   a part of its text: a cell, or another fence
"""

import re
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from itertools import chain, count, groupby
from pathlib import Path
from posixpath import normpath
from typing import NamedTuple

import yaml
from docutils.parsers.rst.directives.misc import TestDirective
from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.directives import parse_directive_text
from myst_parser.parsers.mdit import create_md_parser

SYNTAX = MdParserConfig(
    enable_extensions={"colon_fence", "dollarmath"},
    disable_syntax=["inline"],  # blocks are enough, and twice as fast
)
PARSER = create_md_parser(SYNTAX, RendererHTML)
DIRECTIVE = re.compile(r"\{([^}]+)\}\s*(.*)")  # behind a fence; code has a language
FENCES = "fence", "colon_fence"
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
    """A part of a page: text, or what stands in a fence, code or a directive."""

    content: str  # what stands below the options
    name: str | None = None  # of the directive
    argument: str = ""  # what follows the name, or the language of code
    options: dict[str, str] = field(default_factory=dict)
    header: int = 0  # the number of lines with options, below the fence
    line: int = 0  # of the fence in the file, from 1
    tags: tuple[str, ...] = ()

    @property
    def code(self) -> bool:
        """Whether it is a cell that runs."""
        return self.name == "code-cell"

    @property
    def source(self) -> str:
        """The content of a cell, as notebooks call it."""
        return self.content

    @property
    def words(self) -> str:
        """What stands for its code where that is folded."""
        check, fold = self.options.get("check", ""), self.options.get("fold", "")
        return f"Checked: {check.strip()}" if check else fold.strip()


@lru_cache(maxsize=4096)
def parse_directive(text):
    """Return what MyST reads of a directive that may have any option."""
    return parse_directive_text(TestDirective, "", text)


def read_block(token, *_) -> Block:
    """Return the block of a token."""
    text, info, line = token.content, token.info.strip(), token.map[0] + 1
    directive = DIRECTIVE.match(info)
    if not directive:
        return Block(text.strip("\n"), None, info, line=line)
    found = parse_directive(text)
    if found.warnings:
        raise ValueError(f"line {line}: {found.warnings[0].msg}")
    options = {n: o for n, o in found.options.items() if n != "mystnb"}  # MyST-NB's own
    tags = tuple(re.findall(r"[\w-]+", options.pop("tags", "")))
    content, header = "\n".join(found.body).strip("\n"), found.body_offset
    header -= found.blank_line_removed
    return Block(content, *directive.groups(), options, header, line, tags)


# -------------------------------------------------------------------------- pages


class Exercise(NamedTuple):
    """An exercise: the tag of its stub, its title, what it asks, its line from 1."""

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

    @cached_property
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
        return re.search(r"^# (.+)", self.text, re.M)[1]

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
        return [read_block(token) for token in self.tokens if token.type in FENCES]

    @cached_property
    def cells(self) -> list[Block]:
        """Its cells, in order; text without a word is none."""

        def form(token, source):
            block = read_block(token)
            return block if block.code else source

        forms = dict.fromkeys(FENCES, form) | {"front_matter": lambda *_: ""}
        found = []
        for kind, parts in groupby(rewrite(self.text, forms), type):
            if kind is Block:
                found += parts
            elif text := "\n".join(parts).strip("\n"):
                found.append(Block(text))
        return found

    @cached_property
    def code(self) -> list[Block]:
        """Its cells that run."""
        return [cell for cell in self.cells if cell.code]

    def modules(self, folder) -> list[Path]:
        """List the modules of `folder` that its cells name."""
        names = {name for cell in self.code for name in MODULE.findall(cell.source)}
        return [file for file in sorted(folder.glob("*.py")) if file.stem in names]

    @cached_property
    def exercises(self) -> list[Exercise]:
        """Its exercises: a box of the class `exercise`, and the next stub."""
        stubs, found = [cell for cell in self.code if "exercise" in cell.tags], []
        for box in self.blocks:
            line, title = box.line, box.argument.removeprefix("Exercise: ")
            tags = [stub.tags for stub in stubs if stub.line > line]
            if box.options.get("class") == "exercise" and tags:
                name = tags[0][tags[0].index("exercise") + 1]
                title, asks = title[0].upper() + title[1:], first_sentence(box.content)
                found.append(Exercise(name, title, asks, line))
        return found

    def url(self, target) -> str:
        """Return the address of a link on this page; one inside may have none yet."""
        path, mark, anchor = target.partition("#")
        if ":" in path or not self.address:
            return target if ":" in path else ""
        path = normpath(f"{self.name}/../{path or self.file.name}")
        path = re.sub(r"\.md$", ".html", path)
        return f"{self.address.rstrip('/')}/{path}{mark}{anchor}"


def first_sentence(text) -> str:
    """Return how a statement in MyST begins, on one line, its links without targets."""
    start = LINK.sub(r"\1", text.strip().partition("\n\n")[0])
    words = SUMMARY.match(" ".join(start.split()))[0]
    return words.rstrip(".,:;?") + "."


def unique_name(stem, taken) -> str:
    """Return a name, with a number if it is taken, and add it to those taken."""
    names = chain([stem], (f"{stem}-{number}" for number in count(2)))
    name = next(name for name in names if name not in taken)
    taken.add(name)
    return name


@cache
def make_page(file, docs, address, changed) -> Page:
    """Return a page, the same one for the same time of the last change."""
    return Page(file, docs, address)


def read_page(file, docs, address="") -> Page:
    """Return the page of a file: until it changes, the same one, which is read once."""
    return make_page(file, docs, address, file.stat().st_mtime_ns)


def pages(docs) -> list[Page]:
    """Return all pages of a folder, by their names, without those of modules."""
    files = [*docs.glob("*.md"), *docs.glob("[!_]*/**/*.md")]  # not those in _build
    modules = docs / PAGES_OF_MODULES
    return [read_page(file, docs) for file in sorted(files) if file.parent != modules]
