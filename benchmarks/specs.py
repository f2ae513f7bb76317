"""Ask JAX which device holds what: docs/arrays/data/specs.csv.

Each state of the explorer is the code that its reader copies, run here: a mesh, a shape
and a spec. Kept are the type, the bytes on a device, the number of copies of each part,
and which devices hold which part, as its shards say; or the error that came. For each
exercise that can be answered in an explorer, the judge's words for every spec.
"""

import contextlib
import io
import os
from collections import Counter

os.environ["JAX_NUM_CPU_DEVICES"] = "8"
os.environ["JAX_PLATFORMS"] = "cpu"

import explorer_specs as asked
import jax
from explorers import spec_code
from records import write_table

from examples.judge import Judge
from examples.shardings import differences, notation


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
    meshes, target = asked.asked()[name][0], asked.stub(name)[0]
    with jax.set_mesh(eval(f"jax.make_mesh({meshes[mesh]})")):
        question = eval(f"jax.{spec_code(spec)}"), target, asked.sizes(shape)
        found = Judge(differences=differences).sharding(*question)
        _, maps = differences(*question)
    holds = notation(maps[1]) if len(maps) > 1 else ""
    return {"holds": holds, "verdict": str(found)}


def answer_row(*question: str) -> dict[str, object]:
    """Return the row of one question: exercise or none, mesh, shape, spec."""
    about = dict(zip(("exercise", "mesh", "shape", "spec"), question, strict=True))
    exercise = about["exercise"]
    return about | (verdict(*question) if exercise else state(asked.program(about)))


def main():
    """Compute all rows, and write the table."""
    write_table(asked.SOURCE, [answer_row(*question) for question in asked.questions()])


if __name__ == "__main__":
    main()
