"""Several processes start, speak in whole lines, and end together, whatever happens."""

import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.processes
LOCAL = Path(__file__).parents[2] / "launch/local.py"
SLOW = 200  # seconds after which a test has failed; who waits here waits for longer
MEET = "--devices", "1", "--timeout", str(SLOW)

# What most scripts begin with, in one line.
HEAD = (
    "import atexit, os, signal, sys, time; me, turn = (int(os.environ['SLURM_' + name])"
    " for name in ('PROCID', 'RESTART_COUNT'))\n"
)

# Each process, and a child of its own, hold the pipe `alive` open as long as they live.
STAY = """
import subprocess
alive = os.open("alive", os.O_WRONLY)
child = subprocess.Popen(["sleep", "1000"], close_fds=False, pass_fds=[alive])
os.write(alive, b"ready\\n")
"""
JAX = """
from pathlib import Path
import jax
from jax.experimental.multihost_utils import process_allgather

jax.distributed.initialize()
me = jax.process_index()
print("ranks", *process_allgather(me), "of", jax.device_count(), "devices")
if "listen" in sys.argv:
    _, port = os.environ["JAX_COORDINATOR_ADDRESS"].split(":")
    lines = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    places = [line.split()[1] for line in lines.splitlines() if " 0A " in line]
    print("at", *(p for p in places if p.endswith(f":{int(port):04X}")))
if "fail" in sys.argv and me == 1:
    raise ValueError("process 1 has had enough")
if "fail" in sys.argv:
    print("never", process_allgather(me))
if "wait" in sys.argv:
    print("waiting")
    time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Stay in a folder of its own; signals come, even where pytest is under nohup."""
    monkeypatch.chdir(tmp_path)
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGHUP, hangup)


def command(*options, script, arguments=(), head=HEAD):
    """Write a script; return the command line that launches it from here."""
    Path("script.py").write_text(head + script)
    return [sys.executable, LOCAL, *options, "script.py", *arguments]


def run(line):
    """Run a command line; return its exit code and output."""
    pipes = {"capture_output": True, "text": True}
    return subprocess.run(line, check=False, timeout=2 * SLOW, **pipes)


def launch(*options, **script):
    """Launch a script, and wait; return its exit code and output."""
    return run(command(*options, **script))


def start(*options, **script):
    """Launch a script, and go on."""
    line = command(*options, **script)
    return subprocess.Popen(line, stdout=-1, stderr=-1, text=True)


def test_a_bare_initialize_finds_the_others_on_this_machine_only():
    has_list = Path("/proc/net/tcp").exists()  # only Linux has one, of who listens
    words = ["listen"] * has_list
    done = launch("-n", "2", *MEET, "--devices", "2", script=JAX, arguments=words)
    assert done.returncode == 0, done.stderr
    found = sorted(line for line in done.stdout.splitlines() if " at " not in line)
    assert found == [f"[{i}] ranks 0 1 of 4 devices" for i in range(2)]
    assert "Gloo" not in done.stdout + done.stderr
    places = {line[7:] for line in done.stdout.splitlines() if " at " in line}
    assert len(places) == has_list
    for place in places:
        assert place.split(":")[0] in (
            "0100007F",  # 127.0.0.1
            "0000000000000000FFFF00000100007F",  # the same as an address of IPv6
        )


def test_an_exception_in_one_process_does_not_wait_for_the_others():
    """JAX itself would take 300 s; the limit of the launcher would give code 124."""
    done = launch("-n", "2", *MEET, script=JAX, arguments=["fail"])
    assert done.returncode == 1
    assert "never" not in done.stdout
    lines = done.stderr.splitlines()  # the other may say, too, that its peer is gone
    own = [line for line in lines if line.startswith("[1] ")]
    assert own[0] == "[1] Traceback (most recent call last):"
    assert "[1] ValueError: process 1 has had enough" in own
    assert "local.py: process 1 failed with code 1; the others are ended" in lines


def test_lines_come_live_and_jax_cannot_swallow_the_end():
    with start("--grace", "1", "-n", "2", *MEET, script=JAX, arguments=["wait"]) as job:
        while "waiting" not in job.stdout.readline():
            assert job.poll() is None
        job.terminate()
        job.communicate(timeout=SLOW)
    assert job.returncode == 128 + signal.SIGTERM


def test_each_line_is_whole_and_names_its_process():
    script = """if True:
        for i in range(300):
            for piece in (me, " ", str(me) * 500, "\\n"):
                target = sys.stderr if i % 2 else sys.stdout
                print(piece, end="", file=target, flush=True)
        print("no newline", me, end="")
    """
    done = launch("-n", "3", script=script)
    assert done.returncode == 0
    lines = done.stdout.splitlines() + done.stderr.splitlines()
    whole = [f"[{i}] {i} {str(i) * 500}" for i in range(3) for _ in range(300)]
    ends = [f"[{i}] no newline {i}" for i in range(3)]
    assert sorted(lines) == sorted(whole + ends)


