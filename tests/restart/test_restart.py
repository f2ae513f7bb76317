"""A training that is killed at any moment ends with the bits of the undisturbed one."""

import hashlib
import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.multihost_utils import process_allgather
from on_devices import AUTO, devices

from examples import restart

ROOT = Path(__file__).parents[2]
LOCAL = ROOT / "launch/local.py"
EVERY, STEPS = 5, 40
SLOW = 1000  # seconds after which a test has failed


def digest(state):
    arrays = jax.tree.leaves(process_allgather(state, tiled=True))
    return hashlib.sha256(b"".join(map(np.ndarray.tobytes, arrays))).hexdigest()


# A reader's script, with a plan for each start: whom a signal disturbs, and when.
SCRIPT = """
import hashlib
import os
import signal
import sys
import threading
import time

import jax
import numpy as np
import restart
from jax.experimental.multihost_utils import process_allgather

steps, every, *plans = sys.argv[1:]
plan = dict(enumerate(plans)).get(int(os.environ["SLURM_RESTART_COUNT"]))
every = 1000 if plan == "notice" else int(every)  # the notice alone makes it save
jax.distributed.initialize()
me, count, first = jax.process_index(), jax.process_count(), None


def die():
    print("killed", plan, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def begin_save(*args, save=restart.start_saving):
    if plan == f"{me} saving" and args[1] >= first + 7:
        threading.Thread(target=save, args=args).start()
        time.sleep(0.1)
        die()
    save(*args)


def step(state, number):
    global first
    if first is None:
        first = number
        print("starts at", number, flush=True)
        if not plans:
            print("starts with", digest(state), flush=True)
    if plan == f"{me} training" and number == first + 7:
        die()
    if plan == "notice" and number >= 10:
        time.sleep(1)  # it comes before the last step
        if number == 10 and me == 1:
            os.kill(os.getpid(), signal.SIGTERM)
    state = restart.learn(state, number)
    if me == 0:
        print("step", number, flush=True)
    return state


restart.start_saving = begin_save
mesh = jax.make_mesh((count, jax.local_device_count()), ("data", "model"))
with jax.set_mesh(mesh):
    state = restart.train(step, restart.begin(), int(steps), "folder", every)
    print("ends with", digest(state), flush=True)
"""


def launch(folder, *plans, layout=(2, 2), steps=STEPS):
    """Run the script in processes and devices like these, in a folder of its own."""
    shutil.copy(ROOT / "src/examples/restart.py", folder)
    (folder / "script.py").write_text(inspect.getsource(digest) + SCRIPT)
    sizes = "-n", layout[0], "--devices", layout[1], "--timeout", SLOW
    words = *sizes, "--max-restarts", len(plans), "script.py", steps, EVERY, *plans
    line = [sys.executable, LOCAL, *map(str, words)]
    options = {"cwd": folder, "capture_output": True, "text": True}
    return subprocess.run(line, check=False, timeout=2 * SLOW, **options)


def find(done, pattern):
    """Return what stands in lines that the processes printed."""
    return re.findall(rf"^\[\d\] {pattern}$", done.stdout, re.M)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of a run that nobody disturbs, and what it printed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, launch(folder)


def check_end(done, undisturbed, restarts):
    """Fail unless the numbers at the end are those of the undisturbed run."""
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("local.py: restart ") == restarts
    (digest,) = {*find(done, r"ends with (\w+)")}
    assert {digest} == {*find(undisturbed[1], r"ends with (\w+)")}


@pytest.mark.processes
def test_a_run_killed_repeatedly_ends_with_the_same_bits(tmp_path, undisturbed):
    """A start begins at a save, and repeats at most the steps of two saves.

    Two, if a process died while it waited for the save before to be complete.
    """
    assert "Warning" not in undisturbed[1].stderr
    plans = "1 saving", "0 training"
    done = launch(tmp_path, *plans)
    check_end(done, undisturbed, len(plans))
    assert find(done, "killed (.*)") == [*plans]
    first = reached = 0
    for word, number in find(done, r"(starts at|step) (\d+)"):
        if word == "step":
            reached = int(number) + 1
            continue
        assert int(number) % EVERY == 0
        assert int(number) >= max(first, reached - 2 * EVERY)
        first = int(number)


