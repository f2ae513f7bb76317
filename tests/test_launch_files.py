"""The files of launch/ say what the page says, and are what Slurm and JobSet read."""

import json
import os
import re
import runpy
import subprocess
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from throwaway import PROGRAMS, missing_packages
from transcripts import BINDINGS, VARIABLES, read_transcripts

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
def test_bash_can_read_it(file):
    subprocess.run(["bash", "-n", file], check=True)


@each_file
def test_it_is_short_and_bound_to_no_site(file):
    lines = file.read_text().splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 88
    words = "partition", "account", "qos", "constraint", "module load", "conda"
    assert not any(word in file.read_text() for word in words)


@each_file
def test_its_processes_and_gpus_fit(file):
    asked = directives(file)
    each = int(asked["gres"].removeprefix("gpu:")) // int(asked["ntasks-per-node"])
    assert each == DEVICES[file.stem]
    several = "export JAX_LOCAL_DEVICE_IDS" in file.read_text()
    assert several == (each > 1)


@each_file
def test_one_line_stands_in_for_the_gpus(file):
    stand_in = f"# export JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES={DEVICES[file.stem]} "
    assert sum(line.startswith(stand_in) for line in file.read_text().splitlines()) == 1


@each_file
def test_a_failure_ends_the_other_processes(file):
    alone = directives(file)["nodes"] == directives(file)["ntasks-per-node"] == "1"
    assert ("srun --kill-on-bad-exit=1 python" in file.read_text()) != alone


@each_file
def test_the_page_names_it(file):
    assert file.name in PAGE
    assert read_transcripts()["transcripts"][file.name]


def test_a_number_of_devices_follows_from_the_gpus_of_the_node():
    script = "SLURM_GPUS_ON_NODE=4"
    for file in FILES:
        script += "\n" + "".join(
            re.findall("^export JAX_LOCAL.*", file.read_text(), re.M)
        )
    script += "\necho $JAX_LOCAL_DEVICE_IDS"
    done = subprocess.run(["bash", "-c", script], stdout=-1, text=True, check=True)
    assert done.stdout == "0,1,2,3\n"


@each_file
def test_each_process_gets_cores_and_srun_is_told_of_them(file):
    asked, text = directives(file), file.read_text()
    cores = int(asked["cpus-per-task"]) * int(asked["ntasks-per-node"])
    assert cores == 16  # of each node of the throwaway Slurm
    export = text.index("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK ")
    assert export < text.index("srun ")


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
    "good": ("0", 1, "", 0),
    "a bug": ("1 1 1", 3, "", 1),
    "a bug under a guard": (3 * f"{OTHER_FAILED} ", 3, "", OTHER_FAILED),
    "a stall": (3 * f"{ExitCode.STALLED} ", 3, "", ExitCode.STALLED),
    "killed, then good": ("137 0", 2, "", 0),
    "saved": ("75", 1, "requeue 7", 0),
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
    steps = (ROOT / "tests/cluster/steps.py").read_text()
    assert f"sys.exit({ExitCode.SAVED})" in steps
    codes = [0, *sorted(ExitCode)]
    assert len({*codes}) == 5
    assert re.findall(r"^\| (\d+) \| ", PAGE, re.M) == [str(code) for code in codes]


# ---------------------------------------------------------- what the smoke test refuses


@pytest.fixture(scope="module")
def hello():
    return runpy.run_path(str(ROOT / "launch/hello.py"))


