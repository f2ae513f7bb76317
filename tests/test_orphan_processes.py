"""A notebook that is killed in the middle leaves no process behind."""

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
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


def find_started(kernel):
    """Return all that a kernel has started, once they are tied to its end.

    A fork has still the command line of its parent, and then that of `setpriv`.
    """
    found = []
    for child in kernel.children(recursive=True):
        with suppress(psutil.NoSuchProcess, AttributeError):  # it or its parent ended
            line = child.cmdline()
            if line[:1] == [sys.executable] and line != child.parent().cmdline():
                found.append(child)
    return found


def is_alive(process):
    """Return whether a process has not ended."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition, seconds):
    """Wait until something holds; return whether it did in time."""
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
    with subprocess.Popen(line, env=source, cwd=ROOT / "docs", **streams) as popen:
        kernel = psutil.Process(popen.pid)
        try:
            assert wait_until(lambda: len(find_started(kernel)) >= count, SLOW)
            children, every = kernel.children(), kernel.children(recursive=True)
        finally:
            popen.kill()
    assert wait_until(lambda: not any(map(is_alive, children)), SOON)
    assert wait_until(lambda: not any(map(is_alive, every)), LATER)
