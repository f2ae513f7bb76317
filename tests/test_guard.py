"""Whatever happens to one process, every process says so in seconds, and is gone."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import pytest
from failures import variables
from throwaway import free_ports

from examples import guard
from examples.guard import Guard, whereabouts

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


def start(folder, number, address, *options, devices=2):
    """Start a process; the file of its script has its number."""
    return subprocess.Popen(
        [sys.executable, folder / "script.py", address, str(COUNT), number, *options],
        env=variables(devices),
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
    "killed": (ALONE + KILL.format("SIGKILL"), "left without a word", -9),
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
MORE = {  # what the group needs besides
    "collective": {"deadline": 60, "first": "limit_collectives(3)"},
    "skipped": {"steps": 50},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return a function that runs a case once."""
    folder = tmp_path_factory.mktemp("groups")
    folder.joinpath("script.py").write_text(SCRIPT)
    known = {}

    def result(case):
        if case not in known:
            known[case] = group(folder, CASES[case][0], **MORE.get(case, {}))
        return known[case]

    return result


def test_nothing_is_said_when_nothing_happens(tmp_path):
    ends = group(tmp_path, "", steps=20)
    assert [one.code for one in ends] == [0, 0, 0], ends
    assert all("the end 19 False" in one.printed for one in ends)
    assert not any("guard" in one.warned for one in ends)


@pytest.mark.parametrize("case", CASES)
def test_every_process_is_gone_in_seconds(case, results):
    for one in results(case):
        assert one.seconds < LIMIT, one
        assert one.code != 0, one
    assert CASES[case][2] in (None, results(case)[-1].code)


@pytest.mark.parametrize("case", CASES)
def test_every_process_says_what_happened_to_the_last(case, results):
    speakers = results(case)[: COUNT - (case in SPEECHLESS)]
    for one in speakers:
        (words,) = [line for line in one.verdict if line.startswith("- process 2 ")]
        assert CASES[case][1] in words, one


@pytest.mark.parametrize("case", ["suspended", "stuck"])
def test_who_cannot_speak_in_time_shows_its_python_lines_when_it_is_ended(
    case, results
):
    """By JAX, which finds process 0 gone, or by the second clock; or it woke up."""
    (*_, one) = results(case)
    assert re.search("Fatal Python error: Aborted|Timeout|- process 2", one.warned), one
    assert "script.py" in one.warned


@pytest.mark.parametrize("case", ["killed", "raised", "exit"])
def test_bad_news_need_no_deadline(case, results):
    """The others leave long before their three seconds are over."""
    ends = results(case)
    assert [one.code for one in ends[:-1]] == [guard.TOLD] * (COUNT - 1)
    for one in ends[: COUNT - (case in SPEECHLESS)]:
        assert "took over" not in one.warned
        others = one.verdict[: COUNT - 1]
        assert all(" was in step " in line for line in others), one


def test_a_stall_shows_where_each_process_is(results):
    ends = results("asleep")
    waiting = "script.py, line 28: value = float(total(ones))"
    for one in ends:
        assert sum(waiting in line for line in one.verdict) == 2
        assert any("took over 3 s" in line for line in one.verdict)
    assert guard.STALLED in [one.code for one in ends]


def test_the_exception_s_own_traceback_comes_first(results):
    (*_, one) = results("raised")
    trace, _, verdict = one.warned.partition("guard in process")
    assert "Traceback" in trace
    assert "ValueError: negative pressure" in trace
    assert "ValueError: negative pressure" in verdict


def test_a_collective_may_have_a_limit_of_its_own(results):
    ends = results("collective")
    assert any("Timed out waiting 3000ms" in one.warned for one in ends)
    assert not any("took over" in one.warned for one in ends)


def test_process_0_is_missed_too(tmp_path):
    """Its coordinator is gone as well, so JAX may be faster than the guard."""
    ends = group(tmp_path, "if me == 0: " + KILL.format("SIGKILL"), deadline=60)
    assert ends[0].code == -9
    for one in ends[1:]:
        assert one.seconds < LIMIT
        assert one.code in (guard.TOLD, guard.RAISED, -signal.SIGABRT)
        own = ["- process 0 left without a word (was it killed?)"]
        assert one.verdict == own or "Failed to send RPC" in one.warned, one


def test_after_sigterm_all_stop_before_the_same_step(tmp_path):
    ends = group(tmp_path, ALONE + KILL.format("SIGTERM"), deadline=60)
    assert [one.code for one in ends] == [0, 0, 0], ends
    assert len({one.printed.splitlines()[-1] for one in ends}) == 1
    assert "True" in ends[0].printed
    for one in ends:
        assert one.seconds < LIMIT
        assert re.fullmatch(r"- all stop before step \d+: SIGTERM came", *one.verdict)


# ------------------------------------------------------------------------- one process


def test_alone_it_changes_nothing():
    with Guard(deadline=60, host="127.0.0.1") as guard:
        assert list(guard.steps(range(3))) == [0, 1, 2]
    assert not guard.stopped


def test_alone_it_may_leave_by_a_plain_exit():
    with pytest.raises(SystemExit), Guard(deadline=60, host="127.0.0.1"):
        sys.exit(0)


def test_a_second_clock_rings_when_python_itself_is_stuck():
    code = """if True:
        import re
        from examples import guard
        guard.PATIENCE = 0.5
        with guard.Guard(deadline=0.5, host="127.0.0.1"):
            re.match('(a+)+$', 60 * 'a' + 'b')
    """
    line = [sys.executable, "-c", code]
    done = subprocess.run(
        line, cwd=SOURCE, capture_output=True, text=True, check=False, timeout=HANGS
    )
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "in match" in done.stderr


def test_a_deadline_is_positive():
    with pytest.raises(ValueError, match="a deadline of 0 seconds: pass more than 0"):
        Guard(deadline=0)


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
        return whereabouts(traceback.extract_stack())

    line = own.__code__.co_firstlineno + 1
    assert (
        own()
        == f"test_guard.py, line {line}: return whereabouts(traceback.extract_stack())"
    )
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("{")
    assert whereabouts(traceback.extract_tb(caught.tb)).endswith('json.loads("{")')
    library = traceback.extract_tb(caught.tb)[-1:]
    assert whereabouts(library).startswith("decoder.py, line ")


def test_programs_alone_are_the_same():
    guard.assert_same_program(jax.numpy.sum, np.ones(3))