def test_a_stack_that_comes_late_is_waited_for():
    states = iter([False, False, True])
    late = SimpleNamespace(has_stack=False, popen=SimpleNamespace(poll=lambda: None))
    ended = SimpleNamespace(has_stack=False, popen=SimpleNamespace(poll=lambda: 9))

    def read():
        late.has_stack = next(states)

    late.streams, ended.streams = ([None, SimpleNamespace(read=f)] for f in (read, int))
    runpy.run_path(str(LOCAL))["await_stacks"]([late, ended], float("inf"))
    assert late.has_stack


def test_the_script_sees_what_it_would_see_alone():
    """What C++ and commands print goes to stderr."""
    script = """if True:
        import pickle, sys, beside
        def f(): ...
        assert pickle.loads(pickle.dumps(f)) is f and f.__module__ == "__main__"
        assert __name__ == "__main__" and __file__ == "script.py"
        assert sys.stdin.read() == "" and "boot" not in globals() | vars()
        assert "os" not in globals()
        greeting = b'[Gloo] Rank [Gloo] Rank 0 is\\n1\\n'  # one cuts another
        __import__("os").write(1, b'2\\n' + greeting + b'3\\n')
        print(sys.argv)
    """
    Path("beside.py").touch()
    words = ["a b", "--n", "-n", "7", "--", "'"]
    done = launch("-n", "1", script=script, arguments=words, head="")
    assert done.stdout == f"[0] {['script.py', *words]}\n", done.stderr
    assert done.stderr == "[0] 2\n[0] 3\n"


def test_the_variables_are_those_of_one_slurm_step(monkeypatch):
    """A proxy does not come between its processes."""
    script = """if True:
        names = "NTASKS", "PROCID", "LOCALID", "STEP_NODELIST", "RESTART_COUNT"
        print(*(os.environ["SLURM_" + name] for name in names))
        print(os.environ["JAX_COORDINATOR_ADDRESS"], "OMPI_X" in os.environ)
        print(os.environ["JAX_PLATFORMS"], os.environ["JAX_NUM_CPU_DEVICES"])
        print(os.environ.get("no_grpc_proxy"))
    """
    outer = "SLURM_PROCID=7 OMPI_X=1 JAX_PLATFORMS=tpu http_proxy=http://a.example:3128"
    for variable in outer.split():
        monkeypatch.setenv(*variable.split("=", 1))
    lines = launch("-n", "2", "--devices", "5", script=script).stdout.splitlines()
    for number in 0, 1:
        own = f"2 {number} {number} 127.0.0.1 0", "cpu 5", "127.0.0.1"
        assert {f"[{number}] {line}" for line in own} <= {*lines}
    (address,) = {line[4:] for line in lines if ":" in line}  # one address for all
    assert address.endswith(" False")


def test_the_first_failure_is_shown_first_and_ends_the_rest():
    script = """if True:
        def late(*_):
            print("a victim complains", file=sys.stderr, flush=True)
            sys.exit(9)
        signal.signal(signal.SIGTERM, late)
        if me == 2:
            time.sleep(0.5)
            raise KeyError("mine")
        time.sleep(1000)
    """
    done = launch("-n", "4", script=script)
    assert done.returncode == 1
    first, *_, last, end = done.stderr.splitlines()
    assert first == "[2] Traceback (most recent call last):"
    assert last == "[2] KeyError: 'mine'"
    assert end == "local.py: process 2 failed with code 1; the others are ended"
    assert "boot" not in done.stderr  # the launcher's own frames stay out
    assert "complains" not in done.stderr


FAILURES = {
    "save": ("sys.exit(75)", 75, "process 1 has saved with code 75"),
    "words": ("sys.exit('bad luck')", 1, "[1] bad luck\nlocal.py: process 1 failed"),
    "signal": ("os.kill(os.getpid(), signal.SIGKILL)", 128 + 9, "SIGKILL"),
    "syntax": ("exec('1 +')", 1, "SyntaxError"),
    "stop": ("raise KeyboardInterrupt", 130, "code 130"),
    "lingering": ("atexit.register(time.sleep, 1000); sys.exit(3)", 3, "code 3"),
}


@pytest.mark.parametrize(("fault", "code", "words"), FAILURES.values(), ids=FAILURES)
def test_the_exit_code_tells_what_failed(fault, code, words):
    script = f"if me == 1:\n    {fault}\ntime.sleep(1000)"
    done = launch("-n", "2", script=script)
    assert done.returncode == code
    assert words in done.stderr


def test_a_good_end_is_code_0():
    ends = "pass", "sys.exit()", "sys.exit(0)", "os._exit(0)"
    script = f"exec({ends}[me])"
    done = launch("-n", "4", script=script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_time_limit_says_where_everybody_stands():
    script = """if True:
        def stuck():
            time.sleep(1000)
        print("here", flush=True)
        if me == 1:
            stuck()
        time.sleep(1000)
    """
    for limit in "1.5", "15", "150":  # until both have come to where they stay
        limits = "--timeout", limit, "--max-restarts", "3"
        done = launch("-n", "2", *limits, script=script)
        if done.stdout.count("here") == 2:
            break
    assert done.returncode == 124
    assert f"local.py: not done after {limit} s" in done.stderr
    assert '[1]   File "script.py", line 4 in stuck' in done.stderr
    assert '[0]   File "script.py", line 8 in <module>' in done.stderr
    assert "restart" not in done.stderr


def test_after_a_failure_or_a_save_all_start_again():
    script = """if True:
        if turn == 2:
            sys.exit()
        if me == 1:
            sys.exit([4, 75][turn])
        time.sleep(1000)
    """
    done = launch("-n", "2", "--max-restarts", "3", script=script)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "local.py: process 1 failed with code 4; the others are ended",
        "local.py: restart 1 of 3",
        "local.py: process 1 has saved with code 75; the others are ended",
        "local.py: restart 2 of 3",
    ]


