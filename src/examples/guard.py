# SPDX-License-Identifier: MIT-0
"""Guard: when one process dies, raises or stops, all say which, where, and leave.

Every process keeps a line to process 0, and its own clock. Bad news, a line that breaks
or a step over its deadline make process 0 ask all where they are. All then print the
same verdict and leave, instead of waiting in a collective or at the exit.

    raised      exit code 1      an exception left the `with` of this process
    stalled     exit code 124    a step of this process went over the deadline
    told        exit code 69     it was another one; also when that one was killed
    saved       exit code 75     `sys.exit(75)` in all processes: start again later

Only the last is an end that a launcher should follow with a new start for as long as it
likes. (Where Python itself is stuck, `faulthandler` ends the process, with code 1.)

The deadline counts all that is done within a step. Before a long save or evaluation
call `guard.alive()`, or set `guard.deadline`.

Cost: one sleeping thread a process, two in process 0. A step sends nothing.

    python guard.py

and in a program, after `jax.distributed.initialize`:

    with Guard(deadline=60) as guard:
        for step in guard.steps(range(1000)):
            state = train(state)

Copy this file alone: it needs JAX only.
"""

import contextlib
import faulthandler
import json
import os
import queue
import secrets
import socket
import sys
import threading
import time
import traceback
import zlib
from collections.abc import Iterable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Connection,
    answer_challenge,
    deliver_challenge,
    wait,
)
from numbers import Real

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

RAISED, STALLED, TOLD, SAVED = 1, 124, 69, 75  # 69: EX_UNAVAILABLE, 75: EX_TEMPFAIL
SETTLE = 2.0  # seconds in which a process should say where it is
MOMENT = 0.2  # seconds for an exception that is just being raised here too
ARRIVAL = 30.0  # seconds in which process 0 should answer at the door
PATIENCE = 4.0  # seconds after which whoever has bad news leaves without an answer
WELL = "has come to the end"
SILENT = "left without a word (was it killed?)"
DEAF = "does not answer (is it suspended, or cut off?)"
ABSENT = "has not reached the guard (did it fail before, or is process 0 not at {}?)"
LIBRARIES = (os.path.dirname(os.__file__), os.path.dirname(jax.__file__), __file__)


# --------------------------------------------------------------- before anything runs


def backend_started() -> bool:
    """Return whether something has made JAX look for its devices already."""
    before = jax.config.jax_num_cpu_devices
    try:
        jax.config.update("jax_num_cpu_devices", max(before, 0) + 1)
    except RuntimeError:  # refused from then on
        return True
    jax.config.update("jax_num_cpu_devices", before)
    return False


def limit_collectives(seconds: int):
    """Let a collective between processes fail after so many seconds.

    On CPUs it raises an exception, on GPUs it ends the process. XLA reads this once, so
    call it before JAX looks for devices. Raises ValueError when it is too late.
    """
    if not isinstance(seconds, int) or seconds < 1:
        raise ValueError(
            f"a limit of {seconds!r} seconds: pass a whole number from 1 on"
        )
    if backend_started():
        raise ValueError(
            "JAX has looked for its devices: call limit_collectives before, at the top "
            "of the program"
        )
    flags = os.environ.get("XLA_FLAGS", "").split()
    for name in ("cpu_collective_timeout", "gpu_nccl_termination_timeout"):
        flags.append(f"--xla_{name}_seconds={seconds}")
    os.environ["XLA_FLAGS"] = " ".join(flags)


def camps(codes) -> str:
    """Say which processes have equal codes: "processes 0, 2 | process 1"."""
    found: dict = {}
    for process, code in enumerate(np.asarray(codes).tolist()):
        found.setdefault(code, []).append(process)
    return " | ".join(map(processes, found.values()))


def processes(numbers) -> str:
    """Name processes in words: "process 1", "processes 0, 2"."""
    numbers = list(map(str, numbers))
    return f"process{'es' * (len(numbers) > 1)} {', '.join(numbers)}"


