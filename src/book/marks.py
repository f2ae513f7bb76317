"""Store marks of proofs, so that a proof of the same content is not repeated.

A mark is a file whose name digests all that a proof depends on: tracked files, by path
and content, the versions it ran with, the processor. Marks lie in `$SHARDBOOK_CACHE`,
or in the user's cache folder; set to the empty string, none is read or written. After
14 days a mark is void.
"""

import hashlib
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = re.compile(r"JAX_|XLA_|TF_CPP|PYTHON|OPENBLAS|OMP_|MATPLOTLIB|BOOK_")
LIFE = 14 * 24 * 3600  # seconds


def cache_folder() -> Path | None:
    """Return the folder of all that outlives a checkout, or None if there is none."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    chosen = os.environ.get("SHARDBOOK_CACHE", Path(home, "shardbook"))
    return Path(chosen).resolve() if chosen else None


def list_files(*options: str) -> list[str]:
    """Return the files of the checkout that git lists; without git, none."""
    command = "git", "-C", str(ROOT), "ls-files", "-z", *options
    with suppress(OSError):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        names = done.stdout.split("\0")
        return [name for name in names if name and (ROOT / name).is_file()]
    return []


@cache
def tracked_files() -> dict[str, str]:
    """Return the digest of each tracked file, by its path.

    Empty where there is a file that git does not know: a proof may depend on it.
    """
    if list_files("--others", "--exclude-standard"):
        return {}
    return {
        name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
        for name in list_files()
    }


def describe_environment(*programs: str) -> str:
    """Return Python, the processor, the variables that matter, versions of programs."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = {line for line in lines if line.startswith(("flags", "Features"))}
    variables = (f"{k}={v}" for k, v in os.environ.items() if VARIABLES.match(k))
    found = [sys.version, platform.machine(), *sorted(flags), *sorted(variables)]
    for program in programs:
        with suppress(OSError):
            command = shlex.split(program if " " in program else f"{program} --version")
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            found.append(done.stdout)
    return "\n".join(found).replace(str(ROOT), "ROOT")


def digest(names, *words: str) -> str:
    """Return the name of the mark of a proof that depends on these files and words.

    It is empty where git does not know all files: no mark has that name.
    """
    if not tracked_files():
        return ""
    lines = (f"{name} {tracked_files()[name]}" for name in sorted(names))
    return hashlib.sha256("\n".join([*lines, *words]).encode()).hexdigest()


def read_mark(key: str) -> str | None:
    """Return what a mark holds, or None if there is no such mark, or it is void."""
    file = (cache_folder() or Path(os.devnull)) / "marks" / key
    if file.is_file() and time.time() - file.stat().st_mtime < LIFE:
        return file.read_text()
    return None


def write_mark(key: str, text: str = ""):
    """Write a mark as a whole, or not at all."""
    if key and (folder := cache_folder()):
        (folder / "marks").mkdir(parents=True, exist_ok=True)
        new = folder / f"{key}.{os.getpid()}"
        new.write_text(text)
        new.replace(folder / "marks" / key)


def delete_marks(prefix: str):
    """Delete the marks that begin like this."""
    for file in (cache_folder() or Path(os.devnull)).glob(f"marks/{prefix}*"):
        file.unlink(missing_ok=True)
