"""Ask JAX which device holds what: docs/arrays/data/specs.csv.

Each state of the explorer is the code that its reader copies, run here: a mesh, a shape
and a spec. Kept are the type, the bytes on a device, the number of copies of each part,
and which devices hold which part, as its shards say; or the error that came. For each
exercise that can be answered in an explorer, the judge's words for every spec.
"""

import contextlib
import io
import os
import re
from collections import Counter
from functools import cache
from itertools import permutations, product

os.environ["JAX_NUM_CPU_DEVICES"] = "8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
from explorers import spec_code
from records import ROOT, write_table

from book.page import Page
from examples.judge import Judge
from examples.shardings import differences, notation

DOCS = ROOT / "docs"
SOURCE = DOCS / "arrays/data/specs.csv"
MESHES = {
    "8": '(8,), ("x",)',
    "2x4": '(2, 4), ("x", "y")',
    "4x2": '(4, 2), ("x", "y")',
    "2x2x2": '(2, 2, 2), ("x", "y", "z")',
}
SHAPES = ["64", "16,32", "12,20", "8,16,4"]
CODE = """\
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)
jax.set_mesh(jax.make_mesh({mesh}))
a = jnp.zeros({shape}, out_sharding={spec})
print(jax.typeof(a))"""
JUDGED = re.compile(r'^judge\.sharding\(answer, "([^"]+)", \(([\d, ]+)\)\)$', re.M)
EVEN = {
    "2x4": MESHES["2x4"],
    "2x2": '(2, 2), ("x", "y")',
    "2x2-even": '(2, 2), ("x", "y"), devices=jax.devices()[::2]',
}
EXERCISES = {  # the page, and the meshes that a reader can choose
    "interleaved-columns": ("arrays/meshes", {"2x4": '(2, 4), ("a", "b")'}),
    "eight-columns": ("arrays/pictures", {"8": MESHES["8"]}),
    "two-by-four": (
        "arrays/picture_to_spec",
        {n: MESHES[n] for n in ("8", "4x2", "2x4")},
    ),
    "transposed-blocks": ("arrays/picture_to_spec", {"2x4": MESHES["2x4"]}),
    "half-the-devices": ("arrays/equal_shardings", EVEN),
    "mysterious": ("arrays/picture_to_spec", {n: MESHES[n] for n in ("2x4", "2x2x2")}),
    "two-halves": ("start/judge", {"2x4": MESHES["2x4"]}),
}


@cache
def stub(exercise) -> tuple[str, str]:
    """Return the picture and the shape that an exercise asks the judge for."""
    cells = Page(DOCS / f"{EXERCISES[exercise][0]}.md", DOCS).code
    (cell,) = (cell for cell in cells if {"exercise", exercise} <= {*cell.tags})
    target, shape = JUDGED.search(cell.source).groups()
    return target, shape.replace(" ", "")


@cache
def asked() -> dict[str, tuple[dict[str, str], list[str]]]:
    """Return the meshes and shapes to choose from, of each exercise and of none."""
    exercises = {n: (meshes, [stub(n)[1]]) for n, (_, meshes) in EXERCISES.items()}
    return {"": (MESHES, SHAPES)} | exercises


def entries(exercise, mesh) -> list[str]:
    """Return what may stand for an array axis in a spec: `-`, `x`, `xy` and so on.

    In the explorer only x and y make a pair; in an exercise every two axes do.
    """
    axes = re.findall(r'"(\w)"', mesh)
    pairs = permutations(axes if exercise else axes[:2], 2)
    return ["-", *axes, *map("".join, pairs)]


def questions() -> list[tuple[str, str, str, str]]:
    """Return the keys of all rows, in the order of the table."""
    return [
        (exercise, name, shape, ",".join(spec))
        for exercise, (meshes, shapes) in asked().items()
        for name, mesh in meshes.items()
        for shape in shapes
        for spec in product(entries(exercise, mesh), repeat=len(sizes(shape)))
    ]


def sizes(shape) -> tuple[int, ...]:
    """Return the numbers of a shape that the table writes as `16,32`."""
    return tuple(map(int, shape.split(",")))


def program(row) -> str:
    """Return the code of a state."""
    spec = f"jax.{spec_code(row['spec'])}"
    return CODE.format(mesh=MESHES[row["mesh"]], shape=sizes(row["shape"]), spec=spec)


def refusal(error: Exception) -> str:
    """Return the class of an error, and its first line without the sharding."""
    line = str(error).partition("\n")[0].partition(" Got shape")[0]
    return f"{type(error).__name__}: {line}"


def held_parts(a) -> dict[int, tuple[slice, ...]]:
    """Return the part of an array that each device holds, as its shards say it."""
    return {
        shard.device.id: tuple(
            slice(*part.indices(size)[:2])
            for part, size in zip(shard.index, a.shape, strict=True)
        )
        for shard in a.addressable_shards
    }


def state(code: str) -> dict[str, object]:
    """Run the code of a state; return the facts of its array, or its error."""
    scope, before = {}, jax.set_mesh(jax.make_mesh((8,), ("x",)))
    try:
        with before, contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, scope)  # sets a mesh, which ends with this one
    except Exception as error:
        return {"error": refusal(error)}
    a, boxes = scope["a"], held_parts(scope["a"])
    (count,) = {a.addressable_shards[n].data.nbytes for n in range(len(boxes))}
    (copies,) = {*Counter(boxes.values()).values()}
    holds, kind = notation(boxes), out.getvalue().strip()
    return {"type": kind, "bytes": count, "copies": copies, "holds": holds}


def verdict(name: str, mesh: str, shape: str, spec: str) -> dict[str, object]:
    """Return the verdict on a spec, and the part that each device holds."""
    meshes, target = asked()[name][0], stub(name)[0]
    with jax.set_mesh(eval(f"jax.make_mesh({meshes[mesh]})")):
        question = eval(f"jax.{spec_code(spec)}"), target, sizes(shape)
        found = Judge(differences=differences).sharding(*question)
        _, maps = differences(*question)
    holds = notation(maps[1]) if len(maps) > 1 else ""
    return {"holds": holds, "verdict": str(found)}


def answer_row(*question: str) -> dict[str, object]:
    """Return the row of one question: exercise or none, mesh, shape, spec."""
    about = dict(zip(("exercise", "mesh", "shape", "spec"), question, strict=True))
    exercise = about["exercise"]
    return about | (verdict(*question) if exercise else state(program(about)))


def main():
    """Compute all rows, and write the table."""
    write_table(SOURCE, [answer_row(*question) for question in questions()])


if __name__ == "__main__":
    main()
