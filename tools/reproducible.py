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
LEFT_BEHIND = shutil.ignore_patterns("_build", ".git", ".nox", ".venv", "__pycache__")


def differences(first, second) -> str:
    """Return what `diff` says of two folders; some lines of the site are very long."""
    command = "diff", "--recursive", "--unified=0", first, second
    text = {"stdout": subprocess.PIPE, "text": True, "errors": "replace"}
    done = subprocess.run(command, **text, check=False)
    if done.returncode > 1:
        raise RuntimeError("diff could not compare them")
    return "\n".join(line[:160] for line in done.stdout.splitlines())


def main(site):
    """Build a copy of the project; say what differs, or nothing."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=LEFT_BEHIND)
        build = "sphinx-build", "-q", "-W", "--keep-going", "-n", "-j", "auto"
        trees, cold = f"-d={copy}/trees", os.environ | {"SHARDBOOK_CACHE": ""}
        subprocess.run([*build, trees, "docs", "html"], cwd=copy, env=cold, check=True)
        found = differences(site, copy / "html")
    print(found or "two cold builds: every file is the same")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
