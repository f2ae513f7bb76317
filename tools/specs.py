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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
os.environ["JAX_NUM_CPU_DEVICES"] = "8"
os.environ["JAX_PLATFORMS"] = "cpu"

import explorer_specs as asked  # noqa: E402  (after the environment)
import jax  # noqa: E402  (after its environment)
from records import write_table  # noqa: E402

from examples.judge import Judge  # noqa: E402
from examples.shardings import differences, notation  # noqa: E402


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


def verdict(name: str, mesh: str, spec: str) -> dict[str, object]:
    """Return the verdict on a spec, and the part that each device holds."""
    exercise = asked.exercise(name)
    made, shape = exercise.meshes[mesh], asked.sizes(exercise.shape)
    with jax.set_mesh(eval(f"jax.make_mesh({made})")):
        answer = eval(asked.spec(spec))
        found = Judge(differences=differences).sharding(answer, exercise.target, shape)
        _, maps = differences(answer, exercise.target, shape)
    holds = notation(maps[1]) if len(maps) > 1 else ""
    return {"holds": holds, "verdict": str(found)}


def answer_row(exercise: str, mesh: str, shape: str, spec: str) -> dict[str, object]:
    """Return the row of one question."""
    about = {"exercise": exercise, "mesh": mesh, "shape": shape, "spec": spec}
    if exercise:
        return about | verdict(exercise, mesh, spec)
    return about | state(asked.code(asked.MESHES[mesh], shape, spec))


def main():
    """Compute all rows, and write the table."""
    write_table(asked.SOURCE, [answer_row(*question) for question in asked.questions()])


if __name__ == "__main__":
    main()
