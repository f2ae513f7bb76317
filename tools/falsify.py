"""Change what guards expect, and see them fail: `tools/falsify.py [PAGE ...]`.

In every `expect` and `raises` each number, type and word is changed, one at a time, and
the cell is judged on the outputs of the last build, as the build does. A change that no
guard notices is named, and so is a guard that checks nothing.
"""

import re
import sys
from dataclasses import replace

import kept
from book import guards

TOKEN = re.compile(r"\d+(?:\.\d+)?|[^\W\d]\w*")


def changed(token) -> str:
    """Return another number for a number, and another word for a word."""
    if token[0].isdigit():
        return token[:-1] + str((int(token[-1]) + 1) % 10)
    return f"{token}x"


def lies(text):
    """Yield a text with one number or word changed, for each of them."""
    for found in TOKEN.finditer(text):
        yield text[: found.start()] + changed(found[0]) + text[found.end() :]


def missed(page, cells) -> tuple[int, list[str]]:
    """Count the changes that were tried, and return those that nothing noticed."""
    tried, found = 0, []
    for cell, outputs in cells:
        for option in {"expect", "raises"} & cell.options.keys():
            for lie in lies(cell.options[option]):
                tried += 1
                false = replace(cell, options={**cell.options, option: lie})
                if not [*guards.faults(false, outputs, strict=True)]:
                    found.append(f"{page.name}:{cell.line} {option}: {lie.strip()}")
    return tried, found


def main(arguments) -> int:
    """Falsify the guards of the named pages, or of all; return 1 if some lie passes."""
    tried, found = 0, []
    for page in kept.named(arguments):
        if any(cell.options for cell in page.code):
            count, lost = missed(page, kept.cells(page))
            tried, found = tried + count, found + lost
    print(*[f"NOT NOTICED {words}" for words in found], sep="\n", end="")
    print(f"{tried} changes, {len(found)} not noticed")
    return int(bool(found) or not tried)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
