"""A Slurm for the session, and an empty folder with what a reader copies."""

import os
import shutil
from pathlib import Path

import pytest
from throwaway import Slurm, missing_packages

ROOT = Path(__file__).parents[2]


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
