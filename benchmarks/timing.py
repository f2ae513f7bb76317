# SPDX-License-Identifier: MIT-0
"""How we time: compile first, wait for the result, take turns, and compare medians.

A machine that others use too is fast now and slow then. Programs that take turns see
the same of it, so what is kept of every round is a ratio.
"""

import os
from pathlib import Path
from statistics import median
from time import perf_counter

import jax
import records

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def seconds(f, *args):
    """Return how long one call of `f(*args)` takes, until its result is there."""
    start = perf_counter()
    jax.block_until_ready(f(*args))
    return perf_counter() - start


def race(ours, theirs, *args, rounds=7):
    """Time two programs in turns: the medians of both, and of ours / theirs."""
    for f in (ours, theirs):
        jax.block_until_ready(f(*args))  # compile
    times = []
    for turn in range(rounds):
        order = (ours, theirs) if turn % 2 else (theirs, ours)
        took = {f: seconds(f, *args) for f in order}
        times.append((took[ours], took[theirs], took[ours] / took[theirs]))
    return [median(column) for column in zip(*times, strict=True)]


def round_floats(line):
    """Return a line of a table with the load of just now, and four digits of floats."""
    line = line | {"load": os.getloadavg()[0]}
    return {
        k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in line.items()
    }


def print_rows(lines):
    """Yield lines of a table as they are measured, rounded, and print each."""
    for line in map(round_floats, lines):
        print(*line.values(), flush=True)
        yield line


def write_rows(path, lines, order=(), packages=("jax",), **more):
    """Write lines of measurements as CSV, with versions, date, machine and devices."""
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    here = {"load": f"{os.getloadavg()[0]:.1f}", "device": device}
    here |= {"cores": os.cpu_count()} | more
    records.write_table(path, [line | here | line for line in lines], order, packages)
