"""The contents decide the order of pages."""

import pytest

from book import contents

FILES = {
    "docs/index.md": "# Book\n\n```{toctree}\n:caption: One\n\na/x\na/list\n```\n\n"
    "```{toctree}\n:caption: Two\n\nb/y\n```\n",
    "docs/a/x.md": "# The x\n\n\n",
    "docs/a/list.md": "# A list\n\n```{module-reference}\n```\n",
    "docs/b/y.md": "# Why\n\n\n",
}


@pytest.fixture
def docs(tmp_path):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path / "docs"


def test_pages_come_in_the_order_of_the_contents(docs):
    assert [page.name for page in contents.pages(docs)] == ["a/x", "a/list", "b/y"]
