# SPDX-License-Identifier: MIT-0
"""Fourier transforms by hand, by jaxdecomp and by the compiler, side by side.

Each of ours races another program for the same array in the same place. Bytes sent and
temporaries are in blocks, the part of the array that one device holds; what should be
sent stands beside what is.

    nox -s remeasure -- fft

It needs jaxdecomp too. Simulated devices share the machine's cores: the time tells what
moving and copying costs on it, and nothing about links.
"""

import itertools

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from jaxdecomp.fft import pfft3d
from timing import DOCS, print_rows, race, write_rows

from examples import fft, four_steps
from examples.communication import measure

RESULTS = DOCS / "algorithms/data/fft.csv"
SLABS, PENCILS = (8, 1), (2, 4)
FIELDS, VECTORS = (64, 128, 256), (2**18, 2**20, 2**22)


def pfft3d_natural(a):
    """Transform as jaxdecomp does, and put the axes back in their order."""
    return pfft3d(a).transpose(2, 0, 1)


RACES = [  # ours, theirs
    (fft.fftn_transposed, jax.jit(pfft3d)),
    (fft.fftn, jax.jit(pfft3d_natural)),
    (fft.fftn, jax.jit(jnp.fft.fftn)),
    (fft.rfftn, jax.jit(jnp.fft.rfftn)),
]
VECTORS_OURS = (four_steps.fft_transposed, four_steps.fft)


def run(ours, theirs, a):
    """Return the line of the table for two programs and one array."""
    times = race(ours, theirs, a, rounds=9 if a.size < 2**24 else 5)
    line = dict(zip(("seconds", "their_seconds", "ratio"), times, strict=True))
    block = a.nbytes / jax.device_count()
    module = four_steps if ours in VECTORS_OURS else fft
    line["sent_bound"] = module.cost(ours, a).sent / block
    for who, f in (("", ours), ("their_", theirs)):
        program = measure(f, a)
        line[f"{who}sent"] = program.sent / block
        line[f"{who}temporaries"] = program.temporaries / block
    return line


def random(shape, spec):
    """Return random numbers of this shape, in this place."""
    return jax.device_put(jax.random.normal(jax.random.key(0), shape), spec)


def fields():
    """Race on slabs and pencils, and yield the lines."""
    for n in FIELDS:
        for mesh in SLABS, PENCILS:
            with jax.set_mesh(jax.make_mesh(mesh, ("x", "y"), (AxisType.Auto,) * 2)):
                real = random((n, n, n), jax.P("x", "y"))
                for ours, theirs in RACES:
                    halved = ours is fft.rfftn
                    a = real if halved else real + 1j * jnp.roll(real, 1)
                    line = run(ours, theirs, a)
                    layout = "slabs" if mesh == SLABS else "pencils"
                    yield names(ours, theirs, layout, f"{n}^3") | line


def vectors():
    """Race on vectors, and yield the lines."""
    theirs = jax.jit(jnp.fft.fft)
    with jax.set_mesh(jax.make_mesh((8,), ("x",), (AxisType.Auto,))):
        for n in VECTORS:
            real = random((n,), jax.P("x"))
            for ours in VECTORS_OURS:
                line = run(ours, theirs, real + 1j * jnp.roll(real, 1))
                yield names(ours, theirs, "vector", f"2^{n.bit_length() - 1}") | line


def names(ours, theirs, layout, size):
    """Return who races whom, on what."""
    where = "jaxdecomp " if "pfft" in theirs.__name__ else "jax.numpy "
    return {
        "ours": ours.__name__,
        "theirs": where + theirs.__name__,
        "layout": layout,
        "size": size,
    }


def main():
    """Print the table, and write it with the place and the day beside the page."""
    lines = itertools.chain(fields(), vectors())
    write_rows(RESULTS, print_rows(lines), dtype="complex64")


if __name__ == "__main__":
    main()
