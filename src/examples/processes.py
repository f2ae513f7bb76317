# SPDX-License-Identifier: MIT-0
"""Cells that run in every process: several JAX processes under one Python.

`Processes(4, devices=2)` starts four Pythons with two simulated devices each, which
connect by `jax.distributed.initialize`. From then on a cell runs in all of them at
once, and each keeps its own variables from cell to cell.

    four = Processes(4, devices=2)
    four.run("jax.process_index()")     returns what each process shows

What the processes print stands in the order of their numbers, equal outputs once. The
lines that libraries write past Python, such as those of gloo, stay out of it. When a
process dies, or the time is over, all are ended and the call raises. They end with the
Python that started them, however that ends.

Cost: a start takes two to three seconds, most of it for importing JAX, and each process
some 200 MB. A cell is one message to each process, and one back.

    python processes.py

Copy this file alone: it needs JAX only, on Linux or macOS.
"""

import contextlib
import ctypes
import enum
import faulthandler
import io
import itertools
import linecache
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import weakref
from ast import Expr, Expression, parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Pipe, wait

import jax

GRACE = 10.0  # seconds that the other processes have when one raised or died
CHILD = "import runpy, sys; runpy.run_path(sys.argv[1])['_live'](*sys.argv[2:])"
JOIN = """
import jax
jax.distributed.initialize(  # the limit of a first cell ends what JAX would wait for
    "127.0.0.1:{port}", {count}, {rank}, initialization_timeout=3600,
    cluster_detection_method="deactivate", coordinator_bind_address="127.0.0.1:{port}"
)
jax.devices()
del jax
"""
OWN = re.compile(r"^XLA_FLAGS$|_proxy$", re.I)  # variables that are not inherited
FATAL = re.compile(r"^(?:F\d{4} \S+ +\d+ |(?=Fatal Python error: ))(.*)$", re.M)
EXAMPLE = """
import jax
mesh = jax.make_mesh((4,), ("x",))
ids = jax.numpy.arange(4.0, device=jax.NamedSharding(mesh, jax.P("x")))
print("holds", [float(shard.data[0]) for shard in ids.addressable_shards])
float(ids.sum())
"""


# ------------------------------------------------------------------ what a cell shows


class Outcome(enum.IntEnum):
    """How a cell ended in a process; likely causes of other outcomes come first."""

    DIED, RAISED, RETURNED, UNFINISHED = range(4)


WORDS = "died", "raised {}", "did not raise", "did not finish in time"  # by outcome


@dataclass(frozen=True)
class Shown:
    """What one process shows after a cell.

    `printed` is what it printed, `value` the last line's value, and `html` that value's
    form for the web, if it has one. `error` ends in the exception, or says how the
    process ended; `kinds` names the exception's classes.
    """

    printed: str = ""
    value: str = ""
    html: str = ""
    error: str = ""
    kinds: tuple[str, ...] = ()
    outcome: Outcome = Outcome.RETURNED

    def raised(self, wanted: str) -> bool:
        """Whether the error is `wanted`, such as "ValueError: a phrase of it"."""
        kind, _, phrase = wanted.partition(":")
        kinds = *self.kinds, self.outcome.name.title()
        return kind.strip() in kinds and phrase.strip() in self.error

    def __str__(self) -> str:
        """Write all of it as text."""
        parts = self.printed, self.value, self.error
        return "\n".join(part.rstrip("\n") for part in parts if part)


