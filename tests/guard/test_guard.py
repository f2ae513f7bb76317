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
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import pytest
from cases import each_week
from failures import process_environment
from throwaway import free_ports

from examples import guard, restart
from examples.guard import ExitCode, Guard, Kind, Message, own_line

SOURCE = Path(__file__).parents[2] / "src"
LIMIT = 300  # seconds from the event to the end of the last process, if all are slow
HANGS = 600  # seconds after which a group is given up
LONG = 2000  # a deadline that nobody waits for, and how long JAX itself would wait
SHORT = 15  # a deadline that is over while the others wait
COUNT = 3

# Every process runs this; in step 5 the last one does what a case is about.
SCRIPT = """
import os, re, signal, sys, time
import jax
import numpy as np
from jax.experimental import multihost_utils
from examples import guard as limits
from examples.agreement import assert_same_program
from examples.guard import Guard, limit_collectives

limits.REPLY_SECONDS, limits.LEAVE_SECONDS = 10, 20  # others than the tests run, too
address, count, me, steps, deadline, first, event = sys.argv[1:]
me, last, skipped = int(me), int(count) - 1, False
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
mean = jax.jit(lambda values: values.mean())

exec(entering)
with Guard(deadline=allowed, host="127.0.0.1") as guard:
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
        lines = self.warned.rpartition("guard in process ")[2].splitlines()
        return [line for line in lines if line.startswith("- ")]


def start(folder, number, address, *options, devices=2):
    """Start a process; the file of its script has its number."""
    return subprocess.Popen(
        [sys.executable, folder / "script.py", address, str(COUNT), number, *options],
        env=process_environment(devices) | {"XLA_FLAGS": os.environ["XLA_FLAGS"]},
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


def group(folder, event, steps=10**6, deadline=LONG, first=""):
    """Run the script in three processes of two devices; return how each one ended."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
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
RAISES = "raised AssertionError: the "
CASES = {  # what happens in step 5; what must be said of the last process; its code
    "killed": (ALONE + KILL.format("SIGKILL"), "ended without a message", -9),
    "raised": (
        ALONE + "raise ValueError('negative pressure')",
        "raised ValueError: negative pressure (in step 5, at ",
        1,
    ),
    "exit": (ALONE + "sys.exit('disk full')", "raised SystemExit: disk full", 1),
    "asleep": (ALONE + "time.sleep(1000)", "in step 5, at ", None),
    "suspended": (ALONE + KILL.format("SIGSTOP"), "does not answer", None),
    "stuck": (ALONE + "re.match('(a+)+$', 60 * 'a' + 'b')", "does not answer", None),
    "skipped": (ALONE + "skipped = True", "the end", None),
    "program": (
        "assert_same_program(mean if me == last else total, ones)",
        RAISES + "processes would run different programs: processes 0, 1 | process 2",
        1,
    ),
    "data": (
        "multihost_utils.assert_equal(me == last, 'the seeds differ')",
        RAISES + "seeds differ",
        1,
    ),
    "collective": (ALONE + "time.sleep(1000)", "in step 5, at ", None),
}
SPEECHLESS = ["killed", "suspended", "stuck"]
WEEKLY = ["exit", "stuck", "data"]  # which end as others do
MORE = {  # what the group needs besides
    "asleep": {"deadline": SHORT},
    "suspended": {"deadline": SHORT},
    "stuck": {"deadline": SHORT},
    "skipped": {"deadline": SHORT, "steps": 50},
    "collective": {"first": "limit_collectives(30)"},
}


@pytest.fixture(scope="module")
def known():
    """Hold how the processes of each case ended."""
    return {}


@pytest.fixture
def results(known, tmp_path, request):
    """Return a function that runs a case once, and again after a test that failed."""
    used, failed = set(), request.session.testsfailed

    def result(case):
        used.add(case)
        if case not in known:
            known[case] = group(tmp_path, CASES[case][0], **MORE.get(case, {}))
        return known[case]

    yield result
    if request.session.testsfailed > failed:
        for case in used & known.keys():
            del known[case]


