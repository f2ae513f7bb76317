"""Write what cells show into what they expect: `tools/expect.py PAGE ...`.

What the last build showed is compared with the `expect` of each cell, and put in its
place where it differs. A cell that prints text and has no expectation gets one. Read
what is written: it is what the program said, not what is true.
"""

import re
import sys
import textwrap

import nbformat
import yaml

from book import guards, play
from book.facts import ROOT
from book.page import Page

DOCS = ROOT / "docs"
OWN = re.compile(r"^:?expect:.*\n(?:(?!:?[\w-]+:|---).*\n)*", re.M)  # and its lines


def format_option(text) -> list[str]:
    """Return the option `expect` with a text, as the lines of a cell's header."""
    if "\n" not in text:
        return [yaml.safe_dump({"expect": text}, width=len(text) + 99).strip()]
    mark = "|2" if text.startswith((" ", "\n")) else "|"  # else YAML takes its indent
    return [f"expect: {mark}", *textwrap.indent(text, "  ").split("\n")]


def replace_expectation(lines, cell, text):
    """Put an expectation into a page's lines, in place of the cell's own."""
    start, end = cell.line, cell.line + cell.header  # below the fence, from 0
    others = OWN.sub("", "\n".join([*lines[start:end], ""])).splitlines()
    option = format_option(text)
    header = [line.removeprefix(":") for line in others if line != "---"] + option
    if lines[start] == "---" or len(option) > 1:
        lines[start:end] = ["---", *header, "---"]
    else:
        lines[start:end] = [f":{line}" for line in header]


def update_page(page):
    """Write a page's expectations anew, and print where."""
    notebook = nbformat.read(DOCS / f"_build/html/{page.name}.ipynb", as_version=4)
    played, lines = filter(play.is_own, notebook.cells), page.text.split("\n")
    cells = list(zip(page.code, played, strict=True))
    for cell, own in reversed(cells):  # no line above moves
        if not own.source.endswith(cell.source):
            sys.exit(f"{page.name} changed since `nox -s docs`")
        if "expect" in {option for option, _ in guards.faults(cell, own.outputs)}:
            replace_expectation(lines, cell, guards.visible_text(own.outputs))
            print(f"{page.file}:{cell.line}")
    page.file.write_text("\n".join(lines))


if __name__ == "__main__":
    for name in {*sys.argv[1:]} - {"--write"}:
        update_page(Page(DOCS / f"{name}.md", DOCS))
