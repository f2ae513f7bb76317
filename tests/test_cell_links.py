"""Each cell and figure has a link that stays, and a way to report a false claim."""

import re
from hashlib import sha256
from html import unescape
from urllib.parse import parse_qs, urlsplit

from tiny_site import HEAD, Site

PAGE = """
# A page

```{code-cell}
1 + 1
```

![A block](block.svg)

```{code-cell}
2 + 2
```

```{code-cell}
1 + 1
```
"""
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'
LINKS = re.compile(r'<span class="cell-links">.*?</span>')


def test_a_cell_has_a_link_that_stays_and_a_form(tmp_path):
    """The link is a digest of its own code, so no other cell changes it."""
    site = Site(
        tmp_path,
        {"index.md": HEAD + PAGE, "block.svg": SVG},
        extensions=["myst_nb", "downloads", "cell_links"],
        execution_modules=str(tmp_path),
        nb_execution_mode="off",
        suppress_warnings=["myst-nb.lexer"],
        repository="https://github.com/someone/book.git",
    )
    html = site("index.html")
    names = re.findall(r'id="(cell-[\w-]+)"', html)
    one, two = (f"cell-{sha256(code).hexdigest()[:6]}" for code in (b"1 + 1", b"2 + 2"))
    assert names == [one, two, f"{one}-2"]
    assert re.search(r'<img[^>]*id="figure-block"', html)
    found = [re.findall('href="([^"]*)"', links) for links in LINKS.findall(html)]
    assert [link for link, _ in found] == [f"#{name}" for name in names]
    url = urlsplit(unescape(found[1][1]))
    query = parse_qs(url.query)
    assert url.path == "/someone/book/issues/new"
    assert query["template"] == ["a-claim-is-wrong.yaml"]
    assert query["page"] == [f"index, #{two}"]
    assert query["versions"][0].startswith("JAX 0.")
    assert site.warnings == ""
