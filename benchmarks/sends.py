"""Ask three compilers what a line of JAX sends: docs/reference/data/sends.csv.

    a  float32[2048, 4096]    b  as a    w  float32[4096, 8192]    i  int32[64], copied

Eight devices stand in a mesh of 2 x 4, axes x and y. Three kinds of programs:
operations whose arrays all have one spec; the product `a @ w`, each operand with its
spec, its result where the compiler puts it or where it is asked for; and `jax.reshard`
from spec to spec. Each is compiled for this CPU, for eight TPU v5p chips and for eight
H100 GPUs, under Auto axes; `explicit` is the type that the line has under Explicit
axes, or JAX's words. Nothing runs, and no array is made.

Rows are kept as they come. A row of the same line and versions is not compiled again,
so a stopped run goes on.
"""

import itertools
import multiprocessing
import os
import re
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
os.environ["JAX_NUM_CPU_DEVICES"] = "8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402  (after its environment)
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import AxisType  # noqa: E402
from records import COMPILERS, read_table, versions, write_table  # noqa: E402

from examples import communication  # noqa: E402
from examples.machines import described  # noqa: E402

TABLE = ROOT / "docs/reference/data/sends.csv"
KEY = "line", "specs", "result", "machine"
MACHINES = {"CPU": None, "TPU v5p": "v5p:2x2x2", "H100": "h100"}
MESH = (2, 4), ("x", "y")
SHAPES = {"a": (2048, 4096), "b": (2048, 4096), "w": (4096, 8192)}
SPECS = ["-,-", "x,-", "y,-", "xy,-", "-,x", "-,y", "-,xy", "x,y", "y,x"]
RESULTS = ["", "-,-", "x,y", "xy,-", "-,xy"]  # "": as it comes
ORDERS = [*SPECS, "yx,-", "-,yx"]  # of two axes on one dimension

OPERATIONS = """
    a + b
    a.sum()
    a.sum(0)
    a.sum(1)
    a.max(1)
    a.argmax(0)
    jnp.linalg.norm(a)
    jax.nn.softmax(a)
    jax.nn.logsumexp(a, 0)
    jnp.cumsum(a, 0)
    jnp.cumsum(a, 1)
    jnp.sort(a, 0)
    jnp.sort(a, 1)
    lax.top_k(a, 4)[0]
    a.T
    a.ravel()
    a.reshape(1024, 8192)
    a[2:6]
    a[::2]
    a[::-1]
    a[i]
    a.at[2:6].set(0)
    a.at[i].add(1)
    jnp.roll(a, 1, 0)
    jnp.roll(a, 1, 1)
    jnp.concatenate([a, b])
    jnp.pad(a, 1)
    jnp.diff(a, axis=0)
    jnp.fft.fft(a)
    jnp.fft.fft2(a)
    jnp.repeat(a, 2, 0)
    w - 0.1 * jax.grad(loss)(w, a)
"""
LINES = [line.strip() for line in OPERATIONS.strip().splitlines()]
PRODUCT, RESHARD = "a @ w", "jax.reshard(a, to)"


def loss(w, a):
    """Return a number that depends on a product, as a training step's does."""
    return jnp.square(jnp.tanh(a @ w)).mean()


def questions() -> list[tuple[str, str, str]]:
    """Return all that is asked: a line, its operands' specs, and its result's."""
    asked = [(line, spec, "") for line in LINES for spec in SPECS]
    asked += [
        (PRODUCT, f"{a} {w}", result)
        for a, w, result in itertools.product(SPECS, SPECS, RESULTS)
    ]
    return asked + [(RESHARD, *pair) for pair in itertools.product(ORDERS, ORDERS)]


def spec(text: str) -> jax.P:
    """Return the spec that is written `xy,-`: rows over x and y, columns whole."""
    axes = {"-": None, "xy": ("x", "y"), "yx": ("y", "x")}
    return jax.P(*(axes.get(dim, dim) for dim in text.split(",")))


@cache
def mesh(machine: str, kind: AxisType) -> jax.sharding.Mesh:
    """Return the mesh of a machine, which is described unless it is this one."""
    place = MACHINES[machine]
    devices = described(place) if place else jax.devices()
    return jax.make_mesh(*MESH, (kind,) * 2, devices=devices)


