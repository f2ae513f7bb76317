"""Run a command, and let nothing of it outlive who started it.

    python -I guard.py FOLDER command ...

When the command ends, or the standard input, all that it started is killed, daemons as
well, and FOLDER is removed unless it is "-". Standard input is a lifeline: its other
end is closed when whoever started us is gone, however that came.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphans become our children
REQUESTS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def children() -> list[int]:
    """Return our children, among them those whose own parent is gone."""
    tasks = Path("/proc/self/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


def sweep():
    """Kill our children, then theirs, who become ours, until there are none."""
    while pids := children():
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(-1, 0)


def hold(lifeline: int, pid: int):
    """Kill process `pid` when the lifeline ends."""
    while os.read(lifeline, 1):
        pass
    os.kill(pid, signal.SIGKILL)


def reap(pid: int) -> int:
    """Bury all orphans until process `pid` has ended; return its exit code."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def main(folder: str, *command: str) -> int:
    """Do it, and return the exit code of the command."""
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
