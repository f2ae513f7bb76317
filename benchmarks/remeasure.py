"""Measure tables beside pages again: `nox -s remeasure -- [NAME ...] [-- WORD ...]`.

Words go to each measurement. A program that fails leaves the rows that it did not
measure, and the others go on. New values beside old ones:

    git diff --word-diff-regex='[^,]+' docs
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from book.facts import facts, locked_version

ROOT = Path(__file__).resolve().parents[1]

COMPILERS = f"uv run --quiet --no-project --with=libtpu=={facts().libtpu}"
for package in "jax-cuda13-plugin", "jax-cuda13-pjrt":
    COMPILERS += f" --with={package}=={locked_version('jaxlib')}"
COMMANDS = {
    "atlas": f"{COMPILERS} python tools/survey.py docs/reference/data",
    "collectives": "python benchmarks/bench_collectives.py",
    "compilers": f"{COMPILERS} python benchmarks/compilers.py docs/global-view/data",
    "eigh": "python benchmarks/bench_eigh.py",
    "factorisations": "python benchmarks/bench_factorisations.py",
    "failures": "python tools/failures.py docs/processes/data",
    "fft": "python benchmarks/bench_fft.py",
    "load": "python benchmarks/bench_load.py docs/processes/data",
    "lu": "python benchmarks/bench_lu.py",
    "matmul": "python benchmarks/bench_matmul.py",
    "network": "python benchmarks/network_cost.py docs/processes/data",
    "pods": f"{COMPILERS} python tools/pods.py docs/algorithms/data",
    "programs": f"{COMPILERS} python benchmarks/programs.py",
    "scalapack": "python benchmarks/bench_scalapack.py",
    "sends": f"{COMPILERS} python benchmarks/sends.py",
    "specs": "python benchmarks/specs.py",
    "start": "python benchmarks/bench_processes.py",
    "transcripts": "python tools/transcripts.py docs/processes/data/launching.json",
}
CPU = {
    "JAX_NUM_CPU_DEVICES": "8",
    "JAX_PLATFORMS": "cpu",
    "OPENBLAS_NUM_THREADS": "1",  # else LAPACK's threads fight with the devices
    "PYTHONPATH": str(ROOT / "src"),
}


def main(*arguments: str) -> str:
    """Run the measurements of these names, or all; return what failed, or nothing."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    failed = []
    for name in arguments[:end] or COMMANDS:
        print(f"== {name}", flush=True)
        command = [*shlex.split(COMMANDS[name]), *arguments[end + 1 :]]
        if subprocess.call(command, cwd=ROOT, env=os.environ | CPU):
            failed.append(name)
    return f"failed: {', '.join(failed)}" if failed else ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) or 0)
