"""The Markdown of a page loses everything that only MyST knows, and nothing else."""

from pathlib import Path

import pytest

from book.page import Page
from book.plain_markdown import to_markdown

DOCS = Path("/book/docs")
PAGE = Page(DOCS / "arrays/meshes.md", DOCS)
PUBLISHED = Page(DOCS / "arrays/meshes.md", DOCS, "https://book.example/")

SAME = {
    "prose": "Eight devices, *four* of them **idle**.",
    "list": "- one\n- two",
    "table": "| a | b |\n|---|---|\n| 1 | 2 |",
    "code": "`{py:func}` and ``a `b` c`` and `[text](other.md)`",
    "fence": "```python\n:::{note}\n{py:func}`jax.jit`\n```",
    "formula": "$a_{b}$ and $$\\frac{a}{b}$$",
    "link": "[JAX](https://docs.jax.dev/en/latest/index.html#top)",
    "heading": "## The cost",
    "picture": "![a *block*](../figures/a.svg)",
    "formula with brackets": "$a[0](b)$, and \\[a](b.md)",
    "blank lines of code": "```python\na\n\n\nb\n```",
}
CHANGED = {
    "role": ("See {py:func}`jax.jit`.", "See `jax.jit`."),
    "short role": ("{py:class}`~jax.sharding.Mesh`", "`Mesh`"),
    "titled role": ("{py:func}`jit it <jax.jit>`", "`jit it`"),
    "reference": ("{ref}`the costs <cost>`", "the costs"),
    "badge": ("{bdg-primary-line}`Explicit`", "**Explicit**"),
    "maths role": ("{math}`a < b`", "$a < b$"),
    "numbered formula": ("$$\na\n$$ (cost)\n\nb", "$$\na\n$$\n\nb"),
    "label": ("(cost)=\n## Cost", "## Cost"),
    "comment": ("% todo\nText", "Text"),
    "page": ("a [page](specs.md) b", "a page b"),
    "page over two lines": ("a [long\nname](../start/x.md#y)", "a long\nname"),
    "page in code": ("[`jax.P`](specs.md)", "`jax.P`"),
    "anchor": ("[below](#end)", "below"),
    "note": (":::{note}\nMind *this*.\n:::", "> **Note**\n>\n> Mind *this*."),
    "backticks": ("```{warning}\nMind.\n```", "> **Warning**\n>\n> Mind."),
    "title": (
        ":::{admonition} Exercise: `a`\n:class: exercise\nDo it.\n\n- a\n:::",
        "> **Exercise: `a`**\n>\n> Do it.\n>\n> - a",
    ),
    "page in a table": ("| [a](b.md) |\n|---|\n| {doc}`b` |", "| a |\n|---|\n| b |"),
    "page in a list": ("- a\n  [b](c.md)\n\n  - [d](e.md)", "- a\n  b\n\n  - d"),
    "picture that is a link": ("[![a](b.svg)](c.md)", "![a](b.svg)"),
    "note in a list": (
        "- a\n\n  :::{note}\n  Mind.\n  :::",
        "- a\n\n  > **Note**\n  >\n  > Mind.",
    ),
    "nested": (
        "::::{dropdown} More\n:::{tip}\nA [p](q.md).\n:::\n::::",
        "> **More**\n>\n> > **Tip**\n> >\n> > A p.",
    ),
    "code block": ("```{code-block} sh\n:caption: c\nls\n```", "```sh\nls\n```"),
    "maths": ("```{math}\n:label: x\na < b\n```", "$$\na < b\n$$"),
    "figure": (
        "```{figure} ../figures/a.svg\n:alt: Eight blocks\nThe *blocks*.\n```",
        "![Eight blocks](../figures/a.svg)\n\nThe *blocks*.",
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
        ("specs.md", "arrays/specs.html"),
        ("../start/first.md#why", "start/first.html#why"),
        ("#end", "arrays/meshes.html#end"),
        ("../modules/meshes.py", "modules/meshes.py"),
    ],
)
def test_links_lead_to_the_published_address(target, address):
    link = f"[a](https://book.example/{address})"
    assert to_markdown(f"[a]({target})", PUBLISHED) == link


def test_a_directive_without_a_plain_form_is_refused():
    with pytest.raises(ValueError, match="arrays/meshes: the directive 'list-table'"):
        to_markdown("```{list-table}\n- a\n```", PAGE)