@pytest.mark.weekly
@pytest.mark.processes
def test_nothing_is_said_when_nothing_happens(tmp_path):
    ends = group(tmp_path, "", steps=20)
    assert [one.code for one in ends] == [0, 0, 0], ends
    assert all("the end 19 False" in one.printed for one in ends)
    assert not any("guard" in one.warned for one in ends)


@pytest.mark.parametrize(
    "case", [each_week(case) if case in WEEKLY else case for case in CASES]
)
@pytest.mark.processes
def test_every_process_is_gone_in_seconds_and_says_what_happened(case, results):
    ends = results(case)
    for one in ends:
        assert one.seconds < LIMIT, one
        assert one.code != 0, one
    assert CASES[case][2] in (None, ends[-1].code)
    for one in ends[: COUNT - (case in SPEECHLESS)]:
        (words,) = [line for line in one.verdict if line.startswith("- process 2 ")]
        assert CASES[case][1] in words, one


@pytest.mark.parametrize("case", ["suspended", each_week("stuck")])
@pytest.mark.processes
def test_a_process_without_an_answer_shows_its_stack(case, results):
    """By JAX, which finds process 0 gone, or by the second clock; or it woke up."""
    (*_, one) = results(case)
    assert re.search("Fatal Python error: Aborted|Timeout|- process 2", one.warned), one
    assert "script.py" in one.warned


@pytest.mark.parametrize("case", ["killed", "raised", each_week("exit")])
@pytest.mark.processes
def test_bad_news_need_no_deadline(case, results):
    """The others leave long before theirs is over."""
    ends = results(case)
    assert [one.code for one in ends[:-1]] == [ExitCode.OTHER_FAILED] * (COUNT - 1)
    for one in ends[: COUNT - (case in SPEECHLESS)]:
        assert "took over" not in one.warned
        others = one.verdict[: COUNT - 1]
        assert all(" was in step " in line for line in others), one


@pytest.mark.processes
def test_a_stall_shows_where_each_process_is(results):
    ends = results("asleep")
    (line,) = [i for i, line in enumerate(SCRIPT.split("\n"), 1) if "value =" in line]
    waiting = f"script.py, line {line}: value = float(total(ones))"
    for one in ends:
        assert sum(waiting in line for line in one.verdict) == 2
        assert any(f"took over {SHORT} s" in line for line in one.verdict)
    assert ExitCode.STALLED in [one.code for one in ends]


@pytest.mark.processes
def test_the_exception_s_own_traceback_comes_first(results):
    (*_, one) = results("raised")
    trace, _, verdict = one.warned.partition("guard in process")
    assert "Traceback" in trace
    assert "ValueError: negative pressure" in trace
    assert "ValueError: negative pressure" in verdict


@pytest.mark.processes
def test_a_collective_may_have_a_limit_of_its_own(results):
    ends = results("collective")
    assert any("Timed out waiting 30000ms" in one.warned for one in ends)
    assert not any("took over" in one.warned for one in ends)


@pytest.mark.processes
def test_process_0_is_missed_too(tmp_path):
    """Its coordinator is gone as well, so JAX may be faster than the guard."""
    ends = group(tmp_path, "if me == 0: " + KILL.format("SIGKILL"))
    assert ends[0].code == -9
    for one in ends[1:]:
        assert one.seconds < LIMIT
        assert one.code in (ExitCode.OTHER_FAILED, ExitCode.RAISED, -signal.SIGABRT)
        own = "- process 0 ended without a message (was it killed?)"
        assert one.verdict[:1] == [own] or "Failed to send RPC" in one.warned, one