def test_logs_keep_each_process_apart_and_show_the_failure():
    script = """if True:
        print("out", me, turn)
        print("err", me, turn, file=sys.stderr)
        if me == 0:
            time.sleep(1000)
        sys.exit(6)
    """
    Path("logs").mkdir()
    Path("logs/1.out").write_text("of an older run\n")
    options = "-n", "2", "--logs", "logs", "--max-restarts", "1"
    done = launch(*options, script=script)
    assert (done.returncode, done.stdout) == (6, "")
    logs = {path.name: path.read_text() for path in Path("logs").iterdir()}
    assert logs.keys() == {"0.out", "0.err", "1.out", "1.err"}
    assert logs["1.out"] == "out 1 0\nout 1 1\n"
    assert logs["1.err"] == "err 1 0\nerr 1 1\n"
    shown = [line for line in done.stderr.splitlines() if line[0] == "["]
    assert shown == ["[1] err 1 0", "[1] err 1 1"]


def end_of(act, script, *options):
    """Act when all are ready; return the code and the errors once all are gone."""
    os.mkfifo("alive")
    launcher = start("-n", "3", *options, script=script)
    with launcher, Path("alive").open() as alive:
        assert [alive.readline() for _ in range(3)] == ["ready\n"] * 3
        begin = time.monotonic()
        act(launcher)
        assert alive.read() == ""  # comes when the last of them is gone
        assert time.monotonic() - begin < SLOW
        _, errors = launcher.communicate(timeout=SLOW)
    return launcher.returncode, errors


def send(number):
    return lambda launcher: launcher.send_signal(number)


def send_twice(launcher):
    launcher.terminate()
    while "which have 30 s; a second signal kills" not in launcher.stderr.readline():
        assert launcher.poll() is None
    launcher.terminate()


LOOP = "while True: time.sleep(1)"
WAIT = STAY + LOOP
IGNORE = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
FAIL = "while not os.path.exists('go'): time.sleep(0.02)\nif me == 0: sys.exit(3)\n"
ENDS = {  # what happens, what the processes do, the code
    "SIGINT": (send(signal.SIGINT), WAIT, 128 + signal.SIGINT),
    "SIGTERM": (send(signal.SIGTERM), WAIT, 128 + signal.SIGTERM),
    "SIGHUP": (send(signal.SIGHUP), WAIT, 128 + signal.SIGHUP),
    "kill": (send(signal.SIGKILL), WAIT, -signal.SIGKILL),
    "second signal": (send_twice, IGNORE + WAIT, 128 + signal.SIGTERM),
    "reader": (
        lambda job: job.stdout.close(),
        STAY + "while True: print('x' * 1000)",
        128 + 13,
    ),
    "failure": (lambda _: Path("go").touch(), IGNORE + STAY + FAIL + LOOP, 3),
}


@pytest.mark.parametrize("end", ENDS)
def test_no_end_of_the_launcher_leaves_a_process(end):
    """By a signal, without a reader of the output, or after a failure."""
    act, script, expected = ENDS[end]
    code, errors = end_of(act, script)
    assert code == expected
    assert "Traceback" not in errors
    assert end in errors or end[:3] != "SIG"


def test_grace_lets_processes_save():
    script = """if True:
        def save(*_):
            child.kill(); print("saved"); sys.exit(0)
        signal.signal(signal.SIGTERM, save)
    """
    lines = []

    def act(launcher):
        launcher.terminate()
        lines.extend(launcher.stdout.read().splitlines())

    code, _ = end_of(act, script + WAIT, "--grace", "100")
    assert code == 128 + signal.SIGTERM
    assert sorted(lines) == ["[0] saved", "[1] saved", "[2] saved"]


REFUSED = {
    "none": (["-n", "0", "script.py"], "-n/--processes: 0 is less than 1"),
    "no count": (["script.py"], "required: -n/--processes"),
    "no file": (["-n", "2", "other.py"], "there is no file other.py"),
    "devices": (["-n", "2", "--devices", "0", "script.py"], "0 is less than 1"),
    "nan": (["-n", "2", "--timeout", "nan", "script.py"], "nan is less than 0"),
}


@pytest.mark.parametrize(("line", "words"), REFUSED.values(), ids=REFUSED)
def test_bad_arguments_are_refused_before_any_start(line, words):
    command(script="print('ran')")
    done = run([sys.executable, LOCAL, *line])
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
