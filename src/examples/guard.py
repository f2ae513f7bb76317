# SPDX-License-Identifier: MIT-0
"""Guard: when one process dies, raises or stops, all say which, where, and leave.

Every process keeps a connection to process 0, and its own clock. A failure, a lost
connection or a step over its deadline make process 0 ask all where they are. All then
print the same verdict and leave, instead of waiting in a collective or at the exit.

    RAISED          exit code 1      an exception left the `with` of this process
    STALLED         exit code 124    a step of this process went over the deadline
    OTHER_FAILED    exit code 69     another process did either, or was killed
    SAVED           exit code 75     `sys.exit(75)` in all processes: start again later

Only after the last one a launcher should start again as often as it likes. (Where
Python itself is stuck, `faulthandler` ends the process, with code 1.)

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
import enum
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
from collections.abc import Iterable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Connection,
    answer_challenge,
    deliver_challenge,
    wait,
)
from numbers import Real
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

REPLY_SECONDS = 2.0  # in which a process should say where it is
RAISE_SECONDS = 0.2  # for an exception that is just being raised here too
ACCEPT_SECONDS = 0.2  # for which process 0 waits for the next connection
CONNECT_SECONDS = 30.0  # in which process 0 should answer a new connection
LEAVE_SECONDS = 4.0  # after which a process that failed leaves without a verdict
LIBRARIES = (os.path.dirname(os.__file__), os.path.dirname(jax.__file__), __file__)


class ExitCode(enum.IntEnum):
    """How a process ends under a guard, if not with 0."""

    RAISED = 1
    STALLED = 124
    OTHER_FAILED = 69  # EX_UNAVAILABLE
    SAVED = 75  # EX_TEMPFAIL


class Kind(enum.StrEnum):
    """What a message is; its words are for people only."""

    ENDED = enum.auto()  # a process: it has come to the end of the block
    FAILED = enum.auto()  # a process: it raised, or its time is over
    PLACE = enum.auto()  # a process: where it is, in answer to the question
    LOST = enum.auto()  # of a process whose connection is lost
    QUESTION = enum.auto()  # process 0: where are you?
    VERDICT = enum.auto()  # process 0: leave, or end well if it has no words


class Message(NamedTuple):
    """What is sent between a process and process 0."""

    kind: Kind
    words: str


class Address(NamedTuple):
    """Where process 0 listens, and the key that a connection needs."""

    hosts: list[str]
    port: int
    key: str


ENDED = Message(Kind.ENDED, "has come to the end")
LOST = Message(Kind.LOST, "ended without a message (was it killed?)")
MUTE = Message(Kind.PLACE, "does not answer (is it suspended, or cut off?)")
QUESTION = Message(Kind.QUESTION, "where are you?")
ABSENT = "has not reached the guard (did it fail before, or is process 0 not at {}?)"


# --------------------------------------------------------------- before anything runs


def limit_collectives(seconds: int):
    """Let a collective between processes fail after so many seconds.

    On CPUs it raises an exception, on GPUs it ends the process. XLA reads this once, so
    call it before JAX looks for devices. Raises ValueError when it is too late.
    """
    if not isinstance(seconds, int) or seconds < 1:
        raise ValueError(
            f"a limit of {seconds!r} seconds: pass a whole number from 1 on"
        )
    before = jax.config.jax_num_cpu_devices
    try:
        jax.config.update("jax_num_cpu_devices", before + 1)  # refused when too late
        jax.config.update("jax_num_cpu_devices", before)
    except RuntimeError as error:
        words = "JAX has looked for its devices: call limit_collectives before, at the"
        raise ValueError(f"{words} top of the program") from error
    flags = os.environ.get("XLA_FLAGS", "").split()
    for name in ("cpu_collective_timeout", "gpu_nccl_termination_timeout"):
        flags.append(f"--xla_{name}_seconds={seconds}")
    os.environ["XLA_FLAGS"] = " ".join(flags)


# ------------------------------------------------------- what process 0 does for all


def coordinate(listener: socket.socket, address: Address, count: int):
    """In process 0: receive how each process ends, and send all the verdict."""
    numbers: dict[Connection, int] = {}
    states: dict[Connection, Message] = {}
    arrived: queue.SimpleQueue = queue.SimpleQueue()
    while len(states) < count and all_ended(states):
        arriving = len(numbers) < count
        if arriving:
            accept(listener, address.key, arrived)
            numbers |= dict(arrived.get() for _ in range(arrived.qsize()))
        ready = wait(numbers, 0 if arriving else None)
        states |= {member: receive(member) for member in ready}
    listener.close()
    verdict = ""
    if not all_ended(states):
        states = ask(numbers, states)
        absent = ABSENT.format(" or ".join(address.hosts))
        words = {numbers[member]: states[member].words for member in numbers}
        lines = [f"process {i} {words.get(i, absent)}" for i in range(count)]
        verdict = "\n".join(lines)
    send_verdict(numbers, Message(Kind.VERDICT, verdict))


def all_ended(states: dict[Connection, Message]) -> bool:
    """Return whether all that is known of the processes is that they have ended."""
    return all(state.kind == Kind.ENDED for state in states.values())


def send_verdict(numbers: dict[Connection, int], verdict: Message):
    """Send the verdict to all, to process 0 last: when it is gone, JAX ends them."""
    others = [member for member in numbers if numbers[member]]
    for member in others:
        send(member, verdict)
    if verdict.words:
        wait_until_left(others)
    for member in numbers.keys() - others:
        send(member, verdict)


def accept(listener: socket.socket, key: str, arrived: queue.SimpleQueue):
    """Accept one connection, if there is one; a thread finds out whose it is."""
    with contextlib.suppress(OSError):
        connection, _ = listener.accept()  # within ACCEPT_SECONDS
        connection.setblocking(True)
        member = Connection(connection.detach())
        arguments = member, key.encode(), arrived
        threading.Thread(target=identify, args=arguments, daemon=True).start()


def identify(member: Connection, key: bytes, arrived: queue.SimpleQueue):
    """Queue a connection that knows the key, with the number of its process."""
    with contextlib.suppress(AuthenticationError, EOFError, OSError, ValueError):
        deliver_challenge(member, key)
        answer_challenge(member, key)
        arrived.put((member, int(member.recv_bytes(9))))


def connect(address: Address) -> Connection:
    """Return a connection to process 0 at the first host where it is, or OSError."""
    problems, key = [], address.key.encode()
    for host in address.hosts:
        try:
            connection = socket.create_connection((host, address.port), CONNECT_SECONDS)
            connection.setblocking(True)
            member = Connection(connection.detach())
            if not member.poll(CONNECT_SECONDS):  # process 0 may be busy
                raise TimeoutError("what listens there does not answer")
            answer_challenge(member, key)
            deliver_challenge(member, key)
            return member
        except (AuthenticationError, EOFError, OSError) as error:
            problems.append(f"{host}: {error}")
    raise OSError("; ".join(problems))


def wait_until_left(members: list[Connection]):
    """Wait until the processes have left, for at most `REPLY_SECONDS`."""
    end = time.monotonic() + REPLY_SECONDS
    while members and (left := end - time.monotonic()) > 0:
        ready = wait(members, left)
        members = [one for one in members if one not in ready or receive(one) != LOST]


def ask(members: Iterable[Connection], states: dict) -> dict[Connection, Message]:
    """Return what each process answers when it is asked where it is."""
    states = {member: states.get(member, MUTE) for member in members}
    there = [member for member in members if states[member] != LOST]
    for member in there:
        send(member, QUESTION)
    end = time.monotonic() + REPLY_SECONDS
    while there and (left := end - time.monotonic()) > 0:
        for member in wait(there, left):
            states[member] = receive(member)
            there.remove(member)
    return states


def receive(member: Connection) -> Message:
    """Return the next message, or `LOST` if the other end is gone."""
    try:
        kind, words = json.loads(member.recv_bytes())
        return Message(Kind(kind), words)
    except (EOFError, OSError):
        return LOST


def send(member: Connection, message: Message):
    """Send a message, unless the other end is gone."""
    with contextlib.suppress(OSError):
        member.send_bytes(json.dumps(message).encode())


# ------------------------------------------------------------ what every process does


def broadcast(address: Address) -> Address:
    """Return the address of process 0 in every process, up to 2000 bytes of JSON."""
    words = np.zeros(2000, np.uint8)
    text = json.dumps(address).encode()
    words[: len(text)] = np.frombuffer(text, np.uint8)
    words = np.asarray(multihost_utils.broadcast_one_to_all(words), np.uint8)
    return Address(*json.loads(words.tobytes().rstrip(b"\0")))


def own_line(frames: traceback.StackSummary) -> str:
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


def listen(count: int) -> socket.socket:
    """Return a socket that listens at a free port, each time for `ACCEPT_SECONDS`."""
    listener = socket.create_server(("", 0), backlog=max(count, 128))
    listener.settimeout(ACCEPT_SECONDS)
    return listener


def is_planned_exit(error: BaseException) -> bool:
    """Return whether this is no failure: an exit with 0, or after a save with 75."""
    return isinstance(error, SystemExit) and error.code in (None, 0, ExitCode.SAVED)


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
        self._code, self._ended = ExitCode.OTHER_FAILED, threading.Event()
        self._state: Message | None = None
        self._step = ""

    def __enter__(self) -> "Guard":
        """Connect to process 0: all processes enter, within the deadline."""
        self._number, count = jax.process_index(), jax.process_count()
        self._thread = threading.get_ident()
        faulthandler.enable()  # when JAX aborts this process, it shows where it was
        self.alive()
        with self._entering():
            listener = listen(count) if self._number == 0 else None
            port = listener.getsockname()[1] if listener else 0
            address = broadcast(Address(self._hosts, port, secrets.token_hex(16)))
            if listener:
                self._start(coordinate, listener, address, count)
            try:
                self._connection = connect(address)
            except OSError as error:
                words = f"process {self._number} cannot reach process 0 at port"
                advice = "pass a name of its machine as host="
                self._leave(f"{words} {address.port} of {error}: {advice}")
        self._connection.send_bytes(str(self._number).encode())
        self._start(self._watch)
        return self

    @contextlib.contextmanager
    def _entering(self) -> Iterator[None]:
        """End this process if it is not connected when the time is over."""
        words = f"process {self._number} waited over {self.deadline:g} s for the others"
        advice = "one has not come to `with Guard`: did it fail before?"

        def late():
            self._code = ExitCode.STALLED
            self._leave(f"{words}: {advice}")

        clock = threading.Timer(self.deadline, late)
        clock.daemon = True
        clock.start()
        yield
        clock.cancel()

    def alive(self):
        """Begin a new step: the clock starts anew."""
        self._end = time.monotonic() + self.deadline
        # for the case that Python itself is stuck, and with it the thread that watches
        faulthandler.dump_traceback_later(self.deadline + 2 * LEAVE_SECONDS, exit=True)

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
                self._print(f"all stop before step {number}: SIGTERM came")
                return
            yield number

    def __exit__(self, kind, error, trace):
        """Wait until all have come to the end; after an exception, make all leave."""
        self.alive()
        if error is None or is_planned_exit(error):
            self._state = ENDED
        else:
            text = " ".join(traceback.format_exception_only(error)[-1].split())
            place = f"{self._step}at {own_line(traceback.extract_tb(trace))}"
            self._state = Message(Kind.FAILED, f"raised {text[:400]} ({place})")
            self._code = ExitCode.RAISED
            self._end = time.monotonic() + LEAVE_SECONDS
            traceback.print_exception(error)
        send(self._connection, self._state)
        self._ended.wait()
        faulthandler.cancel_dump_traceback_later()

    def _watch(self):
        """Answer process 0 and look at the clock, until all have come to the end."""
        while not self._ended.is_set():
            if self._connection.poll(0.5):
                self._answer(receive(self._connection))
            elif time.monotonic() > self._end:
                self._time_out()

    def _answer(self, message: Message):
        """Answer the question of process 0, or do as its verdict says."""
        if message.kind == Kind.QUESTION:
            time.sleep(RAISE_SECONDS)
            place = Message(Kind.PLACE, f"was {self._place()}")
            send(self._connection, self._state or place)
        elif message.words:
            lost = message.kind == Kind.LOST
            self._leave(f"process 0 {message.words}" if lost else message.words)
        else:
            self._ended.set()

    def _time_out(self):
        """Send process 0 that the time is over; leave if it has been sent before."""
        if self._state and self._state.kind == Kind.FAILED:
            own = f"process {self._number} {self._state.words}"
            self._leave(f"{own}\nprocess 0 {MUTE.words}" if self._number else own)
        if self._state:
            words = f"waited over {self.deadline:g} s at the end"
        else:
            words = f"took over {self.deadline:g} s {self._place()}"
            self._code = ExitCode.STALLED
        self._state = Message(Kind.FAILED, words)
        self._end = time.monotonic() + LEAVE_SECONDS
        send(self._connection, self._state)

    def _place(self) -> str:
        """Return where the thread is that entered the block."""
        frame = sys._current_frames()[self._thread]
        return f"{self._step}at {own_line(traceback.extract_stack(frame))}"

    def _print(self, words: str):
        head = f"guard in process {jax.process_index()} of {jax.process_count()}:"
        sys.stdout.flush()
        sys.stderr.write("\n- ".join([head, *words.split("\n")]) + "\n")
        sys.stderr.flush()

    def _leave(self, words: str):
        """Print what is known, and end this process without waiting for others."""
        self._print(words)
        os._exit(self._code)

    def _start(self, function, *args):
        threading.Thread(target=function, args=args, daemon=True).start()


def main():
    """Add up some numbers under a guard."""
    with Guard(deadline=60) as guard:
        total = sum(float(jax.numpy.ones(8).sum()) for _ in guard.steps(range(3)))
    print(f"{total:g}, and all processes came to the end: {jax.process_count()}")


if __name__ == "__main__":
    main()
