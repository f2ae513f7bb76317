"""Show and store the programs that pages measure, for other machines.

A kernel that runs a page calls `install` (see src/book/program_table.py). From
then on `measure` shows a program as compiled for this machine, and beside it the rows
of the machines in `MACHINES`. A program's key is a digest of its StableHLO: JAX's own
output with all shardings, before any compiler. While the site is built, each program of
a page is written into a folder. Where no machine has compiled it, it stands there as it
is lowered for the others, and `tools/programs.py` compiles it. So do those that CI
draws.
"""

import hashlib
import json
import os
import re
import runpy
from pathlib import Path

import jax
from jax._src.interpreters import mlir, pxla  # no public way to move a program

TABLES = Path(__file__).resolve().parents[1] / "src/examples/tables.py"
Table = runpy.run_path(str(TABLES))["Table"]  # a reader's notebook may not have it
MACHINES = {"TPU v5p": "tpu", "H100": "cuda"}  # machine -> JAX's name of its platform
STAYS = {  # a mark in an error -> what does not travel
    "specified backend cpu": "it calls back into Python, where it was made",
    "custom_partition": "a function in Python partitions it, where it was made",
    "customspmdpartition": "a function in Python partitions it, where it was made",
}
WORDS = 300  # characters of what a compiler says
# where this process keeps a function of Python
UNSTABLE = re.compile(r'index = \d+ : ui64|backend_config = "\d+"')
ITEM = re.compile(r"(up to )?(\d+|\?) ([\w-]+) of (\d+) B over (.*?) among ([\d,/]+)")


# -------------------------------------------------------------------- a row's words


def format_collectives(collectives) -> str:
    """Write collectives as text, equal ones together: the column `collectives`."""
    times = {}
    for c in collectives:
        groups = "/".join(",".join(map(str, group)) for group in c.groups)
        over = "unnamed" if c.axes is None else ", ".join(c.axes)
        maybe = "up to " if c.conditional else ""
        what = maybe, f"{c.kind} of {c.bytes} B over {over} among {groups}"
        times.setdefault(what, []).append(c.times)
    return "; ".join(
        f"{maybe}{'?' if None in each else sum(each)} {what}"
        for (maybe, what), each in times.items()
    )


def parse_collectives(text, module):
    """Yield the collectives of such a text, in the types of `communication`."""
    for item in filter(None, text.split("; ")):
        maybe, times, kind, size, over, groups = ITEM.fullmatch(item).groups()
        axes = None if over == "unnamed" else tuple(filter(None, over.split(", ")))
        members = tuple(tuple(map(int, g.split(","))) for g in groups.split("/"))
        count = None if times == "?" else int(times)
        yield module.Collective(kind, int(size), axes, members, count, bool(maybe))


def row_fields(program) -> dict:
    """Return the fields of a program's row, for `read_program`."""
    sizes = ("arguments", "outputs", "temporaries", "sent")
    return {name: getattr(program, name) for name in sizes} | {
        "collectives": format_collectives(program.collectives)
    }


def read_program(row, module):
    """Return a row as a program, or the message of a compiler that refused it."""
    if row["note"]:
        return row["note"]
    found = tuple(parse_collectives(row["collectives"], module))
    sizes = (int(row[name]) for name in ("arguments", "outputs", "temporaries"))
    return module.Program(found, *sizes)


# ---------------------------------------------------------------------- tables


class Machines(dict):
    """Programs by machine, shown with a column for each beside this machine's."""

    def __init__(self, here, others):
        """Store this machine's program and those of others, or their refusals."""
        super().__init__(others)
        self.here = here

    def columns(self):
        """Return a table: how often each kind runs on which machine, and bytes."""
        every = {jax.default_backend().upper(): self.here, **self}
        counts = [getattr(each, "counts", {}) for each in every.values()]
        lines = [
            [kind, *(format_count(each.get(kind, 0)) for each in counts)]
            for kind in sorted({kind for each in counts for kind in each})
        ]
        for title, name in ("bytes sent", "sent"), ("temporaries", "temporaries"):
            sizes = (getattr(each, name, "refused") for each in every.values())
            lines.append([title, *map(format_count, sizes)])
        return Table(["compiled for", *every], lines, "The same program, elsewhere")

    def __str__(self):
        """Return aligned columns."""
        return str(self.columns())

    def _repr_html_(self):
        return self.columns()._repr_html_()


def format_count(count):
    """Return a number for a cell; that of a loop of unknown length is a word."""
    return "unknown" if count is None or count != count else count  # noqa: PLR0124 (nan)


# --------------------------------------------------------------- in a page's kernel


def key_of(lowered) -> str:
    """Digest a lowered program, and what it asks of its compiler."""
    text = UNSTABLE.sub("", lowered.as_text())
    if options := lowered._lowering._compiler_options_kvs:
        text += repr(sorted(options))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def draw(key) -> str:
    """Return a program's place in the draw of CI, which compiles a few of them again.

    The lowest places are drawn. Where there is no draw, nothing is.
    """
    commit = os.environ.get("BOOK_DRAW", "")
    return hashlib.sha256(f"{commit} {key}".encode()).hexdigest() if commit else "z"


def lower_for(traced, platform) -> dict:
    """Lower for another platform; return the program, and what compiling needs."""
    lowering = traced.lower(lowering_platforms=(platform,))._lowering
    if lowering._compiler_options_kvs:
        raise ValueError("its compiler_options are those of one compiler")
    given = lowering.compile_args
    free = pxla.get_prop_to_input_output(
        given["in_shardings"], given["out_shardings"], len(given["ordered_effects"])
    )
    return {
        "module": mlir.module_to_bytecode(lowering.stablehlo()).hex(),
        "tupled": given["tuple_args"],
        "free": [list(map(bool, each)) for each in free],
    }


def refusal(error) -> str:
    """Return the message of JAX or a compiler that refused a program, shortened."""
    message = " ".join(str(error).split())
    for mark, meaning in STAYS.items():
        if mark in message.lower():
            return f"not moved: {meaning}"
    return f"{type(error).__name__}: {message}".partition(" Traceback")[0][:WORDS]


def write_note(folder, key, moved, here, rows):
    """Write a note of a program of a page, lowered for machines without a row.

    moved: what was traced and lowered; here: its program; rows: machine -> row.
    """
    traced, lowered = moved
    folder.mkdir(parents=True, exist_ok=True)
    given = lowered._lowering.compile_args
    places = [*given["in_shardings"], *given["out_shardings"]]
    meshes = [dict(s.mesh.shape) for s in places if hasattr(s, "mesh")]
    context = jax.sharding.get_abstract_mesh()
    meshes += [dict(context.shape)] if context.shape else []
    note = {"name": traced.fun_name, "devices": given["num_devices"], "meshes": meshes}
    note["CPU"] = row_fields(here)
    for machine, platform in MACHINES.items():
        if machine not in rows or draw(key).startswith("0"):
            try:
                note[machine] = lower_for(traced, platform)
            except Exception as error:
                note[machine] = {"note": refusal(error)}
    (folder / f"{key}.json").write_text(json.dumps(note))


def install(communication, programs, notes=None):
    """Add a hook to `measure` that looks up rows, and writes notes into a folder.

    communication: the module; programs: program -> machine -> row.
    """

    def ask(traced, lowered, here):
        key = key_of(lowered)
        rows = programs.get(key, {})
        if notes:
            write_note(notes, key, (traced, lowered), here, rows)
        others = {
            name: read_program(rows[name], communication)
            for name in MACHINES
            if name in rows
        }
        return Machines(here, others) if others else {}

    communication.ELSEWHERE.append(ask)
