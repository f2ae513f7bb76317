"""Count what pages show and what they prove: `tools/shown.py [REVISION] [PAGE ...]`.

    open       cells that stand open, without set-up, folds, checks and exercises
    shown      how many of them show something
    facts      what fails the build when it is not so (see `facts`)
    scaffolds  `try: ... else: raise AssertionError`, around one error message
    figures    plots, pictures, films and charts, verdicts left out
    words      of prose
    screens    of 900 pixels, 1280 wide, in Chromium

Pages are those of the working tree, or of a revision of git; what cells showed is that
of the site of `--site`, or of the last build. Cells that the site does not have, or
has otherwise, leave `shown`, `figures` and `screens` empty. Beside each number stands
what it was before, from `--before`; `--csv FILE` writes a table to compare with later.
"""

import argparse
import ast
import contextlib
import csv
import os
import re
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

import kept
from book import contents, guards
from book.page import Page, parts
from book.proofs import WORD, facts, scaffolds
from playwright.sync_api import sync_playwright

BEFORE = kept.ROOT / "tests/shown_before.csv"
COLUMNS = "open", "shown", "facts", "scaffolds", "figures", "words", "screens"
CLOSED = {"exercise", "solution", "hide-cell", "hide-input", "remove-cell"}
CLOSED |= {"remove-input"}
FIGURES = re.compile(r'class="(?:picture|film|chart)\b')
IMAGES = {"image/png", "image/svg+xml"}
NO_PROSE = {"code-block", "exercise-index", "literalinclude", "module-reference"}
NO_PROSE |= {"error-index", "toctree"}
HEIGHT = "document.documentElement.scrollHeight"


# ------------------------------------------------------------------- what is shown


def is_open(cell) -> bool:
    """Tell whether the reader sees a cell's code, and it is about the page's topic."""
    if CLOSED & {*cell.tags} or {"check", "fold"} & cell.options.keys():
        return False
    return not ("import Judge" in cell.source or is_setup(cell.source))


def is_setup(code) -> bool:
    """Tell whether code only imports, names things and asks for devices."""
    _, tree = guards.parsed(code)
    return all(map(prepares, tree.body))


def prepares(node) -> bool:
    """Tell whether a statement is an import, or one that every page begins with."""
    text = ast.unparse(node)
    usual = re.fullmatch(
        r"(assert )?jax\.(config\.update|set_mesh|device_count)\(.*|\w+ = [\w.]+", text
    )
    return isinstance(node, ast.Import | ast.ImportFrom) or bool(usual)


def shows(cell, outputs) -> bool:
    """Tell whether something stands below a cell: text, a picture or an error."""
    if {"hide-output", "remove-output"} & {*cell.tags}:
        return False
    rich = any(guards.RICHER & output.get("data", {}).keys() for output in outputs)
    return rich or bool(guards.seen(outputs) or guards.error_in(outputs))


def figures(cells) -> int:
    """Count the figures of cells with their outputs; those of a judge are none."""
    data = [
        output.get("data", {})
        for cell, outputs in cells
        if not {"exercise", "solution"} & {*cell.tags}
        for output in outputs
    ]
    drawn = sum(
        len(FIGURES.findall("".join(each.get("text/html", "")))) for each in data
    )
    return drawn + sum(bool(IMAGES & each.keys()) for each in data)


# ----------------------------------------------------------------------- the pages


def words(page) -> int:
    """Count the words of a page's prose, in boxes as well, without code."""
    text = "\n".join(cell.source for cell in page.cells if not cell.code)
    return len(WORD.findall("\n".join(prose(text))))


def prose(text):
    """Yield the parts of a text that are no code."""
    for part in parts(text):
        if isinstance(part, str):
            yield part
        elif part.name and part.name not in NO_PROSE:
            yield from prose(part.content)


def row(page, site, height) -> dict:
    """Return the numbers of a page; what is not known is empty."""
    cells = list(page.code)
    trees = [guards.parsed(cell.source)[1] for cell in cells]
    found = dict.fromkeys(COLUMNS, "")
    found |= {"open": sum(map(is_open, cells[1:])), "facts": sum(map(facts, cells))}
    found |= {"scaffolds": sum(len(scaffolds(tree)) for tree in trees)}
    found |= {"words": words(page)}
    try:
        ran = kept.cells(page, site)
    except ValueError:
        return found
    pictures = page.text.count("](../figures/")
    found["shown"] = sum(is_open(cell) and shows(cell, out) for cell, out in ran[1:])
    found["figures"] = figures(ran) + pictures
    return found | {"screens": height(page)}


