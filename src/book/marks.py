"""Store marks of proofs, so that a proof of the same content is not repeated.

A mark is a file whose name digests all that a proof depends on: tracked files, by path
and content, the versions it ran with, the processor. Marks lie in `$SHARDBOOK_CACHE`,
or in the user's cache folder; set to the empty string, none is read or written. After
14 days a mark is void.
"""

import os
import platform
import re
import sys
import time
from functools import cache
from hashlib import sha256
from pathlib import Path
from shlex import quote
from subprocess import getoutput

ROOT = Path(__file__).resolve().parents[2]
GIT = f"git -C {quote(str(ROOT))}"
VARIABLES = r"JAX_|XLA_|TF_CPP|PYTHON|OPENBLAS|OMP_|MATPLOTLIB|BOOK_"
LIFE = 14 * 24 * 3600  # seconds


def cache_folder() -> Path | None:
    """Return the folder of all that outlives a checkout, or None if there is none."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    chosen = os.environ.get("SHARDBOOK_CACHE", Path(home, "shardbook"))
    return Path(chosen).resolve() if chosen else None


@cache
def tracked_files() -> dict[str, str]:
    """Return the digest of each tracked file, by its path.

    Empty where there is a file that git does not know: a proof may depend on it.
    """
    if getoutput(f"{GIT} ls-files --others --exclude-standard"):  # or an error
        return {}
    files = ((n, ROOT / n) for n in getoutput(f"{GIT} ls-files -z").split("\0"))
    return {n: sha256(f.read_bytes()).hexdigest() for n, f in files if f.is_file()}


def describe_environment(*programs: str) -> str:
    """Return Python, the processor, the variables that matter, versions of programs."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    flags = {*re.findall(r"^(?:flags|Features).*", text, re.M)}
    variables = (f"{k}={v}" for k, v in os.environ.items() if re.match(VARIABLES, k))
    found = sys.version, platform.machine(), *sorted(flags), *sorted(variables)
    versions = map(getoutput, programs)
    return "\n".join([*found, *versions]).replace(str(ROOT), "ROOT")


def digest(names, *words: str) -> str:
    """Return the name of the mark of a proof that depends on these files and words.

    It is empty where git does not know all files: no mark has that name.
    """
    if not (files := tracked_files()):
        return ""
    lines = (f"{name} {files[name]}" for name in sorted(names))
    return sha256("\n".join([*lines, *words]).encode()).hexdigest()


def mark_file(key: str) -> Path:
    """Return the file of a mark, or one that cannot be."""
    return Path(cache_folder() or os.devnull, "marks", key)


def read_mark(key: str) -> str | None:
    """Return what a mark holds, or None if there is no such mark, or it is void."""
    file = mark_file(key)
    if file.is_file() and time.time() - file.stat().st_mtime < LIFE:
        return file.read_text()
    return None


def write_mark(key: str, text: str = ""):
    """Write a mark as a whole, or not at all."""
    if key and cache_folder():
        file = mark_file(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(text)
        new.replace(file)


def delete_marks(prefix: str):
    """Delete the marks that begin like this."""
    for file in mark_file("").glob(f"{prefix}*"):
        file.unlink(missing_ok=True)
