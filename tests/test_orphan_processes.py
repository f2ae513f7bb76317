"""A notebook that is killed in the middle leaves no process behind."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from book.page import Page

ROOT = Path(__file__).parents[1]
PAGES = {  # the first cell that it takes to start processes, the last, and how many
    "guard": ('program = """', "ThreadPoolExecutor(2)", 4),
    "mtls": ("import jax", "ThreadPoolExecutor(8)", 16),
    "restart": ("import jax", "elastic = ", 2 + 1 + 3),
}
SLOW = 300  # seconds in which all have started
SOON = 20  # seconds in which those that are killed have gone: none would end by itself
LATER = 100  # and those that import JAX before they look for who started them


def cells(page):
    """Return the cells of a page that start processes, as one program."""
    read = Page(ROOT / f"docs/processes/{page}.md", ROOT / "docs")
    code = [cell.source for cell in read.code]
    first, last, *_ = PAGES[page]
    start = next(i for i, cell in enumerate(code) if cell.startswith(first))
    end = next(i for i, cell in enumerate(code) if last in cell)
    imports = (
        "import os, time",
        "from pathlib import Path",
        "from examples import guard",
    )
    return "\n".join([*imports, *code[start : end + 1], "time.sleep(1e4)"])


def parents():
    """Return the parent of each process there is that has not ended."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = file.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it ended while we looked
        if state != "Z":
            found[int(file.parent.name)] = int(parent)
    return found


def below(process, generations=4):
    """Return all that a process has started, and what they have, and so on."""
    found, tree = {process}, parents()
    for _ in range(generations):
        found |= {child for child, parent in tree.items() if parent in found}
    return found - {process}


def command(process):
    """Return the command line of a process, or nothing if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def find_started(kernel):
    """Return all that a kernel has started, once they are tied to its end.

    A fork has still the command line of its parent, and then that of `setpriv`.
    """
    tree, python = parents(), os.fsencode(sys.executable) + b"\0"
    return {
        process
        for process in below(kernel)
        if command(process).startswith(python)
        and command(process) != command(tree.get(process, kernel))
    }


def until(condition, seconds):
    """Wait until something holds; say whether it did in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.mark.processes
@pytest.mark.parametrize("page", PAGES)
def test_who_is_killed_leaves_nobody(page):
    if not shutil.which("setpriv"):  # a failure where continuous integration lacks it
        (pytest.fail if os.environ.get("CI") else pytest.skip)("install util-linux")
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    line = [sys.executable, "-c", cells(page)]
    *_, count = PAGES[page]
    source = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(line, env=source, cwd=ROOT / "docs", **streams) as kernel:
        try:
            assert until(lambda: len(find_started(kernel.pid)) >= count, SLOW)
            children, every = below(kernel.pid, 1), below(kernel.pid)
        finally:
            kernel.kill()
    assert until(lambda: not children & parents().keys(), SOON)
    assert until(lambda: not every & parents().keys(), LATER)
