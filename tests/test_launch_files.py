"""The files of launch/ say what the page says, and are what Slurm and JobSet read."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from kubeflow_trainer_api.models import (
    IoK8sApiCoreV1ServiceAccount,
    JobsetV1alpha2JobSet,
)
from throwaway import PROGRAMS, missing
from transcripts import BINDINGS, VARIABLES, kept

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/processes/launching.md").read_text()
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
    assert kept()["transcripts"][file.name]


def test_a_number_of_devices_follows_from_the_gpus_of_the_node():
    script = "SLURM_GPUS_ON_NODE=4"
    for file in FILES:
        script += "\n" + "".join(
            re.findall("^export JAX_LOCAL.*", file.read_text(), re.M)
        )
    script += "\necho $JAX_LOCAL_DEVICE_IDS"
    done = subprocess.run(["bash", "-c", script], stdout=-1, text=True, check=True)
    assert done.stdout == "0,1,2,3\n"


# ------------------------------------------------------------------------ what is kept


def test_the_transcripts_have_versions_and_a_date():
    data = kept()
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", data["date"])
    assert set(data["versions"]) == {"Slurm", "Open MPI", "JAX"}
    assert all(re.match(r"\d+\.\d+", version) for version in data["versions"].values())


@each_file
def test_the_processes_of_a_transcript_are_those_of_its_file(file):
    asked = directives(file)
    count = int(asked["nodes"]) * int(asked["ntasks-per-node"])
    each = DEVICES[file.stem]
    words = f"of {count}: {each} of {count * each} devices, and the sum is right"
    expected = [f"process {number} {words}" for number in range(count)]
    assert sorted(kept()["transcripts"][file.name]) == expected


def test_the_variables_are_those_that_jax_reads():
    assert all(tuple(each) == VARIABLES for each in kept()["variables"])


def test_the_page_shows_every_binding_and_how_to_mend_it():
    assert set(kept()["bindings"]) == set(BINDINGS)
    for options in BINDINGS:
        last = options.removeprefix("--ntasks-per-node=4 --gres=gpu:4 ")
        assert f"| `{last}` |" in PAGE


# -------------------------------------------------------------------------- Kubernetes


TYPES = {
    "JobSet": JobsetV1alpha2JobSet,
    "ServiceAccount": IoK8sApiCoreV1ServiceAccount,
}


def valid(thing):
    """Whether the published type takes all of it; the unknown is lost."""
    return TYPES[thing["kind"]].from_dict(thing).to_dict() == thing


@pytest.mark.parametrize("kind", TYPES)
def test_an_object_is_of_its_published_type(kind):
    assert valid(OBJECTS[kind])


@pytest.mark.parametrize("wrong", ["replicatedjobs", "replicas"])
def test_a_misspelt_jobset_is_not(wrong):
    jobset = json.loads(json.dumps(OBJECTS["JobSet"]))
    jobset["spec"][wrong] = []
    assert not valid(jobset)


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
    assert missing("srun", "slurmd") == "apt-get install slurm-wlm"
    everything = "apt-get install iproute2 openmpi-bin slurm-wlm"
    assert missing(*PROGRAMS) == everything


def test_ci_installs_every_program():
    ci = (ROOT / ".ci/run").read_text()
    assert all(package in ci for package in PROGRAMS.values())
    assert "CI=1 .venv/bin/nox -s cluster" in ci
