"""Run a command, and kill all that it started when it ends or its starter is gone.

    python -I reaper.py FOLDER command ...

When the command ends, or the standard input, all processes that it started are killed,
daemons as well, and FOLDER is removed unless it is "-". The standard input is a pipe
from the process that started this one: it ends with that process, however it ended.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphans become children of this process
REQUESTS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def children() -> list[int]:
    """Return the children of this process, and orphans that became its children."""
    tasks = Path("/proc/self/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


def sweep():
    """Kill all children, then theirs, which become children of this one in turn."""
    while pids := children():
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(-1, 0)


def hold(lifeline: int, pid: int):
    """Kill process `pid` when the pipe `lifeline` ends."""
    while os.read(lifeline, 1):
        pass
    os.kill(pid, signal.SIGKILL)


def reap(pid: int) -> int:
    """Wait for all children until process `pid` has ended; return its exit code."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def main(folder: str, *command: str) -> int:
    """Run the command, kill what it left, and return its exit code."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1)
    for number in REQUESTS:
        signal.signal(number, lambda *_: None)  # the lifeline decides; not inherited
    try:
        with open(os.devnull) as nothing:
            process = subprocess.Popen(command, stdin=nothing)
        lifeline = threading.Thread(target=hold, args=(0, process.pid), daemon=True)
        lifeline.start()
        code = reap(process.pid)
    finally:
        sweep()
        if folder != "-":
            shutil.rmtree(folder, ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