@pytest.mark.processes
def test_after_a_notice_the_next_start_goes_on(tmp_path, undisturbed):
    """A notice to one process makes all save, so that no step is done twice."""
    done = launch(tmp_path, "notice")
    check_end(done, undisturbed, 1)
    assert done.stderr.count("has saved with code 75") == 1
    assert find(done, r"step (\d+)") == [*map(str, range(STEPS))]


def on(*sizes):
    """Put a mesh of this process in context."""
    return devices(sizes, names=("data", "model"))


@pytest.mark.processes
def test_another_layout_gets_the_same_bits_and_goes_on(tmp_path, undisturbed):
    """Other processes, and another mesh."""
    half = launch(tmp_path, steps=STEPS // 2)
    done = launch(tmp_path, layout=(4, 1))
    assert done.returncode == 0, done.stderr
    assert {*find(done, r"starts with (\w+)")} == {*find(half, r"ends with (\w+)")}
    with on(1, 1):
        states = [
            restart.train(restart.learn, restart.begin(), STEPS, path / "folder")
            for path in (tmp_path, undisturbed[0])
        ]
    for one, other in zip(*map(jax.tree.leaves, states), strict=True):
        # sums over the batch in another order: to rounding
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@jax.jit(donate_argnums=0)
def wander(x, number):
    """Take a random step, without sums: each element has its own."""
    key, lies = jax.random.fold_in(jax.random.key(2), number), jax.typeof(x).sharding
    return x + jax.random.uniform(key, x.shape, out_sharding=lies.spec)


def walkers(*spec):
    return jax.device_put(np.zeros((8, 8), np.float32), jax.P(*spec))


def test_a_computation_without_sums_is_exact_on_every_mesh(tmp_path):
    """Also where a step reuses the memory of a state that is being written."""
    with on(1, 1):
        wanted = restart.train(wander, walkers(), 9, tmp_path / "wanted")
    for steps, sizes, spec in (
        (3, (2, 4), ("data", "model")),
        (6, (8, 1), ("data", None)),
        (9, (1, 2), (None, "model")),
    ):
        with on(*sizes):
            state = restart.train(wander, walkers(*spec), steps, tmp_path / "moved", 2)
            assert jax.typeof(state).sharding.spec == jax.P(*spec)
    np.testing.assert_array_equal(state, wanted)


def test_it_works_with_auto_axes_and_saves_keys_and_integers(tmp_path):
    def start():
        numbers = jax.device_put(np.arange(8), jax.P("data"))
        return {"numbers": numbers, "key": jax.random.key(3), "half": jnp.bfloat16(1.5)}

    def step(state, number):
        return state | {"numbers": state["numbers"] + number}

    with devices((2, 4), AUTO, ("data", "model")):
        restart.train(step, start(), 3, tmp_path)
        state = restart.train(step, start(), 4, tmp_path)
        assert state["numbers"].sharding == start()["numbers"].sharding
    assert state["half"].dtype == jnp.bfloat16
    assert jax.random.key_data(state["key"]).tolist() == [0, 3]
    np.testing.assert_array_equal(state["numbers"], np.arange(8) + 6)


def again(folder, steps=8, mesh=(1, 1)):
    """Go on from what is saved, on another mesh; return the digest of the state."""
    with on(*mesh):
        return digest(restart.train(restart.learn, restart.begin(), steps, folder, 4))


@pytest.fixture
def saved(tmp_path):
    """A folder with checkpoints 4 and 8, and the state of each."""
    return tmp_path, {steps: again(tmp_path, steps, (2, 2)) for steps in (4, 8)}


def test_a_save_that_was_not_completed_is_ignored_and_removed(saved):
    folder, states = saved
    assert {path.name for path in folder.iterdir()} == {"4", "8"}
    assert again(folder) == states[8]
    unfinished = (folder / "8").rename(folder / "8.orbax-checkpoint-tmp")
    assert again(folder, steps=4) == states[4]
    again(folder)  # it saves once more; the removal is complete before that
    assert not unfinished.exists()


def flip(path):
    """Turn the bits of eight bytes in the middle of a file."""
    middle, data = path.stat().st_size // 2, bytearray(path.read_bytes())
    data[middle : middle + 8] = (byte ^ 0xFF for byte in data[middle : middle + 8])
    path.write_bytes(data)


def refusals(folder, right, harm):
    """Do this harm to each file in turn; return how often the checkpoint is refused."""
    copy, found = shutil.copytree(folder / "8", folder / "copy"), []
    for path in sorted(path for path in copy.rglob("*") if path.is_file()):
        harm(folder / "8" / path.relative_to(copy))
        try:
            found.append(again(folder))
        except ValueError as error:
            found.append(str(error))
        shutil.rmtree(folder / "8")
        shutil.copytree(copy, folder / "8")
    shutil.rmtree(copy)
    refused = f"checkpoint 8 of {folder} is damaged: remove it, to go on from "
    refused += "checkpoint 4, which is there"
    assert {*found} <= {right, refused}
    return found.count(refused)


def test_a_damaged_checkpoint_is_refused_or_of_no_consequence(saved):
    """No file of it can go wrong so that other numbers are restored."""
    folder, states = saved
    # in another process, for Orbax complains of what it left unread at any later time
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        for harm in flip, Path.unlink:
            assert other.submit(refusals, folder, states[8], harm).result() >= 3
    shutil.rmtree(folder / "8")
    assert again(folder, steps=4) == states[4]
    (folder / "4/default/_METADATA").unlink()
    with pytest.raises(ValueError, match="to begin anew, for there is no other"):
        again(folder)


HEALTHY = {  # what may be in the way of reading, and says nothing of the checkpoint
    "rights": PermissionError(13, "Permission denied"),
    "memory": MemoryError("no memory left"),
    "device": jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"),
    "network": ValueError("UNAVAILABLE: Error reading local file"),
}


@pytest.mark.parametrize("error", HEALTHY.values(), ids=HEALTHY)
def test_no_advice_to_remove_what_may_be_whole(error, tmp_path):
    """The error itself, with a note."""
    checkpoints = restart.open_folder(tmp_path)
    note = f"checkpoint 8 of {tmp_path} could not be read; nothing .* remove nothing"
    with (
        pytest.raises(type(error), match=note) as caught,
        restart.reading(checkpoints, 8),
    ):
        raise error
    assert caught.value is error


@pytest.mark.processes
def test_a_second_job_is_refused_and_the_first_saves_when_it_ends(tmp_path):
    """By the documented command; after a signal the launcher starts nothing again."""
    (words,) = re.findall(r"    python (local.py .* checkpoints)\n", restart.__doc__)
    endless = Path(restart.__file__).read_text().replace("[1], 100)", "[1], 10**8)")
    endless = endless.replace("every=20", "every=10**8")  # so only the notice saves
    (tmp_path / "restart.py").write_text(endless)
    shutil.copy(LOCAL, tmp_path)
    line = [sys.executable, *words.split()]
    once = [sys.executable, *words.replace("--max-restarts 3 ", "").split()]
    options = {"cwd": tmp_path, "stdout": -1, "stderr": -1, "text": True}
    with subprocess.Popen(line, **options) as job:
        while job.poll() is None and not (tmp_path / "checkpoints/lock").exists():
            time.sleep(0.1)
        second = subprocess.run(once, check=False, timeout=SLOW, **options)
        job.terminate()
        _, errors = job.communicate(timeout=SLOW)
    assert (second.returncode, second.stdout) == (1, "")
    assert f"ValueError: {tmp_path}/checkpoints is in use by process " in second.stderr
    assert (job.returncode, "restart 1" in errors) == (128 + signal.SIGTERM, False)
    (last,) = (path.name for path in (tmp_path / "checkpoints").iterdir())
    assert int(last) > 0, errors  # and no lock is left


HOLD = """
import sys, time
from pathlib import Path
from examples import restart

print(restart.claim_lock(Path(sys.argv[1])), flush=True)
time.sleep(1000)
"""


@pytest.fixture
def holder(tmp_path):
    """Start a process that holds a lock; its end is that of the test."""
    line = [sys.executable, "-c", HOLD, tmp_path / "lock"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "SLURM_JOB_ID": "7"}
    with subprocess.Popen(line, env=env, stdout=-1, text=True) as process:
        assert process.stdout.readline().endswith(" '')\n")
        yield process
        process.kill()


@pytest.mark.processes
def test_a_lock_tells_who_has_it_and_ends_with_its_process(holder, tmp_path):
    held, problem = restart.claim_lock(tmp_path / "lock")
    assert held is None
    assert problem.startswith(f"{tmp_path} is in use by process {holder.pid} on ")
    assert ", job 7, since 20" in problem
    with pytest.raises(ValueError, match=f"in use by process {holder.pid}"):
        restart.acquire_lock(tmp_path / "lock")
    holder.kill()
    holder.wait()
    held = restart.acquire_lock(tmp_path / "lock")
    assert restart.holder_of(tmp_path / "lock")["pid"] == os.getpid()
    restart.release(tmp_path / "lock", held)
    assert not (tmp_path / "lock").exists()


@pytest.mark.processes
def test_a_job_waits_for_its_own_dead_machine(holder, tmp_path, monkeypatch):
    """A file server needs a while to forget it; another job is refused at once."""
    naps = []

    def sleep(seconds):
        naps.append(seconds)
        holder.kill()  # now the server forgets
        holder.wait()

    monkeypatch.setattr(restart.time, "sleep", sleep)
    monkeypatch.setattr(restart.socket, "gethostname", lambda: "another")
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    assert restart.claim_lock(tmp_path / "lock")[0] is None
    assert naps == []
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    held, problem = restart.claim_lock(tmp_path / "lock")
    assert (problem, naps) == ("", [1])
    os.close(held)


def test_a_lock_removed_during_the_wait_is_not_ours(tmp_path, monkeypatch):
    lock, removed = tmp_path / "lock", []

    def lockf(held, _):
        if not removed:  # whoever had it gave it back at this moment
            removed.append(lock.unlink())

    monkeypatch.setattr(restart.fcntl, "lockf", lockf)
    held = restart.open_locked(lock)
    assert os.path.samestat(os.fstat(held), lock.stat())
    os.close(held)


def test_a_file_system_without_locks_gives_a_warning(tmp_path, monkeypatch):
    without = Mock(side_effect=OSError(restart.errno.ENOSYS, "not implemented"))
    monkeypatch.setattr(restart.fcntl, "lockf", without)
    with pytest.warns(UserWarning, match="let no other job use the folder"):
        os.close(restart.open_locked(tmp_path / "lock"))


REFUSED = {
    "another model": (
        {"state": {"w": jnp.zeros((2, 3)), "c": jnp.zeros(3)}},
        r"(?s)another model; .*\['c'\] is missing there and float32\[3\] here\n"
        r".*\['w'\] is float32\[3\] there and float32\[2, 3\] here",
    ),
    "no array": ({"state": {"w": np.zeros(3)}}, r"state\['w'\] is of type ndarray"),
    "empty": ({"state": {}}, "the state has no arrays"),
    "no number": ({"state": {"w": jnp.zeros((0, 3))}}, r"state\['w'\] is empty"),
    "a pattern": ({"folder": "run[1]"}, r"run\[1\] has a \[ in its path"),
    "no folder": ({"folder": "/dev/null/folder"}, "cannot write to /dev/null"),
    "no path": ({"folder": 3}, "folder=3: pass a function and a path"),
    "no step": ({"step": None}, "step=None, folder=.*: pass a function and a path"),
    "half": ({"steps": 2.5}, "steps=2.5: pass an integer of at least 0"),
    "never": ({"every": 0}, "every=0: pass an integer of at least 1"),
    "too far": ({"steps": 1}, "holds 2 steps: pass as many, not 1"),
}


def test_the_words_of_a_key_are_another_model(tmp_path):
    same, key = lambda state, number: state, jax.random.key(0)
    restart.train(same, key, 1, tmp_path)
    with pytest.raises(ValueError, match="is key<fry> there and uint32 here"):
        restart.train(same, jax.random.key_data(key), 2, tmp_path)


@pytest.mark.parametrize(("wrong", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_go_on_is_refused_before_any_step(tmp_path, wrong, words):
    def never(state, number):
        raise AssertionError("a step was made")

    good = {"state": {"w": jnp.zeros(3)}, "steps": 3, "folder": tmp_path, "every": 1}
    good |= {"step": never}
    restart.train(**good | {"steps": 2, "step": lambda state, number: state})
    with pytest.raises(ValueError, match=words):
        restart.train(**good | wrong)
