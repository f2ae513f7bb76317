# SPDX-License-Identifier: MIT-0
"""Collectives over message sizes: the time of one, and the line that it follows.

Each collective of eight devices runs on operands of 1 KiB to 1 MiB a device, built in
and hop by hop; all take turns, so that they see the same of a busy machine. The line is

    microseconds = alpha + bytes sent / beta

through the medians, with the least squares of relative errors. Bytes and turns come
from the formulas, and the bytes are checked against the compiled program.

    nox -s remeasure -- collectives

Simulated devices have no links: a message is a copy in memory, and a meeting of
threads. The line tells what that costs here, and nothing about a network.
"""

from statistics import median

import jax
import numpy as np
from jax import lax
from timing import DOCS, round_floats, seconds, write_rows

from examples.collectives import (
    doubling_all_reduce,
    ring_all_gather,
    ring_all_reduce,
)
from examples.communication import measure
from examples.ring_cost import ring_bytes, ring_rounds

SIZES = [1024 * 2**k for k in range(11)]
ROUNDS = 31
RESULTS = DOCS / "per-device/data/collectives.csv"
PROGRAMS = {
    "psum": ("all-reduce", lambda b: lax.psum(b, "x")),
    "ring_all_reduce": ("all-reduce", lambda b: ring_all_reduce(b, "x")),
    "doubling_all_reduce": ("doubling", lambda b: doubling_all_reduce(b, "x")),
    "all_gather": ("all-gather", lambda b: lax.all_gather(b, "x", tiled=True)),
    "ring_all_gather": ("all-gather", lambda b: ring_all_gather(b, "x")),
    "psum_scatter": ("reduce-scatter", lambda b: lax.psum_scatter(b, "x", tiled=True)),
    "all_to_all": ("all-to-all", lambda b: lax.all_to_all(b, "x", 0, 0, tiled=True)),
}


def compile_all(operand):
    """Return each program, compiled for an operand of so many bytes on a device."""
    array = jax.device_put(np.ones(8 * operand // 4, np.float32), jax.P("x"))
    compiled = {}
    for name, (kind, f) in PROGRAMS.items():
        body = jax.shard_map(f, in_specs=jax.P("x"), out_specs=jax.P("x"))
        program = jax.jit(body)
        assert measure(program, array).sent == ring_bytes(kind, operand, 8), name
        jax.block_until_ready(program(array))
        compiled[name] = program
    return compiled, array


def fit(sent, took):
    """Return alpha and beta of the line with the least squares of relative errors."""
    sent, took = np.asarray(sent), np.asarray(took)
    lines = np.stack([1 / took, sent / took], axis=1)
    alpha, slope = np.linalg.lstsq(lines, np.ones_like(took), rcond=None)[0]
    return alpha, 1 / slope


def run(operand):
    """Return a line of the table for each program, all timed in turns."""
    compiled, array = compile_all(operand)
    times = {name: [] for name in compiled}
    for turn in range(ROUNDS):
        for name in [*compiled][:: (-1) ** turn]:
            times[name].append(seconds(compiled[name], array))
    for name, took in times.items():
        kind, _ = PROGRAMS[name]
        yield {
            "program": name,
            "operand": operand,
            "sent": ring_bytes(kind, operand, 8),
            "turns": ring_rounds(kind, 8),
            "microseconds": float(f"{1e6 * median(took):.3g}"),
        }


def main():
    """Print each line, and write the table with the place and the day for the page."""
    with jax.set_mesh(jax.make_mesh((8,), ("x",))):
        lines = [line for operand in SIZES for line in run(operand)]
    for name in PROGRAMS:
        mine = [line for line in lines if line["program"] == name]
        sent, took = ([line[key] for line in mine] for key in ("sent", "microseconds"))
        alpha, beta = fit(sent, took)
        print(f"{name:20} alpha {alpha:7.0f} us   beta {1e-3 * beta:6.2f} GB/s ", took)
    write_rows(RESULTS, [round_floats(line) for line in lines], dtype="float32")


if __name__ == "__main__":
    main()
