"""The files of launch/ do what they say, on a real Slurm and under a real MPI."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import jax
import numpy as np
import psutil
import pytest
from network_cost import host_command, measure, theory
from throwaway import Slurm, missing_packages, run
from transcripts import BINDINGS, bindings, read_transcripts

from examples import restart

ROOT = Path(__file__).parents[2]
CPU = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
MPIRUN = "mpirun", "--oversubscribe"
PAGE = (ROOT / "docs/processes/launching.md").read_text()
RESTART = (ROOT / "docs/processes/restart.md").read_text()
JOIN = """
import sys, jax
jax.distributed.initialize(cluster_detection_method="mpi4py")
sys.stdout.write(f"process {jax.process_index()} of {jax.device_count()} devices\\n")
"""


def lack(words):
    """Skip for what this machine lacks; in CI, fail."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(words)


def need(*programs):
    """Skip without these programs, and print what to install; fail in CI."""
    if command := missing_packages(*programs):
        lack(command)


@pytest.fixture(scope="session")
def slurm():
    need("slurmctld", "slurmd", "srun", "sbatch")
    proxies = {name for name in os.environ if name.lower().endswith("_proxy")}
    for name in proxies | {"JAX_NUM_CPU_DEVICES", "JAX_PLATFORMS"}:
        os.environ.pop(name, None)  # the files say what they need
    with Slurm() as slurm:
        yield slurm


@pytest.fixture
def folder(tmp_path):
    """Copy launch/ and modules into an empty folder; GPUs become simulated devices."""

    def copy(*modules, name=""):
        to = shutil.copytree(ROOT / "launch", tmp_path / name, dirs_exist_ok=True)
        for module in modules:
            shutil.copy(ROOT / "src/examples" / f"{module}.py", to)
        for file in to.glob("*.sbatch"):
            text = file.read_text()
            assert "# export JAX_PLATFORMS" in text
            file.write_text(text.replace("# export JAX_PL", "export JAX_PL"))
        return to

    return copy


def process_lines(text):
    """Return the lines that processes wrote, sorted."""
    return sorted(re.findall(r"^process \d.*$", text, re.M))


def hello(processes, devices, hosts=None):
    """Return the lines of hello.py, whose processes are on one host or on these."""
    return [
        f"process {i} of {processes}: {devices} of {processes * devices} devices "
        f"on {host}, cpu, cpu, and the sum is right"
        for i, host in enumerate(hosts or [socket.gethostname()] * processes)
    ]


def wait_for(what):
    """Return the first value of `what()` that is true; a test has a limit itself."""
    while not (value := what()):
        time.sleep(0.01)
    return value


def find_processes(*words):
    """Return the processes whose environment and command line have these words."""
    every = psutil.process_iter(["environ", "cmdline"])
    return [p for p in every if all(word in str(p.info) for word in words)]


@pytest.fixture
def submit(slurm):
    """Submit a file, wait until its job is completed, and return the output."""

    def submit(folder, *words, act=None):
        number = slurm.sbatch(*words, cwd=folder)
        if act:
            act(slurm, folder, number)
        state = slurm.wait(number)
        (file,) = folder.glob(f"*-{number}.out")
        assert state == "COMPLETED", file.read_text()
        return file.read_text()

    return submit


# ------------------------------------------------------------------ the files for Slurm


STARTS = {"one-node": (1, 4), "process-per-node": (2, 4)}
FILES = sorted(file.stem for file in ROOT.glob("launch/*.sbatch"))


@pytest.mark.parametrize("name", FILES)
def test_each_file_for_slurm_starts_its_processes(folder, submit, name):
    lines = process_lines(submit(folder(), f"{name}.sbatch"))
    assert lines == hello(*STARTS.get(name, (8, 1)))


def test_a_newcomer_needs_only_the_page(folder, submit):
    (script,) = re.findall(r"```python\n(# run\.py\n.*?)```", PAGE, re.S)
    (line,) = re.findall(r"^\$ sbatch (.* run\.py)$", PAGE, re.M)
    home = folder("cg")
    (home / "run.py").write_text(script)
    output = submit(home, *line.split())
    assert "on 8 devices" in output
    assert output.count("error below 1e-4: True") == 8


def test_the_check_runs_in_place_of_the_last_line(folder, submit):
    (line,) = re.findall(r"`(srun python preflight\.py)`\s+in place of the last", PAGE)
    home = folder("preflight")
    file, module = home / "process-per-gpu.sbatch", home / "preflight.py"
    *lines, last = file.read_text().splitlines()
    assert last.startswith("srun ")
    file.write_text("\n".join([*lines, line, ""]))
    text = module.read_text()  # process 0 may start later
    module.write_text(re.sub(r"(?m)^(REMINDER_SECONDS =).*", r"\1 100.0", text))
    output = submit(home, "--time=5", file.name)
    assert process_lines(output) == [f"process {n} of 8: ready" for n in range(8)]


# ------------------------------------------------------------------------ starting anew


