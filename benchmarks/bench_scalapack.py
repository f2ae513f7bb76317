# SPDX-License-Identifier: MIT-0
"""Solve in blocks against ScaLAPACK: eight simulated devices against eight processes.

Both solve the same systems in turns, on a grid of 2 x 4: `solve` of this book, and
p?gesv, which eight processes under Open MPI call. While one works the other sleeps.
Beside the wall time stands the processor time of all devices or processes together,
which no load from others changes much.

    apt-get install libscalapack-openmpi-dev libopenblas0-pthread openmpi-bin
    nox -s remeasure -- scalapack

It needs mpi4py too. ScaLAPACK takes the BLAS that Debian's alternatives name; the table
says which. Its blocks have 64 rows and columns.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import jax
import numpy as np
from jax.sharding import AxisType
from scalapack_mpi import X, Y, scaled_residual, system
from timing import DOCS, round_floats, write_rows

from examples.lu import solve

SIZES = 1024, 2048, 4096
RESULTS = DOCS / "algorithms/data/scalapack.csv"
MPI = Path(__file__).with_name("scalapack_mpi.py")
ALLOW = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
MPIRUN = "mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(X * Y)


def time_solve(a, b):
    """Solve on the devices; return seconds and processor seconds."""
    spent, start = time.process_time(), time.perf_counter()
    jax.block_until_ready(solve(a, b))
    return time.perf_counter() - start, time.process_time() - spent


def ask(ranks, *order):
    """Solve in the processes; return their results."""
    ranks.stdin.write(json.dumps(order) + "\n")
    ranks.stdin.flush()
    return json.loads(ranks.stdout.readline())


def run(n, dtype, ranks, rounds):
    """Return the line of the table for one size and one type."""
    a, b = system(n, dtype)
    a, b = jax.device_put(a, jax.P("x", "y")), jax.device_put(b, jax.P())
    x = np.asarray(solve(a, b))  # compile
    *_, fit, blas = ask(ranks, n, dtype)  # warm up
    turns = [(*time_solve(a, b), *ask(ranks, n, dtype)[:2]) for _ in range(rounds)]
    ours, spent, theirs, their_spent = map(median, zip(*turns, strict=True))
    return {
        "n": n,
        "dtype": dtype,
        "times_faster": median(turn[2] / turn[0] for turn in turns),
        "seconds": ours,
        "scalapack_seconds": theirs,
        "processor_seconds": spent,
        "scalapack_processor_seconds": their_spent,
        "residual": scaled_residual(n, dtype, x),
        "scalapack_residual": fit,
        "blas": blas,
    }


def main():
    """Print the table, and write it with the place and the day for the page."""
    jax.config.update("jax_enable_x64", True)
    mesh = jax.make_mesh((X, Y), ("x", "y"), (AxisType.Auto,) * 2)
    start = {"stdin": -1, "stdout": -1, "text": True, "env": os.environ | ALLOW}
    lines = []
    with (
        jax.set_mesh(mesh),
        subprocess.Popen([*MPIRUN, sys.executable, MPI], **start) as ranks,
    ):
        for dtype in "float32", "float64":
            for n in SIZES:
                rounds = 5 if n > 2048 else 9
                lines.append(round_floats(run(n, dtype, ranks, rounds)))
                print(*lines[-1].values(), flush=True)
        ranks.stdin.close()  # no more orders
    write_rows(RESULTS, lines)


if __name__ == "__main__":
    main()