@dataclass(frozen=True, repr=False)
class Output:
    """What all processes show after a cell; it prints itself, equal parts once."""

    shown: tuple[Shown, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """What each process printed, and the value of its last line."""
        return tuple("\n".join(str(shown).splitlines()) for shown in self.shown)

    @property
    def groups(self) -> dict[Shown, list[int]]:
        """The processes that show the same, in order; not those that show nothing."""
        found: dict[Shown, list[int]] = {}
        for rank, shown in enumerate(self.shown):
            found.setdefault(shown, []).append(rank)
        found.pop(Shown(), None)
        return found

    def label(self, ranks: Sequence[int]) -> str:
        """Name processes: "process 0", "processes 1, 3" or "every process"."""
        if 1 < len(ranks) == len(self.shown):
            return "every process"
        noun = "process" if len(ranks) == 1 else "processes"
        return f"{noun} {', '.join(map(str, ranks))}"

    def __repr__(self) -> str:
        """Write the label of each group, and below it what the group shows."""
        return "\n".join(
            f"[{self.label(ranks)}]\n{shown}" for shown, ranks in self.groups.items()
        )


class ProcessesError(RuntimeError):
    """A cell did not end as it should have; `output` is what the processes show."""

    def __init__(self, reason: str, output: Output = Output(), displayed=False):
        """Keep the reason, what was shown until then, and whether it is displayed."""
        super().__init__(reason)
        self.output, self.displayed = output, displayed

    def __str__(self) -> str:
        """Give the reason, and what the processes show unless that stands above."""
        shown = "" if self.displayed else f"\n{self.output}"
        return f"{self.args[0]}{shown}".rstrip()

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows: no frames, those of this file explain nothing."""
        return [f"ProcessesError: {self}"]


# ------------------------------------------------------------------- inside a process


def _live(channel: str, printed: str, warned: str, tied: str):
    """Run each cell that comes through the channel, until it closes."""
    if tied == "True":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    sys.path = [place or os.getcwd() for place in sys.path]  # "" would follow a chdir
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    style = {"encoding": "utf-8", "errors": "backslashreplace", "write_through": True}
    sys.stdout = io.TextIOWrapper(io.FileIO(int(printed), "w"), **style)
    sys.stderr = io.TextIOWrapper(io.FileIO(int(warned), "w"), **style)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    cells: queue.SimpleQueue = queue.SimpleQueue()
    parent = Connection(int(channel))
    threading.Thread(target=_listen, args=(parent, cells), daemon=True).start()
    for number in itertools.count():
        parent.send(_perform(cells.get(), f"<cell {number}>", vars(main)))


def _listen(parent: Connection, cells: queue.SimpleQueue):
    """Pass cells on; end this process, whatever it does, when the parent has ended."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            cells.put(parent.recv())
    os._exit(1)


def _perform(source: str, name: str, names: dict) -> dict:
    """Run a cell; return its value, or the error with the frames of cells only."""
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    try:
        value = _value(source, name, names)
        jax.effects_barrier()  # wait for what jax.debug.print prints
        shows = None if isinstance(value, type) else getattr(value, "_repr_html_", None)
        text = "" if value is None else repr(value)
        return {"value": text, "html": (shows() if shows else "") or ""}
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        frames = [frame for frame in frames if frame.filename.startswith("<cell")]
        lines = traceback.format_list(frames) + traceback.format_exception_only(error)
        text = re.sub(r"<cell \d+>", "<cell>", "".join(lines))
        return {"error": text, "kinds": tuple(k.__name__ for k in type(error).__mro__)}


def _value(source: str, name: str, names: dict):
    """Run a cell; return the value of its last line, unless a semicolon ends it."""
    tree, last = parse(source, name), None
    shows = tree.body and isinstance(tree.body[-1], Expr)
    if shows and not source.rstrip().endswith(";"):
        last = Expression(tree.body.pop().value)
    exec(compile(tree, name, "exec"), names)
    return eval(compile(last, name, "eval"), names) if last else None


# ------------------------------------------------------------------ seen from outside


class _Record:
    """A file without a name that a process writes and its parent reads."""

    def __init__(self):
        self.number, name = tempfile.mkstemp()
        self.taken = 0
        os.unlink(name)

    @property
    def size(self) -> int:
        """The bytes written so far."""
        return os.fstat(self.number).st_size

    def read(self, start: int = 0) -> str:
        """Return the text from `start` on; the writer's position stays."""
        return os.pread(self.number, self.size - start, start).decode(errors="replace")

    def take(self) -> str:
        """Return what was written since the last time."""
        start, self.taken = self.taken, self.size
        return self.read(start)


class _Child:
    """One process, seen from the Python that started it."""

    def __init__(self, environment: Mapping[str, str]):
        self.channel, theirs = Pipe()
        self.printed, self.warned, self.log = _Record(), _Record(), _Record()
        ends = theirs.fileno(), self.printed.number, self.warned.number
        # Linux would send its signal already when the thread ends that starts it here.
        main = threading.current_thread() is threading.main_thread()
        tied = sys.platform == "linux" and main
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, __file__, *map(str, ends), str(tied)],
            env=environment,
            pass_fds=ends,
            start_new_session=True,  # Ctrl-C is for the parent; one kill ends it all
            stdin=subprocess.DEVNULL,
            stdout=self.log.number,
            stderr=self.log.number,
        )
        theirs.close()

    def send(self, source: str):
        """Send a cell, unless the process has ended."""
        with contextlib.suppress(OSError):
            self.channel.send(source)

    def receive(self) -> Shown:
        """Return what the process sends, or how it ended."""
        try:
            reply = self.channel.recv()
        except (EOFError, OSError):
            return Shown(error=self.end(), outcome=Outcome.DIED)
        ended = Outcome.RAISED if "error" in reply else Outcome.RETURNED
        return Shown(**reply, outcome=ended)

    def unfinished(self, cell: str, source: str) -> Shown:
        """Return at which line of a cell the process is; it goes on."""
        start, found = self.log.size, []
        self.process.send_signal(signal.SIGUSR1)
        end = time.monotonic() + 10  # a busy machine takes its time
        while not found and time.monotonic() < end:
            time.sleep(0.01)
            found = re.findall(f'"{cell}", line (\\d+)', self.log.read(start))
        lines = (source.splitlines()[int(number) - 1] for number in found[-1:])
        where = "".join(f" line {found[-1]}:\n    {line.strip()}" for line in lines)
        return Shown(error=f"Unfinished:{where}\n", outcome=Outcome.UNFINISHED)

    def end(self) -> str:
        """End the process and what it started; return how it ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return "\n".join([f"Died: {how}", *FATAL.findall(self.log.read())]) + "\n"

    def close(self):
        """End the process, and release what was shared with it."""
        self.end()
        self.channel.close()
        for record in (self.printed, self.warned, self.log):
            os.close(record.number)


def _end(children: list[_Child]):
    """End all processes."""
    for child in children:
        child.close()
    children.clear()


@contextlib.contextmanager
def reserve_port() -> Iterator[int]:
    """Reserve a port, so that no program but the coordinator opens it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def _environment(devices: int, more: Mapping[str, str] | None) -> dict[str, str]:
    """Return the variables of a process that has simulated devices of its own."""
    inherited = {n: text for n, text in os.environ.items() if not OWN.search(n)}
    return inherited | {
        "JAX_ENABLE_PREEMPTION_SERVICE": "0",  # else SIGTERM does nothing
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_PLATFORMS": "cpu",
        "JAX_TRACEBACK_FILTERING": "off",  # only the cells' frames are shown anyway
        "PYTHONHASHSEED": "0",
        **(more or {}),
    }


