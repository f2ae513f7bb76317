"""Check that links from elsewhere go on working: `tools/anchors.py docs/_build/html`.

`tests/anchors.txt` lists each heading and target that was ever published: the site must
have them all; `--keep` before the folder adds its new ones. What `llms.txt` leads to
must be there, too. All other links inside the site lychee follows (`nox -s links`).
"""

import html
import re
import sys
from pathlib import Path

PUBLISHED = Path(__file__).resolve().parents[1] / "tests/anchors.txt"
ANCHOR = re.compile(r'<(\w+)\b[^>]*? id="([^"]+)"')
TARGETS = "div", "dl", "dt", "section", "span"  # in the text of a page
OF_A_CELL = re.compile(r"cell-[0-9a-f]{6}(?:-\d+)?")  # which goes when the cell changes


def anchors(text) -> list[tuple[str, str]]:
    """Return the anchors of a page, each with the kind of its element."""
    return [(tag, html.unescape(name)) for tag, name in ANCHOR.findall(text)]


def targets(text) -> set[str]:
    """Return the headings and other targets in the text of a page."""
    inside = re.search(r"<article.*</article>", text, re.S)
    found = anchors(inside[0]) if inside else []
    return {n for tag, n in found if tag in TARGETS and not OF_A_CELL.fullmatch(n)}


def find_faults(pages, site) -> list[str]:
    """Return the published addresses and the files of `llms.txt` that are gone."""
    every = {f"{page}#{n}" for page, text in pages.items() for _, n in anchors(text)}
    gone = {*PUBLISHED.read_text().split()} - every
    llms = re.findall(r"\]\(([^):]+)\)", (site / "llms.txt").read_text())
    found = [f"BROKEN {each} was published, and is gone" for each in sorted(gone)]
    missing = (file for file in llms if not (site / file).is_file())
    return [*found, *(f"BROKEN llms.txt has a link to {file}" for file in missing)]


def add_published(pages):
    """Add the targets of the site to those that were published."""
    known = {*PUBLISHED.read_text().split()}
    for page, text in pages.items():
        known |= {f"{page}#{name}" for name in targets(text)}
    PUBLISHED.write_text("\n".join(sorted(known)) + "\n")


def main(*options, folder) -> int:
    """Check the site in a folder, or keep its targets; return 1 if some are gone."""
    site = Path(folder)
    files = (f for f in site.rglob("*.html") if "_static" not in f.parts)
    pages = {file.relative_to(site).as_posix(): file.read_text() for file in files}
    if "--keep" in options:
        add_published(pages)
    found = find_faults(pages, site)
    print(*found, f"{len(found)} addresses are gone", sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    *options, folder = sys.argv[1:]
    sys.exit(main(*options, folder=folder))
