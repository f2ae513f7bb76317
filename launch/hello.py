# SPDX-License-Identifier: MIT-0
"""Print the processes of a job, and check that all can compute together.

    sbatch one-node.sbatch                      in a job of Slurm
    mpirun -n 4 python hello.py                 under MPI
    python local.py -n 4 --devices 2 hello.py   on this machine

Each process prints one line, and fails if the sum over all devices is wrong, or if
there are GPUs and JAX runs on CPUs or leaves some of them idle.

Copy this file alone: it needs JAX only. Your own script begins in the same way.
"""

import os
import socket
import sys
import zlib

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather

# What tells of GPUs: variables of Slurm, CUDA, ROCm and Kubernetes, drivers of both.
VARIABLES = "SLURM_JOB_GPUS", "SLURM_STEP_GPUS"
VARIABLES += "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"
DRIVERS = "/dev/nvidia0", "/dev/kfd"
NONE = "", "-1", "none", "void", "NoDevFiles"


def gpu_requests(env: dict) -> str:
    """Return what says that this process should have GPUs, or nothing."""
    if "cpu" in env.get("JAX_PLATFORMS", ""):
        return ""
    requests = [name for name in VARIABLES if env.get(name, "") not in NONE]
    requests += filter(os.path.exists, DRIVERS)
    return ", ".join(requests)


def sum_over_devices() -> int:
    """Return the sum of 0, 1, 2, ... with one number on each device of the job."""
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    numbers = np.arange(jax.device_count(), dtype=np.int32)
    sharding = jax.NamedSharding(mesh, jax.P("x"))
    pieces = jax.make_array_from_callback(numbers.shape, sharding, numbers.__getitem__)
    return int(pieces.sum())


def host_device_count() -> int:
    """Return how many devices the processes on this host have together."""
    host = zlib.crc32(socket.gethostname().encode()) % 2**31
    mine = np.array([host, jax.local_device_count()], np.int32)
    hosts = process_allgather(mine).reshape(-1, 2)
    return int(hosts[hosts[:, 0] == host, 1].sum())


def check(platform: str, devices: int, env: dict):
    """Exit with a message unless the GPUs of this host are used, if it has some."""
    asked, gpus = gpu_requests(env), env.get("SLURM_GPUS_ON_NODE", "0")
    host = socket.gethostname()
    if asked and platform == "cpu":
        sys.exit(
            f"there are GPUs on {host} ({asked}), but JAX runs on CPUs: install JAX "
            "for them, such as jax[cuda13], or set JAX_PLATFORMS=cpu if you mean it"
        )
    if platform != "cpu" and devices < int(gpus):
        sys.exit(
            f"{host} gave {gpus} GPUs, and its processes drive {devices}: see "
            "JAX_LOCAL_DEVICE_IDS"
        )


def main():
    """Join the others, name the devices of this process, and add."""
    jax.distributed.initialize()  # before anything else is asked of JAX
    devices, (first, *_) = jax.device_count(), jax.local_devices()
    check(first.platform, host_device_count(), dict(os.environ))
    assert sum_over_devices() == devices * (devices - 1) // 2
    who = f"process {jax.process_index()} of {jax.process_count()}"
    where = f"on {socket.gethostname()}, {first.platform}, {first.device_kind}"
    mine = f"{jax.local_device_count()} of {devices} devices"
    sys.stdout.write(f"{who}: {mine} {where}, and the sum is right\n")  # in one piece


if __name__ == "__main__":
    main()
