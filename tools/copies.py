"""Write what pyproject.toml states into the files that cannot read it.

    python tools/copies.py

Modules are copied alone, the README and figures are read as they stand. Each module has
a page of a few lines, which the site fills. Tests hold all to be as this writes them.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "docs/_ext"))

from book import module_reference  # noqa: E402  (lies in docs/_ext)
from book.facts import facts  # noqa: E402

COLOURED = "docs/_static/site.css", "docs/_static/logo.svg", "docs/figures/*.svg"
NUMBERED = re.compile(r"(device-(\d)(?:: |\{fill:))#[0-9a-f]{6}")
MODULE = r"^COLOURS = .*\nCOLOURS \+= .*$"


def rules() -> Iterator[tuple[str, str, str]]:
    """Yield files, a pattern of each, and what is to stand there."""
    book = facts()
    first, last = (", ".join(f'"{c}"' for c in book.colours[i : i + 4]) for i in (0, 4))
    yield "src/examples/*.py", MODULE, f"COLOURS = ({first})\nCOLOURS += ({last})"
    cycle = ", ".join(f"'{colour.removeprefix('#')}'" for colour in book.lines)
    yield "docs/matplotlibrc", r"(?<='color', )\[.*\]", f"[{cycle}]"
    release = book.jax.replace(".", ", ")
    checked = r"(?<=__version_info__ >= \().*(?=\))"
    yield "docs/start/how-to-read.md", checked, release
    written = f"JAX {book.jax} on Python {book.python}"
    yield "README.md", r"JAX [\d.]+ on Python [\d.]+\d", written
    yield "README.md", r"from JAX [\d.]+\d on", f"from JAX {book.oldest_jax} on"
    yield "CITATION.cff", r"(?<=^version: )\S+", f'"{book.edition}"'


def copies() -> dict[Path, str]:
    """Return the files that hold copies, and the text that each should have."""
    files = [file for pattern in COLOURED for file in ROOT.glob(pattern)]
    texts = {file: recoloured(file.read_text()) for file in files}
    for place, pattern, text in rules():
        for file in ROOT.glob(place):
            before = texts.get(file, file.read_text())
            if re.search(pattern, before, re.M):
                texts[file] = re.sub(pattern, lambda _, t=text: t, before, flags=re.M)
    return texts


def recoloured(text) -> str:
    """Return a text in which each device that has a number has its colour."""
    return NUMBERED.sub(lambda found: found[1] + facts().colours[int(found[2])], text)


def stubs() -> dict[Path, str]:
    """Return the pages of modules, and what stands in each."""
    return module_reference.stubs(ROOT / "docs", ROOT / "src/examples")


def main():
    """Write the files that differ, and say which; remove pages of modules that went."""
    written = copies() | stubs()
    for file, text in sorted(written.items()):
        if not file.exists() or file.read_text() != text:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
            print(file.relative_to(ROOT))
    for file in ROOT.glob(f"docs/{module_reference.PAGES_OF_MODULES}/*.md"):
        if file not in written:
            file.unlink()
            print(file.relative_to(ROOT), "removed")


if __name__ == "__main__":
    main()
