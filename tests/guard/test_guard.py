"""Whatever happens to one process, every process says so in seconds, and is gone."""

import contextlib
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import jax
import pytest
from cases import each_refusal
from failures import process_environment
from throwaway import free_ports

from examples import guard, restart
from examples.guard import ExitCode, Guard, Kind, Message, limit_collectives

pytestmark = pytest.mark.processes
SOURCE = Path(__file__).parents[2] / "src"
LIMIT = 600  # seconds in which all are gone, on a busy machine
LONG = 2000  # a deadline that nobody waits for, and how long JAX itself would wait
SHORT = 15  # a deadline that is over while the others wait
COUNT = 3

# Every process runs this; in step 5 the last one does what a case is about.
SCRIPT = """
import os, re, signal, sys, time
import jax
import numpy as np
from examples import guard as limits
from examples.guard import Guard, limit_collectives

limits.REPLY_SECONDS, limits.LEAVE_SECONDS = 10, 20  # others than the tests run, too
address, count, me, deadline, first, event = sys.argv[1:]
me, last = int(me), int(count) - 1
entering, allowed = "", 500
exec(first)
jax.distributed.initialize(
    address, int(count), me, coordinator_bind_address=address,
    cluster_detection_method="deactivate", initialization_timeout=300,
    heartbeat_timeout_seconds=2000, shutdown_timeout_seconds=2000,
)
mesh = jax.make_mesh((jax.device_count(),), ("x",))
ones = jax.device_put(np.ones(jax.device_count()), jax.NamedSharding(mesh, jax.P("x")))
total = jax.jit(lambda values: values.sum())

exec(entering)
with Guard(deadline=allowed, host="127.0.0.1") as guard:
    for step in guard.steps(range(10**6)):
        if step == 5:
            guard.deadline = float(deadline)
            guard.alive()
            exec(event)
        value = float(total(ones))
"""


def end(process):
    """Wait for a process; return how it ended."""
    outputs = process.communicate(timeout=LIMIT)
    return subprocess.CompletedProcess(process.args, process.returncode, *outputs)


def verdict(one):
    """Return the lines of the last message of the guard."""
    lines = one.stderr.rpartition("guard in process ")[2].splitlines()
    return [line for line in lines if line.startswith("- ")]


def group(folder, event, deadline=LONG, first=""):
    """Run the script in three processes of two devices; return how each one ended."""
    file, (port,) = folder / "script.py", free_ports(1)
    file.write_text(SCRIPT)
    line = [sys.executable, file, f"127.0.0.1:{port}", str(COUNT)]
    options = str(deadline), first, event
    env = process_environment(2) | {"XLA_FLAGS": os.environ["XLA_FLAGS"]}
    start = partial(subprocess.Popen, env=env, stdout=-1, stderr=-1, text=True)
    started = [start([*line, str(i), *options]) for i in range(COUNT)]
    try:
        with ThreadPoolExecutor(COUNT) as pool:
            ends = [pool.submit(end, process) for process in started]
            if "SIGSTOP" in event:  # who is suspended wakes up when the others are gone
                assert [one.result().returncode for one in ends[:-1]]
                started[-1].send_signal(signal.SIGCONT)
            return [one.result() for one in ends]
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()


ALONE = "if me == last: "
KILL = "os.kill(os.getpid(), signal.{})"
RAISE = "raise ValueError('no pressure')"


def assert_gone(ends, words, silent=0):
    """Fail unless all fail, and say this of the last one, which may be silent."""
    assert all(one.returncode for one in ends), ends
    for one in ends[: COUNT - silent]:
        lines = [line for line in verdict(one) if line.startswith("- process 2 ")]
        assert [words in line for line in lines] == [True], one


# The page shows a process that was killed, raised, slept, left a step out, or got a
# SIGTERM: the codes of all, and their verdict.


def test_a_suspended_process_does_not_answer_and_shows_its_stack(tmp_path):
    """By JAX, which finds process 0 gone, or by the second clock; or it woke up."""
    ends = group(tmp_path, ALONE + KILL.format("SIGSTOP"), deadline=SHORT)
    assert_gone(ends, "does not answer", silent=1)
    assert any(f"took over {SHORT} s" in line for line in verdict(ends[0]))
    warned = ends[-1].stderr
    assert re.search("Fatal Python error: Aborted|Timeout|- process 2", warned), warned
    assert "script.py" in warned


