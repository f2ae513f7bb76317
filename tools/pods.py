"""Compile the book's programs for TPU pods that are not there: `tools/pods.py FOLDER`.

libtpu holds the compiler of a TPU, and needs none. Each program of `PROGRAMS` is
compiled for each pod of `PODS`, one after the other (libtpu wants to be alone) and each
in a process of its own (so that a compilation may be given up), and FOLDER/pods.csv
keeps a row for each. FOLDER/torus.csv keeps how far apart neighbours in a mesh are.
Names of programs after FOLDER compile these again, and keep the other rows; `torus`
does the second table alone.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name

import jax
import numpy as np
from jax.experimental import topologies  # no public name yet, as for the next
from jax.experimental.mesh_utils import create_device_mesh
from records import keep

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "src"))  # for the modules whose bytes are told
LIMIT = 300  # seconds, after which a compilation is given up
PODS = {"v5p:2x2x2": 8, "v5p:8x8x8": 512, "v5p:16x16x16": 4096}
MESHES = {  # by the axes of a mesh: its shape in each of the pods
    "x": ((8,), (512,), (4096,)),
    "xy": ((2, 4), (16, 32), (64, 64)),
    "xyz": ((2, 2, 2), (8, 8, 8), (16, 16, 16)),
}
ALONE = {  # what libtpu wants to hear where there is no TPU
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
}


# ------------------------------------------------------- what each program should send


def summa_bytes(n: int, each: int, x: int, y: int, z: int = 1) -> int:
    """Return the panels of a and b and, in z layers, the parts of c."""
    return ((y - 1) + (x - 1) + (z - 1)) * n * n * each // (x * y * z)


def ring_bytes(n: int, each: int, x: int) -> int:
    """Return what a device sends if a matrix goes round all of them."""
    return (x - 1) * n * n * each // x


def swap_bytes(size: int, each: int, *ways: int) -> int:
    """Return what all-to-alls send, one over each of the axes of the mesh."""
    chips = math.prod(ways)
    return sum((way - 1) * size * each // (way * chips) for way in ways)


def reduced(size: int, x: int) -> int:
    """Return the bytes that a device sends in an all-reduce of `size` bytes over x."""
    return -(-2 * size * (x - 1) // x)


def windows(n: int, width: int, stages: int) -> list[tuple[int, int]]:
    """Return first and last step of the windows of a Cholesky factorisation."""
    cuts = [n // width * stage // stages for stage in range(stages + 1)]
    return list(pairwise(cuts))


def lu_bytes(n: int, each: int, x: int, y: int, width=64) -> int:
    """Add up what the steps of `lu_factor` send, window by window."""
    high, wide, total = width // x, width // y, 0
    row, rows = width * each, reduced(4 * n, x * y)
    for first, last in resolve_name("examples.lu:windows")(n // width, x):
        panel = (n // x - first * high) * wide * (y - 1) * each
        tournament = (x - 1) * width * (width + 1) * each  # a row and its number
        swaps = reduced(row * n // y, x) + (x - 1) * high * n // y * each
        total += (last - first) * (panel + tournament + swaps)
    return total + rows


def cholesky_bytes(n: int, each: int, x: int, y: int, width=128) -> int:
    """Add up what the steps of `cho_factor` send, and the word on its success."""
    high, wide, total = width // x, width // y, reduced(4, x * y)
    for first, last in windows(n, width, stages=4):
        panel = (n // x - first * high) * wide * (y - 1) * each
        head = high * width * (x - 1) * each
        across = reduced((n // y - first * wide) * width * each, x)
        total += (last - first) * (panel + head + across)
    return total


# ----------------------------------------------------------------------- the programs


@dataclass(frozen=True)
class Program:
    """A function `call` of arrays with these `specs`, and the bytes that it sends.

    `axes` names those of the mesh, `sizes` gives the length of every axis of the arrays
    in each pod, None where the program is not compiled. `sent` takes that length, the
    bytes of an element, and the sizes of the mesh; it is None for what is not ours.
    """

    call: str
    axes: str
    specs: tuple
    sizes: tuple
    dtype: str
    sent: Callable | None = None
    ndim: int = 2
    wire: int | None = None  # bytes of an element on its way, if other than in memory


BLOCKS = jax.P("x", "y")
ROWS, COLUMNS_CUT = jax.P("x", None), jax.P(None, "x")
WIDE = (16384, 131072, 524288)
ROUND = (16384, 65536, 262144)
CUBES = (512, 2048, 4096)


def field(call, axes, sent=None):
    """Return a program that transforms a complex cube."""
    spec = jax.P(*axes)
    return Program(call, axes, (spec,), CUBES, "complex64", sent, ndim=3)


def cube(n, each, *ways):
    """Return what a transform of a cube sends: it swaps axes once for each way."""
    return swap_bytes(n**3, each, *ways)


def vector(n, each, x, swaps):
    """Return what a transform of a vector sends in so many swaps."""
    return swaps * swap_bytes(n, each, x)


square = partial(Program, axes="xy", specs=(BLOCKS, BLOCKS), sizes=WIDE)
line = partial(Program, axes="x", sizes=ROUND, dtype="bfloat16")
equations = partial(Program, axes="xy", dtype="float32")
layers = (jax.P("x", ("z", "y")), jax.P(("z", "x"), "y"))
PROGRAMS = {
    "summa": square("examples.matmul:summa", dtype="bfloat16", sent=summa_bytes),
    "summa float32": square(
        "examples.matmul:summa", dtype="float32", sent=summa_bytes, wire=2
    ),
    "summa_25d": Program(
        "examples.matmul:summa_25d", "xyz", layers, WIDE, "bfloat16", summa_bytes
    ),
    "jnp.dot": square("jax.numpy:dot", dtype="bfloat16"),
    "ag_matmul": line(
        "examples.collective_matmul:ag_matmul",
        specs=(ROWS, COLUMNS_CUT),
        sent=ring_bytes,
    ),
    "matmul_rs": line(
        "examples.collective_matmul:matmul_rs",
        specs=(COLUMNS_CUT, ROWS),
        sent=ring_bytes,
    ),
    "fftn slabs": field("examples.fft:fftn", "x", cube),
    "fftn pencils": field("examples.fft:fftn", "xy", cube),
    "fftn_transposed pencils": field("examples.fft:fftn_transposed", "xy", cube),
    "jnp.fft.fftn pencils": field("jax.numpy.fft:fftn", "xy"),
    "lu_factor": equations(
        "examples.lu:lu_factor", specs=(BLOCKS,), sizes=WIDE, sent=lu_bytes
    ),
    "solve": equations("examples.lu:solve", specs=(BLOCKS, jax.P()), sizes=WIDE),
    "cho_factor": equations(
        "examples.cholesky:cho_factor",
        specs=(BLOCKS,),
        sizes=WIDE,
        sent=cholesky_bytes,
    ),
    "jnp.linalg.solve": equations(
        "jax.numpy.linalg:solve", specs=(BLOCKS, jax.P()), sizes=(1024, 131072, None)
    ),
}


# -------------------------------------------------------------------- the compilations


def chips(topology: str) -> list:
    """Return the chips of a pod that is not there."""
    return topologies.get_topology_desc(topology, platform="tpu").devices


def pod_mesh(topology: str, axes: str) -> jax.sharding.Mesh:
    """Return the mesh of `MESHES` on a pod, whose axes it may have to split."""
    shape = MESHES[axes][[*PODS].index(topology)]
    places = create_device_mesh(shape, chips(topology), allow_split_physical_axes=True)
    return jax.sharding.Mesh(places, tuple(axes), axis_types=axis_types(axes))


def axis_types(axes: str) -> tuple:
    """Return Auto axes, under which the book's functions run and JAX's own do too."""
    return (jax.sharding.AxisType.Auto,) * len(axes)


def arguments(program: Program, n: int, mesh: jax.sharding.Mesh) -> list:
    """Describe the arrays that the program takes, without making them."""
    shapes = [(n,) * (program.ndim if spec else 1) for spec in program.specs]
    return [
        jax.ShapeDtypeStruct(shape, program.dtype, sharding=jax.NamedSharding(mesh, s))
        for shape, s in zip(shapes, program.specs, strict=True)
    ]


def compiled(name: str, topology: str) -> dict:
    """Compile a program for a pod, and return what the table says of it."""
    program, mesh = PROGRAMS[name], pod_mesh(topology, PROGRAMS[name].axes)
    n = program.sizes[[*PODS].index(topology)]
    function = resolve_name(program.call)
    if name == "jnp.dot":
        function = jax.jit(function, out_shardings=jax.NamedSharding(mesh, BLOCKS))
    measure = resolve_name("examples.communication:measure")
    start = time.perf_counter()
    with jax.set_mesh(mesh):
        measured = measure(function, *arguments(program, n, mesh))
    return {
        "arguments": measured.arguments,
        "temporaries": measured.temporaries,
        "sent": measured.sent,
        "collectives": "; ".join(f"{v} {k}" for k, v in measured.counts.items()),
        "seconds": round(time.perf_counter() - start),
    }


def expected(program: Program, n: int, shape: tuple) -> dict:
    """Return the bytes that the formula gives, if there is one."""
    each = program.wire or np.dtype(program.dtype).itemsize
    return {"formula": program.sent(n, each, *shape)} if program.sent else {}


def said(process: subprocess.CompletedProcess) -> dict:
    """Return what a compilation printed last, or the error that ended it."""
    if process.returncode == 0:
        return json.loads(process.stdout.splitlines()[-1])
    errors = [line for line in process.stderr.splitlines() if "Error: " in line]
    return {"note": (errors or process.stderr.splitlines())[-1][:300]}


def attempt(*words: str) -> dict:
    """Run this file with these words in a process of its own, for `LIMIT` seconds."""
    environment = os.environ | ALONE | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, __file__, *words]
    run = partial(subprocess.run, capture_output=True, text=True, check=False)
    try:
        return said(run(command, env=environment, timeout=LIMIT))
    except subprocess.TimeoutExpired:
        return {"seconds": LIMIT, "note": f"not compiled in {LIMIT} s"}


def row(name: str, topology: str) -> dict | None:
    """Return a row of the table, or None if the program has no size for the pod."""
    program, which = PROGRAMS[name], [*PODS].index(topology)
    n, shape = program.sizes[which], MESHES[program.axes][which]
    if n is None:
        return None
    return {
        "program": name,
        "topology": topology,
        "chips": PODS[topology],
        "mesh": "x".join(map(str, shape)),
        "shape": "x".join([str(n)] * program.ndim),
        "dtype": program.dtype,
        **expected(program, n, shape),
        **attempt("compile", name, topology),
    }


# --------------------------------------------------------------------------- the torus


def hops(mesh: jax.sharding.Mesh) -> list[np.ndarray]:
    """Count the links between neighbours along each axis of a mesh on a cubic torus."""
    places = np.array([chip.coords for chip in mesh.devices.flat])
    places = places.reshape(*mesh.devices.shape, 3)
    side = places.max() + 1
    steps = (abs(places - np.roll(places, 1, axis)) for axis in range(places.ndim - 1))
    return [np.minimum(step, side - step).sum(-1) for step in steps]


def orders(topology: str, axes: str, shape: tuple) -> dict[str, Callable]:
    """Return three ways to put the chips of a pod in a mesh."""
    mesh, every = jax.sharding.Mesh, chips(topology)
    split = partial(create_device_mesh, allow_split_physical_axes=True)
    return {
        "in the order of the list": lambda: mesh(
            np.array(every).reshape(shape), tuple(axes)
        ),
        "jax.make_mesh": lambda: jax.make_mesh(shape, tuple(axes), devices=every),
        "allow_split_physical_axes": lambda: mesh(split(shape, every), tuple(axes)),
    }


def torus(topology="v5p:8x8x8") -> list[dict]:
    """Return how far apart neighbours are, for meshes of several shapes and orders."""
    rows = []
    for shape in ((512,), (8, 64), (16, 32), (32, 16), (8, 8, 8)):
        axes = "xyz"[: len(shape)]
        for order, make in orders(topology, axes, shape).items():
            about = {"topology": topology, "mesh": "x".join(map(str, shape))}
            about["order"] = order
            try:
                for axis, links in zip(axes, hops(make()), strict=True):
                    far = {"mean": f"{links.mean():.3f}", "longest": int(links.max())}
                    rows.append(about | {"axis": axis} | far)
            except NotImplementedError as error:
                rows.append(about | {"note": str(error).partition(". ")[0]})
    return rows


# ------------------------------------------------------------------------- the tables


def order() -> list[tuple[str, str]]:
    """Return the keys of all rows: programs as in `PROGRAMS`, small pods first."""
    return [(name, topology) for name in PROGRAMS for topology in PODS]


def main(folder: Path, names: list[str]):
    """Compile these programs for every pod, and keep both tables in `folder`."""
    for topology in PODS:  # small ones first
        for name in names:
            if name != "torus" and (new := row(name, topology)):
                print(*new.values(), flush=True)
                keep(folder / "pods.csv", [new], order())
    keep(folder / "torus.csv", attempt("torus")["rows"])


if __name__ == "__main__":
    match sys.argv[1:]:
        case "compile", name, topology:
            print(json.dumps(compiled(name, topology)))
        case ["torus"]:
            print(json.dumps({"rows": torus()}))
        case folder, *names:
            main(Path(folder), names or [*PROGRAMS])
