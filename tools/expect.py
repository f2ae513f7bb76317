"""Write what cells show into what they expect: `tools/expect.py [--write] [PAGE ...]`.

Compares the outputs of the last build with the `expect` of each cell, and shows every
difference; `--write` puts the outputs into the pages. A cell that prints text and has
no expectation gets one. Read what is written: it is what the program said, not what is
true. It never runs in CI.
"""

import os
import sys
import textwrap

import site_cells
import yaml

from book import guards
from book.page import option_lines


def format_option(text) -> list[str]:
    """Return the option `expect` with a text, as the lines of a cell's header."""
    if "\n" not in text:
        return [yaml.safe_dump({"expect": text}, width=len(text) + 99).strip()]
    mark = "|2" if text.startswith((" ", "\n")) else "|"  # else YAML takes its indent
    return [f"expect: {mark}", *textwrap.indent(text, "  ").split("\n")]


def replace_expectation(lines, cell, text):
    """Put an expectation into a page's lines, in place of the cell's own."""
    start, end = cell.line, cell.line + cell.header  # below the fence, from 0
    block, option = lines[start] == "---", format_option(text)
    gone = option_lines(lines, cell, ["expect"])
    others = [n for n in range(start, end) if n not in gone and lines[n] != "---"]
    header = [*(lines[n].removeprefix(":") for n in others), *option]
    if block or len(option) > 1:
        lines[start:end] = ["---", *header, "---"]
    else:
        lines[start:end] = [f":{line}" for line in header]


def compare_page(page, lines) -> bool:
    """Show each difference of a page, and put what cells give into its lines."""
    differs = False
    for cell, outputs in reversed(site_cells.read_cells(page)):  # no line above moves
        if "expect" in {option for option, _ in guards.faults(cell, outputs)}:
            wanted = guards.tidy(cell.options.get("expect", ""))
            text, differs = guards.visible_text(outputs), True
            print(f"{page.file}:{cell.line}\n{guards.difference(wanted, text)}\n")
            replace_expectation(lines, cell, text)
    return differs


def main(arguments) -> int:
    """Show what differs, and write it if asked; return 1 if something is left to do."""
    if os.environ.get("CI"):
        sys.exit("expectations are accepted by people: this never runs in CI")
    names, status = {*arguments} - {"--write"}, 0
    for page in site_cells.find_pages(names):
        lines = page.text.split("\n")
        differs = compare_page(page, lines)
        if "--write" in arguments:
            page.file.write_text("\n".join(lines))
        elif differs:
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