class Processes(contextlib.AbstractContextManager):
    """Several JAX processes on this machine that run the same cells.

    `len` counts them (0 once they have ended), `with` ends them, and so does `close`.
    `grace` may be changed: the seconds that the others have after an error or a death
    that was not expected.
    """

    def __init__(self, count, devices=1, timeout=60.0, env=None, initialize=True):
        """Start the processes, and connect them.

        Args:
            count: the number of processes.
            devices: the number of simulated CPU devices of each.
            timeout: how many seconds a cell may take if it does not say.
            env: more environment variables, such as `{"XLA_FLAGS": "..."}`; they
                inherit all but the flags and the proxies.
            initialize: whether they call `jax.distributed.initialize`.

        Raises:
            ValueError: when there would be no process or no device.
            ProcessesError: when the processes do not start.
        """
        if count < 1 or devices < 1:
            raise ValueError(f"{count} x {devices} devices: pass 1 or more of both")
        self.timeout, self.grace, self._cells = timeout, GRACE, itertools.count()
        self._children: list[_Child] = []
        self.close = weakref.finalize(self, _end, self._children)
        variables, join = _environment(devices, env), JOIN if initialize else ""
        with reserve_port() as port:
            self._children += (_Child(variables) for _ in range(count))
            joins = [join.format(port=port, count=count, rank=i) for i in range(count)]
            self._start(joins)

    def __exit__(self, *error):
        """End the processes."""
        self.close()

    def __len__(self) -> int:
        """Count the processes."""
        return len(self._children)

    @property
    def ids(self) -> tuple[int, ...]:
        """The number that the operating system gave to each process."""
        return tuple(child.process.pid for child in self._children)

    def run(self, source, timeout=None, raises="", on=None, show=None) -> Output:
        """Run code in every process; return what each one shows.

        Args:
            source: the code; the value of its last line is shown, unless it is None.
            timeout: the seconds after which all processes are ended.
            raises: an exception that must come and is then shown, such as "ValueError",
                or "ValueError: a phrase" of its text; also "Died" and "Unfinished".
            on: the processes that must raise it, and no others; all if not given.
            show: a function that displays the output, even where this then raises.

        Raises:
            ValueError: when `on` names a process that is not there.
            ProcessesError: when a process raised anything else, or did not raise; died;
                or took too long. After the last two none is left.
        """
        if not self:
            raise ProcessesError("the processes have ended: start new ones")
        wanted = set(range(len(self)) if on is None else on) if raises else set()
        if outside := wanted.difference(range(len(self))):
            raise ValueError(f"no process {sorted(outside)} among {len(self)}")
        limit = self.timeout if timeout is None else timeout
        output = self._ask([source] * len(self), limit, limit if raises else self.grace)
        if show:
            show(output)
        self._check(output, raises, wanted, displayed=bool(show))
        return output

    def _start(self, sources: list[str]):
        """Run the first cell of each process."""
        output = self._ask(sources, max(self.timeout, 60), self.grace)
        if any(shown.error for shown in output.shown):
            self.close()
        self._check(output, "", set())

    def _ask(self, sources: list[str], limit: float, grace: float) -> Output:
        """Send each process its code; return what they show when it is over."""
        try:
            shown = self._replies(sources, limit, grace)
        except BaseException:  # such as KeyboardInterrupt: a cell may never end
            self.close()
            raise
        for rank, child in enumerate(self._children):
            shown[rank] = replace(shown[rank], printed=child.printed.take())
            if warned := child.warned.take():
                print(f"[process {rank}]\n{warned}", end="", file=sys.stderr)
        if any(one.outcome in (Outcome.DIED, Outcome.UNFINISHED) for one in shown):
            self.close()
        return Output(tuple(shown))

    def _replies(self, sources, limit: float, grace: float) -> list[Shown]:
        """Return the reply of each process, and where those are that sent none."""
        cell, end, found = f"<cell {next(self._cells)}>", time.monotonic() + limit, {}
        for child, source in zip(self._children, sources, strict=True):
            child.send(source)
        open_ = {child.channel: rank for rank, child in enumerate(self._children)}
        while open_ and (left := end - time.monotonic()) > 0:
            for channel in wait(list(open_), left):
                rank = open_.pop(channel)
                found[rank] = self._children[rank].receive()
                if found[rank].error:
                    end = min(end, time.monotonic() + grace)
        for rank in open_.values():
            found[rank] = self._children[rank].unfinished(cell, sources[rank])
        return [found[rank] for rank in range(len(self))]

    def _check(self, output, raises: str, wanted: set[int], displayed=False):
        """Raise ProcessesError unless the wanted processes, and no others, raised."""
        wrong: dict[tuple[Outcome, str], list[int]] = {}
        for rank, shown in enumerate(output.shown):
            right = shown.raised(raises) if rank in wanted else not shown.error
            if not right:
                what = WORDS[shown.outcome].format(*shown.kinds[:1])
                wrong.setdefault((shown.outcome, what), []).append(rank)
        if not wrong:
            return
        causes_first = sorted(wrong.items(), key=lambda pair: pair[0][0])
        parts = [f"{output.label(ranks)} {what}" for (_, what), ranks in causes_first]
        if wanted:
            parts.append(f"expected was {raises} on {output.label(sorted(wanted))}")
        if not self:
            parts.append("all processes were ended")
        raise ProcessesError("; ".join(parts), output, displayed)


def main():
    """Add up, over two processes of two devices, the numbers of all devices."""
    with Processes(2, devices=2) as two:
        print(two.run(EXAMPLE))


if __name__ == "__main__":
    main()