def assert_same_program(f, *args):
    """Raise AssertionError in every process unless all would run the same program.

    Call it in all processes, with what `f` is about to be called with. `f`, jitted or
    not, is lowered, not run; compared are the text of the program and the order of the
    devices that its global arguments and the mesh in context name. It does not compare
    values: for those see `assert_replicated`. An error of lowering is raised where it
    comes; in the other processes it counts as another program.
    """
    shardings = [getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(args)]
    meshes = [getattr(sharding, "mesh", None) for sharding in shardings]
    orders = [
        [(device.process_index, device.id) for device in mesh.devices.flat]
        for mesh in [*meshes, jax.sharding.get_mesh()]
        if isinstance(mesh, Mesh) and not (mesh.empty or mesh.is_multi_process is False)
    ]
    text, problem = "", None
    try:
        if not callable(f):
            raise ValueError(f"{f!r} is no function: pass one, jitted or not")
        text = (f if hasattr(f, "lower") else jax.jit(f)).lower(*args).as_text()
    except Exception as error:
        problem = error
    code = np.uint32(zlib.crc32(f"{orders}{text}".encode()))
    codes = multihost_utils.process_allgather(code).ravel()
    if problem:
        raise problem
    if len({*codes.tolist()}) > 1:
        types = ", ".join(str(jax.typeof(leaf)) for leaf in jax.tree.leaves(args))
        raise AssertionError(
            f"the processes would run different programs: {camps(codes)}; here, in "
            f"process {jax.process_index()}, {getattr(f, '__name__', f)}({types})"
        )


# ------------------------------------------------------- what process 0 does for all


def preside(door: socket.socket, card: list, count: int):
    """In process 0: hear how each process ends, and send all the verdict."""
    members: dict[Connection, int] = {}
    news: dict[Connection, str] = {}
    met: queue.SimpleQueue = queue.SimpleQueue()
    while len(news) < count and {*news.values()} <= {WELL}:
        arriving = len(members) < count
        if arriving:
            let_in(door, card[-1].encode(), met)
            members |= dict(met.get() for _ in range(met.qsize()))
        ready = wait(members, 0 if arriving else None)
        news |= {member: heard(member) for member in ready}
    door.close()
    verdict = []
    if {*news.values()} != {WELL}:
        news = ask(members, news)
        absent = ABSENT.format(" or ".join(card[0]))
        words = {members[member]: news[member] for member in members}
        verdict = [f"process {i} {words.get(i, absent)}" for i in range(count)]
    tell(members, verdict)


def tell(members: dict[Connection, int], verdict: list[str]):
    """Send the verdict to all, to process 0 last: when it is gone, JAX ends them."""
    others = [member for member in members if members[member]]
    for member in others:
        send(member, verdict)
    if verdict:
        see_off(others)
    for member in members.keys() - others:
        send(member, verdict)


def let_in(door: socket.socket, key: bytes, met: queue.SimpleQueue):
    """Let in one visitor, if there is one; who it is may take as long as it likes."""
    with contextlib.suppress(OSError):
        visitor, _ = door.accept()  # the door waits for a moment, not longer
        visitor.setblocking(True)
        member = Connection(visitor.detach())
        threading.Thread(target=identify, args=(member, key, met), daemon=True).start()


def identify(member: Connection, key: bytes, met: queue.SimpleQueue):
    """Put a visitor who knows the key to the members, with its number."""
    with contextlib.suppress(AuthenticationError, EOFError, OSError, ValueError):
        deliver_challenge(member, key)
        answer_challenge(member, key)
        met.put((member, int(member.recv_bytes(9))))


def reach(hosts: list[str], port: int, key: bytes) -> Connection:
    """Return a line to process 0 at the first of the hosts where it is, or OSError."""
    problems = []
    for host in hosts:
        try:
            line = socket.create_connection((host, port), ARRIVAL)
            line.setblocking(True)
            member = Connection(line.detach())
            if not member.poll(ARRIVAL):  # process 0 may be busy
                raise TimeoutError("what listens there says nothing")
            answer_challenge(member, key)
            deliver_challenge(member, key)
            return member
        except (AuthenticationError, EOFError, OSError) as error:
            problems.append(f"{host}: {error}")
    raise OSError("; ".join(problems))


def see_off(members: list[Connection]):
    """Wait until the processes have left, but not long for one that cannot."""
    end = time.monotonic() + SETTLE
    while members and (left := end - time.monotonic()) > 0:
        ready = wait(members, left)
        members = [one for one in members if one not in ready or heard(one) != SILENT]