@pytest.mark.processes
def test_after_sigterm_all_stop_before_the_same_step(tmp_path):
    ends = group(tmp_path, ALONE + KILL.format("SIGTERM"))
    assert [one.code for one in ends] == [0, 0, 0], ends
    assert len({one.printed.splitlines()[-1] for one in ends}) == 1
    assert "True" in ends[0].printed
    for one in ends:
        assert one.seconds < LIMIT
        assert re.fullmatch(r"- all stop before step \d+: SIGTERM came", *one.verdict)


@pytest.mark.processes
def test_all_may_leave_with_the_code_of_a_save(tmp_path):
    """That is how a training ends which `restart.Preempted` leaves."""
    ends = group(tmp_path, f"sys.exit({ExitCode.SAVED})")
    assert [one.code for one in ends] == [75, 75, 75], ends
    assert not any("guard in process" in one.warned for one in ends)


@pytest.mark.processes
def test_who_fails_before_the_guard_is_waited_for_until_the_deadline(tmp_path):
    """JAX alone would let the others wait in a collective, here for half an hour.

    They meet once more before, so that nobody is still on the way when time is over.
    """
    fails = "print('event', time.monotonic(), flush=True)\nfloat(total(ones))\n"
    fails += "if me == last: raise ValueError('negative pressure')"
    ends = group(tmp_path, "pass", first=f"allowed, entering = {SHORT}, {fails!r}")
    for one in ends:
        assert one.seconds < LIMIT, one
        assert one.code != 0
    assert ends[0].code == ExitCode.STALLED
    words = f"- process 0 waited over {SHORT} s for the others: one has not come to "
    assert ends[0].verdict[0].startswith(words)
    assert "ValueError: negative pressure" in ends[-1].warned


# ------------------------------------------------------------- process 0 and strangers


def meeting(come, count, strangers=(), states=None):
    """Let threads of this process, which have these numbers, meet; return all verdicts.

    Each sends `states[number]`, by default that it has come to the end.
    """
    listener = guard.listen(count)
    port = listener.getsockname()[1]
    address = guard.Address(["127.0.0.1"], port, "secret")
    open_ends = [socket.create_connection(("127.0.0.1", port)) for _ in strangers]
    for end, sent in zip(open_ends, strangers, strict=True):
        end.sendall(sent)
    arguments = listener, address._replace(hosts=["node1"]), count
    threading.Thread(target=guard.coordinate, args=arguments, daemon=True).start()
    member = partial(verdict_of, address, states or {})
    try:
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(member, come))
    finally:
        for end in open_ends:
            end.close()


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
@pytest.mark.processes
def test_strangers_keep_nobody_out(strangers, monkeypatch):
    monkeypatch.setattr(guard, "CONNECT_SECONDS", LIMIT)
    start = time.monotonic()
    assert meeting(range(3), 3, strangers) == ["", "", ""]
    assert time.monotonic() - start < LIMIT  # nobody waited for one: they are there


@pytest.mark.processes
def test_who_cannot_reach_process_0_is_named_to_all_others():
    late = {0: Message(Kind.FAILED, "took over 3 s in step 1")}
    first, second = meeting([0, 1], 3, states=late)
    assert first == second
    lines = first.split("\n")
    assert lines[0] == "process 0 took over 3 s in step 1"
    assert lines[1] == "process 1 was asked"
    assert lines[2].startswith("process 2 has not reached the guard")
    assert "is process 0 not at node1?" in lines[2]


@pytest.mark.processes
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


def test_alone_it_changes_nothing():
    with Guard(deadline=60, host="127.0.0.1") as guard:
        assert list(guard.steps(range(3))) == [0, 1, 2]
    assert not guard.stopped


def options_without_default(seconds, folder, run):
    """Return what XLA writes down of its options where they are not the default."""
    flag = f"--xla_cpu_collective_timeout_seconds={seconds} --xla_dump_to={folder}"
    code = f"import os; os.environ['XLA_FLAGS'] = {flag!r}\n"
    run("-c", code + "import jax; jax.jit(lambda x: x + 1)(1.0)", cwd=folder)
    (file,) = folder.glob("*.debug_options")
    return file.read_text()


