"""Compile the book's programs for machines that are not there: `tools/pods.py FOLDER`.

Each program of `PROGRAMS` is compiled for 8, 512 and 4096 TPU v5p chips and as many
H100. Each compilation has a process of its own, so that it can be stopped, and a row in
FOLDER/pods.csv. FOLDER/torus.csv has the distances on a torus between neighbours in a
mesh, FOLDER/meshes.csv the bytes that leave a host, for meshes of other shapes. Words
after FOLDER choose programs, machines and numbers of chips, such as `summa h100 512`,
or one of the other tables, `torus` and `meshes`; rows that they do not name stay.

`off_host` is what leaves the host that sends most, in bytes, if messages go as
`measure` counts them: an all-to-all and a permutation straight to where they are
needed, all else around a ring that visits the devices of one host after the other. A
library that sums up within a host first, or switches that do, send less; for TPUs,
whose links do not pass through hosts, it is not told.
"""

import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np
from jax.experimental.mesh_utils import create_device_mesh  # no public name yet
from jax.sharding import AbstractMesh, AxisType, Mesh
from records import COMPILERS, write_table

ROOT = Path(__file__).resolve().parents[1]
from pod_programs import CHIPS, MESHES, PROGRAMS, Program  # noqa: E402

from examples.communication import Collective, read  # noqa: E402
from examples.machines import described  # noqa: E402

LIMIT = 300  # seconds, after which a compilation is given up
MACHINES = {  # the names of their topologies, as XLA writes them
    "v5p": dict(zip(CHIPS, ("2x2x2", "8x8x8", "16x16x16"), strict=True)),
    "h100": {chips: f"1x{chips // 8}x8" for chips in CHIPS},
}
SHAPES = ((4, 128), (8, 64), (16, 32), (32, 16), (64, 8), (128, 4))  # of 512 chips
ALONE = {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "JAX_PLATFORMS": "cpu"}


# -------------------------------------------------------------------- the compilations


def devices(machine: str, chips: int) -> list[jax.Device]:
    """Return the chips of a machine, as its compiler describes them."""
    if machine == "h100":
        return described(machine, hosts=chips // 8)
    return described(f"{machine}:{MACHINES[machine][chips]}")


def mesh_of(machine: str, shape: tuple[int, ...], axes: tuple[str, ...]) -> Mesh:
    """Return a mesh of a machine, which may have to split an axis of the torus."""
    every = devices(machine, math.prod(shape))
    places = create_device_mesh(shape, every, allow_split_physical_axes=True)
    # Auto: the book's functions run under it and JAX's own do too
    return Mesh(places, axes, axis_types=(AxisType.Auto,) * len(axes))


def at_size(name: str, chips: int) -> tuple[Program, int | None, tuple[int, ...]]:
    """Return a program, and its n and its mesh for so many chips."""
    program, which = PROGRAMS[name], CHIPS.index(chips)
    return program, program.sizes[which], MESHES[program.axes][which]


def compile_program(program: Program, n: int, mesh: Mesh):
    """Compile a program; return what XLA made of it, and its collectives."""
    with jax.set_mesh(mesh):
        function, given = program.make(program, n, mesh)
        function = function if hasattr(function, "lower") else jax.jit(function)
        made = function.lower(*given).compile()
    return made, one_step(read(made.as_text(), mesh).collectives)


def one_step(collectives: Iterable[Collective]) -> list[Collective]:
    """Return one step of a loop that ends when it likes, or else all."""
    steps = [replace(each, times=1) for each in collectives if each.times is None]
    return steps or [*collectives]


def measure_program(name: str, machine: str, chips: int) -> dict:
    """Compile a program for a machine, and return what the table says of it."""
    program, n, shape = at_size(name, chips)
    mesh = mesh_of(machine, shape, program.axes)
    start = time.perf_counter()
    made, collectives = compile_program(program, n, mesh)
    held, counts = made.memory_analysis(), {}
    for each in collectives:
        counts[each.kind] = counts.get(each.kind, 0) + each.times
    return {
        "arguments": held.argument_size_in_bytes,
        "temporaries": held.temp_size_in_bytes,
        "sent": sum(each.sent * each.times for each in collectives),
        "off_host": "" if machine == "v5p" else off_host(collectives, mesh),
        "collectives": "; ".join(f"{n} {kind}" for kind, n in sorted(counts.items())),
        "instructions": len(re.findall(r"(?m)^ .* = ", made.as_text())),
        "seconds": round(time.perf_counter() - start),
    }


def off_host(collectives: Iterable[Collective], mesh: Mesh) -> int:
    """Return the bytes that leave the host that sends most."""
    hosts = np.array([device.process_index for device in mesh.devices.flat])
    leaving = np.zeros(hosts.max() + 1)
    for each in collectives:
        groups = hosts[np.array(each.groups)]
        if each.kind == "collective-permute":
            here, size = groups[:, 0], each.sent * (groups[:, 0] != groups[:, 1])
        elif each.kind.endswith("all-to-all"):
            here = groups
            size = (groups[..., None] != groups[:, None]).sum(-1)
            size = each.bytes * size / groups.shape[1]
        else:
            here = np.sort(groups)
            size = each.sent * (here != np.roll(here, -1, axis=1))
        np.add.at(leaving, here, size * each.times)
    return round(leaving.max())


def formula_bytes(name: str, machine: str, chips: int) -> dict:
    """Return the bytes of the program's formula, if the book has one."""
    program, n, shape = at_size(name, chips)
    if program.formula is None:
        return {}
    if machine != "v5p":
        program = replace(program, wire=None)
    mesh = AbstractMesh(shape, program.axes)
    with jax.sharding.use_abstract_mesh(mesh):
        return {"formula": program.formula(program, n, mesh)}


def read_result(process: subprocess.CompletedProcess) -> dict:
    """Return the last line that a compilation printed, and XLA's warning."""
    if process.returncode == 0:  # XLA:GPU refuses nothing that is too large, but warns
        notes = re.findall("Can't reduce memory use .*", process.stderr)
        found = json.loads(process.stdout.splitlines()[-1])
        return found | ({"note": notes[-1]} if notes else {})
    errors = [line for line in process.stderr.splitlines() if "Error: " in line]
    return {"note": (errors or process.stderr.splitlines())[-1][:300]}


def run_apart(*words: str) -> dict:
    """Run this file with these words in a process of its own, for `LIMIT` seconds."""
    environment = os.environ | ALONE | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, __file__, *words]
    run = partial(subprocess.run, capture_output=True, text=True, check=False)
    try:
        return read_result(run(command, env=environment, timeout=LIMIT))
    except subprocess.TimeoutExpired:
        return {"seconds": LIMIT, "note": f"not compiled in {LIMIT} s"}