def ask(members: Iterable[Connection], news: dict) -> dict[Connection, str]:
    """Return what each process answers when it is asked where it is."""
    news = {member: news.get(member, DEAF) for member in members}
    there = [member for member in members if news[member] != SILENT]
    for member in there:
        send(member, None)
    end = time.monotonic() + SETTLE
    while there and (left := end - time.monotonic()) > 0:
        for member in wait(there, left):
            news[member] = heard(member)
            there.remove(member)
    return news


def heard(member: Connection) -> str:
    """Return what a process says, or that it is gone."""
    try:
        return json.loads(member.recv_bytes())
    except (EOFError, OSError):
        return SILENT


def send(member: Connection, words):
    """Send something, unless the other end is gone."""
    with contextlib.suppress(OSError):
        member.send_bytes(json.dumps(words).encode())


# ----------------------------------------------------------------- what everybody does


def agreed(card: list) -> list:
    """Return the card of process 0 in every process: up to 2000 characters of JSON."""
    words = np.zeros(2000, np.uint8)
    text = json.dumps(card).encode()
    words[: len(text)] = np.frombuffer(text, np.uint8)
    words = np.asarray(multihost_utils.broadcast_one_to_all(words), np.uint8)
    return json.loads(words.tobytes().rstrip(b"\0"))


def whereabouts(frames: traceback.StackSummary) -> str:
    """Return the innermost line of a stack that belongs to no library."""
    own = [frame for frame in frames if not frame.filename.startswith(LIBRARIES)]
    last = (own or frames)[-1]
    code = f": {last.line}" if last.line else ""
    return f"{os.path.basename(last.filename)}, line {last.lineno}{code}"


def own_names() -> list[str]:
    """Return the names by which others may know this machine."""
    known = os.environ.get("JAX_COORDINATOR_ADDRESS", "").rpartition(":")[0]
    names = known.strip("[]"), socket.gethostname(), socket.getfqdn()
    return [*dict.fromkeys(filter(None, names))]


def open_door(count: int) -> socket.socket:
    """Return a socket that listens at a free port, each time for a moment."""
    door = socket.create_server(("", 0), backlog=max(count, 128))
    door.settimeout(MOMENT)
    return door


def planned(error: BaseException) -> bool:
    """Return whether this is no failure: an exit with 0, or after a save with 75."""
    return isinstance(error, SystemExit) and error.code in (None, 0, SAVED)


