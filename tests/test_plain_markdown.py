"""The Markdown of a page loses everything that only MyST knows, and nothing else."""

from pathlib import Path

import pytest

from book.page import Page
from book.plain_markdown import to_markdown

DOCS = Path("/book/docs")
PAGE = Page(DOCS / "arrays/meshes.md", DOCS)
PUBLISHED = Page(DOCS / "arrays/meshes.md", DOCS, "https://book.example/")

SAME = {
    "table": "| a | b |\n|---|---|\n| 1 | 2 |",
    "code": "`{py:func}` and ``a `b` c`` and `[text](other.md)`",
    "fence": "```python\n:::{note}\n\n\n{py:func}`jax.jit`\n```",
    "formula with brackets": "$a[0](b)$, and $$\\frac{a}{b}$$, and \\[a](b.md)",
    "link": "[JAX](https://docs.jax.dev/en/latest/index.html#top)",
    "picture": "![a *block*](../figures/a.svg)",
}
CHANGED = {
    "badge": ("{bdg-primary-line}`Explicit`", "**Explicit**"),
    "download": ("{download}`a.py <../a.py>`", "a.py"),
    "label": ("(cost)=\n## Cost", "## Cost"),
    "page over two lines": ("a [`long`\nname](../start/x.md#y)", "a `long`\nname"),
    "page in a table": ("| [a](b.md) |\n|---|\n| 1 |", "| a |\n|---|\n| 1 |"),
    "page in a list": ("- a\n  [b](c.md)\n\n  - [d](e.md)", "- a\n  b\n\n  - d"),
    "boxes": (
        "::::{dropdown} More\n"
        ":::{admonition} Exercise: `a`\n:class: exercise\nDo [it](b.md).\n:::\n::::",
        "> **More**\n>\n> > **Exercise: `a`**\n> >\n> > Do it.",
    ),
    "glossary": (
        "```{glossary}\nmesh axis\n  One `x`\n  of two.\n\nspec\n  A row.\n```",
        "- **mesh axis**: One `x`\n  of two.\n\n- **spec**: A row.",
    ),
    "table of contents": ("a\n\n```{toctree}\nb\n```\n\nc", "a\n\nc"),
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME)
def test_plain_markdown_stays_as_it_is(text):
    assert to_markdown(text, PAGE) == text


@pytest.mark.parametrize(("myst", "expected"), CHANGED.values(), ids=CHANGED)
def test_myst_becomes_plain(myst, expected):
    assert to_markdown(myst, PAGE) == expected


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("../start/first.md#why", "start/first.html#why"),
        ("#end", "arrays/meshes.html#end"),
        ("../modules/meshes.py", "modules/meshes.py"),
    ],
)
def test_links_lead_to_the_published_address(target, address):
    link = f"[a](https://book.example/{address})"
    assert to_markdown(f"[a]({target})", PUBLISHED) == link


@pytest.mark.parametrize("text", ["```{list-table}\n- a\n```", "{ref}`a`"])
def test_what_has_no_plain_form_is_refused(text):
    with pytest.raises(
        ValueError, match=r"arrays/meshes: .* has no form in a notebook"
    ):
        to_markdown(text, PAGE)