def lower_line(machine: str, kind: AxisType, line: str, specs: str, result: str):
    """Trace and lower a line for a machine, with axes of this type."""
    here, asked = mesh(machine, kind), spec(result) if result else None
    names = [name for name in SHAPES if re.search(rf"\b{name}\b", line)]
    places = dict(zip(names, itertools.cycle(map(spec, specs.split()))))
    with jax.set_mesh(here):
        arguments = {
            name: jax.ShapeDtypeStruct(
                SHAPES[name], "float32", sharding=jax.NamedSharding(here, place)
            )
            for name, place in places.items()
        }
        if "[i]" in line:
            whole = jax.NamedSharding(here, jax.P())
            arguments["i"] = jax.ShapeDtypeStruct((64,), "int32", sharding=whole)
        options = {}
        if asked is not None and kind is AxisType.Auto:
            options["out_shardings"] = jax.NamedSharding(here, asked)
            code = line.replace(RESHARD, "a")
        elif asked is not None:
            product = "jnp.matmul(a, w, out_sharding=to)"
            code = line.replace(PRODUCT, product)
        else:
            code = line
        known = {"jax": jax, "jnp": jnp, "lax": lax, "loss": loss, "to": asked}
        f = eval(f"lambda {', '.join(arguments)}: {code}", known)
        return jax.jit(f, **options).lower(*arguments.values())


def type_of(aval, sharding) -> str:
    """Write a type as [2048@x, 4096]."""
    axes = [*getattr(sharding, "spec", ()), *[None] * aval.ndim]
    dims = zip(aval.shape, axes, strict=False)
    return f"[{', '.join(size_of(n, names) for n, names in dims)}]"


def size_of(size: int, names) -> str:
    """Write a dimension as 2048, 2048@x or 2048@(x,y)."""
    if isinstance(names, tuple):
        names = f"({','.join(names)})"
    return f"{size}@{names}" if names else str(size)


def explicit_type(line: str, specs: str, result: str) -> str:
    """Return the type under Explicit axes, or the error's name and first words."""
    try:
        found = lower_line("CPU", AxisType.Explicit, line, specs, result).out_info
    except Exception as error:  # the library's errors have no common, public class
        words = str(error).strip().partition("\n")[0]
        return f"{type(error).__name__}: {words}"
    return type_of(found, found.sharding)


def compile_row(machine: str, line: str, specs: str, result: str) -> dict[str, object]:
    """Return the row of one program on one machine."""
    about = {"line": line, "specs": specs, "result": result, "machine": machine}
    program = lower_line(machine, AxisType.Auto, line, specs, result)
    compiled = program.compile()
    found = communication.read(compiled.as_text(), mesh(machine, AxisType.Auto))
    sent: dict[tuple, int] = {}
    for one in found.collectives:
        key = one.kind, ",".join(one.axes or ()), one.bytes
        sent[key] = sent.get(key, 0) + (one.times or 1)
    return about | {
        "collectives": "; ".join(
            f"{times} {kind} of {size} B over {axes or '?'}"
            for (kind, axes, size), times in sent.items()
        ),
        "sent": int(found.sent),
        "held": compiled.memory_analysis().temp_size_in_bytes,
        "output": type_of(program.out_info, compiled.output_shardings),
        "explicit": explicit_type(line, specs, result) if machine == "CPU" else "",
    }


def missing_questions() -> list[tuple[str, str, str, str]]:
    """Return what has no row of these versions yet."""
    today = versions(COMPILERS).items()
    known = {key_of(row) for row in read_table(TABLE) if today <= row.items()}
    every = ((*question, machine) for question in questions() for machine in MACHINES)
    return [one for one in every if one not in known]


def key_of(row) -> tuple[str, ...]:
    """Return the question of a row, and its machine."""
    return tuple(row[name] for name in KEY)


def main():
    """Compile missing programs; write each row as it comes."""
    order = [(*question, machine) for question in questions() for machine in MACHINES]
    jobs, new = missing_questions(), []
    print(f"{len(order)} programs, {len(jobs)} to compile", flush=True)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        tasks = [pool.submit(compile_row, one[-1], *one[:-1]) for one in jobs]
        for done in as_completed(tasks):
            new.append(row := done.result())
            if len(new) % 50 == 0:
                write_table(TABLE, new, order, COMPILERS)
                print(len(new), *key_of(row), row["sent"], flush=True)
    write_table(TABLE, new, order, COMPILERS)


if __name__ == "__main__":
    main()
