"""The files of launch/ do what they say, on a real Slurm and under a real MPI."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from conftest import lack
from network_cost import host_command, measure, theory
from throwaway import run
from transcripts import BINDINGS, bindings, read_transcripts

from examples import restart

ROOT = Path(__file__).parents[2]
STEPS = Path(__file__).with_name("steps.py")
HOSTS = ROOT / "tools/hosts.sh"
CPU = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
MPIRUN = "mpirun", "--oversubscribe"
PAGE = (ROOT / "docs/processes/launching.md").read_text()
RESTART = (ROOT / "docs/processes/restart.md").read_text()
JOIN = """
import sys, jax
jax.distributed.initialize(cluster_detection_method="mpi4py")
sys.stdout.write(f"{jax.process_index()} {jax.device_count()}\\n")
"""


def process_lines(text, what=r"process \d.*"):
    """Return the lines that processes wrote, sorted."""
    return sorted(re.findall(rf"^{what}$", text, re.M))


def hello(processes, devices, hosts=None):
    """Return the lines of hello.py, whose processes are on one host or on these."""
    return [
        f"process {i} of {processes}: {devices} of {processes * devices} devices "
        f"on {host}, cpu, cpu, and the sum is right"
        for i, host in enumerate(hosts or [socket.gethostname()] * processes)
    ]


@pytest.fixture
def submit(slurm):
    """Submit a file, wait, and return the job's state and its output."""

    def submit(folder, *words, act=None, timeout=600):
        number = slurm.sbatch(*words, cwd=folder)
        if act:
            act(number)
        state = slurm.wait(number, timeout)
        (output,) = folder.glob(f"*-{number}.out")
        return state, output.read_text()

    return submit


# ------------------------------------------------------------------ the files for Slurm


STARTS = {"one-node": (1, 4), "process-per-node": (2, 4)}
FILES = sorted(file.stem for file in ROOT.glob("launch/*.sbatch"))


@pytest.mark.parametrize("name", FILES)
def test_each_file_for_slurm_starts_its_processes(folder, submit, name):
    state, output = submit(folder(), f"{name}.sbatch")
    assert state == "COMPLETED", output
    assert process_lines(output) == hello(*STARTS.get(name, (8, 1)))


def test_a_newcomer_needs_only_the_page(folder, slurm, submit):
    (script,) = re.findall(r"```python\n(# run\.py\n.*?)```", PAGE, re.S)
    (line,) = re.findall(r"^\$ sbatch (.* run\.py)$", PAGE, re.M)
    home = folder("cg")
    (home / "run.py").write_text(script)
    state, output = submit(home, *line.split())
    assert state == "COMPLETED", output
    assert "on 8 devices" in output
    assert output.count("error below 1e-4: True") == 8


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("", ""),
        ("SLURM_NTASKS=9", "of 9 processes, 8 did not come"),
        ("SLURM_PROCID=$((SLURM_PROCID - SLURM_PROCID / 7))", "6 came 2 times"),
    ],
    ids=["nothing", "count", "id"],
)
def test_the_check_names_a_wrong_start_in_every_process(folder, submit, wrong, words):
    (line,) = re.findall(r"`(srun python preflight\.py)`\s+in place of the last", PAGE)
    home = folder("preflight")
    file = home / "process-per-gpu.sbatch"
    *lines, last = file.read_text().splitlines()
    assert last.startswith("srun ")
    if wrong:
        line = line.replace("srun ", f"srun sh -c '{wrong} ") + "'"
    file.write_text("\n".join([*lines, line, ""]))
    module = (home / "preflight.py").read_text()
    patient = re.sub(r"(?m)^(REMINDER_SECONDS =).*", r"\1 100.0", module)
    (home / "preflight.py").write_text(patient)  # process 0 may start later
    state, output = submit(home, "--time=5", file.name)
    ready = [f"process {number} of 8: ready" for number in range(8)]
    expected = ("FAILED", []) if words else ("COMPLETED", ready)
    assert (state, process_lines(output)) == expected, output
    assert output.count(words) >= 8


# ------------------------------------------------------------------------ starting anew


def comes(what, limit=600):
    """Return the first value of `what()` that is true."""
    limit += time.monotonic()
    while not (value := what()):
        assert time.monotonic() < limit
        time.sleep(0.01)
    return value


def shorten(slurm, home, number):
    """Bring the end of a job near when it counts, and far when it starts again."""
    comes((home / "step").exists)  # by then all listen for signals
    change = "scontrol", "update", f"JobId={number}"
    slurm.run(*change, "TimeLimit=15")
    comes(lambda: slurm.job(number)["Restarts"] == "1")
    slurm.run(*change, "TimeLimit=60")


def test_a_job_near_its_time_limit_saves_and_goes_on(folder, slurm, submit):
    limit, home = ("--time=60", "--signal=TERM@900"), folder()
    words = *limit, "--ntasks-per-node=1", "restart.sbatch", str(STEPS)
    state, output = submit(home, *words, act=partial(shorten, slurm, home))
    assert state == "COMPLETED", output
    assert "attempt" not in output  # it was queued again
    ends = "stops", "went on to the end"
    assert process_lines(output) == [f"process {i} {e}" for i in range(2) for e in ends]


def saved(home):
    """Return the steps after which the training in a folder has saved."""
    names = [path.name for path in home.glob("checkpoints/*")]
    return sorted(int(name) for name in names if name.isdigit())


