"""Convert the MyST of a page to plain Markdown, for notebooks.

A box becomes a quote with a bold title, a badge bold; a link to another page leads to
the published address, if there is one. What has no plain form is refused.
"""

import re
from itertools import pairwise

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
BOXES = "admonition", "dropdown"
FORMS = {  # directive -> other MyST
    **dict.fromkeys(BOXES, lambda block: f"**{block.argument}**\n\n{block.content}"),
    **dict.fromkeys(("button-ref", "toctree"), lambda block: ""),
    "container": lambda block: block.content,
    "glossary": lambda block: DEFINED.sub(r"- **\1**: ", block.content),
    "predict": predictions.to_markdown,
}


def to_markdown(text, page) -> str:
    """Return MyST text of a page as plain Markdown, with single blank lines."""
    forms = dict.fromkeys(FENCES, lambda *part: format_fence(*part, page))
    forms["inline"] = lambda _, source: format_inline(source, page)
    forms["myst_target"] = lambda *_: ""
    pairs = pairwise(["", *rewrite(text, forms)])
    parts = (part for last, part in pairs if part.strip() or last.strip())
    return "\n".join(part.rstrip() and part for part in parts).strip("\n")


def format_fence(token, source, page) -> str:
    """Return code or a directive as plain Markdown."""
    block = read_block(token, source)
    if block.name is None:
        return source
    if block.name not in FORMS:
        refuse(f"the directive {block.name!r}", page)
    text = to_markdown(FORMS[block.name](block), page)
    quote = (f"> {line}".rstrip() for line in text.splitlines())
    return "\n".join(quote) if block.name in BOXES else text


def format_inline(text, page) -> str:
    """Return running text with its roles and links in plain Markdown."""

    def form(piece):
        role, label, target = piece["role"], piece["label"], piece["target"]
        if target is not None:
            words, url = format_inline(piece["text"], page), page.url(target)
            return f"[{words}]({url})" if url else words
        if role == "download":
            return label.partition(" <")[0]
        if role and not role.startswith("bdg"):
            refuse(piece[0], page)
        return f"**{label}**" if role else piece[0]

    return PIECE.sub(form, text)


def refuse(part, page):
    """Raise a ValueError for what would come into a notebook as it is."""
    raise ValueError(f"{page.name}: {part} has no form in a notebook: see {__name__}")
