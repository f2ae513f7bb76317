"""Turn the MyST of a page into plain Markdown, for notebooks: Jupyter knows no MyST.

Directives become block quotes with a bold title, roles become code, and links to other
pages lead to the published address, if there is one. A directive that has no plain form
is refused, so that no page can put one into its notebook unseen.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from posixpath import normpath

import yaml

FRONT = re.compile(r"\A---\n(.*?)\n---\n", re.S)
FENCE = re.compile(
    r"^(?P<indent> *)(?P<marks>:{3,}|(?:`{3,}|~{3,})(?=[^`]*$))"
    r"(?:\{(?P<name>[\w:-]+)\})? *(?P<argument>.*)$"
)
OPTION = re.compile(r"^ *:(?P<name>[\w-]+):(?: +(?P<value>.*))?$")
INLINE = re.compile(
    r"\{(?P<role>[\w:+-]+)\}(?P<ticks>`+)(?P<body>.+?)(?P=ticks)(?!`)"
    r"|(?P<code>(?P<quote>`+)(?!`).+?(?<!`)(?P=quote)(?!`))"
    r"|(?P<display>\$\$.+?\$\$)(?: *\([\w-]+\))?"
    r"|(?P<math>\$[^$\n]+\$)"
    r"|(?P<image>!\[[^\]]*\]\([^)\s]+\))"
    r"|\[(?P<text>(?:`[^`]*`|[^\[\]`])*)\]\((?P<target>[^()\s]+)\)",
    re.S,
)
HIDDEN = re.compile(r"^(?:\([\w-]+\)=|%.*)\n?", re.M)  # labels and comments
TERM = re.compile(r"^(\S.*)\n +", re.M)  # with its definition, indented, below
TITLED = re.compile(r"(?P<title>.+?)\s*<(?P<target>[^<>]+)>", re.S)

NOTES = {"attention", "caution", "danger", "hint", "important", "note", "tip"}
NOTES |= {"seealso", "warning"}
TITLES = {"admonition", "card", "dropdown", "grid-item-card", "margin", "tab-item"}
TITLES |= {"sidebar", "topic"}
BOXES = {"container", "div", "grid", "grid-item", "tab-set"}
CODE = {"code", "code-block", "sourcecode"}
NOTHING = {"contents", "index", "toctree"}
WORDS = {"abbr", "download", "eq", "numref", "ref", "term"}


def front_matter(text) -> dict:
    """Return the settings at the top of a page."""
    found = FRONT.match(text)
    return yaml.safe_load(found[1]) if found else {}


@dataclass(frozen=True)
class Page:
    """A page of the book, and where the book is published, if it is.

    Attributes:
        file: the page's source, such as `docs/arrays/meshes.md`.
        docs: the folder of all pages.
        address: where the built site is, or nothing.
    """

    file: Path
    docs: Path
    address: str = ""

    @property
    def name(self) -> str:
        """The page's name in the site, such as `arrays/meshes`."""
        return self.file.relative_to(self.docs).with_suffix("").as_posix()

    def url(self, target) -> str:
        """Return the published address of a link on this page, or nothing."""
        path, hash_, anchor = target.partition("#")
        if not self.address or ":" in path:
            return ""
        folder = Path(self.name).parent.as_posix()
        path = normpath(f"{folder}/{path}") if path else f"{self.name}.md"
        path = re.sub(r"\.md$", ".html", path)
        return f"{self.address.rstrip('/')}/{path}{hash_}{anchor}"


@dataclass
class Block:
    """A fenced part of a page: code, or a directive."""

    name: str | None
    argument: str
    fence: list[str]
    lines: list[str]

    @property
    def content(self) -> str:
        """What stands in the fence, below the options."""
        return "\n".join(self.lines[len(self.options) :]).strip("\n")

    @property
    def options(self) -> dict[str, str]:
        """The directive's options."""
        found = {}
        for line in self.lines:
            if not (option := OPTION.match(line)):
                break
            found[option["name"]] = option["value"] or ""
        return found


