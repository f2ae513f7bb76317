# SPDX-License-Identifier: MIT-0
"""Say who takes part in a job, and check that all can compute together.

    sbatch one-node.sbatch                      in a job of Slurm
    mpirun -n 4 python hello.py                 under MPI
    python local.py -n 4 --devices 2 hello.py   on this machine

Each process prints one line, and fails if the sum over all devices is wrong. Copy this
file alone: it needs JAX only. Your own script begins in the same way.
"""

import sys

import jax
import numpy as np


def total() -> int:
    """Return the sum of 0, 1, 2, ... with one number on each device of the job."""
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    numbers = np.arange(jax.device_count(), dtype=np.int32)
    sharding = jax.NamedSharding(mesh, jax.P("x"))
    pieces = jax.make_array_from_callback(numbers.shape, sharding, numbers.__getitem__)
    return int(pieces.sum())


def main():
    """Join the others, name the devices of this process, and add."""
    jax.distributed.initialize()  # before anything else is asked of JAX
    devices = jax.device_count()
    assert total() == devices * (devices - 1) // 2
    who = f"process {jax.process_index()} of {jax.process_count()}"
    mine = f"{jax.local_device_count()} of {devices} devices"
    sys.stdout.write(f"{who}: {mine}, and the sum is right\n")  # in one piece


if __name__ == "__main__":
    main()