def saves(home):
    """Return the steps after which the training in a folder has saved."""
    names = (path.name for path in home.glob("checkpoints/*"))
    return [int(name) for name in names if name.isdigit()]


def state_bytes(home):
    """Return the bytes of the state after the last step."""
    with jax.set_mesh(jax.make_mesh((8, 1), ("data", "model"))):
        start = restart.begin()
        state = restart.train(restart.learn, start, 100, home / "checkpoints")
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


def disturb(slurm, home, number):
    """Bring the end of a training near; when it has started again, kill a process."""
    change = "scontrol", "update", f"JobId={number}"
    wait_for((home / "checkpoints").exists)  # by then all listen for signals
    slurm.run(*change, "TimeLimit=15")
    wait_for(lambda: slurm.job(number)["Restarts"] == "1")
    slurm.run(*change, "TimeLimit=60")
    last = max(saves(home))
    assert 0 < last < 100
    words = f"'SLURM_JOB_ID': '{number}'", "'SLURM_PROCID': '5'"
    (victim,) = wait_for(lambda: find_processes(*words))
    wait_for(lambda: max(saves(home)) > last)
    victim.kill()
    (home / "hurry").touch()


def test_stopped_and_killed_training_ends_with_the_same_bits(folder, submit):
    (line,) = re.findall(r"^\$ sbatch (restart.*)$", RESTART, re.M)
    alone, disturbed = folder("restart", name="alone"), folder("restart", name="other")
    module, step = disturbed / "restart.py", "state = step(state, number - 1)"
    slow = f'{step}; Path("hurry").exists() or time.sleep(1)'
    assert step in module.read_text()
    module.write_text(module.read_text().replace(step, slow))
    submit(alone, *line.split())
    limit = "--time=60", "--signal=TERM@900"
    output = submit(disturbed, *limit, *line.split(), act=disturb)
    attempts = re.findall(r"attempt.*", output)
    assert attempts == ["attempt 1 failed with code 137"], output
    assert state_bytes(disturbed) == state_bytes(alone)


# ----------------------------------------------------------------------- who sees which


@pytest.mark.parametrize("options", BINDINGS)
def test_slurm_hands_out_gpus_as_the_page_says(slurm, options):
    assert bindings(slurm, options) == read_transcripts()["bindings"][options]


# ---------------------------------------------------------------------- other launchers


def run_cpus(*command, **options):
    """Run a command on simulated devices, and return what its processes wrote."""
    return process_lines(run(*command, env=os.environ | CPU | MPI, **options).stdout)


def need_hosts(**env):
    """Skip where no network namespaces can stand for hosts; in CI, fail."""
    need("ip")
    if run(*host_command(), "true", check=False, env=os.environ | env).returncode:
        lack("this machine allows no network namespaces, or sets them no limit")


def test_the_same_script_runs_under_mpi(folder):
    need("mpirun")
    line = *MPIRUN, "-n", "2", sys.executable
    assert run_cpus(*line, "hello.py", cwd=folder()) == hello(2, 2)
    found = run_cpus(*line, "-c", JOIN)  # mpi4py tells JAX what it knows
    assert found == ["process 0 of 4 devices", "process 1 of 4 devices"]


def test_mpi_starts_processes_on_other_hosts(folder):
    need("mpirun")
    need_hosts()
    agent = "--mca", "plm_rsh_agent", f"{ROOT / 'tools/hosts.sh'} on"
    line = *host_command(), *MPIRUN, "-H", "host0,host1", *agent
    names = "-x", "JAX_PLATFORMS", "-x", "JAX_NUM_CPU_DEVICES"
    found = run_cpus(*line, *names, sys.executable, "hello.py", cwd=folder())
    assert found == hello(2, 2, ["host0", "host1"])


@pytest.mark.weekly
def test_what_leaves_a_host_are_the_bytes_of_the_page():
    need_hosts(RATE="300mbit")
    programs = "flat", "by hosts", "transpose y"
    cases = [*product(programs, ("rows", "mixed"), [2**18])]
    rows = measure(cases, "300mbit", 3)
    for case, (milliseconds, *left) in zip(cases, rows, strict=True):
        expected = theory(*case)
        assert all(expected <= sent < 1.06 * expected + 8192 for sent in left), case
        assert milliseconds > 8e3 * (expected - 2**15) / 3e8


# --------------------------------------------------------------------- nothing is left


def test_a_run_that_is_killed_leaves_nothing(tmp_path):
    script = """
from throwaway import start_guarded
start_guarded("sh", "-c", "setsid sleep 1e5 & sleep 2e5", folder="{}")
print(input())
"""
    home = tmp_path / "of-the-run"
    home.mkdir()
    line = sys.executable, "-c", script.format(home)
    with subprocess.Popen(line, stdin=-1, env=os.environ | {"RUN": str(home)}) as runs:
        wait_for(lambda: len(find_processes(str(home), "['sleep'")) == 2)
        runs.kill()
    wait_for(lambda: not find_processes(str(home)) and not home.exists())