class Guard:
    """A block that all processes finish together, or leave together with the reason.

    `deadline` may be changed between steps. `stopped` tells whether a SIGTERM came.
    """

    def __init__(self, deadline: float, host: str | None = None):
        """Allow `deadline` seconds for each step, the first and its compiling included.

        The others reach process 0 at `host`, by default the name of its machine, short
        or in full, or the host in JAX_COORDINATOR_ADDRESS. Raises ValueError unless the
        deadline is positive.
        """
        if not isinstance(deadline, Real) or not deadline > 0:
            raise ValueError(f"a deadline of {deadline!r} seconds: pass more than 0")
        if not isinstance(host, str | None) or host == "":
            raise ValueError(f"host={host!r}: pass a name or an address, or nothing")
        self.deadline, self.stopped = deadline, False
        self._hosts = [host] if host else own_names()
        self._code, self._ended = TOLD, threading.Event()
        self._words, self._step = "", ""

    def __enter__(self) -> "Guard":
        """Meet the others: all processes come here, within the deadline."""
        self._number, count = jax.process_index(), jax.process_count()
        self._thread = threading.get_ident()
        faulthandler.enable()  # when JAX aborts this process, it shows where it was
        self.alive()
        with self._entering():
            door = open_door(count) if self._number == 0 else None
            port = door.getsockname()[1] if door else 0
            card = agreed([self._hosts, port, secrets.token_hex(16)])
            if door:
                self._start(preside, door, card, count)
            try:
                self._line = reach(card[0], card[1], card[2].encode())
            except OSError as error:
                words = f"process {self._number} cannot reach process 0 at port"
                advice = "pass a name of its machine as host="
                self._leave([f"{words} {card[1]} of {error}: {advice}"])
        self._line.send_bytes(str(self._number).encode())
        self._start(self._watch)
        return self

    @contextlib.contextmanager
    def _entering(self) -> Iterator[None]:
        """End this process unless it has met the others when the time is over."""
        words = f"process {self._number} waited over {self.deadline:g} s for the others"
        advice = "one has not come to `with Guard`: did it fail before?"

        def late():
            self._code = STALLED
            self._leave([f"{words}: {advice}"])

        clock = threading.Timer(self.deadline, late)
        clock.daemon = True
        clock.start()
        yield
        clock.cancel()

    def alive(self):
        """Begin a new step: from now on the clock runs anew."""
        self._end = time.monotonic() + self.deadline
        # for the case that Python itself is stuck, and with it our thread
        faulthandler.dump_traceback_later(self.deadline + 2 * PATIENCE, exit=True)

    def steps(self, numbers: Iterable[int]) -> Iterator[int]:
        """Yield the numbers of the steps, equal in all processes, and watch each step.

        After a SIGTERM to any process all stop before the same step, so that there is
        time to save: `stopped` is True then.
        """
        for number in numbers:
            self._step = f"in step {number}, "
            self.alive()
            if jax.config.jax_enable_preemption_service:
                self.stopped = multihost_utils.reached_preemption_sync_point(number)
            if self.stopped:
                self._print([f"all stop before step {number}: SIGTERM came"])
                return
            yield number

    def __exit__(self, kind, error, trace):
        """Wait until all are here; after an exception, see to it that all leave."""
        self.alive()
        if error is None or planned(error):
            self._words = WELL
        else:
            said = " ".join(traceback.format_exception_only(error)[-1].split())
            where = whereabouts(traceback.extract_tb(trace))
            self._words = f"raised {said[:400]} ({self._step}at {where})"
            self._code, self._end = RAISED, time.monotonic() + PATIENCE
            traceback.print_exception(error)
        send(self._line, self._words)
        self._ended.wait()
        faulthandler.cancel_dump_traceback_later()

    def _watch(self):
        """Listen to process 0 and look at the clock, until all have come to the end."""
        while not self._ended.is_set():
            if self._line.poll(0.5):
                self._hear(heard(self._line))
            elif time.monotonic() > self._end:
                self._late()

    def _hear(self, words):
        """Answer the question of process 0, or do as its verdict says."""
        if words is None:
            time.sleep(MOMENT)
            send(self._line, self._words or f"was {self._place()}")
        elif words:
            self._leave([f"process 0 {SILENT}"] if words == SILENT else words)
        else:
            self._ended.set()

    def _late(self):
        """Tell process 0 that the time is over; if it has been told, leave alone."""
        if self._words not in ("", WELL):
            mine = f"process {self._number} {self._words}"
            self._leave([mine, f"process 0 {DEAF}"][: 1 + (self._number > 0)])
        if self._words == WELL:
            self._words = f"waited over {self.deadline:g} s at the end"
        else:
            self._words = f"took over {self.deadline:g} s {self._place()}"
            self._code = STALLED
        self._end = time.monotonic() + PATIENCE
        send(self._line, self._words)

    def _place(self) -> str:
        """Return where the thread is that entered the block."""
        frame = sys._current_frames()[self._thread]
        return f"{self._step}at {whereabouts(traceback.extract_stack(frame))}"

    def _print(self, lines: list[str]):
        who = f"guard in process {jax.process_index()} of {jax.process_count()}"
        sys.stdout.flush()
        sys.stderr.write("\n- ".join([f"{who}:", *lines]) + "\n")
        sys.stderr.flush()

    def _leave(self, verdict: list[str]):
        """Print what is known, and end this process without waiting for anybody."""
        self._print(verdict)
        os._exit(self._code)

    def _start(self, function, *args):
        threading.Thread(target=function, args=args, daemon=True).start()


def main():
    """Add up some numbers under a guard that has nothing to say."""
    with Guard(deadline=60) as guard:
        total = sum(
            float(jax.numpy.sum(jax.numpy.ones(8))) for _ in guard.steps(range(3))
        )
    print(f"{total:g}, and all processes came to the end: {jax.process_count()}")


if __name__ == "__main__":
    main()