def blocks(text):
    """Yield the parts of a page: a string for text, a `Block` for what is fenced."""
    lines, rest = [], iter(text.splitlines())
    for line in rest:
        if not (fence := FENCE.match(line)):
            lines.append(line)
            continue
        yield "\n".join(lines)
        lines = []
        yield block(line, fence, rest)
    yield "\n".join(lines)


def block(line, fence, rest) -> Block:
    """Take a fenced part up to its closing line from `rest`."""
    marks, inside, last = fence["marks"], [], ""
    for last in rest:
        if re.fullmatch(rf" *{marks[0]}{{{len(marks)},}} *", last):
            break
        inside.append(last.removeprefix(fence["indent"]))
    return Block(fence["name"], fence["argument"].strip(), [line, last], inside)


def plain(text, page) -> str:
    """Return MyST text as plain Markdown.

    Args:
        text: a Markdown cell, or a part of one.
        page: the page that it stands on, for its links.

    Raises:
        ValueError: for a directive that has no plain form.
    """
    parts = (
        written(part, page) if isinstance(part, Block) else inline(part, page)
        for part in blocks(text)
    )
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).strip("\n")


def written(part, page) -> str:
    """Return a fenced part as plain Markdown."""
    name = part.name
    if name is None:
        return "\n".join([part.fence[0], *part.lines, part.fence[1]])
    if name in NOTHING:
        return ""
    if name in BOXES:
        return plain(part.content, page)
    if name == "glossary":
        return inline(TERM.sub(r"- **\1**: ", part.content), page)
    if name in NOTES | TITLES:
        return quoted(part, page)
    return figure(part, page)


def quoted(part, page) -> str:
    """Return a note, or a box with a title, as a block quote."""
    title = part.argument if part.name in TITLES else part.name.capitalize()
    body = part.content
    if part.name in NOTES and part.argument:
        body = f"{part.argument}\n{body}"
    heading = f"**{inline(title, page)}**\n\n" if title else ""
    lines = f"{heading}{plain(body, page)}".splitlines()
    return "\n" + "\n".join(f"> {line}".rstrip() for line in lines) + "\n"


def figure(part, page) -> str:
    """Return code, a formula or a figure as plain Markdown."""
    if part.name in CODE:
        return f"```{part.argument}\n{part.content}\n```"
    if part.name == "math":
        return f"$$\n{part.content}\n$$"
    if part.name in ("figure", "image"):
        image = f"![{part.options.get('alt', '')}]({part.argument})"
        return f"{image}\n\n{plain(part.content, page)}"
    raise ValueError(
        f"{page.name}: the directive {part.name!r} has no form in a notebook; "
        "write it in plain Markdown, or give it one in plain.py"
    )


def inline(text, page) -> str:
    """Return running text with its roles and links in plain Markdown."""

    def replace(match):
        if match["role"]:
            return role(match["role"], match["body"], page)
        if match["target"]:
            return link(match["text"], match["target"], page)
        return match["display"] or match[0]

    return INLINE.sub(replace, HIDDEN.sub("", text))


def role(name, body, page) -> str:
    """Return a role as plain Markdown: most name something in code."""
    if name == "math":
        return f"${body}$"
    if name.startswith("bdg"):
        return f"**{body}**"
    titled = TITLED.fullmatch(body)
    title = titled["title"] if titled else body
    if name == "doc":
        return link(title, f"{titled['target'] if titled else body}.md", page)
    if name in WORDS:
        return title
    shown = title.rpartition(".")[2] if title.startswith("~") else title
    return f"`{shown}`"


def link(text, target, page) -> str:
    """Return a link: to the world as it is, to the book where it is published."""
    text = inline(text, page)
    outside = re.match(r"(?:https?|mailto):", target)
    url = target if outside else page.url(target)
    return f"[{text}]({url})" if url else text
