# SPDX-License-Identifier: MIT-0
"""Cholesky, tall QR and SVD in blocks against jnp.linalg on the same sharded matrix.

Both take turns on eight simulated devices with Auto axes, the matrix of Cholesky in a
mesh of 2 x 4, the rows of the tall one in a line of 8. Beside the ratio of times stand
the words that a device sends, in units of the matrix, predicted and counted, and the
temporaries of both, in blocks.

    nox -s remeasure -- factorisations
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from timing import DOCS, print_rows, race, write_rows

from examples.cholesky import cho_factor, cost
from examples.communication import measure
from examples.svd import svd
from examples.tsqr import qr

RESULTS = DOCS / "algorithms/data/factorisations.csv"
CASES = [
    ("cholesky", 1024, 1024, "float32"),
    ("cholesky", 1024, 1024, "float64"),
    ("cholesky", 2048, 2048, "float32"),
    ("cholesky", 2048, 2048, "float64"),
    ("tsqr", 65536, 16, "float32"),
    ("tsqr", 65536, 64, "float32"),
    ("svd", 65536, 16, "float32"),
    ("svd", 65536, 64, "float32"),
]
TALL = {
    "tsqr": (qr, jnp.linalg.qr),
    "svd": (partial(svd, qr=qr), partial(jnp.linalg.svd, full_matrices=False)),
}


def setting(what, n, k, dtype):
    """Return mesh, spec, both programs, the matrix, and the bytes we should send."""
    random = np.random.default_rng(n).standard_normal((n, k)).astype(dtype)
    if what in TALL:
        sent = 3 * k * k * random.itemsize
        return (8, 1), jax.P("x"), TALL[what], random, lambda: sent
    a = random @ random.T / n + np.eye(n, dtype=dtype)
    theirs = partial(jnp.linalg.cholesky, symmetrize_input=False)

    def sent():
        return cost(cho_factor, a).sent

    return (2, 4), jax.P("x", "y"), (cho_factor, theirs), a, sent


def run(what, n, k, dtype):
    """Return the line of the table for one factorisation, size and type."""
    shape, spec, (ours, theirs), a, sent = setting(what, n, k, dtype)
    mesh = jax.make_mesh(shape, ("x", "y"), (AxisType.Auto,) * 2)
    with jax.set_mesh(mesh), jax.enable_x64(dtype == "float64"):
        a = jax.device_put(a, spec)
        theirs = jax.jit(theirs)
        held = measure(ours, a), measure(theirs, a)
        seconds, their_seconds, ratio = race(ours, theirs, a, rounds=5)
        predicted = sent() / a.nbytes
    line = {"what": what, "n": n, "k": k, "dtype": dtype, "times_faster": 1 / ratio}
    line |= {"seconds": seconds, "gathered_seconds": their_seconds}
    line |= {"words_predicted": predicted, "words": held[0].sent / a.nbytes}
    line |= {"gathered_words": held[1].sent / a.nbytes}
    for name, program in zip(("held", "gathered"), held, strict=True):
        line[name] = program.temporaries / a.nbytes * 8
    return line


def main():
    """Print the table, and write it with the place and the day beside the pages."""
    write_rows(RESULTS, print_rows(run(*case) for case in CASES))


if __name__ == "__main__":
    main()
