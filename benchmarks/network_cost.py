"""Measure what a network costs: `benchmarks/network_cost.py FOLDER`.

Two hosts of four devices run the programs of `PROGRAMS` at each rate of `RATES`, and
sums of several sizes at one of them. The hosts are network namespaces of this machine
(tools/hosts.sh), for which it takes root, or a kernel that lets everybody have them.
FOLDER/network.csv keeps the medians of some turns: milliseconds, and the bytes that
each host sent, beside those of `theory`; and how busy the machine was before.
"""

import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
from jax import Array, lax
from jax.experimental import multihost_utils
from records import ROOT, write_table
from throwaway import run

from examples.network import sum_by_hosts

HOSTS, DEVICES = 2, 4  # devices of each
# rates as tc writes them, and how many turns
RATES = {"100mbit": 21, "300mbit": 21, "1gbit": 31, "3gbit": 41, "none": 41}
BLOCK = 2**18  # bytes on each device
SIZES = 2**12, 2**14, 2**16, 2**20, 2**22  # others
SUMS = "flat", "by hosts"  # what is run at all sizes
AT = "300mbit"  # and at which rate
ORDERS = {  # the devices in the order of the mesh, row by row
    "rows": (0, 1, 2, 3, 4, 5, 6, 7),  # a row is a host
    "mixed": (0, 4, 1, 5, 2, 6, 3, 7),  # neighbours in a row are on different hosts
}
XY = ("x", "y")
RING = [(i, (i + 1) % (HOSTS * DEVICES)) for i in range(HOSTS * DEVICES)]
P = jax.P
PENCILS = P("x", "y"), P("x", None, "y"), P(None, "x", "y")  # of a field, in turn
COLUMNS = "program", "order", "rate", "block", "theory"
COLUMNS += "host0", "host1", "milliseconds"


@dataclass(frozen=True, eq=False)
class Program:
    """A function of an array, and what a host sends of it.

    `blocks` is the blocks that a host sends to the other, for each order of the mesh;
    `start` is how the array is cut: into rows, or a field into pencils.
    """

    function: Callable[[Array], Array]
    blocks: dict[str, float]
    start: jax.P = P(XY)  # noqa: RUF009 (it never changes)

    def array(self, block: int, mesh: jax.sharding.Mesh) -> jax.ShapeDtypeStruct:
        """Return what it takes, with `block` bytes on each device."""
        layout = jax.NamedSharding(mesh, self.start)
        if self.start == P(XY):
            return jax.ShapeDtypeStruct((2 * block,), np.float32, sharding=layout)
        shape = 64, 64, block // 64**2
        return jax.ShapeDtypeStruct(shape, np.complex64, sharding=layout)


def on_blocks(function: Callable, out: jax.P) -> Callable[[Array], Array]:
    """Return a function of an array that does `function` with each block of it."""
    return jax.shard_map(function, in_specs=P(XY), out_specs=out)


def gathered_sum(x: Array) -> Array:
    """Bring all blocks everywhere, and add them there."""
    return jax.reshard(x, P()).reshape(HOSTS * DEVICES, -1).sum(0)


PROGRAMS = {
    "flat": Program(
        on_blocks(lambda b: lax.psum(b, XY), P()), {"rows": 7 / 4, "mixed": 7}
    ),
    "by hosts": Program(
        lambda x: sum_by_hosts(x, inner="y", outer="x"), {"rows": 1, "mixed": 11 / 2}
    ),
    "gather": Program(gathered_sum, {"rows": 7}),
    "in a row": Program(
        on_blocks(lambda b: lax.psum(b, "y"), P("x")), {"rows": 0, "mixed": 6}
    ),
    "scatter": Program(
        on_blocks(lambda b: lax.psum_scatter(b, XY, tiled=True), P(XY)),
        {"rows": 3 / 4, "mixed": 9 / 4},
    ),
    "ring": Program(
        on_blocks(lambda b: lax.ppermute(b, XY, RING), P(XY)), {"rows": 1, "mixed": 4}
    ),
    "transpose y": Program(
        lambda a: jax.reshard(a, PENCILS[1]), {"rows": 0, "mixed": 2}, PENCILS[0]
    ),
    "transpose x": Program(
        lambda a: jax.reshard(a, PENCILS[2]), {"rows": 2, "mixed": 0}, PENCILS[1]
    ),
}


def mesh_of(order: str) -> jax.sharding.Mesh:
    """Return the mesh of two rows that has the devices in an order of `ORDERS`."""
    devices = np.array(jax.devices())[list(ORDERS[order])]
    axes = (jax.sharding.AxisType.Explicit,) * 2
    return jax.sharding.Mesh(devices.reshape(HOSTS, DEVICES), XY, axis_types=axes)


