"""A training that is killed at any moment ends with the bits of the undisturbed one."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCAL = ROOT / "launch/local.py"
EVERY, STEPS, KILLS = 4, 40, 7

# A reader's script. What disturbs it follows from the seed and the number of the start.
SCRIPT = """
import hashlib
import os
import random
import signal
import sys
import threading
import time

import jax
import numpy as np
import restart
from jax.experimental.multihost_utils import process_allgather

alive = os.open("alive", os.O_WRONLY)
folder, steps, every, plan, seed = sys.argv[1:]
turn = int(os.environ["SLURM_RESTART_COUNT"])
jax.distributed.initialize()
me, count = jax.process_index(), jax.process_count()
dice = random.Random(f"{seed} {turn}")
victim, ahead = dice.randrange(count), dice.randint(1, 5)
while_saving = dice.random() < 0.5
delay = dice.uniform(0, 0.4)
kill = plan == "kill" and turn < int(os.environ["KILLS"])
first, limit = None, {}


def die(after=0.0):
    print("killed", "saving" if after else "training", flush=True)
    threading.Timer(after, os.kill, (os.getpid(), signal.SIGKILL)).start()
    time.sleep(60)


def begin_save(checkpoints, number, state, save=restart.save):
    if kill and me == victim and while_saving:
        save_and_die(save, checkpoints, number, state)
    save(checkpoints, number, state)
    print("saves", number, flush=True)


def save_and_die(save, *args):
    threading.Thread(target=save, args=args).start()
    die(delay)


def step(state, number):
    global first
    if first is None:
        first = number
        print("starts at", number, flush=True)
        if plan == "none":
            print("starts with", digest(state), flush=True)
    if kill and me == victim and not while_saving and number == first + ahead:
        die()
    if plan == "raise" and number == 10 and me == 1:
        raise ArithmeticError("process 1 has had enough")
    if plan == "preempt" and turn == 0 and number >= 10:
        time.sleep(0.1)
        if number == 10 and me == 1:
            os.kill(os.getpid(), signal.SIGTERM)
    if plan == "wait" and number == 10:
        print("waiting", flush=True)
    if plan == "wait" and number >= 10:
        time.sleep(0.1)
    state = restart.learn(state, number)
    value = float(jax.jit(restart.loss)(state[0], number))
    if me == 0:
        print("loss", number, value.hex(), flush=True)
    return state


def digest(state):
    arrays = jax.tree.leaves(process_allgather(state, tiled=True))
    return hashlib.sha256(b"".join(map(np.ndarray.tobytes, arrays))).hexdigest()


restart.save = begin_save
mesh = jax.make_mesh((count, jax.local_device_count()), ("data", "model"))
with jax.set_mesh(mesh):
    state = restart.train(step, restart.begin(), int(steps), folder, int(every))
    print("ends with", digest(state), flush=True)
"""


class Run:
    """What the processes of a launch said, and how it ended."""

    def __init__(self, tmp_path, alive):
        self.path, self.alive = tmp_path, alive

    def __call__(self, plan, *options, seed=0, layout=(2, 2), steps=STEPS, act=None):
        processes, devices = layout
        sizes = "-n", str(processes), "--devices", str(devices), "--timeout", "240"
        names = "folder", str(steps), str(EVERY), plan, str(seed)
        with subprocess.Popen(
            [sys.executable, LOCAL, *sizes, *options, "script.py", *names],
            cwd=self.path,
            env=os.environ | {"KILLS": str(KILLS)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as job:
            said = act(job) if act else ""
            out, self.errors = job.communicate(timeout=300)
        self.code, self.out = job.returncode, said + out
        self.warnings = re.findall(r"^\[\d\] .+", self.errors, re.M)
        # the end of the file comes only when nobody is left who could write
        assert os.read(self.alive, 1) == b""
        return self

    def find(self, pattern):
        return re.findall(rf"^\[\d\] {pattern}$", self.out, re.M)

    @property
    def digests(self):
        return set(self.find(r"ends with (\w+)"))

    @property
    def restored(self):
        return set(self.find(r"starts with (\w+)"))

    @property
    def starts(self):
        """The step at which each start began, as process 0 tells it."""
        return [int(n) for n in re.findall(r"^\[0\] starts at (\d+)$", self.out, re.M)]

    @property
    def losses(self):
        return [(int(n), value) for n, value in self.find(r"loss (\d+) (.*)")]

    @property
    def saved(self):
        return sorted(int(path.name) for path in (self.path / "folder").iterdir())


@pytest.fixture
def run(tmp_path):
    """Launch the script in a folder of its own."""
    yield from prepared(tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The run that nobody disturbs."""
    for run in prepared(tmp_path_factory.mktemp("undisturbed")):
        yield run("none")


def prepared(folder):
    shutil.copy(ROOT / "src/examples/restart.py", folder)
    (folder / "script.py").write_text(SCRIPT)
    os.mkfifo(folder / "alive")
    alive = os.open(folder / "alive", os.O_RDONLY | os.O_NONBLOCK)
    yield Run(folder, alive)
    os.close(alive)


def test_an_undisturbed_run_says_nothing_but_its_own(undisturbed):
    assert (undisturbed.code, undisturbed.warnings) == (0, [])
    assert len(undisturbed.digests) == 1
    assert [number for number, _ in undisturbed.losses] == list(range(STEPS))
    assert undisturbed.saved == [STEPS - EVERY, STEPS]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(
    run, undisturbed, seed
):
    run("kill", "--max-restarts", str(KILLS), seed=seed)
    assert run.code == 0, run.errors
    kills = run.find("killed (saving|training)")
    print("seed", seed, "kills", kills, "starts", run.starts)
    assert len(kills) == run.errors.count("local.py: restart ") == KILLS
    assert run.digests == undisturbed.digests
    assert set(run.losses) == set(undisturbed.losses)  # also of each repeated step
    nothing_is_lost(run.out)


def nothing_is_lost(out):
    """A start begins at a save, and repeats less than the steps of two saves."""
    first = reached = 0
    for word, number in re.findall(r"^\[\d\] (starts at|loss) (\d+)", out, re.M):
        if word == "loss":
            reached = int(number) + 1
            continue
        assert int(number) % EVERY == 0
        assert first <= int(number)
        assert int(number) > reached - 2 * EVERY
        first = int(number)


def test_an_exception_in_one_process_ends_all_and_the_next_start_goes_on(
    run, undisturbed
):
    run("raise")
    assert run.code == 1
    assert "ArithmeticError: process 1 has had enough" in run.errors
    run("none")
    assert run.code == 0, run.errors
    assert run.starts[0] >= 4
    assert run.digests == undisturbed.digests


def test_a_notice_to_one_process_makes_all_save_and_asks_for_a_restart(
    run, undisturbed
):
    run("preempt", "--max-restarts", "1")
    assert run.code == 0, run.errors
    assert run.errors.count("failed with code 75") == 1
    first, again = run.starts
    *_, before = (
        n for n, _ in run.losses[: run.losses.index((again, dict(run.losses)[again]))]
    )
    assert (first, before) == (0, again - 1)  # no step was lost, none was repeated
    assert run.digests == undisturbed.digests


def test_a_notice_to_the_launcher_saves_and_stops(run, undisturbed):
    def act(job):
        said = ""
        while "waiting" not in said:
            said += job.stdout.readline()
        job.terminate()
        return said

    run("wait", "--grace", "60", act=act)
    assert run.code == 128 + signal.SIGTERM
    last = max(run.saved)
    assert last == run.losses[-1][0] + 1
    run("none")
    assert run.starts == [last]
    assert run.digests == undisturbed.digests
