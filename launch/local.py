# SPDX-License-Identifier: MIT-0
"""Start a script in several processes on this machine, as `srun` does on a cluster.

    python local.py -n 4 script.py its arguments          each process on one GPU
    python local.py -n 4 --devices 2 script.py            on CPUs, simulating 2 devices

The script calls `jax.distributed.initialize()` without arguments, and runs unchanged
under `srun` and `mpirun`. JAX reads the coordinator's address from a variable of its
own; for the count and the ids it knows only those of cluster managers, so the processes
are told that they are a Slurm step. Their lines come live, each whole and marked, as in
`[2] loss 0.5`, or go to files with `--logs`. What C++ libraries and commands print goes
to stderr, without Gloo's greetings.

    script                          the processes               exit code
    ends                            end by themselves           0
    fails in one process            the others are ended        the code of that one
    has saved, and exits with 75    the others are ended        75
    is killed there by signal S     the others are ended        128 + S
    runs longer than --timeout      show stacks, are ended      124
    Ctrl-C, SIGTERM, SIGHUP         get it, have --grace        128 + signal
    kill -9 of this launcher        are killed

After a signal the processes have 30 s to save, or the seconds of `--grace`; a second
signal ends them at once. A process that does not end (JAX catches SIGTERM) is killed,
with all that it started, unless that has made a session of its own. A failure counts
when the exception leaves the script: at exit, JAX would wait 300 s for the others.

`--max-restarts` starts all processes again after a failure or a save (75), so often in
all; the script finds the number of the restart in SLURM_RESTART_COUNT. `--timeout` is
for all starts together.

Copy this file alone: it needs Python 3.12 on Linux or macOS, and no package.
"""

import argparse
import contextlib
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

GREETING = b"[Gloo] Rank"  # how it begins; another thread may write between its pieces
GLOO = re.compile(rb"\[Gloo\] Rank|number of connected peer ranks")
GLOO_REST = re.compile(rb"[\d\s]*")  # the end of a greeting that another one cut
STACK_END = re.compile(rb'  File "<string>", line \d+ in <module>$|  \.\.\.$')
STACK_SECONDS = 10.0  # at most, in which all write where they stand
KILL_DELAY = 1.0  # seconds from SIGTERM to SIGKILL, after a failure
GRACE_SECONDS = 30.0  # and after a signal to the launcher, in which to save
SAVED = 75  # the exit code EX_TEMPFAIL: nothing is wrong, start me again
REQUESTS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP

# What each process runs: the script as __main__, its standard output set apart from
# what C++ writes in pieces, and word to the launcher when it fails.
BOOT = """
def boot(namespace):
    del namespace["boot"]
    import faulthandler, os, signal, sys
    report, parent, *sys.argv = sys.argv[1:]
    if sys.platform == "linux":
        import ctypes
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != int(parent):
        os._exit(1)
    faulthandler.register(signal.SIGUSR1)
    script = namespace["__file__"] = sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    own = open(os.dup(1), "w", buffering=1, encoding="utf-8", errors="replace")
    sys.stdout = sys.__stdout__ = own
    os.dup2(2, 1)

    def failed(code):
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(int(report), b"%d\\n" % code)

    try:
        with open(script, "rb") as file:
            source = compile(file.read(), script, "exec", dont_inherit=True)
        exec(source, namespace)
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
            stop.code = 1
        failed(stop.code or 0)
        raise
    except BaseException as error:
        error = error.with_traceback(error.__traceback__.tb_next)
        sys.excepthook(type(error), error, error.__traceback__)
        failed(130 if isinstance(error, KeyboardInterrupt) else 1)
        sys.exit(1)
boot(globals())
"""


def write(target: int, data: bytes):
    """Write all of `data` to stdout, 1, or stderr, 2."""
    while data:
        data = data[os.write(target, data) :]


def log(words: str):
    """Write a line of the launcher itself to stderr."""
    write(2, f"local.py: {words}\n".encode())


