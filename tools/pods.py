"""Compile the book's programs for TPU pods that are not there: `tools/pods.py FOLDER`.

libtpu holds the compiler of a TPU, and needs none. Each program of `PROGRAMS` is
compiled for each pod of `PODS`, one after the other (libtpu wants to be alone) and each
in a process of its own (so that a compilation may be given up), and FOLDER/pods.csv
keeps a row for each. FOLDER/torus.csv keeps how far apart neighbours in a mesh are.
Names of programs after FOLDER compile these again, and keep the other rows; `torus`
does the second table alone.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
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


# ----------------------------------------------------------------------- the programs


@dataclass(frozen=True)
class Program:
    """A function `call` of arrays with these `specs`.

    `axes` names those of the mesh, `sizes` gives the length of every axis of the arrays
    in each pod, None where the program is not compiled. `wire` is the type of what is
    sent, if other than in memory.
    """

    call: str
    axes: str
    specs: tuple
    sizes: tuple
    dtype: str
    ndim: int = 2
    wire: str | None = None


BLOCKS = jax.P("x", "y")
ROWS, COLUMNS = jax.P("x", None), jax.P(None, "x")
WIDE = (16384, 131072, 524288)
ROUND = (16384, 65536, 262144)
CUBES = (512, 2048, 4096)


def field(call, axes):
    """Return a program that transforms a complex cube."""
    return Program(call, axes, (jax.P(*axes),), CUBES, "complex64", ndim=3)


summa = partial(Program, "examples.matmul:summa", "xy", (BLOCKS, BLOCKS), WIDE)
line = partial(Program, axes="x", sizes=ROUND, dtype="bfloat16")
equations = partial(Program, axes="xy", sizes=WIDE, dtype="float32")
layers = (jax.P("x", ("z", "y")), jax.P(("z", "x"), "y"))
PROGRAMS = {
    "summa": summa("bfloat16"),
    "summa float32": summa("float32", wire="bfloat16"),
    "summa_25d": Program("examples.matmul:summa_25d", "xyz", layers, WIDE, "bfloat16"),
    "jnp.dot": Program("jax.numpy:dot", "xy", (BLOCKS, BLOCKS), WIDE, "bfloat16"),
    "ag_matmul": line("examples.collective_matmul:ag_matmul", specs=(ROWS, COLUMNS)),
    "matmul_rs": line("examples.collective_matmul:matmul_rs", specs=(COLUMNS, ROWS)),
    "fftn slabs": field("examples.fft:fftn", "x"),
    "fftn pencils": field("examples.fft:fftn", "xy"),
    "fftn_transposed pencils": field("examples.fft:fftn_transposed", "xy"),
    "jnp.fft.fftn pencils": field("jax.numpy.fft:fftn", "xy"),
    "lu_factor": equations("examples.lu:lu_factor", specs=(BLOCKS,)),
    "solve": equations("examples.lu:solve", specs=(BLOCKS, jax.P())),
    "cho_factor": equations("examples.cholesky:cho_factor", specs=(BLOCKS,)),
    "jnp.linalg.solve": equations(
        "jax.numpy.linalg:solve", specs=(BLOCKS, jax.P()), sizes=(1024, 131072, None)
    ),
}


# -------------------------------------------------------------------- the compilations


def chips(topology: str) -> list:
    """Return the chips of a pod, as libtpu describes it."""
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
    """Return the bytes that the module's `cost` predicts, if the book has a module."""
    module, _, _ = program.call.partition(":")
    if not module.startswith("examples."):
        return {}
    mesh = jax.sharding.AbstractMesh(shape, tuple(program.axes))
    dtype = program.wire or program.dtype
    with jax.sharding.use_abstract_mesh(mesh):
        given = arguments(replace(program, dtype=dtype), n, mesh)
        cost = resolve_name(f"{module}:cost")(resolve_name(program.call), *given)
    return {"formula": getattr(cost, "sent", cost)}


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
