"""Make processes fail in every way, at JAX's own timeouts: `tools/failures.py FOLDER`.

Each case of `CASES` is a small group of processes on this machine, of which the last
does something in step 5, or is not started. FOLDER/failures.csv keeps what the others
saw, and after how long. The groups run side by side, since all they do is wait; names
of cases after FOLDER run these again, and keep the other rows.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from records import write_table
from throwaway import free_ports

SOURCE = Path(__file__).resolve().parents[1] / "src"
LIMIT = 420  # seconds after which a group is given up; XLA:CPU would wait for 1800
SCRIPT = """
import contextlib, ctypes, json, os, signal, sys, time
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
import jax
import numpy as np

address, count, me, deadline, options, hook, event = sys.argv[1:]
me, last, skipped = int(me), int(count) - 1, False
exec(hook)
if not event:
    print("event", time.monotonic(), flush=True)
jax.distributed.initialize(
    address, int(count), me, coordinator_bind_address=address,
    cluster_detection_method="deactivate", **json.loads(options),
)
mesh = jax.make_mesh((jax.device_count(),), ("x",))
twos = np.full(jax.device_count(), 2.0)
twos = jax.device_put(twos, jax.NamedSharding(mesh, jax.P("x")))
program = jax.jit(lambda values: values.sum())
other = jax.jit(lambda values: (values * values).mean())
deadline, guard = float(deadline), contextlib.nullcontext()
if deadline:
    from examples.guard import Guard
    guard = Guard(deadline, "127.0.0.1")
with guard:
    for step in guard.steps(range(20)) if deadline else range(20):
        if step == 5:
            program(twos).block_until_ready()
            print("event", time.monotonic(), flush=True)
            exec(event)
        if not skipped:
            value = float(program(twos))
        skipped = False
print("the last value is", value, flush=True)
"""
PHRASES = re.compile(
    r"stopped sending heartbeats"
    r"|Shutdown barrier has failed"
    r"|Timed out waiting \d+ms"
    r"|Connection (?:reset|closed) by peer"
    r"|Failed to send RPC to coordination service"
    r"|DEADLINE_EXCEEDED"
    r"|(?<=- process [12] ).*"
    r"|SIGTERM came$"
    r"|the last value is \S+"
)
LAST = "if me == last: "
FIRST = "if me == 0: "
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
STOP = "os.kill(os.getpid(), signal.SIGSTOP)"
TERM = "os.kill(os.getpid(), signal.SIGTERM)"
RAISE = "raise ValueError"
SLEEP = "time.sleep(1000)"
LEAVE = "sys.excepthook = lambda *error: (sys.__excepthook__(*error), os._exit(1))"
COLLECTIVE = "--xla_cpu_collective_timeout_seconds=10"
HEARTBEAT = "heartbeat_timeout_seconds"
SHUTDOWN = "shutdown_timeout_seconds"
START = "initialization_timeout"


@dataclass(frozen=True)
class Case:
    """What happens in step 5, in how many processes with how many devices.

    `started` is the processes that are started, all if not given. `options` go to
    `jax.distributed.initialize`, `flags` to XLA; `hook` runs first in every process.
    A `deadline` puts the steps under a guard.
    """

    event: str
    processes: int = 3
    devices: int = 2
    options: dict = field(default_factory=dict)
    flags: str = ""
    hook: str = ""
    deadline: float = 0
    started: tuple[int, ...] | None = None

    @property
    def knob(self) -> str:
        """What is set otherwise than JAX does, as you would write it."""
        words = [f"{name}={value}" for name, value in self.options.items()]
        if self.flags:
            words.append(f"XLA_FLAGS={self.flags}")
        if self.deadline:
            words.append(f"Guard(deadline={self.deadline:g})")
        if self.hook:
            words.append("sys.excepthook with os._exit")
        return " ".join(words)

    @property
    def failing(self) -> set[int]:
        """The processes that fail, or do not start; the others are observed."""
        if self.started is not None:
            return set(range(self.processes)) - set(self.started)
        return {0} if self.event.startswith(FIRST) else {self.processes - 1}


CASES = {
    "killed": Case(LAST + KILL),
    "killed, two alone": Case(LAST + KILL, 2, 1),
    "killed, heartbeat": Case(LAST + KILL, options={HEARTBEAT: 10}),
    "killed, collective": Case(LAST + KILL, flags=COLLECTIVE),
    "process 0 killed": Case(FIRST + KILL),
    "raised": Case(LAST + RAISE, 2),
    "raised, shutdown": Case(LAST + RAISE, 2, options={SHUTDOWN: 10}),
    "raised, hook": Case(LAST + RAISE, 2, hook=LEAVE),
    "asleep": Case(LAST + SLEEP, 2),
    "asleep, heartbeat": Case(LAST + SLEEP, 2, options={HEARTBEAT: 10}),
    "asleep, collective": Case(LAST + SLEEP, 2, flags=COLLECTIVE, hook=LEAVE),
    "suspended": Case(LAST + STOP, 2),
    "skipped": Case(LAST + "skipped = True", 2),
    "program": Case(LAST + "program = other", 2),
    "data": Case(LAST + "twos = twos + 1", 2),
    "SIGTERM": Case(LAST + TERM, 2),
    "killed, guard": Case(LAST + KILL, deadline=5),
    "raised, guard": Case(LAST + RAISE, 2, deadline=5),
    "asleep, guard": Case(LAST + SLEEP, 2, deadline=5),
    "suspended, guard": Case(LAST + STOP, 2, deadline=5),
    "skipped, guard": Case(LAST + "skipped = True", 2, deadline=5),
    "SIGTERM, guard": Case(LAST + TERM, 2, deadline=5),
    "never started": Case("", 2, started=(0,)),
    "no process 0": Case("", 2, started=(1,)),
    "never started, start": Case("", 2, options={START: 10}, started=(0,)),
}
COLUMNS = ("case", "processes", "devices", "knob", "seen", "code", "seconds")


def process_environment(devices: int) -> dict[str, str]:
    """Return the environment without proxies and XLA's flags, with so many CPUs."""
    mine = {
        name: text
        for name, text in os.environ.items()
        if name != "XLA_FLAGS" and not name.lower().endswith("_proxy")
    }
    cpus = {"JAX_NUM_CPU_DEVICES": str(devices), "JAX_PLATFORMS": "cpu"}
    return mine | cpus | {"PYTHONPATH": str(SOURCE)}