@contextlib.contextmanager
def heights(site):
    """Give a function that measures a page in Chromium, if there is one."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not program:
        yield lambda page: ""
        return
    with sync_playwright() as playwright:
        options = {"executable_path": program, "args": ["--no-sandbox"]}
        chromium = playwright.chromium.launch(**options)
        screen = chromium.new_page(viewport={"width": 1280, "height": 900})

        def height(page):
            screen.goto((site / f"{page.name}.html").resolve().as_uri())
            return round(screen.evaluate(HEIGHT) / 900, 1)

        yield height
        chromium.close()


def sources(revision, folder):
    """Return the folder of the pages of a revision, or of the working tree."""
    if not revision:
        return kept.DOCS
    archive = ["git", "archive", revision, "docs", "pyproject.toml"]
    made = subprocess.run(archive, cwd=kept.ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x"], cwd=folder, input=made.stdout, check=True)
    return Path(folder, "docs")


def count(revision, site, names) -> dict[str, dict]:
    """Return the numbers of each page, in the order of the contents."""
    with tempfile.TemporaryDirectory() as folder, heights(site) as height:
        docs = sources(revision, folder)
        order = [Page(docs / "index.md", docs), *contents.pages(docs)]
        pages = [p for p in order if p.is_notebook and (not names or p.name in names)]
        return {page.name: row(page, site, height) for page in pages}


# ----------------------------------------------------------------------- the table


def total(rows) -> dict:
    """Return the sums, of pages for which a number is known; of screens the median."""
    found = {}
    for name in COLUMNS:
        known = [float(row[name]) for row in rows if row[name] != ""]
        found[name] = sum(known)
        if name == "screens":
            found[name] = statistics.median(known) if known else ""
    seen = [row for row in rows if row["shown"] != ""]
    every = sum(float(row["open"]) for row in seen)
    found["share"] = (
        f"{sum(float(r['shown']) for r in seen) / every:.0%}" if every else ""
    )
    return found


def told(name, now, before) -> str:
    """Return a line: each number, and in brackets what it was."""
    cells = [f"{name:30}"]
    for column in (*COLUMNS, "share"):
        text = short(now.get(column, ""))
        was = short(before.get(column, "")) if before else text
        cells.append(f"{text:>7}{f'({was})' if was != text else '':<8}")
    return "".join(cells).rstrip()


def short(value) -> str:
    """Write a number without needless digits; a share as it is."""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def load(file) -> dict[str, dict]:
    """Read a table that was kept."""
    with file.open(newline="") as lines:
        return {row.pop("page"): row for row in csv.DictReader(lines)}


def store(file, rows):
    """Keep a table."""
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, ("page", *COLUMNS), lineterminator="\n")
        writer.writeheader()
        writer.writerows({"page": name, **row} for name, row in rows.items())


def arguments(given):
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="a revision of git, names of pages")
    parser.add_argument("--site", type=Path, default=kept.SITE)
    parser.add_argument("--before", type=Path, default=BEFORE)
    parser.add_argument("--csv", type=Path)
    return parser.parse_args(given)


def main(given=None):
    """Print the table."""
    asked = arguments(given)
    names = [n for n in asked.names if (kept.DOCS / f"{n}.md").exists()]
    revision = next((n for n in asked.names if n not in names), None)
    rows = count(revision, asked.site, names)
    before = load(asked.before) if asked.before.exists() else {}
    print(f"{'':30}" + "".join(f"{name:>7}{'':8}" for name in (*COLUMNS, "share")))
    for name, numbers in rows.items():
        print(told(name, total([numbers]), was(before, [name])))
    print(told("all", total(rows.values()), was(before, names or before)))
    if asked.csv:
        store(asked.csv, rows)


def was(before, names) -> dict:
    """Return what the numbers of pages were, or nothing."""
    rows = [before[name] for name in names if name in before]
    return total(rows) if rows else {}


if __name__ == "__main__":
    main()
