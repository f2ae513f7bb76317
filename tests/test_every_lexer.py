"""A cell that every process runs is coloured like any other."""

import pytest
from tiny_site import HEAD, Site

PAGE = f"""{HEAD}
# Page

```{{code-cell}}
%%every --raises ValueError
from collections import OrderedDict

if OrderedDict():
    raise ValueError("none")
```

```text
%%timeit
pass
```
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    settings = {
        "extensions": ["every_lexer", "myst_nb"],
        "nb_execution_mode": "off",
    }
    folder = tmp_path_factory.mktemp("site")
    return Site(folder, {"index.md": PAGE}, **settings)


def cell(site):
    return site("index.html").partition('<div class="highlight-every')[2]


def test_its_words_are_coloured_as_python(site):
    magic, _, code = cell(site).partition("\n")
    assert '<span class="k">%%every</span>' in magic
    assert '<span class="k">raise</span>' in code


def test_other_blocks_are_left_alone(site):
    assert site("index.html").count("highlight-every") == 1
    assert "every" not in site.warnings
