"""Change what guards claim, and see them fail: `tools/falsify.py [--all] [PAGE ...]`.

In every `expect` and `raises` each number, type and word is changed, one at a time, and
the cell is judged on the outputs of the last build, as the build does. A changed check
must raise an error: with `--all` the player tries every one, and what it kept of the
last play is told here. A change that no guard notices is named, and so is a guard
that checks nothing.
"""

import sys
from dataclasses import replace

import changes
import kept
import notebooks
from book import guards


def missed(page, cells) -> tuple[int, list[str]]:
    """Count the changes of texts, and return those that nothing noticed."""
    tried, found = 0, []
    for cell, outputs in cells:
        for option in {"expect", "raises"} & cell.options.keys():
            for lie in changes.of_text(cell.options[option]):
                tried += 1
                false = replace(cell, options={**cell.options, option: lie})
                if not [*guards.faults(false, outputs, strict=True)]:
                    found.append(f"{page.name}:{cell.line} {option}: {lie.strip()}")
    return tried, found


def believed(page) -> tuple[int, list[str]]:
    """Count the changed checks of the last play, and return those that held."""
    if not any("check" in cell.options for cell in page.code):
        return 0, []
    outcome = notebooks.outcome(page)
    if outcome is None:
        return 0, [f"{page.name} was not played: nox -s notebooks -- {page.name}"]
    return outcome["changes"], [f"{page.name}:{words}" for words in outcome["believed"]]


def main(arguments) -> int:
    """Falsify the guards of the named pages, or of all; return 1 if some lie passes."""
    names = [name for name in arguments if name != "--all"]
    pages = [p for p in kept.named(names) if any(cell.options for cell in p.code)]
    if "--all" in arguments:
        notebooks.main([page.name for page in pages], percent=100)
    tried, found = 0, []
    for page in pages:
        for count, lost in missed(page, kept.cells(page)), believed(page):
            tried, found = tried + count, found + lost
    print(*[f"NOT NOTICED {words}\n" for words in found], sep="", end="")
    print(f"{tried} changes, {len(found)} not noticed")
    return int(bool(found) or not tried)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