def count_sent() -> int:
    """Return the bytes that this host has sent since it was made."""
    (line,) = re.findall(r"eth0:(.*)", Path("/proc/net/dev").read_text())
    return int(line.split()[8])


@dataclass
class Case:
    """A program, compiled for an order and a size, with the array that it takes."""

    name: str
    order: str
    block: int

    def __post_init__(self):
        """Make the array, compile, and run once."""
        program, mesh = PROGRAMS[self.name], mesh_of(self.order)
        like = program.array(self.block, mesh)
        with jax.set_mesh(mesh):
            self.array = jax.numpy.ones(like.shape, like.dtype, device=like.sharding)
            self.run = jax.jit(program.function).lower(self.array).compile()
        self.seconds, self.bytes = [], []
        self.turn()

    def turn(self):
        """Run once; store the time, and the bytes that this host sent."""
        multihost_utils.sync_global_devices("all begin")
        before, start = count_sent(), time.perf_counter()
        self.run(self.array).block_until_ready()
        self.seconds.append(time.perf_counter() - start)
        multihost_utils.sync_global_devices("all have got everything")
        self.bytes.append(count_sent() - before)

    def result(self) -> list[float]:
        """Return the medians of all turns but the first: milliseconds, and bytes."""
        seconds, sent = (np.median(turns[1:]) for turns in (self.seconds, self.bytes))
        return [1e3 * float(seconds), float(sent)]


def cases(rate: str) -> list[tuple[str, str, int]]:
    """Return what is measured at a rate: program, order of the mesh, bytes."""
    programs = PROGRAMS.items()
    found = [(name, order, BLOCK) for name, one in programs for order in one.blocks]
    sizes = SIZES if rate == AT else ()
    return found + [(name, "rows", size) for size in sizes for name in SUMS]


def run_host(number: str, chosen: str, rounds: str, file: str):
    """Run everything in turns on this host; host 0 writes what was measured."""
    if number == "0":
        line = shlex.join([sys.executable, __file__, "host", "1", chosen, rounds, file])
        subprocess.Popen([ROOT / "tools/hosts.sh", "on", "host1", line])
    jax.distributed.initialize(
        "host0:1234", HOSTS, int(number), cluster_detection_method="deactivate"
    )
    ready = [Case(*case) for case in json.loads(chosen)]
    for _ in range(int(rounds)):
        for case in ready:
            case.turn()
    mine = np.array([case.result() for case in ready])
    everyone = multihost_utils.process_allgather(mine)
    if number == "0":
        Path(file).write_text(json.dumps(everyone.tolist()))


def host_command() -> tuple:
    """Return how a command line begins that is to run on the first of the hosts."""
    own = [] if os.geteuid() == 0 else ["--map-root-user", "--user"]
    return "unshare", *own, "--net", "--mount", ROOT / "tools/hosts.sh", str(HOSTS)


def measure(chosen: list, rate: str = "none", rounds: int = 5) -> list[list]:
    """Start the hosts; return milliseconds, and bytes of both hosts, for each case."""
    theirs = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(DEVICES)}
    theirs |= {"RATE": rate.replace("none", "")}
    own = re.compile("XLA_FLAGS|.*_proxy", re.I)
    others = {k: v for k, v in os.environ.items() if not own.fullmatch(k)}
    with tempfile.NamedTemporaryFile() as file:
        words = "host", "0", json.dumps(chosen), str(rounds), file.name
        run(*host_command(), sys.executable, __file__, *words, env=others | theirs)
        both = json.load(file)
    pairs = (zip(*each, strict=True) for each in zip(*both, strict=True))
    return [[max(times), *map(round, left)] for times, left in pairs]


def theory(name: str, order: str, block: int) -> int:
    """Return the bytes that a host should send."""
    return round(PROGRAMS[name].blocks[order] * block)


def main(folder: str):
    """Measure at all rates, and write the table."""
    rows, linux = [], platform.release().split("-")[0]
    for rate, turns in RATES.items():
        here = {"load": f"{os.getloadavg()[0]:.1f}", "linux": linux}
        chosen = cases(rate)
        found = measure(chosen, rate, turns)
        for case, (time_, *left) in zip(chosen, found, strict=True):
            name, order, block = case
            values = name, order, rate, block, theory(*case), *left, f"{time_:.2f}"
            print(*values, sep=" | ", flush=True)
            rows.append(dict(zip(COLUMNS, values, strict=True)) | here)
    write_table(Path(folder) / "network.csv", rows)


if __name__ == "__main__":
    run_host(*sys.argv[2:]) if sys.argv[1] == "host" else main(*sys.argv[1:])
