"""Convert the MyST of a page to plain Markdown, for notebooks.

Boxes become block quotes with a bold title, badges become bold, and links to other
pages lead to the published address, if there is one. A directive or a role that has no
plain form is refused, so that no page can put one into its notebook unseen.
"""

from book import predictions
from book.page import block, parser, rewrite_text

NOTHING = {"build-line", "button-ref", "toctree"}
TITLED = {"admonition", "dropdown"}


def to_markdown(text, page) -> str:
    """Return MyST text as plain Markdown.

    Args:
        text: a Markdown cell, or a part of one.
        page: the page that it stands on, for its links.

    Raises:
        ValueError: for a directive or a role that has no plain form.
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


def format_running(token, text, page) -> list[str]:
    """Return a paragraph, a heading, or a row of a table."""
    return [inline("\n".join(text.split("\n")[slice(*token.map)]), page)]


def format_fence(token, text, page) -> list[str]:
    """Return code or a directive as plain Markdown."""
    part = block(token, text)
    if part.name is None:
        return [part.source]
    if part.name in NOTHING:
        return []
    if part.name in TITLED:
        return ["", block_quote(part, page), ""]
    if part.name not in MADE:
        raise ValueError(
            f"{page.name}: the directive {part.name!r} has no form in a notebook; "
            "write it in plain Markdown, or give it one in plain_markdown.py"
        )
    return [to_markdown(MADE[part.name](part, page), page)]


FORMS = {  # what is not plain already
    "colon_fence": format_fence,
    "fence": format_fence,
    "inline": format_running,
    "myst_target": lambda *_: [],
}
MADE = {  # what becomes MyST first
    "container": lambda part, page: part.content,
    "glossary": lambda part, page: glossary_list(part.content),
    "predict": lambda part, page: predictions.to_markdown(part),
}


def block_quote(part, page) -> str:
    """Return a box with a title as a block quote."""
    heading = f"**{inline(part.argument, page)}**\n\n"
    lines = f"{heading}{to_markdown(part.content, page)}".splitlines()
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
    """Return a badge, a download or a link in plain Markdown; a picture stays."""
    if piece["image"]:
        return piece[0]
    if not piece["role"]:
        return link(piece["text"], piece["target"], page)
    if piece["role"] == "download":
        return piece["given"].partition(" <")[0]
    if not piece["role"].startswith("bdg"):
        raise ValueError(f"{page.name}: {piece[0]} has no form in a notebook")
    return f"**{piece['given']}**"


def link(text, target, page) -> str:
    """Return a link: inside the book to the published address, if there is one."""
    text = inline(text, page)
    outside = target.startswith(("http:", "https:", "mailto:"))
    url = target if outside else page.url(target)
    return f"[{text}]({url})" if url else text