def test_a_collective_ends_by_its_limit_and_not_by_a_deadline(tmp_path):
    first = "limit_collectives(30); print('flags', os.environ['XLA_FLAGS'])"
    ends = group(tmp_path, ALONE + "time.sleep(1000)", first=first)
    assert_gone(ends, "in step 5, at ")
    assert any("Timed out waiting 30000ms" in one.stderr for one in ends)
    assert not any("took over" in one.stderr for one in ends)
    before = " ".join(os.environ["XLA_FLAGS"].split())
    flags = f"flags {before} --xla_cpu_collective_timeout_seconds=30 --xla_gpu_nccl"
    assert all(flags in one.stdout for one in ends)


def test_process_0_is_missed_too(tmp_path):
    """Its coordinator is gone as well, so JAX may be faster than the guard."""
    ends = group(tmp_path, "if me == 0: " + KILL.format("SIGKILL"))
    assert ends[0].returncode == -signal.SIGKILL
    codes = ExitCode.OTHER_FAILED, ExitCode.RAISED, -signal.SIGABRT
    own = "- process 0 ended without a message (was it killed?)"
    for one in ends[1:]:
        assert one.returncode in codes
        assert verdict(one)[:1] == [own] or "Failed to send RPC" in one.stderr, one


def test_all_leave_together_after_a_save(tmp_path):
    """That is how a training ends which `restart.Preempted` leaves."""
    for one in group(tmp_path, f"sys.exit({ExitCode.SAVED})"):
        assert one.returncode == ExitCode.SAVED, one
        assert "guard in process" not in one.stderr


def test_who_fails_before_the_guard_is_waited_for_until_the_deadline(tmp_path):
    """JAX alone would let the others wait in a collective, here for half an hour.

    They meet once more before, so that nobody is still on the way when time is over.
    """
    fails = "float(total(ones))\n" + ALONE + RAISE
    ends = group(tmp_path, "pass", first=f"allowed, entering = {SHORT}, {fails!r}")
    for one in ends:
        assert one.returncode != 0
    assert ends[0].returncode == ExitCode.STALLED
    words = f"- process 0 waited over {SHORT} s for the others: one has not come to "
    assert verdict(ends[0])[0].startswith(words)
    assert "ValueError: no pressure" in ends[-1].stderr


# ------------------------------------------------------------- process 0 and strangers


def meeting(come, count, strangers=(), states=None):
    """Let threads of this process, which have these numbers, meet; return all verdicts.

    Each sends `states[number]`, by default that it has come to the end.
    """
    listener = guard.listen(count)
    port = listener.getsockname()[1]
    address = guard.Address(["127.0.0.1"], port, "secret")
    with contextlib.ExitStack() as stack:
        for sent in strangers:
            end = socket.create_connection(("127.0.0.1", port))
            stack.enter_context(end).sendall(sent)
        arguments = listener, address._replace(hosts=["node1"]), count
        threading.Thread(target=guard.coordinate, args=arguments, daemon=True).start()
        member = partial(verdict_of, address, states or {})
        pool = stack.enter_context(ThreadPoolExecutor(count))
        return list(pool.map(member, come))


def verdict_of(address, states, number):
    """Meet the others as process `number`; return the words of the verdict."""
    connection = guard.connect(address)
    connection.send_bytes(str(number).encode())
    guard.send(connection, states.get(number, guard.ENDED))
    while (message := guard.receive(connection)) == guard.QUESTION:
        place = Message(Kind.PLACE, "was asked")
        guard.send(connection, states.get(number, place))
    connection.close()
    assert message.kind == Kind.VERDICT
    return message.words


STRANGERS = {
    "silent": [b""] * 8,
    "HTTP": [b"GET / HTTP/1.1\r\n\r\n", b""],
    "too long": [b"\x7f\xff\xff\xff" + bytes(999)] * 2,
    "unfinished": [b"\x00\x00\x00\x40half"],
}


@pytest.mark.parametrize("strangers", STRANGERS.values(), ids=STRANGERS)
def test_strangers_keep_nobody_out(strangers, monkeypatch):
    monkeypatch.setattr(guard, "CONNECT_SECONDS", 300)
    start = time.monotonic()
    assert meeting(range(3), 3, strangers) == ["", "", ""]
    assert time.monotonic() - start < 300  # nobody waited for one: they are there


