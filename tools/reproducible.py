"""Build the site from nothing in another folder, and compare it byte for byte.

    python tools/reproducible.py docs/_build/html

Prints every file that differs, with the lines that do, and fails if there is one.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns("_build", ".git", ".nox", ".venv", "__pycache__")
BUILD = "sphinx-build", "-q", "-W", "--keep-going", "-n", "-j=auto", "-d=trees"
COMPARE = (
    "diff --recursive --unified=0 {} html | cut --characters=-160; exit $PIPESTATUS"
)


def main(site) -> int:
    """Build a copy of the project; return whether it differs, and print where."""
    with TemporaryDirectory() as folder:
        copy = shutil.copytree(ROOT, Path(folder, "copy"), ignore=LEFT_OUT)
        cold = os.environ | {"SHARDBOOK_CACHE": ""}
        subprocess.run([*BUILD, "docs", "html"], cwd=copy, env=cold, check=True)
        compare = COMPARE.format(Path(site).resolve())
        return subprocess.run(["bash", "-c", compare], cwd=copy, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
