"""Write what cells show into what they expect: `tools/expect.py [--write] [PAGE ...]`.

Compares the outputs of the last build with the `expect` of each cell, and shows every
difference; `--write` puts the outputs into the pages. A cell that prints text and has
no expectation gets one. Read what is written: it is what the program said, not what is
true. It never runs in CI.
"""

import contextlib
import os
import sys

import site_cells
import yaml

from book import guards
from book.page import option_lines


def format_option(text) -> list[str]:
    """Return the option `expect` with a text, as the lines of a cell's header."""
    lines = text.split("\n")
    if len(lines) > 1 or text != text.strip():
        mark = "|2" if text.startswith((" ", "\n")) else "|"
        return [f"expect: {mark}", *(f"  {line}".rstrip() for line in lines)]
    with contextlib.suppress(yaml.YAMLError):
        if yaml.load(f"a: {text}", yaml.BaseLoader) == {"a": text}:
            return [f"expect: {text}"]
    return ["expect: '{}'".format(text.replace("'", "''"))]


def replace_expectation(lines, cell, text):
    """Put an expectation into a page's lines, in place of the cell's own."""
    start, end = cell.line, cell.line + cell.header  # below the fence, from 0
    block = lines[start] == "---"
    gone = option_lines(lines, cell, ["expect"])
    others = [n for n in range(start, end) if n not in gone and lines[n] != "---"]
    header = [*(lines[n].removeprefix(":") for n in others), *format_option(text)]
    if block or len(format_option(text)) > 1:
        lines[start:end] = ["---", *header, "---"]
    else:
        lines[start:end] = [f":{line}" for line in header]


def differences(cells):
    """Yield each cell with another expectation than what it shows, that, and faults.

    Faults are words of it that another run would not show.
    """
    for cell, outputs in cells:
        options = {option for option, _ in guards.faults(cell, outputs)}
        if "expect" in options:
            text = guards.visible_text(outputs)
            yield cell, text, guards.find_fleeting(text, outputs)


def main(arguments) -> int:
    """Show what differs, and write it if asked; return 1 if something is left to do."""
    if os.environ.get("CI"):
        sys.exit("expectations are accepted by people: this never runs in CI")
    left = refused = 0
    for page in site_cells.find_pages({*arguments} - {"--write"}):
        lines, cells = page.text.split("\n"), site_cells.read_cells(page)
        for cell, text, differs in reversed([*differences(cells)]):
            wanted = guards.tidy(cell.options.get("expect", ""))
            print(f"{page.file}:{cell.line}\n{guards.difference(wanted, text)}\n")
            if differs:
                print("REFUSED, differs between runs:", *differs)
                refused += 1
            else:
                replace_expectation(lines, cell, text)
                left += 1
        if "--write" in arguments:
            page.file.write_text("\n".join(lines))
    return int(refused > 0 or (left > 0 and "--write" not in arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
