"""Build the site from nothing in another folder, and compare it byte for byte.

    python tools/reproducible.py docs/_build/html

Prints every file that differs, with the first lines that do, and fails if there is one.
"""

import difflib
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
LEFT_BEHIND = shutil.ignore_patterns("_build", ".git", ".nox", ".venv", "__pycache__")


def files(site) -> set[Path]:
    """List the files below `site`, relative to it."""
    return {path.relative_to(site) for path in site.rglob("*") if path.is_file()}


def first_lines(before, after) -> str:
    """Show the first lines in which two files differ."""
    pair = (path.read_text(errors="replace").splitlines() for path in (before, after))
    lines = islice(difflib.unified_diff(*pair, n=0, lineterm=""), 3, 9)
    return "\n".join(f"    {line[:160]}" for line in lines)


def differences(first, second) -> list[str]:
    """Describe every file that is not the same in both sites."""
    lists = files(first), files(second)
    found = [f"{path}: only in one of them" for path in sorted(lists[0] ^ lists[1])]
    for path in sorted(lists[0] & lists[1]):
        before, after = first / path, second / path
        if before.read_bytes() != after.read_bytes():
            found.append(f"{path}: differs\n{first_lines(before, after)}")
    return found


def main(site):
    """Build a copy of the project and compare; return the differences."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=LEFT_BEHIND)
        build = "sphinx-build", "-q", "-W", "--keep-going", "-n", "-j", "auto"
        trees = f"-d={copy}/trees"
        subprocess.run([*build, trees, "docs", "html"], cwd=copy, check=True)
        found = differences(Path(site), copy / "html")
    print("\n".join(found) or "two cold builds: every file is the same")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
