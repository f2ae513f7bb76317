# SPDX-License-Identifier: MIT-0
"""Matrix products by hand and by the compiler: time, bytes and memory, side by side.

Each algorithm races `jnp.dot` for the same operands, laid out in the same way, and the
same sharding of the product, left to the compiler. Words sent are in n^2, temporaries
in blocks of n^2 / P words, both on one device; predictions stand beside measurements.

    nox -s remeasure -- matmul

Simulated devices share the machine's cores: the time tells what the algorithm adds to
the products, and nothing about links.
"""

import functools
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from timing import DOCS, race, round_floats, write_rows

from examples.collective_matmul import ag_matmul, matmul_rs, ring_matmul
from examples.communication import measure
from examples.matmul import cannon, summa, summa_25d

SIZES = 1024, 2048, 4096
RESULTS = DOCS / "per-device/data/matmul.csv"
ROWS, COLUMNS, BLOCKS = jax.P("x", None), jax.P(None, "x"), jax.P("x", "y")
GRID = BLOCKS, BLOCKS, BLOCKS
CUBE = jax.P("x", ("z", "y")), jax.P(("z", "x"), "y"), jax.P("x", ("y", "z"))
RING = ROWS, ROWS, ROWS
GATHER = ROWS, COLUMNS, COLUMNS
SCATTER = COLUMNS, ROWS, ROWS


@dataclass(frozen=True)
class Case:
    """An algorithm, its mesh, its three layouts, and the blocks that it should hold."""

    multiply: Callable
    options: dict
    mesh: tuple[int, ...]
    specs: tuple[jax.P, jax.P, jax.P]
    blocks: float

    @property
    def name(self):
        """The algorithm with its options."""
        options = "".join(f" {key}={value}" for key, value in self.options.items())
        return self.multiply.__name__ + options


CASES = [
    Case(summa, {"panels": 1}, (4, 2), GRID, 4 + 2 + 2),
    Case(summa, {"panels": 4}, (4, 2), GRID, (4 + 2) / 4 + 1),
    Case(summa, {"panels": 8}, (4, 2), GRID, (4 + 2) / 8 + 1),
    Case(summa, {"panels": 4}, (2, 2), GRID, (2 + 2) / 4 + 1),
    Case(cannon, {}, (2, 2), GRID, 2 + 1),
    Case(summa_25d, {"panels": 1}, (2, 2, 2), CUBE, 2 + 2 + 2),
    Case(summa_25d, {"panels": 4}, (2, 2, 2), CUBE, (2 + 2) / 4 + 4),
    Case(ring_matmul, {"ways": 1}, (8,), RING, 3 + 2 / 8),
    Case(ag_matmul, {"ways": 1}, (8,), GATHER, 2 + 1 / 8),
    Case(ag_matmul, {"ways": 2}, (8,), GATHER, 2 + 1 / 16),
    Case(matmul_rs, {"ways": 1}, (8,), SCATTER, 1 + 1 / 8),
    Case(matmul_rs, {"ways": 2}, (8,), SCATTER, 2),
]


def run(case, n, rounds):
    """Return the line of the table for one case and one size."""
    ours = functools.partial(case.multiply, **case.options)
    names = ("x", "y", "z")[: len(case.mesh)]
    count = math.prod(case.mesh)
    auto = (AxisType.Auto,) * len(names)
    mesh = jax.make_mesh(case.mesh, names, auto, devices=jax.devices()[:count])
    with jax.set_mesh(mesh):
        a, b = (
            jax.device_put(jax.random.normal(jax.random.key(i), (n, n)), spec)
            for i, spec in enumerate(case.specs[:2])
        )
        theirs = jax.jit(jnp.dot, out_shardings=case.specs[2])
        held = {"ours": measure(ours, a, b), "compiler": measure(theirs, a, b)}
        cost = importlib.import_module(case.multiply.__module__).cost
        words = cost(case.multiply, a, b) / (4 * n * n)
        times = race(ours, theirs, a, b, rounds=rounds)
    line = {"algorithm": case.name, "mesh": " x ".join(map(str, case.mesh)), "n": n}
    line |= zip(("seconds", "compiler_seconds", "ratio"), times, strict=True)
    line |= {"words_predicted": words, "blocks_predicted": case.blocks}
    for who, program in held.items():
        line[f"words_{who}"] = program.sent / (4 * n * n)
        line[f"blocks_{who}"] = program.temporaries / (4 * n * n / count)
    return {key: round(v, 4) if isinstance(v, float) else v for key, v in line.items()}


HEAD = """
                                  time /   words sent, n^2      temporaries, blocks
algorithm             mesh         n XLA   pred   ours    XLA    pred   ours    XLA"""
LINE = (
    "{algorithm:21} {mesh:9} {n:5} {ratio:4.2f} "
    "{words_predicted:6.3f} {words_ours:6.3f} {words_compiler:6.3f} "
    "{blocks_predicted:7.2f} {blocks_ours:6.2f} {blocks_compiler:6.2f}  (load {load})"
)


def main():
    """Print the table, and write it with the place and the day for the page."""
    print(HEAD)
    lines = []
    for n in SIZES:
        for case in CASES:
            line = round_floats(run(case, n, rounds=5 if n > 2048 else 9))
            print(LINE.format(**line), flush=True)
            lines.append(line)
    write_rows(RESULTS, lines, dtype="float32")


if __name__ == "__main__":
    main()
