"""Convert the MyST of a page to plain Markdown, for notebooks.

Directives become block quotes with a bold title, roles become code, and links to other
pages lead to the published address, if there is one. A directive that has no plain form
is refused, so that no page can put one into its notebook unseen.
"""

import textwrap

import explorers

from book import error_index, predictions, reading_map
from book.page import block, parser, rewrite_text

NOTES = {"attention", "caution", "danger", "hint", "important", "note", "tip"}
NOTES |= {"seealso", "warning"}
TITLES = {"admonition", "card", "dropdown", "grid-item-card", "margin", "tab-item"}
TITLES |= {"sidebar", "topic"}
BOXES = {"container", "div", "grid", "grid-item", "tab-set"}
CODE = {"code", "code-block", "sourcecode"}
NOTHING = {"build-line", "button-ref", "contents", "index", "toctree"}
WORDS = {"abbr", "download", "eq", "numref", "ref", "term"}


def to_markdown(text, page) -> str:
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
    return join_blocks([*found, *lines[last:]])


def join_blocks(parts) -> str:
    """Return lines and blocks as text, with single blank lines."""
    found = []
    for part in parts:
        if part.strip() or found[-1:] != [""]:
            found.append(part.rstrip() and part)
    return "\n".join(found).strip("\n")


def token_source(token, text) -> str:
    """Return the source of a token."""
    return "\n".join(text.split("\n")[slice(*token.map)])


def format_running(token, text, page) -> list[str]:
    """Return a paragraph, a heading, or a row of a table."""
    return [inline(token_source(token, text), page)]


def strip_label(token, text, page) -> list[str]:
    """Return a formula without the label behind it."""
    return [token_source(token, text).rstrip().removesuffix(f"({token.info})").rstrip()]


def format_fence(token, text, page) -> list[str]:
    """Return code or a directive as plain Markdown."""
    part = block(token, text, depth=0)
    if part.name in NOTHING:
        return []
    if part.name == "error-index":
        return [to_markdown(error_index.index_text(page), page)]
    if part.name in reading_map.TEXT:
        return [to_markdown(reading_map.directive_text(part, page), page)]
    if part.name in NOTES | TITLES:
        return ["", textwrap.indent(block_quote(part, page), part.indent), ""]
    return [textwrap.indent(format_block(part, page), part.indent)]


FORMS = {  # what is not plain already
    "colon_fence": format_fence,
    "fence": format_fence,
    "inline": format_running,
    "math_block_label": strip_label,
    "myst_line_comment": lambda *_: [],
    "myst_target": lambda *_: [],
}


def format_block(part, page) -> str:
    """Return code, a formula, a figure or the content of a box as plain Markdown."""
    name, content = part.name, part.content
    if name is None:
        return f"{part.marks}{part.argument}\n{content}\n{part.marks}"
    if name in CODE:
        return f"```{part.argument}\n{content}\n```"
    if name == "math":
        return f"$$\n{content}\n$$"
    made = INNER.get(name, (lambda part: part.content) if name in BOXES else None)
    return to_markdown(made(part), page) if made else figure(part, page)


INNER = {  # what becomes MyST first
    "explorer": explorers.directive_text,
    "glossary": lambda part: glossary_list(part.content),
    "predict": predictions.to_markdown,
}


def figure(part, page) -> str:
    """Return a picture and what stands below it."""
    if part.name not in ("figure", "image"):
        raise ValueError(
            f"{page.name}: the directive {part.name!r} has no form in a notebook; "
            "write it in plain Markdown, or give it one in plain_markdown.py"
        )
    image = f"![{part.options.get('alt', '')}]({part.argument})"
    return f"{image}\n\n{to_markdown(part.content, page)}"


def block_quote(part, page) -> str:
    """Return a note, or a box with a title, as a block quote."""
    title = part.argument if part.name in TITLES else part.name.capitalize()
    body = part.content
    if part.name in NOTES and part.argument:
        body = f"{part.argument}\n{body}"
    heading = f"**{inline(title, page)}**\n\n" if title else ""
    lines = f"{heading}{to_markdown(body, page)}".splitlines()
    return "\n".join(f"> {line}".rstrip() for line in lines)


def glossary_list(content) -> str:
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
    return rewrite_text(text, lambda piece: format_piece(piece, page))


def format_piece(piece, page) -> str:
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
    title, target = split_title(body)
    if name == "doc":
        return link(title, f"{target}.md", page)
    if name in WORDS:
        return title
    shown = title.rpartition(".")[2] if title.startswith("~") else title
    return f"`{shown}`"


def split_title(body) -> tuple[str, str]:
    """Return the title and the target of a role: `title <target>`, or both in one."""
    title, mark, target = body.removesuffix(">").rpartition("<")
    if mark and title.strip() and body.endswith(">"):
        return title.strip(), target
    return body, body


def link(text, target, page) -> str:
    """Return a link: inside the book to the published address, if there is one."""
    text = inline(text, page)
    outside = target.startswith(("http:", "https:", "mailto:"))
    url = target if outside else page.url(target)
    return f"[{text}]({url})" if url else text
