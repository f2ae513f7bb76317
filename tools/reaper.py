"""Run a command, and kill all that it started when it ends or its starter is gone.

    python -I reaper.py FOLDER command ...

Daemons end, too, and FOLDER is removed, if there is one. The standard input is a pipe
from the process that started this one: it ends with that process, however that ends.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import psutil

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphans become children of this process


def kill_at_end_of_input(pid):
    """Kill a process when the standard input ends."""
    while os.read(0, 1):
        pass
    os.kill(pid, signal.SIGKILL)


def kill_children():
    """Kill all children, and theirs, which become children of this process."""
    while children := psutil.Process().children(recursive=True):
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children)


if __name__ == "__main__":
    folder, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(SUBREAPER, 1)
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, lambda *_: None)  # the input decides; not inherited
    try:
        process, ended = subprocess.Popen(command, stdin=subprocess.DEVNULL), 0
        pid = process.pid
        threading.Thread(target=kill_at_end_of_input, args=[pid], daemon=True).start()
        while ended != pid:  # Slurm waits for an orphan that nobody reaps
            ended, status = os.waitpid(-1, 0)
        code = os.waitstatus_to_exitcode(status)
    finally:
        kill_children()
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(code if code >= 0 else 128 - code)
