"""A process dies, the others go on, it comes back, and no step is lost."""

import itertools
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from cases import each_week

ELASTIC = Path(__file__).parents[2] / "launch/elastic.py"
SLOW = 600  # seconds after which a test has failed
PATIENT = {"COLLECTIVE_SECONDS": "25", "HEARTBEAT_SECONDS": "40"}
FILE = runpy.run_path(str(ELASTIC))
LAST, STEPS, ALL, FEWER = FILE["LAST"], FILE["STEPS"], 6, 4

# The file, which tells every step that it makes, and dies where the test says.
SCRIPT = """
import os, sys
from pathlib import Path
import elastic

elastic.__file__ = __file__
elastic.KILLED = int(os.environ["KILLED"])
kill, step_on, late = elastic.kill, elastic.step_on, os.environ["DIES"] == "after"
if late:
    elastic.kill = lambda births, number: None


def print_step(devices, number, w, agreed):
    after, new = step_on(devices, number, w, agreed)
    words = after - 1, len(devices), *(float(number).hex() for number in new)
    print("process", sys.argv[2], "step", *words)
    if late:
        kill(Path(sys.argv[3]), number)
    return after, new


elastic.step_on = print_step
if sys.argv[1:]:
    elastic.join_job(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
else:
    elastic.main()
"""


@pytest.fixture
def start(tmp_path):
    """Start the script; one process is to die before or after its eleventh step."""
    shutil.copy(ELASTIC, tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)

    def start(killed, dies):
        return subprocess.Popen(
            [sys.executable, "script.py"],
            cwd=tmp_path,
            env=os.environ | PATIENT | {"KILLED": str(killed), "DIES": dies},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def outputs(job):
    """Return what the processes printed: it ends when the last of them is gone."""
    try:
        return job.communicate(timeout=SLOW)
    finally:
        job.kill()  # and with it all others


def steps(output, process):
    """Return `{number: (count of devices, weights)}`, the last try of each step."""
    found = re.findall(rf"^process {process} step (\d+) (\d) (.+)$", output, re.M)
    return {
        int(number): (int(count), [float.fromhex(word) for word in words.split()])
        for number, count, words in found
    }


def after(number, w, count):
    """Return the weights after a step on so many devices."""
    key = jax.random.fold_in(jax.random.key(0), number)
    keys = (jax.random.fold_in(key, place) for place in range(count))
    batches = (jax.random.normal(key, (FILE["ROWS"], 3)) for key in keys)
    return w - 0.1 * np.mean([FILE["gradient"](w, x) for x in batches], 0)


@pytest.mark.processes
@pytest.mark.parametrize("dies", ["before", each_week("after")])
def test_the_others_repeat_the_step_and_the_dead_comes_back(start, dies):
    with start(2, dies) as job:
        output, errors = outputs(job)
    assert job.returncode == 0, errors
    first, second, third = (steps(output, process) for process in range(3))
    counts = [first[number][0] for number in range(len(first))]  # none is missing
    assert [n for n, _ in itertools.groupby(counts)] == [ALL, FEWER, ALL]
    assert counts.index(FEWER) == LAST
    assert len(counts) >= STEPS
    assert second == first
    third[LAST] = first[LAST]  # it was repeated without the third
    back = counts.index(ALL, LAST)
    assert sorted(third) == [*range(LAST + 1), *range(back, len(counts))]
    assert third.items() <= first.items()
    w = np.zeros(3, np.float32)
    for number, (count, new) in sorted(first.items()):
        np.testing.assert_allclose(new, after(number, w, count), atol=1e-5)
        w = np.float32(new)
    assert output.count("weights 1.0 -2.0 3.0") == 3


@pytest.mark.processes
def test_the_others_end_with_process_0(start):
    with start(0, "before") as job:
        output, errors = outputs(job)
    assert job.returncode == 1
    assert "the JAX distributed service detected fatal errors" in errors
    assert "weights" not in output
    assert max(steps(output, 1)) == LAST - 1


@pytest.mark.processes
def test_all_end_with_the_command_that_started_them(start):
    with start(2, "before") as job:
        while "step" not in job.stdout.readline():
            assert job.poll() is None
        job.kill()
        output, _ = outputs(job)
    assert "weights" not in output


def test_its_two_times_come_from_the_environment(monkeypatch):
    assert (FILE["COLLECTIVE_SECONDS"], FILE["HEARTBEAT_SECONDS"]) == (5, 8)
    for name, seconds in PATIENT.items():
        monkeypatch.setenv(name, seconds)
        assert runpy.run_path(str(ELASTIC))[name] == int(seconds)