def bits(home):
    """Return the bits of the state after the last step."""
    with jax.set_mesh(jax.make_mesh((8, 1), ("data", "model"))):
        start = restart.begin()
        state = restart.train(restart.learn, start, 100, home / "checkpoints")
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


def disturb(slurm, home, number):
    """Send a training a signal to stop; when it has started again, kill a process."""
    comes((home / "checkpoints").exists)  # by then all listen for signals
    slurm.run("scancel", "--signal=TERM", number)
    comes(lambda: slurm.job(number)["Restarts"] == "1")
    last = max(saved(home))
    assert 0 < last < 100
    (victim,) = comes(lambda: alive(f"SLURM_JOB_ID={number}", "SLURM_PROCID=5"))
    comes(lambda: max(saved(home)) > last)
    os.kill(victim, signal.SIGKILL)
    (home / "hurry").touch()


def test_a_training_that_is_told_to_stop_and_killed_ends_with_the_same_bits(
    folder, slurm, submit, tmp_path
):
    (line,) = re.findall(r"^\$ sbatch (restart.*)$", RESTART, re.M)
    alone, disturbed = (
        folder("restart", to=tmp_path / name) for name in ("alone", "disturbed")
    )
    module, step = disturbed / "restart.py", "state = step(state, number - 1)"
    slow = f'{step}; Path("hurry").exists() or time.sleep(0.2)'
    assert step in module.read_text()
    module.write_text(module.read_text().replace(step, slow))
    state, expected = submit(alone, *line.split())
    assert state == "COMPLETED", expected
    act = partial(disturb, slurm, disturbed)
    state, output = submit(disturbed, *line.split(), act=act)
    assert state == "COMPLETED", output
    attempts = re.findall(r"attempt.*", output)
    assert attempts == ["attempt 1 failed with code 137"], output
    (loss,) = process_lines(expected, "loss after 100 steps: .*")
    assert process_lines(output, "loss after .*") == [loss]
    assert bits(disturbed) == bits(alone)


# ----------------------------------------------------------------------- who sees which


@pytest.mark.parametrize("options", BINDINGS)
def test_slurm_hands_out_gpus_as_the_page_says(slurm, options):
    assert bindings(slurm, options) == read_transcripts()["bindings"][options]


# ---------------------------------------------------------------------- other launchers


def test_the_same_script_runs_under_mpi(need, folder):
    need("mpirun")
    env = os.environ | CPU | MPI
    done = run(*MPIRUN, "-n", "2", sys.executable, "hello.py", cwd=folder(), env=env)
    assert process_lines(done.stdout) == hello(2, 2)


def test_mpi4py_tells_jax_what_it_knows(need):
    need("mpirun")
    line = *MPIRUN, "-n", "2", sys.executable, "-c", JOIN
    done = run(*line, env=os.environ | CPU | MPI)
    assert process_lines(done.stdout, r"\d \d") == ["0 4", "1 4"]


def test_mpi_starts_processes_on_other_hosts(need, folder):
    need("mpirun", "ip")
    env = os.environ | CPU | MPI
    if run(*host_command(), "true", check=False, env=env).returncode:
        lack("this machine allows no network namespaces")
    line = *MPIRUN, "-H", "host0,host1", "--mca", "plm_rsh_agent", f"{HOSTS} on"
    names = "-x", "JAX_PLATFORMS", "-x", "JAX_NUM_CPU_DEVICES"
    words = *host_command(), *line, *names, sys.executable, "hello.py"
    done = run(*words, cwd=folder(), env=env)
    assert process_lines(done.stdout) == hello(2, 2, ["host0", "host1"])


@pytest.mark.weekly
def test_what_leaves_a_host_are_the_bytes_of_the_page(need):
    need("ip")
    env = os.environ | {"RATE": "300mbit"}
    if run(*host_command(), "true", check=False, env=env).returncode:
        lack("this machine allows no network namespaces with a limit")
    cases = [
        (name, order, 2**18)
        for name in ("flat", "by hosts", "transpose y")
        for order in ("rows", "mixed")
    ]
    for case, (milliseconds, *left) in zip(
        cases, measure(cases, "300mbit", 3), strict=True
    ):
        wanted = theory(*case)
        assert all(wanted <= sent < 1.06 * wanted + 8192 for sent in left), case
        assert milliseconds > 8e3 * (wanted - 2**15) / 3e8


# --------------------------------------------------------------------- nothing is left


def alive(*needed):
    """Return the processes whose environment or command line names these words."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = b"".join((folder / n).read_bytes() for n in ("environ", "cmdline"))
        except OSError:
            continue
        if all(word.encode() in words for word in needed):
            found.append(int(folder.name))
    return found


def test_a_run_that_is_killed_leaves_nothing(need):
    need("slurmctld", "slurmd", "srun", "sbatch")
    script = """
from throwaway import Slurm
with Slurm() as slurm:
    slurm.sbatch("--wrap", "srun sleep 1000", "--output=/dev/null")
    while not slurm.run("squeue", "-hs").stdout.count("sleep"): pass
    print(slurm.folder, flush=True)
    slurm.run("sleep", "1000")
"""
    line = sys.executable, "-c", script
    with subprocess.Popen(line, cwd=ROOT, stdout=-1, stderr=-1, text=True) as runs:
        home = runs.stdout.readline().strip()
        assert len(alive(home)) > 5
        runs.kill()
        runs.wait(300)
    limit = time.monotonic() + 300
    while (left := alive(home)) or Path(home).exists():
        assert time.monotonic() < limit, left
        time.sleep(0.1)