ASKED = {
    "Slurm": {"SLURM_JOB_GPUS": "0"},
    "a step": {"SLURM_STEP_GPUS": "0,1"},
    "CUDA": {"CUDA_VISIBLE_DEVICES": "3"},
    "ROCm": {"ROCR_VISIBLE_DEVICES": "0"},
    "Kubernetes": {"NVIDIA_VISIBLE_DEVICES": "all"},
    "other platforms": {"CUDA_VISIBLE_DEVICES": "0", "JAX_PLATFORMS": "cuda"},
}
NOT_ASKED = {
    "nothing": {},
    "CPUs": {"SLURM_JOB_GPUS": "0", "JAX_PLATFORMS": "cpu"},
    "none": {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"},
    "minus one": {"CUDA_VISIBLE_DEVICES": "-1"},
}


@pytest.mark.parametrize("env", ASKED.values(), ids=ASKED)
def test_cpus_in_place_of_gpus_fail(hello, env):
    with pytest.raises(SystemExit, match=r"but JAX runs on CPUs: install JAX for them"):
        hello["check"]("cpu", 1, env)
    hello["check"]("gpu", 1, env)


@pytest.mark.parametrize("env", NOT_ASKED.values(), ids=NOT_ASKED)
def test_cpus_are_right_where_nobody_asked_for_gpus(hello, env, monkeypatch):
    monkeypatch.setitem(hello["check"].__globals__, "DRIVERS", ())
    hello["check"]("cpu", 1, env)


def test_a_driver_asks_for_gpus_too(hello, monkeypatch):
    monkeypatch.setitem(hello["check"].__globals__, "DRIVERS", (__file__,))
    with pytest.raises(SystemExit, match="but JAX runs on CPUs"):
        hello["check"]("cpu", 1, {})


def test_idle_gpus_fail(hello):
    env = {"SLURM_GPUS_ON_NODE": "4"}
    with pytest.raises(SystemExit, match="gave 4 GPUs, and its processes drive 1: see"):
        hello["check"]("gpu", 1, env)
    hello["check"]("gpu", 4, env)
    hello["check"]("cpu", 1, env)


# ------------------------------------------------------------------------ what is kept


def test_the_transcripts_have_versions():
    data = read_transcripts()
    assert set(data["versions"]) == {"Slurm", "Open MPI", "JAX"}
    assert all(re.match(r"\d+\.\d+", version) for version in data["versions"].values())


@each_file
def test_the_processes_of_a_transcript_are_those_of_its_file(file):
    asked = directives(file)
    count = int(asked["nodes"]) * int(asked["ntasks-per-node"])
    each = DEVICES[file.stem]
    words = f"of {count}: {each} of {count * each} devices on node, cpu, cpu, and"
    words += " the sum is right"
    expected = [f"process {number} {words}" for number in range(count)]
    assert sorted(read_transcripts()["transcripts"][file.name]) == expected


def test_the_variables_are_those_that_jax_reads():
    assert all(tuple(each) == VARIABLES for each in read_transcripts()["variables"])


def test_the_page_shows_every_binding_and_how_to_mend_it():
    assert set(read_transcripts()["bindings"]) == set(BINDINGS)
    for options in BINDINGS:
        last = options.removeprefix("--ntasks-per-node=4 --gres=gpu:4 ")
        assert f"| `{last}` |" in GPUS


# -------------------------------------------------------------------------- Kubernetes


TYPES = {
    "JobSet": "JobsetV1alpha2JobSet",
    "ServiceAccount": "IoK8sApiCoreV1ServiceAccount",
}


def is_valid(thing):
    """Whether the published type takes all of it; the unknown is lost."""
    models = import_module("kubeflow_trainer_api.models")  # a second: not at collection
    return getattr(models, TYPES[thing["kind"]]).from_dict(thing).to_dict() == thing


@pytest.mark.parametrize("kind", TYPES)
def test_an_object_is_of_its_published_type(kind):
    assert is_valid(OBJECTS[kind])


@pytest.mark.parametrize("wrong", ["replicatedjobs", "replicas"])
def test_a_misspelt_jobset_is_not(wrong):
    jobset = json.loads(json.dumps(OBJECTS["JobSet"]))
    jobset["spec"][wrong] = []
    assert not is_valid(jobset)


def test_the_jobset_starts_as_many_processes_as_must_end():
    (group,) = OBJECTS["JobSet"]["spec"]["replicatedJobs"]
    job = group["template"]["spec"]
    assert job["parallelism"] == job["completions"] == 2
    assert job["completionMode"] == "Indexed"  # else JAX has no process id
    assert job["template"]["spec"]["restartPolicy"] == "Never"


def test_the_binding_gives_the_role_to_the_account():
    """No package here has their types, so their fields are those of the reference."""
    group = "rbac.authorization.k8s.io"
    names = {kind: thing["metadata"]["name"] for kind, thing in OBJECTS.items()}
    head = {"apiVersion", "kind", "metadata"}
    role, binding = OBJECTS["Role"], OBJECTS["RoleBinding"]
    assert role.keys() == head | {"rules"}
    assert binding.keys() == head | {"subjects", "roleRef"}
    assert role["apiVersion"] == binding["apiVersion"] == f"{group}/v1"
    for rule in role["rules"]:
        assert rule.keys() == {"apiGroups", "resources", "verbs"}
    bound = {"apiGroup": group, "kind": "Role", "name": names["Role"]}
    assert binding["roleRef"] == bound
    account = {"kind": "ServiceAccount", "name": names["ServiceAccount"]}
    assert binding["subjects"] == [account]


def test_jax_may_ask_who_belongs_to_the_job():
    names = {OBJECTS[kind]["metadata"]["name"] for kind in ("ServiceAccount", "Role")}
    (group,) = OBJECTS["JobSet"]["spec"]["replicatedJobs"]
    pod = group["template"]["spec"]["template"]["spec"]
    assert names == {pod["serviceAccountName"]}
    allowed = {
        (resource, verb)
        for rule in OBJECTS["Role"]["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {("pods", "list"), ("jobs", "get")} <= allowed


# --------------------------------------------------------------------- missing programs


def test_a_missing_program_is_named_with_its_package(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert missing_packages("srun", "slurmd") == "apt-get install slurm-wlm"
    everything = "apt-get install iproute2 openmpi-bin slurm-wlm"
    assert missing_packages(*PROGRAMS) == everything


def test_ci_installs_every_program():
    ci = (ROOT / ".ci/run").read_text()
    assert all(package in ci for package in PROGRAMS.values())
    places = "export CI=1", "tools/gate.py"
    assert sorted(places, key=ci.index) == [*places]