def start_process(case: Case, port: int, number: int, output) -> subprocess.Popen:
    """Start one process of a case, which writes all to `output`."""
    address = f"127.0.0.1:{port}"
    words = address, str(case.processes), str(number)
    words += str(case.deadline), json.dumps(case.options)
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words, case.hook, case.event],
        env=process_environment(case.devices) | {"XLA_FLAGS": case.flags},
        stdout=output,
        stderr=output,
    )


def wait_for_process(process: subprocess.Popen, output, since: float) -> tuple:
    """Return what a process saw, its exit code, and its seconds after the event."""
    try:
        code = str(process.wait(LIMIT))
    except subprocess.TimeoutExpired:
        code = "still running"
    now = time.monotonic()
    output.seek(0)
    text = output.read()
    event = re.search(r"^event (.*)$", text, re.M)
    seconds = round(now - float(event[1] if event else since))
    return ", then ".join(dict.fromkeys(PHRASES.findall(text))), code, seconds


def run_case(name: str) -> dict:
    """Run a case; return what was seen by the process that ended last."""
    case, now = CASES[name], time.monotonic()
    (port,) = free_ports(1)
    numbers = range(case.processes) if case.started is None else case.started
    with contextlib.ExitStack() as stack:
        outputs = [
            stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
            for _ in numbers
        ]
        processes = []
        for number, output in zip(numbers, outputs, strict=True):
            processes.append(start_process(case, port, number, output))
            stack.callback(processes[-1].wait)
            stack.callback(processes[-1].kill)
        others = [
            (process, output, now)
            for number, process, output in zip(numbers, processes, outputs, strict=True)
            if number not in case.failing
        ]
        with ThreadPoolExecutor(len(others)) as pool:
            ends = list(pool.map(lambda other: wait_for_process(*other), others))
    words, code, seconds = max(ends, key=lambda end: end[2])
    found = (name, case.processes, case.devices, case.knob, words, code, seconds)
    print(*found, sep=" | ", flush=True)
    return dict(zip(COLUMNS, map(str, found), strict=True))


def main(folder: str, *names: str):
    """Run the named cases, or all, and write the table."""
    chosen = names or tuple(CASES)
    with ThreadPoolExecutor(len(chosen)) as pool:
        rows = list(pool.map(run_case, chosen))
    write_table(Path(folder) / "failures.csv", rows, order=[(name,) for name in CASES])


if __name__ == "__main__":
    main(*sys.argv[1:])
