"""The files of launch/ say what the page says, and are what Slurm and JobSet read."""

import os
import re
import runpy
import subprocess
import sys
from importlib import import_module
from itertools import chain, product
from pathlib import Path

import pytest
import yaml
from transcripts import BINDINGS, read_transcripts

from examples import restart
from examples.guard import ExitCode

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/processes/launching.md").read_text()
GPUS = (ROOT / "docs/processes/gpus.md").read_text()
FILES = sorted(ROOT.glob("launch/*.sbatch"))
each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
SHIPPED = yaml.safe_load_all((ROOT / "launch/jobset.yaml").read_text())
OBJECTS = {each["kind"]: each for each in SHIPPED}
DEVICES = {"process-per-gpu": 1, "restart": 1, "process-per-node": 4, "one-node": 4}


def directives(file):
    found = re.findall(r"^#SBATCH --([\w-]+)=?(\S*)", file.read_text(), re.M)
    assert len(dict(found)) == len(found)
    return dict(found)


@each_file
def test_it_is_short_bound_to_no_site_and_on_the_page(file):
    text = file.read_text()
    assert len(text.splitlines()) <= 25
    assert max(map(len, text.splitlines())) <= 88
    assert not re.search("partition|account|qos|constraint|module load|conda", text)
    assert file.name in PAGE


@each_file
def test_its_processes_gpus_and_cores_fit(file):
    asked, text = directives(file), file.read_text()
    tasks = int(asked["ntasks-per-node"])
    each = int(asked["gres"].removeprefix("gpu:")) // tasks
    assert each == DEVICES[file.stem]
    assert ("export JAX_LOCAL_DEVICE_IDS" in text) == (each > 1)
    assert f"\n# export JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES={each} " in text
    assert int(asked["cpus-per-task"]) * tasks == 16  # of a node of the throwaway Slurm
    export = text.index("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK ")
    assert export < text.index("srun ")
    alone = asked["nodes"] == asked["ntasks-per-node"] == "1"
    assert ("srun --kill-on-bad-exit=1 python" in text) != alone


def test_the_page_shows_every_binding_and_how_to_mend_it():
    assert set(read_transcripts()["bindings"]) == set(BINDINGS)
    for options in BINDINGS:
        last = options.removeprefix("--ntasks-per-node=4 --gres=gpu:4 ")
        assert f"| `{last}` |" in GPUS


def test_a_number_of_devices_follows_from_the_gpus_of_the_node():
    lines = re.findall("export JAX_LOCAL.*", "\n".join(map(Path.read_text, FILES)))
    for line in lines:
        script = f"SLURM_GPUS_ON_NODE=4\n{line}\necho $JAX_LOCAL_DEVICE_IDS"
        assert subprocess.check_output(["bash", "-c", script]) == b"0,1,2,3\n"


@pytest.mark.parametrize("name", ["local", "elastic"])
def test_a_copy_stands_alone(name):
    text = (ROOT / f"launch/{name}.py").read_text()
    assert text.startswith("# SPDX-License-Identifier: MIT-0\n")
    imported = re.findall(r"^(?:import|from) (\w+)", text, re.M)
    assert {*imported} <= sys.stdlib_module_names | {"jax", "numpy"}


# ---------------------------------------------------------------------- the exit codes

SRUN = """#!/bin/bash
codes=($CODES)
count=$(wc -l < started)
echo "$@" >> started
exit "${codes[count]:-0}"
"""
SCONTROL = '#!/bin/bash\necho "$@" >> told\n'
OTHER_FAILED = max(ExitCode.OTHER_FAILED, ExitCode.RAISED)  # as srun sees them
ENDS = {  # codes that srun gives in turn: how often it starts, what follows, the code
    "a bug under a guard": (3 * f"{OTHER_FAILED} ", 3, "", OTHER_FAILED),
    "killed, then good": ("137 0", 2, "", 0),
    "killed, then saved": ("137 75", 2, "requeue 7", 0),
    "saved too often": ("75", 1, "", 75),
}


