"""Convert the MyST of a page to plain Markdown, for notebooks.

Boxes become block quotes with a bold title, badges become bold, and links to other
pages lead to the published address, if there is one. A directive or a role that has no
plain form is refused, so that no page can put one into its notebook unseen.
"""

import re

from book import predictions
from book.page import FENCES, read_block, rewrite

PIECE = re.compile(  # what stays as it is; or a role, or a link
    r"""\\. | (?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)
        | (?P<dollars>\$\$?)[^$]+(?P=dollars) | !\[[^]]*\]\([^)]*\)
    | \{(?P<role>[\w:-]+)\}`(?P<label>[^`]+)`
    | \[(?P<text>(?:`[^`]*`|\[[^][]*\]|[^][`])*)\]\((?P<target>[^()\s]*)\)
    """,
    re.S | re.X,
)
DEFINED = re.compile(r"^(\S.*)\n +", re.M)  # a term of a glossary
BOXES = {"admonition", "dropdown"}
MYST = {  # directives that become other MyST
    "container": lambda block: block.content,
    "glossary": lambda block: DEFINED.sub(r"- **\1**: ", block.content),
    "predict": predictions.to_markdown,
    **dict.fromkeys(("build-line", "button-ref", "toctree"), lambda block: ""),
}


def to_markdown(text, page) -> str:
    """Return MyST text of a page as plain Markdown, with single blank lines."""
    forms = dict.fromkeys(FENCES, lambda *part: format_fence(*part, page))
    forms["inline"] = lambda _, source: format_inline(source, page)
    forms["myst_target"] = lambda *_: ""
    found = []
    for part in rewrite(text, forms):
        if part.strip() or found[-1:] != [""]:
            found.append(part.rstrip() and part)
    return "\n".join(found).strip("\n")


def format_fence(token, source, page) -> str:
    """Return code or a directive as plain Markdown; a box is a quote with a title."""
    block = read_block(token, source)
    if block.name in BOXES:
        box = to_markdown(f"**{block.argument}**\n\n{block.content}", page)
        return "\n".join(f"> {line}".rstrip() for line in box.splitlines())
    if block.name in MYST:
        return to_markdown(MYST[block.name](block), page)
    return refuse(f"the directive {block.name!r}", page) if block.name else source


def format_inline(text, page) -> str:
    """Return running text with its roles and links in plain Markdown."""

    def form(piece):
        role, words, target = piece["role"], piece["text"], piece["target"]
        if target is not None:
            words, url = format_inline(words, page), page.url(target)
            return f"[{words}]({url})" if url else words
        if role == "download":
            return piece["label"].partition(" <")[0]
        if role and not role.startswith("bdg"):
            refuse(piece[0], page)
        return f"**{piece['label']}**" if role else piece[0]

    return PIECE.sub(form, text)


def refuse(part, page):
    """Raise a ValueError for what has no plain form."""
    raise ValueError(
        f"{page.name}: {part} has no form in a notebook; "
        "write it in plain Markdown, or give it one in plain_markdown.py"
    )
