"""An exercise leads to its notebook, and to a hosted one where there is an address."""

import json
import re

import pytest
from tiny_site import HEAD, Site

PAGE = """
# The page of {name}

:::{{admonition}} Exercise: {name} of them
:class: exercise
Find {name}.
:::

```{{code-cell}}
:tags: [exercise, {name}-tag]

{name} = 1
```

:::{{admonition}} Exercise: more than {name}
:class: exercise
Find more.
:::

```{{code-cell}}
:tags: [exercise, more-than-{name}]

more = 2
```
"""
PAGES = {
    "index.md": "# Book\n\n```{toctree}\npart/one\nprose\n```\n",
    "part/one.md": HEAD.removesuffix("---\n")
    + "needs: jax\n---\n"
    + PAGE.format(name="one"),
    "prose.md": "# Prose\n\n:::{admonition} Exercise\n:class: exercise\nThink.\n:::\n",
    "../pyproject.toml": '[project]\nrequires-python = ">=3.12"\n'
    'dependencies = ["jax>=0.12"]\n',
}
ADDRESS = {
    "published": "https://book.example",
    "repository": "https://github.com/someone/book",
}
LINK = re.compile(r'<p class="to-notebook[^>]*>(.*?)</p>')
COLAB = "https://colab.research.google.com/github/someone/book/blob/gh-pages/"


@pytest.fixture
def site(tmp_path):
    def build(**settings):
        return Site(
            tmp_path,
            PAGES,
            extensions=["myst_nb", "exercise_links"],
            myst_enable_extensions=["colon_fence"],
            nb_execution_mode="off",
            execution_modules=str(tmp_path / "src"),
            suppress_warnings=["misc.highlighting_failure"],
            **settings,
        )

    return build


def find_links(html):
    """List for each exercise the addresses in its box."""
    return [re.findall('href="([^"]*)"', links) for links in LINK.findall(html)]


def test_each_exercise_saves_the_notebook_of_its_page(site):
    book = site()
    assert find_links(book("part/one.html")) == [["one.ipynb"], ["one.ipynb"]]
    assert book("part/one.html").count('<a href="one.ipynb" download>') == 2
    assert (book.out / "part/one.ipynb").exists()
    assert "to-notebook" not in book("prose.html")


def test_with_an_address_each_opens_on_colab_at_its_cell(site):
    book = site(**ADDRESS)
    notebook = json.loads(book("part/one.ipynb"))
    tagged = {
        cell["metadata"]["tags"][1]: cell["id"]
        for cell in notebook["cells"]
        if "exercise" in cell["metadata"].get("tags", [])
    }
    assert tagged.keys() == {"one-tag", "more-than-one"}
    assert find_links(book("part/one.html")) == [
        ["one.ipynb", f"{COLAB}part/one.ipynb#scrollTo={tagged[name]}"]
        for name in ("one-tag", "more-than-one")
    ]


@pytest.mark.parametrize("given", [{}, *({name: ADDRESS[name]} for name in ADDRESS)])
def test_without_an_address_nothing_leads_out_of_the_book(site, given):
    book = site(**given)
    for file in book.out.rglob("*.html"):
        text = file.read_text()
        assert "colab" not in text
        assert "mybinder" not in text
        assert "og:" not in text
