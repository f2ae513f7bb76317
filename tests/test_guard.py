"""Whatever happens to one process, every process says so in seconds, and is gone."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import pytest

from examples import guard
from examples.guard import Guard, place

SOURCE = Path(__file__).parents[1] / "src"
LIMIT = 15  # seconds from the event to the end of the last process
HANGS = 120  # seconds after which a group is given up
COUNT = 3

# Every process runs this; in step 5 the last one does what a case is about.
SCRIPT = """
import os, re, signal, sys, time
import jax
import numpy as np
from jax.experimental import multihost_utils
from examples.guard import Guard, assert_same_program, limit_collectives

address, count, me, steps, deadline, first, event = sys.argv[1:]
me, last, skipped = int(me), int(count) - 1, False
exec(first)
jax.distributed.initialize(
    address, int(count), me, coordinator_bind_address=address,
    cluster_detection_method="deactivate", initialization_timeout=100,
)
mesh = jax.make_mesh((jax.device_count(),), ("x",))
ones = jax.device_put(np.ones(jax.device_count()), jax.NamedSharding(mesh, jax.P("x")))
total = jax.jit(lambda values: values.sum())
mean = jax.jit(lambda values: values.mean())

with Guard(deadline=60, host="127.0.0.1") as guard:
    for step in guard.steps(range(int(steps))):
        if step == 5:
            guard.deadline = float(deadline)
            guard.alive()
            print("event", time.monotonic(), flush=True)
            exec(event)
        if not skipped:
            value = float(total(ones))
        skipped = False
print("the end", step, guard.stopped)
"""


@dataclass
class Ended:
    """What a process printed, and how and when it ended."""

    code: int
    printed: str
    warned: str
    seconds: float

    @property
    def verdict(self):
        """The lines of the last message of the guard."""
        return self.warned.rpartition("guard in process ")[2].splitlines()[1:]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start(folder, number, address, *options, devices=2):
    """Start a process; the file of its script has its number."""
    environment = {
        name: text
        for name, text in os.environ.items()
        if name != "XLA_FLAGS" and not name.lower().endswith("_proxy")
    }
    environment |= {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        "PYTHONPATH": str(SOURCE),
    }
    return subprocess.Popen(
        [sys.executable, folder / "script.py", address, str(COUNT), number, *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process):
    """Wait for a process; return how it ended."""
    printed, warned = process.communicate(timeout=HANGS)
    now = time.monotonic()
    event = re.search(r"^event (.*)$", printed, re.M)
    seconds = now - float(event[1]) if event else float("nan")
    return Ended(process.returncode, printed, warned, seconds)


def group(folder, event, steps=10**6, deadline=3, first=""):
    """Run the script in three processes of two devices; return how each one ended."""
    address = f"127.0.0.1:{free_port()}"
    options = str(steps), str(deadline), first, event
    folder.joinpath("script.py").write_text(SCRIPT)
    started = [start(folder, str(i), address, *options) for i in range(COUNT)]
    try:
        with ThreadPoolExecutor(COUNT) as pool:
            ends = [pool.submit(end, process) for process in started]
            if "SIGSTOP" in event:  # who is suspended wakes up when the others are gone
                assert [one.result().code for one in ends[:-1]]
                started[-1].send_signal(signal.SIGCONT)
            return [one.result() for one in ends]
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()


ALONE = "if me == last: "
KILL = "os.kill(os.getpid(), signal.{})"
WORDS = {  # a case: what happens in step 5, and what must be said of the last process
    "killed": (ALONE + KILL.format("SIGKILL"), "left without a word"),
    "raised": (
        ALONE + "raise ValueError('negative pressure')",
        "raised ValueError: negative pressure in step 5, at script.py, line",
    ),
    "exit": (ALONE + "sys.exit('disk full')", "raised SystemExit: disk full"),
    "asleep": (ALONE + "time.sleep(1000)", "in step 5, at"),
    "suspended": (ALONE + KILL.format("SIGSTOP"), "does not answer"),
    "stuck": (ALONE + "re.match('(a+)+$', 60 * 'a' + 'b')", "does not answer"),
    "skipped": (ALONE + "skipped = True", "at the end"),
    "program": (
        "assert_same_program(mean if me == last else total, ones)",
        "raised AssertionError: the processes would run different programs: "
        "processes 0, 1 | process 2",
    ),
    "data": (
        "multihost_utils.assert_equal(me == last, 'the seeds differ')",
        "raised AssertionError: the seeds differ",
    ),
    "collective": (ALONE + "time.sleep(1000)", "in step 5, at"),
}