@pytest.mark.weekly
@pytest.mark.processes
def test_a_collective_on_cpus_has_a_limit_of_half_an_hour(run, tmp_path):
    """XLA writes down the options that differ from its own."""
    found = {}
    for seconds in 1799, 1800:
        folder = tmp_path / str(seconds)
        folder.mkdir()
        text = options_without_default(seconds, folder, run)
        found[seconds] = f"xla_cpu_collective_timeout_seconds: {seconds}" in text
    assert found == {1799: True, 1800: False}


@pytest.mark.parametrize("code", [ExitCode.SAVED, 0, None])
def test_alone_a_planned_exit_keeps_its_code(code, capfd):
    with pytest.raises(SystemExit) as end, Guard(deadline=60, host="127.0.0.1"):
        raise restart.Preempted(code)
    assert end.value.code == code
    assert "guard in process" not in capfd.readouterr().err


def test_the_codes_of_the_four_ends_differ():
    assert len({0, *(code.value for code in ExitCode.__members__.values())}) == 5


@pytest.mark.parametrize("code", [1, 69, "disk full"])
def test_any_other_exit_is_a_failure(code):
    assert not guard.is_planned_exit(SystemExit(code))


@pytest.mark.processes
def test_a_second_clock_rings_when_python_itself_is_stuck():
    code = """if True:
        import re
        from examples import guard
        guard.LEAVE_SECONDS = 0.5
        with guard.Guard(deadline=60, host="127.0.0.1") as alone:
            alone.deadline = 5
            alone.alive()
            re.match('(a+)+$', 60 * 'a' + 'b')
    """
    line = [sys.executable, "-c", code]
    done = subprocess.run(
        line, cwd=SOURCE, capture_output=True, text=True, check=False, timeout=HANGS
    )
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "in match" in done.stderr


@pytest.mark.parametrize("deadline", [0, float("nan"), "60"])
def test_a_deadline_is_positive(deadline):
    words = f"a deadline of {deadline!r} seconds: pass more than 0"
    with pytest.raises(ValueError, match=words):
        Guard(deadline=deadline)


@pytest.mark.parametrize("host", ["", b"node1"])
def test_a_host_is_a_name(host):
    with pytest.raises(ValueError, match="pass a name or an address, or nothing"):
        Guard(deadline=60, host=host)


@pytest.mark.parametrize("seconds", [0, 2.5, "5"])
def test_a_limit_that_xla_would_abort_at_is_refused(seconds):
    with pytest.raises(ValueError, match="pass a whole number from 1 on"):
        guard.limit_collectives(seconds)


def test_a_limit_for_collectives_comes_before_the_devices(run):
    code = """if True:
        import os
        os.environ["XLA_FLAGS"] = "--xla_cpu_max_isa=AVX2"
        from examples.guard import limit_collectives
        limit_collectives(5)
        import jax
        assert jax.device_count() == 8  # XLA aborts when it does not know a flag
        print(os.environ["XLA_FLAGS"])
    """
    assert run("-c", code, cwd=SOURCE).split() == [
        "--xla_cpu_max_isa=AVX2",
        "--xla_cpu_collective_timeout_seconds=5",
        "--xla_gpu_nccl_termination_timeout_seconds=5",
    ]
    assert jax.devices()
    with pytest.raises(ValueError, match="call limit_collectives before"):
        guard.limit_collectives(5)


def test_a_place_is_a_line_of_your_own():
    def own():
        return own_line(traceback.extract_stack())

    line = own.__code__.co_firstlineno + 1
    assert (
        own()
        == f"test_guard.py, line {line}: return own_line(traceback.extract_stack())"
    )
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("{")
    assert own_line(traceback.extract_tb(caught.tb)).endswith('json.loads("{")')
    library = traceback.extract_tb(caught.tb)[-1:]
    assert own_line(library).startswith("decoder.py, line ")