def kill(group: int, number: int):
    """Send signal `number` to a process and to all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def free_port() -> int:
    """Return a port of this machine on which no process listens."""
    while True:
        port = random.randrange(61440, 65536)  # Linux gives these to no connection
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port


def environment(processes: int, devices: int | None, restart: int) -> dict[str, str]:
    """Return the variables that all processes share: a Slurm step on this machine."""
    shared = {k: v for k, v in os.environ.items() if not k.startswith("OMPI_")}
    address = f"127.0.0.1:{free_port()}"
    shared |= {  # JAX would have asked Open MPI first
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_COORDINATOR_BIND_ADDRESS": address,  # else every host may connect
        "SLURM_JOB_ID": "1",
        "SLURM_NTASKS": str(processes),
        "SLURM_RESTART_COUNT": str(restart),
        "SLURM_STEP_NODELIST": "127.0.0.1",
    }
    if any(name in shared for name in ("grpc_proxy", "https_proxy", "http_proxy")):
        shared["no_grpc_proxy"] = "127.0.0.1"  # else JAX asks the proxy for its peers
    if devices:
        shared |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}
    return shared


def watch_launcher(lifeline: int):
    """Wait for the end of the launcher, then kill the groups that it still had."""
    os.setsid()
    for number in REQUESTS:
        signal.signal(number, signal.SIG_IGN)
    groups = set()
    with open(lifeline) as words:
        for word in words:
            (groups.add if word[0] == "+" else groups.discard)(int(word[1:]))
    for group in groups:
        kill(group, signal.SIGKILL)


@contextlib.contextmanager
def watch_groups() -> Iterator[Callable[[str], None]]:
    """Fork a process that kills the groups if this one ends; yield what adds them."""
    lifeline, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(end)
            os.closerange(0, 3)  # a reader of the output must not wait for this process
            watch_launcher(lifeline)
        finally:
            os._exit(0)
    os.close(lifeline)
    try:
        yield lambda word: write(end, word.encode() + b"\n")
    finally:
        os.close(end)
        os.waitpid(pid, 0)


@contextlib.contextmanager
def signals() -> Iterator[int]:
    """Yield a pipe from which the number of each signal that comes can be read."""
    alarm, end = os.pipe()
    os.set_blocking(alarm, False)
    os.set_blocking(end, False)
    signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    for number in (*REQUESTS, signal.SIGCHLD):
        if signal.getsignal(number) != signal.SIG_IGN:  # as `nohup` wants it
            signal.signal(number, lambda *_: None)
    yield alarm


@dataclass
class Stream:
    """A pipe from a process, passed on in whole lines."""

    pipe: int
    take: Callable[[bytes], None]
    rest: bytes = b""
    open: bool = True

    def read(self) -> bool:
        """Pass on what lies in the pipe; return False when it was empty or closed."""
        try:
            data = os.read(self.pipe, 1 << 16)
        except BlockingIOError:
            return False
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.take(line + b"\n")
        self.open = bool(data)
        return self.open

    def drain(self):
        """Pass on all that lies in the pipe."""
        while self.open and self.read():
            pass

    def close(self):
        """Pass on all that is left; a last line without an end gets one."""
        self.drain()
        if self.rest:
            self.take(self.rest + b"\n")
        self.open = False  # also where a dying child holds it: its number has no owner
        os.close(self.pipe)


@dataclass
class Process:
    """One process of the job: what it writes, and how it ends."""

    id: int
    popen: subprocess.Popen
    logs: list[int]  # the files of its stdout and stderr, or none
    streams: list[Stream] = field(default_factory=list)
    tail: list[bytes] = field(default_factory=list)
    code: int | None = None  # as a shell gives it; known before the end when it fails
    ended: bool = False
    silenced: bool = False
    greetings: int = 0  # Gloo's, begun and not ended
    has_stack: bool = False  # its stderr holds a stack to its end

    def poll(self):
        """If it has ended, end its children and read the last lines."""
        if self.ended or self.popen.poll() is None:
            return
        self.ended = True
        status = self.popen.returncode
        self.code = self.code or (128 - status if status < 0 else status)
        kill(self.popen.pid, signal.SIGKILL)
        for stream in self.streams:
            stream.close()
        for log in self.logs:
            os.close(log)

    def report(self, line: bytes):
        """Note the code with which it is about to end."""
        self.code = int(line) % 256

    def out(self, line: bytes):
        """Take a line of its stdout."""
        if self.logs:
            write(self.logs[0], line)
        else:
            write(1, self.mark(line))

    def err(self, line: bytes):
        """Take a line of its stderr."""
        if self.logs:
            write(self.logs[1], line)
        self.greetings += line.count(GREETING)
        if GLOO.search(line) or (self.greetings and GLOO_REST.fullmatch(line)):
            self.greetings = max(self.greetings - 1, 0)
            return
        self.has_stack |= bool(STACK_END.match(line))
        self.tail = [*self.tail[-39:], line]
        if not (self.logs or self.silenced):
            write(2, self.mark(line))

    def mark(self, line: bytes) -> bytes:
        """Return the line with the number of its process."""
        return b"[%d] %b" % (self.id, line)

    def show_stderr(self):
        """Show the last lines of its stderr, unless they were shown live."""
        for stream in self.streams:
            if not self.ended:
                stream.drain()
        if self.logs:
            write(2, b"".join(map(self.mark, self.tail)))

    def end(self) -> str:
        """Return in words how it failed."""
        status = self.popen.returncode
        return (
            signal.Signals(-status).name if (status or 0) < 0 else f"code {self.code}"
        )


def open_logs(folder: Path | None, number: int, fresh: bool) -> list[int]:
    """Open files for stdout and stderr of process `number`, if there is a folder."""
    if folder is None:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if fresh else 0)
    names = f"{number}.out", f"{number}.err"
    return [os.open(folder / name, flags, 0o666) for name in names]


def start(number: int, shared: dict, options: argparse.Namespace) -> Process:
    """Start process `number` in a group of its own, with pipes to the launcher."""
    logs = open_logs(options.logs, number, shared["SLURM_RESTART_COUNT"] == "0")
    pipes = [os.pipe() for _ in range(3)]
    (_, out), (_, err), (_, report) = pipes
    boot = sys.executable, "-c", BOOT, str(report), str(os.getpid())
    popen = subprocess.Popen(
        [*boot, options.script, *options.arguments],
        env=shared | {"SLURM_PROCID": str(number), "SLURM_LOCALID": str(number)},
        pass_fds=[report],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
    )
    process = Process(number, popen, logs)
    takers = process.out, process.err, process.report
    for (here, there), taker in zip(pipes, takers, strict=True):
        os.close(there)
        os.set_blocking(here, False)
        process.streams.append(Stream(here, taker))
    return process


def await_stacks(processes: list[Process], end: float):
    """Read stderr until each has written its stack, or has ended, or time is over."""
    while processes and time.monotonic() < end:
        time.sleep(0.01)
        for process in processes:
            process.streams[1].read()
        processes = [
            process
            for process in processes
            if not process.has_stack and process.popen.poll() is None
        ]


@dataclass
class Job:
    """All processes of one start, until the last has ended."""

    options: argparse.Namespace
    alarm: int
    tell: Callable[[str], None]
    deadline: float
    processes: list[Process] = field(default_factory=list)
    code: int | None = None  # the verdict, once there is one
    failed_first: Process | None = None  # the process that failed first
    last: float = float("inf")  # when those that still run are killed

    def run(self, restart: int) -> int:
        """Start all processes, pass on what they write, and return the exit code."""
        options = self.options
        shared = environment(options.processes, options.devices, restart)
        try:
            for number in range(options.processes):
                self.processes.append(start(number, shared, options))
                self.tell(f"+{self.processes[-1].popen.pid}")
            while self.running() and time.monotonic() < self.last:
                self.attend(self.wait())
        finally:
            self.end()
        return self.code or 0

    def running(self) -> list[Process]:
        """Return the processes that have not ended."""
        return [process for process in self.processes if not process.ended]

    def wait(self) -> list[Stream]:
        """Sleep until something happens, and return the pipes that hold something."""
        pause = min(self.deadline, self.last) - time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self.alarm, selectors.EVENT_READ)
            for process in self.running():
                for stream in filter(lambda stream: stream.open, process.streams):
                    selector.register(stream.pipe, selectors.EVENT_READ, stream)
            ready = selector.select(min(max(pause, 0), 60))
        return [key.data for key, _ in ready if key.data]

    def attend(self, ready: list[Stream]):
        """See first which one failed, then pass on what all have written."""
        with contextlib.suppress(BlockingIOError):
            for number in os.read(self.alarm, 64):
                if number in REQUESTS:
                    self.forward_signal(number)
        for process in self.running():
            process.streams[2].drain()
            process.poll()
        self.judge()
        for stream in ready:
            if stream.open:
                stream.read()

    def judge(self):
        """Act on the first failure, or on the end of the time."""
        if self.code is not None:
            return
        failed = [process for process in self.processes if process.code]
        if failed:
            self.fail(failed[0])
        elif time.monotonic() > self.deadline:
            self.time_out()

    def forward_signal(self, number: int):
        """Forward a signal to all; after the second one kill them at once."""
        grace = self.options.grace if self.code is None else 0
        rest = f", which have {grace:g} s; a second signal kills" if grace else ""
        log(f"{signal.Signals(number).name}, ends all processes{rest}")
        self.failed_first = None
        self.stop(128 + number, number, grace, silent=number == signal.SIGINT)

    def fail(self, process: Process):
        """Show what the process that failed has written, and end the others."""
        self.failed_first = process
        process.show_stderr()
        what = "has saved" if process.code == SAVED else "failed"
        log(f"process {process.id} {what} with {process.end()}; the others are ended")
        self.stop(process.code, signal.SIGTERM, KILL_DELAY)

    def time_out(self):
        """Make each process print its stack, and end it."""
        log(f"not done after {self.options.timeout:g} s; this is where they stand:")
        running = self.running()
        for process in running:
            process.has_stack = False
            process.popen.send_signal(signal.SIGUSR1)
        await_stacks(running, time.monotonic() + STACK_SECONDS)
        for process in running:
            process.show_stderr()
        self.stop(124, signal.SIGTERM, KILL_DELAY)

    def stop(self, code: int, number: int, grace: float, silent: bool = True):
        """Set the exit code, and end all but the one that failed, silently if asked."""
        self.code, self.last = code, time.monotonic() + grace
        for process in self.running():
            if process is not self.failed_first:
                process.silenced = silent
                kill(process.popen.pid, number)

    def end(self):
        """Kill what still runs, and wait until it is gone."""
        for process in self.running():
            kill(process.popen.pid, signal.SIGKILL)
        for process in self.processes:
            process.popen.wait()
            with contextlib.suppress(OSError):  # the output may be closed
                process.poll()
            self.tell(f"-{process.popen.pid}")


def launch(options: argparse.Namespace) -> int:
    """Run the job, again after failures as often as allowed; return the exit code."""
    deadline = time.monotonic() + options.timeout
    with watch_groups() as tell, signals() as alarm:
        for restart in range(options.max_restarts + 1):
            job = Job(options, alarm, tell, deadline)
            code = job.run(restart)
            if not job.failed_first or restart == options.max_restarts:
                break
            log(f"restart {restart + 1} of {options.max_restarts}")
    return code


def at_least(least: float, kind: type) -> Callable[[str], float]:
    """Return a reader of numbers that refuses those below `least`."""

    def number(text: str):
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    return number


def arguments() -> argparse.Namespace:
    """Read the command line, or explain and exit with 2."""
    idea = "Start a script in several processes on this machine."
    parser = argparse.ArgumentParser(prog="local.py", description=idea)
    add, count = parser.add_argument, at_least(1, int)
    add("-n", "--processes", type=count, required=True, metavar="N")
    add("--devices", type=count, metavar="M", help="simulate M CPU devices in each")
    add("--timeout", type=at_least(0, float), metavar="SECONDS", default=float("inf"))
    add("--grace", type=at_least(0, float), metavar="SECONDS", default=GRACE_SECONDS)
    add("--max-restarts", type=at_least(0, int), metavar="N", default=0)
    add("--logs", type=Path, metavar="FOLDER", help="write N.out and N.err there")
    add("script")
    add("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not Path(options.script).is_file():
        parser.error(f"there is no file {options.script}")
    return options


def main() -> int:
    """Launch what the command line asks for, and return the exit code."""
    options = arguments()
    try:
        return launch(options)
    except BrokenPipeError:  # no process reads the output any more, as after `| head`
        return 128 + signal.SIGPIPE


if __name__ == "__main__":
    sys.exit(main())
