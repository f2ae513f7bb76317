# SPDX-License-Identifier: MIT-0
"""Eigenvalues in blocks against jnp.linalg on the same sharded matrix.

Both take turns on eight simulated devices with Auto axes, in a mesh of 2 x 4; theirs
gathers the matrix, and each device solves it whole. Beside the ratio of times stand the
words that a device sends, in units of the matrix, and temporaries of both, in blocks.
Expected: 3.5 times as fast for vectors at N = 2048, 6 for values alone; about 2 N^2
words, and 3 to 4 blocks. About six minutes; numbers after the file's name are other N.

    python benchmarks/bench_eigh.py
"""

import itertools
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from timing import DOCS, print_rows, race, write_rows

from examples.communication import measure
from examples.eigh import eigh, eigvalsh
from examples.secular import IN_PAIRS

RESULTS = DOCS / "algorithms/data/eigh.csv"
PAIRS = {
    "eigh": (partial(eigh, tridiagonal=IN_PAIRS), jnp.linalg.eigh),
    "eigvalsh": (partial(eigvalsh, tridiagonal=IN_PAIRS), jnp.linalg.eigvalsh),
}
SIZES = 1024, 2048


def run(what, n, dtype):
    """Return the line of the table for one function, size and type."""
    noise = np.random.default_rng(n).standard_normal((n, n)).astype(dtype)
    mesh = jax.make_mesh((2, 4), ("x", "y"), (AxisType.Auto,) * 2)
    with jax.set_mesh(mesh), jax.enable_x64(dtype == "float64"):
        a = jax.device_put(noise + noise.T, jax.P("x", "y"))
        both = [jax.jit(f).lower(a).compile() for f in PAIRS[what]]
        ours, theirs = both  # compiled once, for both purposes
        held = [*map(measure, both)]
        seconds, their_seconds, ratio = race(ours, theirs, a, rounds=5)
    line = {"what": what, "n": n, "dtype": dtype, "mesh": "2x4"}
    line |= {"times_faster": 1 / ratio, "seconds": seconds}
    line |= {"gathered_seconds": their_seconds, "words": held[0].sent / a.nbytes}
    line |= {"gathered_words": held[1].sent / a.nbytes}
    for name, program in zip(("held", "gathered"), held, strict=True):
        line[name] = program.temporaries / a.nbytes * 8
    return line


def main():
    """Print the table, and write it with the place and the day beside the pages."""
    sizes = [*map(int, sys.argv[1:])] or SIZES
    cases = itertools.product(PAIRS, sizes, ("float32", "float64"))
    write_rows(RESULTS, print_rows(run(*case) for case in cases))


if __name__ == "__main__":
    main()
