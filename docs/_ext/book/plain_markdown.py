"""Turn the MyST of a page into plain Markdown, for notebooks: Jupyter knows no MyST.

Directives become block quotes with a bold title, roles become code, and links to other
pages lead to the published address, if there is one. A directive that has no plain form
is refused, so that no page can put one into its notebook unseen.
"""

import textwrap

import explorers

from book import error_index, reading_map
from book.page import block, parser, rewritten

NOTES = {"attention", "caution", "danger", "hint", "important", "note", "tip"}
NOTES |= {"seealso", "warning"}
TITLES = {"admonition", "card", "dropdown", "grid-item-card", "margin", "tab-item"}
TITLES |= {"sidebar", "topic"}
BOXES = {"container", "div", "grid", "grid-item", "tab-set"}
CODE = {"code", "code-block", "sourcecode"}
NOTHING = {"build-line", "button-ref", "contents", "index", "toctree"}
WORDS = {"abbr", "download", "eq", "numref", "ref", "term"}


def plain(text, page) -> str:
    """Return MyST text as plain Markdown.

    Args:
        text: a Markdown cell, or a part of one.
        page: the page that it stands on, for its links.

    Raises:
        ValueError: for a directive that has no plain form.
    """
    lines, last, found = text.split("\n"), 0, []
    for token in parser().parse(text):
        if token.type in FORMS and token.map[0] >= last:
            form = FORMS[token.type](token, text, page)
            found += [*lines[last : token.map[0]], *form]
            last = token.map[1]
    return joined([*found, *lines[last:]])


def joined(parts) -> str:
    """Return lines and blocks below each other, with one blank line where are more."""
    found = []
    for part in parts:
        if part.strip() or found[-1:] != [""]:
            found.append(part.rstrip() and part)
    return "\n".join(found).strip("\n")


def own(token, text) -> str:
    """Return the source of a token."""
    return "\n".join(text.split("\n")[slice(*token.map)])


def running(token, text, page) -> list[str]:
    """Return a paragraph, a heading, or a row of a table."""
    return [inline(own(token, text), page)]


def without_label(token, text, page) -> list[str]:
    """Return a formula without the label behind it."""
    return [own(token, text).rstrip().removesuffix(f"({token.info})").rstrip()]


def fenced(token, text, page) -> list[str]:
    """Return code or a directive as plain Markdown."""
    part = block(token, text, depth=0)
    if part.name in NOTHING:
        return []
    if part.name == "error-index":
        return [plain(error_index.text(page), page)]
    if part.name in reading_map.TEXT:
        return [plain(reading_map.text(part, page), page)]
    if part.name in NOTES | TITLES:
        return ["", textwrap.indent(quoted(part, page), part.indent), ""]
    return [textwrap.indent(form(part, page), part.indent)]


FORMS = {  # what is not plain already
    "colon_fence": fenced,
    "fence": fenced,
    "inline": running,
    "math_block_label": without_label,
    "myst_line_comment": lambda *_: [],
    "myst_target": lambda *_: [],
}


def form(part, page) -> str:
    """Return code, a formula, a figure or the content of a box as plain Markdown."""
    name, content = part.name, part.content
    if name is None:
        return f"{part.marks}{part.argument}\n{content}\n{part.marks}"
    if name in CODE:
        return f"```{part.argument}\n{content}\n```"
    if name == "math":
        return f"$$\n{content}\n$$"
    made = INNER.get(name, (lambda part: part.content) if name in BOXES else None)
    return plain(made(part), page) if made else figure(part, page)


INNER = {  # what becomes MyST first
    "explorer": explorers.text,
    "glossary": lambda part: terms(part.content),
}


def figure(part, page) -> str:
    """Return a picture and what stands below it."""
    if part.name not in ("figure", "image"):
        raise ValueError(
            f"{page.name}: the directive {part.name!r} has no form in a notebook; "
            "write it in plain Markdown, or give it one in plain_markdown.py"
        )
    image = f"![{part.options.get('alt', '')}]({part.argument})"
    return f"{image}\n\n{plain(part.content, page)}"


def quoted(part, page) -> str:
    """Return a note, or a box with a title, as a block quote."""
    title = part.argument if part.name in TITLES else part.name.capitalize()
    body = part.content
    if part.name in NOTES and part.argument:
        body = f"{part.argument}\n{body}"
    heading = f"**{inline(title, page)}**\n\n" if title else ""
    lines = f"{heading}{plain(body, page)}".splitlines()
    return "\n".join(f"> {line}".rstrip() for line in lines)


def terms(content) -> str:
    """Return a glossary as a list; a definition is indented below its term."""
    lines = []
    for line in content.split("\n"):
        if line[:1].strip():
            lines.append(f"- **{line}**:")
        elif lines and lines[-1].endswith("**:"):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return "\n".join(lines)


def inline(text, page) -> str:
    """Return running text with its roles and links in plain Markdown."""
    return rewritten(text, lambda piece: worded(piece, page))


def worded(piece, page) -> str:
    """Return a role, or a link, in plain Markdown; a picture stays."""
    if piece.kind == "role":
        return role(piece.name, piece.text, page)
    if piece.kind == "link":
        return link(piece.text, piece.target, page)
    return piece.source


def role(name, body, page) -> str:
    """Return a role as plain Markdown: most name something in code."""
    if name == "math":
        return f"${body}$"
    if name.startswith("bdg"):
        return f"**{body}**"
    title, target = titled(body)
    if name == "doc":
        return link(title, f"{target}.md", page)
    if name in WORDS:
        return title
    shown = title.rpartition(".")[2] if title.startswith("~") else title
    return f"`{shown}`"


def titled(body) -> tuple[str, str]:
    """Return the title and the target of a role: `title <target>`, or both in one."""
    title, mark, target = body.removesuffix(">").rpartition("<")
    if mark and title.strip() and body.endswith(">"):
        return title.strip(), target
    return body, body


def link(text, target, page) -> str:
    """Return a link: to the world as it is, to the book where it is published."""
    text = inline(text, page)
    outside = target.startswith(("http:", "https:", "mailto:"))
    url = target if outside else page.url(target)
    return f"[{text}]({url})" if url else text