def compile_row(name: str, machine: str, chips: int) -> dict:
    """Return a row of the table."""
    program, n, shape = at_size(name, chips)
    return {
        "program": name,
        "machine": machine,
        "chips": chips,
        "topology": MACHINES[machine][chips],
        "mesh": "x".join(map(str, shape)),
        "shape": "x".join(map(str, program.shape(n))),
        "dtype": program.dtype,
        **formula_bytes(name, machine, chips),
        **run_apart("compile", name, machine, str(chips)),
    }


# -------------------------------------------------------------------------- the meshes


def hops(mesh: Mesh) -> list[np.ndarray]:
    """Count the links between neighbours along each axis of a mesh on a cubic torus."""
    places = np.array([chip.coords for chip in mesh.devices.flat])
    places = places.reshape(*mesh.devices.shape, 3)
    side = places.max() + 1
    steps = (abs(places - np.roll(places, 1, axis)) for axis in range(places.ndim - 1))
    return [np.minimum(step, side - step).sum(-1) for step in steps]


def orders(shape: tuple[int, ...], axes: tuple[str, ...]) -> dict[str, Callable]:
    """Return three ways to put the chips of a torus in a mesh."""
    every = devices("v5p", math.prod(shape))
    return {
        "in the order of the list": lambda: Mesh(np.reshape(every, shape), axes),
        "jax.make_mesh": lambda: jax.make_mesh(shape, axes, devices=every),
        "allow_split_physical_axes": lambda: mesh_of("v5p", shape, axes),
    }


def torus() -> list[dict]:
    """Return how far apart neighbours are, for meshes of several shapes and orders."""
    rows = []
    for shape in ((512,), *SHAPES, (8, 8, 8)):
        axes = ("x", "y", "z")[: len(shape)]
        for order, make in orders(shape, axes).items():
            about = {"topology": "v5p:8x8x8", "mesh": "x".join(map(str, shape))}
            about["order"] = order
            try:
                for axis, links in zip(axes, hops(make()), strict=True):
                    far = {"mean": f"{links.mean():.3f}", "longest": int(links.max())}
                    rows.append(about | {"axis": axis} | far)
            except NotImplementedError as error:
                rows.append(about | {"note": str(error).partition(". ")[0]})
    return rows


def meshes() -> list[dict]:
    """Return what programs send along each axis and from a host, for other meshes."""
    rows = []
    for name in ("summa", "fftn pencils"):
        for shape in SHAPES:
            program, n, _ = at_size(name, math.prod(shape))
            mesh = mesh_of("h100", shape, program.axes)
            _, collectives = compile_program(program, n, mesh)
            along = {
                axis: sum(c.sent * c.times for c in collectives if c.axes == (axis,))
                for axis in program.axes
            }
            about = {"program": name, "mesh": "x".join(map(str, shape))}
            rows.append(about | along | {"off_host": off_host(collectives, mesh)})
    return rows


# ------------------------------------------------------------------------- the tables


def order() -> list[tuple[str, str, str]]:
    """Return the keys of all rows: programs as in `PROGRAMS`, small machines first."""
    return [
        (name, machine, str(chips))
        for name in PROGRAMS
        for machine in MACHINES
        for chips in CHIPS
        if at_size(name, chips)[1]
    ]


def select_keys(words: list[str]) -> list[tuple[str, str, str]]:
    """Return the keys that these words name, those of few chips first."""
    if words and {*words} <= {"torus", "meshes"}:
        return []
    names = [*PROGRAMS], [*MACHINES], [*map(str, CHIPS)]
    some = [[each for each in kind if each in words] or kind for kind in names]
    keys = [key for key in order() if all(map(list.__contains__, some, key))]
    return sorted(keys, key=lambda key: int(key[2]))


def main(folder: Path, words: list[str]):
    """Compile what these words name, or all, and keep the tables in `folder`."""
    for name, machine, chips in select_keys(words):
        new = compile_row(name, machine, int(chips))
        print(*new.values(), flush=True)
        write_table(folder / "pods.csv", [new], order(), COMPILERS)
    for table in ("torus", "meshes"):
        if not words or table in words:
            rows = run_apart(table)["rows"]
            write_table(folder / f"{table}.csv", rows, packages=COMPILERS)


if __name__ == "__main__":
    match sys.argv[1:]:
        case "compile", name, machine, chips:
            print(json.dumps(measure_program(name, machine, int(chips))))
        case ["torus" | "meshes" as table]:
            print(json.dumps({"rows": globals()[table]()}))
        case folder, *words:
            main(Path(folder), words)
