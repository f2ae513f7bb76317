"""Write a page of links to all that must stay: `tools/anchors.py docs/_build/html`.

It lies beside the site, and `nox -s links` follows it: to each heading and target that
was ever published (`tests/anchors.txt`; `--keep` before the folder adds those of the
site), and to the files of `llms.txt`.
"""

import html
import re
import sys
from pathlib import Path

from bs4 import BeautifulSoup

PUBLISHED = Path(__file__).resolve().parents[1] / "tests/anchors.txt"
TARGETS = "article :is(div, dl, dt, section, span)[id]"
OF_A_CELL = re.compile(r"cell-[0-9a-f]{6}(?:-\d+)?")  # which goes when the cell changes


def find_targets(site: Path):
    """Yield the headings and other targets in the text of each page."""
    for file in site.rglob("*.html"):
        for tag in BeautifulSoup(file.read_text(), "html.parser").select(TARGETS):
            if not OF_A_CELL.fullmatch(tag["id"]):
                yield f"{file.relative_to(site)}#{tag['id']}"


def main(site: Path, published: Path = PUBLISHED, keep=False):
    """Write the page of links, and perhaps add the site's targets to the published."""
    names = {*published.read_text().split()}
    if keep:
        names.update(find_targets(site))
        published.write_text("".join(f"{name}\n" for name in sorted(names)))
    names.update(re.findall(r"\]\(([^):]+)\)", (site / "llms.txt").read_text()))
    links = (f'<a href="{site.name}/{html.escape(name)}"></a>\n' for name in names)
    site.with_name("published.html").write_text("".join(sorted(links)))


if __name__ == "__main__":
    main(Path(sys.argv[-1]), keep="--keep" in sys.argv)
