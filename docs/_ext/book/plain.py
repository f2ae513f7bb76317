"""Turn the MyST of a page into plain Markdown, for notebooks: Jupyter knows no MyST.

Directives become block quotes with a bold title, roles become code, and links to other
pages lead to the published address, if there is one. A directive that has no plain form
is refused, so that no page can put one into its notebook unseen.
"""

import re
import textwrap

from book.page import Block, parts

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


def plain(text, page) -> str:
    """Return MyST text as plain Markdown.

    Args:
        text: a Markdown cell, or a part of one.
        page: the page that it stands on, for its links.

    Raises:
        ValueError: for a directive that has no plain form.
    """
    found = (
        written(part, page) if isinstance(part, Block) else inline(part, page)
        for part in parts(text)
    )
    return re.sub(r"\n{3,}", "\n\n", "\n".join(found)).strip("\n")


def written(part, page) -> str:
    """Return a fenced part as plain Markdown."""
    name = part.name
    if name is None:
        code = f"{part.marks}{part.argument}\n{part.content}\n{part.marks}"
        return textwrap.indent(code, part.indent)
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
