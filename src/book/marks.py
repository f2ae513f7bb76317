"""Store marks of proofs, so that a proof of the same content is not repeated.

A mark is a file whose name digests all that a proof depends on: tracked files, by path
and content, the versions it ran with, the processor. Marks lie in `$SHARDBOOK_CACHE`,
or in the user's cache folder; set to the empty string, none is read or written. One is
written when a whole proof has passed and its files are what they were; a failure of the
same content deletes it, and after 14 days it is void.
"""

import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = re.compile(r"JAX_|XLA_|TF_CPP|PYTHON|OPENBLAS|OMP_|MATPLOTLIB|BOOK_")
LIFE = 14 * 24 * 3600  # seconds
PROGRAMS = {  # which say their versions, where they are
    "slurmctld": "-V",
    "mpirun": "--version",
    "openssl": "version",
    "chromium": "--version",
}


def cache_folder() -> Path | None:
    """Return the folder of all that outlives a checkout, or None if there is none."""
    chosen = os.environ.get("SHARDBOOK_CACHE")
    if chosen is None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(home, "shardbook")
    return Path(chosen).resolve() if chosen else None


# -------------------------------------------------------------------------- digests


def run_git(*words: str) -> list[str]:
    """Return the names that git lists in the checkout; none where there is no git."""
    command = ["git", "-C", str(ROOT), *words, "-z"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [name for name in done.stdout.split("\0") if name]


@cache
def tracked_files() -> dict[str, tuple[str, int]]:
    """Return the digest and the time of change of each tracked file, by its path.

    Empty where there is a file that git does not know: a proof may depend on it.
    """
    if run_git("ls-files", "--others", "--exclude-standard"):
        return {}
    files = (name for name in run_git("ls-files") if (ROOT / name).is_file())
    return {
        name: (
            hashlib.sha256((ROOT / name).read_bytes()).hexdigest(),
            (ROOT / name).stat().st_mtime_ns,
        )
        for name in files
    }


def are_unchanged(names) -> bool:
    """Return whether no file was written to since it was digested."""
    files = tracked_files()
    return all(
        (ROOT / name).is_file() and (ROOT / name).stat().st_mtime_ns == files[name][1]
        for name in names
    )


def describe_environment(*programs: str) -> str:
    """Return what else a proof depends on.

    That is Python, the processor, variables that programs of this book heed, and the
    versions of the programs that are named.
    """
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = sorted({line for line in lines if line.startswith(("flags", "Features"))})
    found = [sys.version, platform.machine(), *flags]
    variables = sorted(name for name in os.environ if VARIABLES.match(name))
    heeded = (f"{name}={os.environ[name]}" for name in variables)
    found += [each.replace(str(ROOT), "ROOT") for each in heeded]
    for program in programs:
        try:
            done = subprocess.run(
                [program, PROGRAMS[program]],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError:
            continue
        found.append(done.stdout)
    return "\n".join(found)


def digest(kind: str, names, *words: str) -> str:
    """Return the name of a mark: of a kind of proof, tracked files, and more words.

    Empty if one of the files is not tracked: what git does not know gets no mark.
    """
    files = tracked_files()
    if not files or not {*names} <= files.keys():
        return ""
    lines = [f"{name} {files[name][0]}" for name in sorted({*names})]
    return f"{kind}-{hashlib.sha256('\n'.join([*lines, *words]).encode()).hexdigest()}"


# ---------------------------------------------------------------------------- marks


def mark_file(key: str) -> Path | None:
    """Return where a mark lies, or None if there are none."""
    folder = cache_folder()
    return folder / "marks" / key if folder and key else None


def read_mark(key: str) -> str | None:
    """Return what a mark holds, or None if there is no such mark, or it is void."""
    file = mark_file(key)
    try:
        fresh = file and time.time() - file.stat().st_mtime < LIFE
        return file.read_text() if fresh else None
    except FileNotFoundError:
        return None


def write_mark(key: str, text: str = ""):
    """Write a mark as a whole, or not at all."""
    if file := mark_file(key):
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as new:
            new.write(text)
        os.replace(new.name, file)


def delete_mark(key: str):
    """Delete a mark, if it is there."""
    if file := mark_file(key):
        file.unlink(missing_ok=True)
