# SPDX-License-Identifier: MIT-0
"""Scatter a file from one process with MPI, for files that only that process can see.

`scatterv` sends each process its block out of the memory map, row after row, without
pickle and without a copy in the root.

    mpirun -n 4 python load_mpi.py
"""

import math
import tempfile
from pathlib import Path

import jax
import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib

from examples.agreement import assert_replicated
from examples.load import check_pieces, slices_by_device


def blocks(shape, sharding):
    """Return what each process needs, as `((start, stop), ...)`: one block each."""
    needed = [[] for _ in range(jax.process_count())]
    for bounds, devices in slices_by_device(shape, sharding).items():
        for process in {device.process_index for device in devices}:
            needed[process].append(bounds)
    return [
        tuple((min(a for a, _ in pairs), max(b for _, b in pairs)) for pairs in axes)
        for axes in (zip(*parts, strict=True) for parts in needed)
    ]


def scatterv(source, shape, dtype, sharding, root=0):
    """Send each process its block from the buffer of `root`; return the array.

    source: [N, M] in `root`, a NumPy array in C order -> [N@x, M@y]
    """
    bounds = blocks(shape, sharding)
    sizes = [stop - start for start, stop in bounds[jax.process_index()]]
    starts = [[start for start, _ in block] for block in bounds]
    number = dtlib.from_numpy_dtype(dtype)
    part = number.Create_subarray(shape, sizes, [0] * len(shape))
    part = part.Create_resized(0, dtype.itemsize).Commit()  # so that places can count
    places = [int(np.ravel_multi_index(start, shape)) for start in starts]
    block = np.empty(sizes, dtype)
    whole = [source, [1] * len(places), places, part] if source is not None else None
    MPI.COMM_WORLD.Scatterv(whole, [block, math.prod(sizes), number], root)
    part.Free()
    return jax.make_array_from_process_local_data(sharding, block, shape)


def scatter_pickles(source, shape, sharding, root=0):
    """Do the same with `comm.scatter`, which pickles."""
    pieces = None
    if source is not None:
        parts = (
            tuple(slice(*pair) for pair in block) for block in blocks(shape, sharding)
        )
        pieces = [np.ascontiguousarray(source[part]) for part in parts]
    block = MPI.COMM_WORLD.scatter(pieces, root)
    return jax.make_array_from_process_local_data(sharding, block, shape)


def main():
    """Scatter a small file in several layouts, and check the pieces."""
    jax.distributed.initialize()
    assert MPI.COMM_WORLD.rank == jax.process_index()
    table = np.arange(16 * 24, dtype=np.float32).reshape(16, 24)
    devices = np.array(jax.devices()).reshape(2, -1)
    for mesh in (
        jax.make_mesh((jax.device_count(), 1), ("x", "y")),
        jax.sharding.Mesh(devices, ("x", "y")),
    ):
        sharding = jax.NamedSharding(mesh, jax.P("x", "y"))
        with tempfile.TemporaryDirectory() as folder:
            source = None
            if jax.process_index() == 0:
                np.save(Path(folder, "table.npy"), table)
                source = np.load(Path(folder, "table.npy"), mmap_mode="r")
            for x in (
                scatterv(source, table.shape, table.dtype, sharding),
                scatter_pickles(source, table.shape, sharding),
            ):
                check_pieces(x, table)
    total = float(jax.jit(lambda x: x.sum())(x))
    assert_replicated(total)
    if jax.process_index() == 0:
        print(f"{jax.process_count()} processes, all pieces in place, sum {total:.0f}")


if __name__ == "__main__":
    main()