def test_all_learn_who_cannot_reach_process_0():
    late = {0: Message(Kind.FAILED, "took over 3 s in step 1")}
    (verdict,) = {*meeting([0, 1], 3, states=late)}  # the same for both
    words = "process 0 took over 3 s in step 1\nprocess 1 was asked\nprocess 2 has not"
    assert verdict.startswith(words)
    assert verdict.endswith("is process 0 not at node1?)")


def test_without_the_key_nobody_becomes_a_member():
    with guard.listen(1) as listener:
        port, arrived = listener.getsockname()[1], queue.SimpleQueue()
        with ThreadPoolExecutor(1) as pool:
            hosts = ["no-such-host.invalid", "127.0.0.1"]
            wrong = pool.submit(guard.connect, guard.Address(hosts, port, "guess"))
            while not wrong.done():
                guard.accept(listener, "secret", arrived)
            with pytest.raises(OSError, match=r"invalid: .*127.0.0.1: digest"):
                wrong.result()
    assert arrived.empty()


def test_process_0_is_looked_for_where_jax_has_its_coordinator(monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "[::1]:1234")
    assert guard.own_names()[:2] == ["::1", socket.gethostname()]
    monkeypatch.delenv("JAX_COORDINATOR_ADDRESS")
    assert guard.own_names()[0] == socket.gethostname()


# ------------------------------------------------------------------------- one process


@pytest.mark.parametrize("code", [ExitCode.SAVED, 0, None])
def test_alone_it_changes_nothing_of_a_planned_exit(code, capfd):
    def leave():
        with Guard(60, host="127.0.0.1") as alone:
            assert list(alone.steps(range(3))) == [0, 1, 2]
            assert not alone.stopped
            raise restart.Preempted(code)

    with pytest.raises(SystemExit) as end:
        leave()
    assert end.value.code == code
    assert "guard in process" not in capfd.readouterr().err


def test_the_codes_of_the_four_ends_differ_and_only_two_exits_are_planned():
    assert len({0, *(code.value for code in ExitCode.__members__.values())}) == 5
    others = map(SystemExit, [1, 69, "disk full"])
    assert not any(map(guard.is_planned_exit, others))


def run_alone(code):
    """Run a program of one process; return how it ended."""
    line = sys.executable, "-c", f"from examples import guard\n{code}"
    pipes = {"capture_output": True, "text": True}
    return subprocess.run(line, cwd=SOURCE, check=False, timeout=LIMIT, **pipes)


def test_a_second_clock_rings_when_python_itself_is_stuck():
    done = run_alone("""if True:
        import re
        guard.LEAVE_SECONDS = 0.5
        with guard.Guard(deadline=60, host="127.0.0.1") as alone:
            alone.deadline = 5
            alone.alive()
            re.match('(a+)+$', 60 * 'a' + 'b')
    """)
    assert done.returncode == 1
    assert re.search("(?s)Timeout.*in match", done.stderr)


def test_the_traceback_stands_before_the_verdict():
    done = run_alone(f"with guard.Guard(60, '127.0.0.1'): {RAISE}")
    assert done.returncode == ExitCode.RAISED
    before, words = done.stderr.split("guard in process 0")
    assert "Traceback" in before
    assert "- process 0 raised ValueError: no pressure" in words


@each_refusal(
    *((partial(Guard, n), "pass more than 0") for n in (0, float("nan"), "60")),
    *((partial(Guard, 60, host), "pass a name or an") for host in ("", b"node1")),
    *((partial(limit_collectives, n), "pass a whole") for n in (0, 2.5, "5")),
    (partial(limit_collectives, 5), "has looked for its devices: call limit_coll"),
)
def test_a_deadline_a_host_or_a_limit_that_is_none_is_refused(call, words):
    assert jax.devices()  # after which it is too late for a limit
    with pytest.raises(ValueError, match=words):
        call()


def test_a_place_is_a_line_of_your_own():
    def own():
        return guard.own_line(traceback.extract_stack())

    line = own.__code__.co_firstlineno + 1
    words = f"line {line}: return guard.own_line(traceback.extract_stack())"
    assert own() == f"test_guard.py, {words}"
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("{")
    assert guard.own_line(traceback.extract_tb(caught.tb)).endswith('json.loads("{")')
    library = traceback.extract_tb(caught.tb)[-1:]
    assert guard.own_line(library).startswith("decoder.py, line ")
