"""The contents decide the order of pages, and which file is copied from which page."""

import pytest
from book import contents

FILES = {
    "docs/index.md": "# Book\n\n```{toctree}\n:caption: One\n\na/x\na/list\n```\n\n"
    "```{toctree}\n:caption: Two\n\nb/y\n```\n",
    "docs/a/x.md": "# The x\n\nIt shows `src/examples/y.py` and `src/examples/z.py`.\n",
    "docs/a/list.md": "# A list\n\n```{module-reference}\n```\n",
    "docs/b/y.md": "# Why\n\nSee `launch/run.py` and `src/examples/z.py`.\n",
    "src/examples/__init__.py": "",
    "src/examples/x.py": "",
    "src/examples/y.py": "",
    "src/examples/z.py": "",
    "src/examples/unexplained.py": "",
    "launch/run.py": "",
}
TABLE = """\
| part | to read | to copy |
|---|---|---|
| One | [The x](docs/a/x.md) | [x.py](src/examples/x.py), [z.py](src/examples/z.py) |
| Two | [Why](docs/b/y.md) | [y.py](src/examples/y.py), [run.py](launch/run.py) |"""


@pytest.fixture
def docs(tmp_path):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path / "docs"


def test_pages_come_in_the_order_of_the_contents(docs):
    assert [page.name for page in contents.pages(docs)] == ["a/x", "a/list", "b/y"]


def test_a_file_stands_beside_its_page_or_the_first_that_names_it(docs):
    assert contents.table(docs) == TABLE
