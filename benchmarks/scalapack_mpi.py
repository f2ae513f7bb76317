# SPDX-License-Identifier: MIT-0
"""One of the processes that solve with ScaLAPACK for bench_scalapack.py.

A line [n, dtype] on the standard input of process 0 is an order. Its answer: seconds,
processor seconds of all processes, the scaled residual, and which BLAS it was.
"""

import ctypes
import json
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

LIBRARY = "libscalapack-openmpi.so.2.2"
X, Y, BLOCK = 2, 4, 64


def system(n, dtype):
    """Return the same matrix and right side to everyone who asks."""
    random = np.random.default_rng(n)
    a = random.standard_normal((n, n)).astype(dtype)
    return a, random.standard_normal(n).astype(dtype)


def scaled_residual(n, dtype, x):
    """Return |a x - b| / (eps n (|a| |x| + |b|)), in the norm of the largest row."""
    a, b = (part.astype(np.float64) for part in system(n, dtype))
    size = np.abs(a).sum(1).max() * np.abs(x).max() + np.abs(b).max()
    return float(np.abs(a @ x - b).max() / (np.finfo(dtype).eps * n * size))


def cyclic(n, place, count):
    """Return the indices that process `place` of `count` holds, block after block."""
    index = np.arange(n)
    return index[index // BLOCK % count == place]


def blas():
    """Return the library that ScaLAPACK calls for its products."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    names = {line.split("/")[-1] for line in lines if "/openblas" in line}
    return min((name for name in names if "openblasp" in name), default="reference")


class Grid:
    """The processes as ScaLAPACK sees them."""

    def __init__(self):
        """Lay the processes out row by row."""
        self.library = ctypes.CDLL(LIBRARY)
        self.context = ctypes.c_int()
        where = [ctypes.c_int() for _ in range(4)]
        self.library.Cblacs_get(-1, 0, ctypes.byref(self.context))
        self.library.Cblacs_gridinit(ctypes.byref(self.context), b"R", X, Y)
        self.library.Cblacs_gridinfo(self.context, *map(ctypes.byref, where))
        self.row, self.column = (number.value for number in where[2:])

    def solve(self, a, b, n):
        """Solve in place; a and b are this process's parts, in Fortran's order."""

        def laid_out(columns, width):
            rows = max(len(a), 1)
            fields = 1, self.context.value, n, columns, BLOCK, width, 0, 0, rows
            return (ctypes.c_int * 9)(*fields)

        def number(value):
            return ctypes.byref(ctypes.c_int(value))

        def at(array):
            return array.ctypes.data_as(ctypes.c_void_p)

        one, error = number(1), ctypes.c_int()
        pivots = np.zeros(len(a) + BLOCK, np.int32)
        matrix = at(a), one, one, laid_out(n, BLOCK)
        side = at(b), one, one, laid_out(1, 1)
        name = "pdgesv_" if a.dtype == np.float64 else "psgesv_"
        call = self.library[name]
        call(number(n), one, *matrix, at(pivots), *side, ctypes.byref(error))
        assert error.value == 0, f"{name} returned {error.value}"


def hear(world):
    """Return the next order, without keeping a core busy until it comes."""
    if world.rank == 0:
        order = json.loads(sys.stdin.readline() or "null")
        for rank in range(1, world.size):
            world.send(order, rank)
        return order
    while not world.iprobe(0):
        time.sleep(0.005)
    return world.recv(source=0)


def time_solve(world, grid, a, b, n):
    """Solve; return seconds, and the processor seconds of all processes."""
    world.Barrier()
    spent, start = time.process_time(), time.perf_counter()
    grid.solve(a, b, n)
    world.Barrier()
    took = time.perf_counter() - start
    return took, world.reduce(time.process_time() - spent)


def main():
    """Solve one system for each order, until there is none."""
    world, grid = MPI.COMM_WORLD, Grid()
    while order := hear(world):
        n, dtype = order
        rows, columns = cyclic(n, grid.row, X), cyclic(n, grid.column, Y)
        a, b = system(n, dtype)
        a, b = np.asfortranarray(a[np.ix_(rows, columns)]), b[rows]
        took = time_solve(world, grid, a, b, n)
        parts = world.gather((rows, b) if grid.column == 0 else ((), ()))
        if world.rank == 0:
            x = np.zeros(n, dtype)
            for where, part in parts:
                x[list(where)] = part
            answer = [*took, scaled_residual(n, dtype, x), blas()]
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
