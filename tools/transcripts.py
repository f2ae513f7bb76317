"""Remake the transcripts that docs/processes/launching.md keeps.

    python tools/transcripts.py docs/processes/data/launching.json

A throwaway Slurm runs what the page shows, and hands out GPUs that are not there.
"""

import datetime
import json
import re
import shutil
import socket
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from throwaway import Slurm, run

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs/processes/data/launching.json"
BINDINGS = (
    "--ntasks-per-node=4 --gres=gpu:4",
    "--ntasks-per-node=4 --gpus-per-task=1",
    "--ntasks-per-node=4 --gres=gpu:4 --gpu-bind=single:1",
    "--ntasks-per-node=1 --gres=gpu:4",
    "--ntasks-per-node=1 --gpus-per-task=4",
    "--ntasks-per-node=4 --gpus-per-node=4",
)
VARIABLES = (
    "SLURM_JOB_ID",
    "SLURM_STEP_NODELIST",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
)
SHOW = "echo $SLURM_PROCID $SLURM_LOCALID $CUDA_VISIBLE_DEVICES"


def read_transcripts() -> dict:
    """Return the stored transcripts."""
    return json.loads(DATA.read_text())


def bindings(slurm: Slurm, options: str) -> list[list[str]]:
    """Return SLURM_LOCALID and CUDA_VISIBLE_DEVICES of each process of one node."""
    done = slurm.run("srun", "-N1", *options.split(), "sh", "-c", SHOW)
    return [line.split()[1:] for line in sorted(done.stdout.splitlines())]


def submit_file(slurm: Slurm, file: str) -> list[str]:
    """Submit a file of launch/ on simulated GPUs; return what its processes wrote."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "launch/hello.py", folder)
        text = (ROOT / "launch" / file).read_text()
        (folder / file).write_text(text.replace("# export JAX_PL", "export JAX_PL"))
        number = slurm.sbatch(file, cwd=folder)
        state = slurm.wait(number, 600)
        (output,) = folder.glob("*.out")
        text = output.read_text()
    assert state == "COMPLETED", text
    text = text.replace(f" on {socket.gethostname()},", " on node,")  # both nodes
    return re.findall(r"^process .*", text, re.M)  # in the order in which they came


def variables(slurm: Slurm) -> list[dict[str, str]]:
    """Return what JAX reads, in each of four processes on two nodes."""
    show = "echo " + " ".join(f"${name}" for name in VARIABLES)
    done = slurm.run("srun", "-N2", "--ntasks-per-node=2", "sh", "-c", show)
    steps = (line.split() for line in done.stdout.splitlines())
    found = [dict(zip(VARIABLES, values, strict=True)) for values in steps]
    return sorted(found, key=lambda each: each["SLURM_PROCID"])


def main(path: str):
    """Run everything, and write it with versions and date."""
    with Slurm() as slurm:
        data = {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "versions": {
                "Slurm": slurm.run("sinfo", "--version").stdout.split()[1],
                "Open MPI": run("mpirun", "--version").stdout.split()[3],
                "JAX": version("jax"),
            },
            "variables": variables(slurm),
            "bindings": {options: bindings(slurm, options) for options in BINDINGS},
            "transcripts": {
                file.name: submit_file(slurm, file.name)
                for file in sorted(ROOT.glob("launch/*.sbatch"))
            },
        }
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
