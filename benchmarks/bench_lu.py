# SPDX-License-Identifier: MIT-0
"""Solve in blocks against `jnp.linalg.solve` of the same sharded matrix.

Both take turns on eight simulated devices, in a mesh of 2 x 4 with Auto axes. Beside
the time stand the words that a device sends, in n^2 / sqrt(P), predicted and counted,
the temporaries of both, in blocks of n^2 / P words, and how long `solve` compiles.
A second table has the growth of U on four meshes, and with LAPACK's pivots.

    nox -s remeasure -- lu

With more threads, LAPACK's spin against the devices, and all of it is slower.
"""

import itertools
import math
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.sharding import AxisType
from scalapack_mpi import X, Y, scaled_residual, system
from timing import DOCS, print_rows, race, round_floats, write_rows

from examples.communication import measure
from examples.lu import cost, elimination_order, lu_factor, plan, solve

SIZES = 1024, 2048, 4096
RESULTS = DOCS / "algorithms/data/lu.csv"
GROWTH = DOCS / "algorithms/data/lu_growth.csv"


def compile_seconds(*args):
    """Return how long `solve` takes to compile, from nothing."""
    jax.clear_caches()
    start = perf_counter()
    compiled = jax.jit(solve).lower(*args).compile()
    return perf_counter() - start, len(compiled.as_text())


def run(n, dtype, rounds):
    """Return the line of the table for one size and one type."""
    a, b = map(jax.device_put, system(n, dtype), (jax.P("x", "y"), jax.P()))
    theirs = jax.jit(jnp.linalg.solve)
    took, text = compile_seconds(a, b)
    ours, gathering, factors = (
        measure(f, *args)
        for f, *args in ((solve, a, b), (theirs, a, b), (lu_factor, a))
    )
    seconds, their_seconds, ratio = race(solve, theirs, a, b, rounds=rounds)
    block = n * n * dtype.itemsize / (X * Y)
    words = n * n * dtype.itemsize / math.sqrt(X * Y)
    return {
        "n": n,
        "dtype": dtype.name,
        "width": plan(n)[1],
        "seconds": seconds,
        "gathered_seconds": their_seconds,
        "times_faster": 1 / ratio,
        "temporaries": ours.temporaries / block,
        "gathered_temporaries": gathering.temporaries / block,
        "words_predicted": cost(lu_factor, a).sent / words,
        "words": factors.sent / words,
        "compile_seconds": took,
        "program_bytes": text,
        "residual": scaled_residual(n, dtype, np.asarray(solve(a, b))),
    }


HEAD = """
                times         temporaries           words    compile  program
    n dtype    faster   ours  gathered   predicted  sent   seconds    bytes"""
LINE = (
    "{n:5} {dtype:8} {times_faster:6.2f} {temporaries:6.2f} "
    "{gathered_temporaries:9.2f} {words_predicted:10.2f} {words:6.2f} "
    "{compile_seconds:9.1f} {program_bytes:8}  (load {load})"
)


def growth(upper, a):
    """Return the largest element of U, in units of the largest of A."""
    return np.abs(np.triu(upper)).max() / np.abs(a).max()


def in_steps(factors):
    """Return the packed factors in the order of elimination."""
    n = factors.plan.n  # which fills its panels
    row, column = (np.asarray(elimination_order(n, axis)).ravel() for axis in "xy")
    return np.asarray(factors.lu)[np.ix_(row, column)]


def grow(shape, n, seeds=range(5)):
    """Return a line on how U grows with these pivots and with LAPACK's: means."""
    mesh = jax.make_mesh(shape, ("x", "y"), (AxisType.Auto,) * 2)
    matrices = [np.random.default_rng(seed).standard_normal((n, n)) for seed in seeds]
    with jax.set_mesh(mesh):
        ours = [growth(in_steps(lu_factor(a)), a) for a in matrices]
    theirs = [growth(scipy.linalg.lu_factor(a)[0], a) for a in matrices]
    line = {"mesh": "x".join(map(str, shape)), "n": n, "seeds": len(seeds)}
    most = {"most": max(ours), "most_lapack": max(theirs)}
    return line | {"growth": np.mean(ours), "lapack": np.mean(theirs)} | most


def growths():
    """Measure how the elements of U grow, and write it for the page."""
    cases = itertools.product([(1, 8), (2, 4), (4, 2), (8, 1)], [64, 256, 1024])
    write_rows(GROWTH, print_rows(grow(*case) for case in cases))


def main():
    """Print the tables, and write them with the place and the day for the page."""
    jax.config.update("jax_enable_x64", True)
    print(HEAD)
    lines = []
    auto = jax.make_mesh((X, Y), ("x", "y"), (AxisType.Auto,) * 2)
    with jax.set_mesh(auto):
        for dtype in np.dtype("float32"), np.dtype("float64"):
            for n in SIZES:
                line = round_floats(run(n, dtype, rounds=5 if n > 2048 else 15))
                print(LINE.format(**line), flush=True)
                lines.append(line)
    write_rows(RESULTS, lines)
    growths()


if __name__ == "__main__":
    main()