@pytest.mark.parametrize("end", ENDS)
def test_only_a_save_goes_back_into_the_queue(end, tmp_path):
    codes, starts, words, code = ENDS[end]
    for name, text in ("srun", SRUN), ("scontrol", SCONTROL):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "started").touch()
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CODES": codes, "SLURM_JOB_ID": "7"}
    env |= {"SLURM_RESTART_COUNT": "20"} if "too often" in end else {}
    line = ["bash", ROOT / "launch/restart.sbatch", "train.py", "a b"]
    done = subprocess.run(line, cwd=tmp_path, env=env, check=False)
    started = (tmp_path / "started").read_text().splitlines()
    assert started == ["--kill-on-bad-exit=1 python train.py a b"] * starts
    message = tmp_path / "told"
    assert (message.read_text().strip() if message.exists() else "") == words
    assert done.returncode == code


def test_an_exit_code_means_one_thing_in_every_file():
    local = runpy.run_path(str(ROOT / "launch/local.py"))
    assert ExitCode.SAVED == restart.AGAIN == local["SAVED"] == os.EX_TEMPFAIL == 75
    codes = [0, *sorted(ExitCode)]
    assert re.findall(r"^\| (\d+) \| ", PAGE, re.M) == [str(code) for code in codes]


# ---------------------------------------------------------- what the smoke test refuses


check = runpy.run_path(str(ROOT / "launch/hello.py"))["check"]


def test_cpus_in_place_of_gpus_fail_where_something_asks_for_gpus(monkeypatch):
    monkeypatch.setitem(check.__globals__, "DRIVERS", ())
    asked = {"SLURM_JOB_GPUS": "0"}, {"CUDA_VISIBLE_DEVICES": "3"}
    for env in *asked, {"NVIDIA_VISIBLE_DEVICES": "all", "JAX_PLATFORMS": "cuda"}:
        with pytest.raises(SystemExit, match=r"but JAX runs on CPUs: install JAX for"):
            check("cpu", 1, env)
        check("gpu", 1, env)
    none = {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    for env in none, {"SLURM_JOB_GPUS": "0", "JAX_PLATFORMS": "cpu"}:
        check("cpu", 1, env)
    monkeypatch.setitem(check.__globals__, "DRIVERS", (__file__,))
    with pytest.raises(SystemExit, match="but JAX runs on CPUs"):
        check("cpu", 1, {})


def test_idle_gpus_fail():
    env = {"SLURM_GPUS_ON_NODE": "4"}
    with pytest.raises(SystemExit, match="gave 4 GPUs, and its processes drive 1: see"):
        check("gpu", 1, env)
    check("gpu", 4, env)


# -------------------------------------------------------------------------- Kubernetes


def test_the_published_type_of_a_jobset_takes_it_and_as_many_start_as_must_end():
    models = import_module("kubeflow_trainer_api.models")  # a second: not at collection
    shipped = OBJECTS["JobSet"]
    assert models.JobsetV1alpha2JobSet.from_dict(shipped).to_dict() == shipped
    (group,) = OBJECTS["JobSet"]["spec"]["replicatedJobs"]
    job = group["template"]["spec"]
    assert job["parallelism"] == job["completions"] == 2
    assert job["completionMode"] == "Indexed"  # else JAX has no process id
    assert job["template"]["spec"]["restartPolicy"] == "Never"


def test_jax_may_ask_who_belongs_to_the_job():
    (job,) = OBJECTS["JobSet"]["spec"]["replicatedJobs"]
    account = job["template"]["spec"]["template"]["spec"]["serviceAccountName"]
    for kind in "ServiceAccount", "Role", "RoleBinding":
        assert OBJECTS[kind]["metadata"]["name"] == account
    binding, rules = OBJECTS["RoleBinding"], OBJECTS["Role"]["rules"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    group = "rbac.authorization.k8s.io"
    assert binding["roleRef"] == {"apiGroup": group, "kind": "Role", "name": account}
    allowed = [product(rule["resources"], rule["verbs"]) for rule in rules]
    assert {("pods", "list"), ("jobs", "get")} <= {*chain(*allowed)}
