"""Write the facts of pyproject.toml into files that cannot read them; stubs of modules.

.nox/book/bin/python tools/copies.py
"""

import re
from pathlib import Path

from book import module_reference
from book.facts import ROOT, facts

COLOURED = "docs/_static/site.css", "docs/_static/logo.svg", "docs/figures/*.svg"


def rules() -> list[tuple[str, str, str]]:
    """Return files, a pattern that occurs in them, and the text that belongs there."""
    book = facts()
    four = [", ".join(f'"{c}"' for c in book.colours[i : i + 4]) for i in (0, 4)]
    colours = "COLOURS = ({})\nCOLOURS += ({})".format(*four)
    cycle = ", ".join(f"'{colour[1:]}'" for colour in book.lines)
    minor = book.jax.replace(".", ", ")
    versions = f"JAX {book.jax} on Python {book.python}"
    return [
        ("src/examples/*.py", r"^COLOURS = .*\nCOLOURS \+= .*$", colours),
        ("docs/matplotlibrc", r"(?<='color', )\[.*\]", f"[{cycle}]"),
        ("docs/start/how-to-read.md", r"(?<=_info__ >= \().*(?=\))", minor),
        ("README.md", r"JAX [\d.]+ on Python [\d.]+\d", versions),
        ("README.md", r"(?<=from JAX )[\d.]+\d", book.oldest_jax),
        ("CITATION.cff", r"(?<=^version: )\S+", f'"{book.edition}"'),
        *(
            (files, rf"(?:(?<=device-{n}: )|(?<=device-{n}{{fill:))#\w{{6}}", colour)
            for files in COLOURED
            for n, colour in enumerate(book.colours)
        ),
    ]


def copies() -> dict[Path, str]:
    """Return the files that hold copies, with the text that each should have."""
    texts = module_reference.stubs(ROOT / "docs", ROOT / "src/examples")
    for place, pattern, text in rules():
        for file in ROOT.glob(place):
            old = texts.get(file) or file.read_text()
            new, count = re.subn(pattern, text, old, flags=re.M)
            texts |= {file: new} if count else {}
    return texts


if __name__ == "__main__":
    wanted = copies()
    for file in {*ROOT.glob("docs/reference/modules/*.md")} - wanted.keys():
        file.unlink()
    for file, text in wanted.items():
        file.write_text(text)
