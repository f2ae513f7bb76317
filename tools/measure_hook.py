"""Show and store the programs that pages measure, for other machines.

A kernel that plays a page calls `install` (see src/book/play.py). From then on
`measure` shows a program as compiled for this machine, and beside it the rows of the
machines in `MACHINES`. A program's key is a digest of its StableHLO: JAX's own output
with all shardings, before any compiler. Each program of a page is written into a
folder. Where no machine has compiled it, it stands there as it is lowered for the
others, and `benchmarks/programs.py` compiles it. So do those that CI draws.
"""

import hashlib
import io
import json
import os
import re
import runpy
from importlib import import_module
from pathlib import Path

import jax

SOURCES = Path(__file__).resolve().parents[1] / "src"  # a reader's notebook has none
Table = runpy.run_path(str(SOURCES / "examples/tables.py"))["Table"]
MACHINES = {"TPU v5p": "tpu", "H100": "cuda"}  # machine -> JAX's name of its platform
STAYS = {  # words of an error -> what does not travel
    "specified backend cpu": "it calls back into Python, where it was made",
    "custom_?(spmd)?partition": "a function in Python partitions it, where it was made",
}
WORDS = 300  # characters of what a compiler says
# where this process keeps a function of Python
UNSTABLE = re.compile(r'index = \d+ : ui64|backend_config = "\d+"')
ITEM = re.compile(r"(up to )?(\d+|\?) ([\w-]+) of (\d+) B over (.*?) among ([\d,/]+)")
SIZES = "arguments", "outputs", "temporaries"  # columns that `Program` takes


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
    fields = {name: getattr(program, name) for name in (*SIZES, "sent")}
    return fields | {"collectives": format_collectives(program.collectives)}


def read_program(row, module):
    """Return a row as a program, or the message of a compiler that refused it."""
    if row["note"]:
        return row["note"]
    found = tuple(parse_collectives(row["collectives"], module))
    return module.Program(found, *(int(row[name]) for name in SIZES))


class Machines(dict):
    """Programs by machine, shown as a table with a column for each, this one first."""

    def __init__(self, here, others):
        """Store others' programs, or their refusals; make the table."""
        super().__init__(others)
        every = {jax.default_backend().upper(): here, **others}
        counts = [getattr(each, "counts", {}) for each in every.values()]
        kinds = sorted({kind for each in counts for kind in each})
        rows = [[kind, *(each.get(kind, 0) for each in counts)] for kind in kinds]
        for title, name in ("bytes sent", "sent"), ("temporaries", "temporaries"):
            sizes = (getattr(each, name, "refused") for each in every.values())
            rows.append([title, *sizes])
        rows = [[format_count(count) for count in row] for row in rows]
        head = ["compiled for", *every]
        self.table = Table(head, rows, "The same program, elsewhere")

    def __str__(self):
        """Return aligned columns."""
        return str(self.table)

    def _repr_html_(self):
        return self.table._repr_html_()


def format_count(count):
    """Return a count for a cell; that of a loop of unknown length is a word."""
    return "unknown" if str(count) in ("None", "nan") else count


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
    lowered = traced.lower(lowering_platforms=(platform,))
    if lowered._lowering._compiler_options_kvs:
        raise ValueError("its compiler_options are those of one compiler")
    given, module = lowered._lowering.compile_args, io.BytesIO()
    lowered.compiler_ir().operation.write_bytecode(file=module)
    effects = [False] * len(given["ordered_effects"])
    places = given["in_shardings"], given["out_shardings"]
    return {
        "module": module.getvalue().hex(),
        "tupled": given["tuple_args"],
        "free": [[*effects, *map(is_free, each)] for each in places],
    }


def is_free(sharding) -> bool:
    """Return whether the compiler chooses where an argument or a result lies."""
    chosen = isinstance(sharding, jax.sharding.Sharding)
    return not chosen or jax.P.UNCONSTRAINED in getattr(sharding, "spec", ())


def refusal(error) -> str:
    """Return the message of JAX or a compiler that refused a program, shortened."""
    message = " ".join(str(error).split())
    for mark, meaning in STAYS.items():
        if re.search(mark, message, re.I):
            return f"not moved: {meaning}"
    return f"{type(error).__name__}: {message}".partition(" Traceback")[0][:WORDS]


def make_note(traced, lowered, here, machines) -> dict:
    """Return a program with its row here, and lowered for these machines."""
    given = lowered._lowering.compile_args
    places = [*given["in_shardings"], *given["out_shardings"]]
    meshes = [dict(s.mesh.shape) for s in places if hasattr(s, "mesh")]
    context = jax.sharding.get_abstract_mesh()
    meshes += [dict(context.shape)] if context.shape else []
    note = {"name": traced.fun_name, "devices": given["num_devices"], "meshes": meshes}
    note["CPU"] = row_fields(here)
    for machine in machines:
        try:
            note[machine] = lower_for(traced, MACHINES[machine])
        except Exception as error:
            note[machine] = {"note": refusal(error)}
    return note


def make_hook(communication, programs, notes=None):
    """Return a hook for `measure` that looks up rows, and writes notes into a folder.

    communication: the module; programs: program -> machine -> row.
    """

    def ask(traced, lowered, here):
        key = key_of(lowered)
        rows = programs.get(key, {})
        if notes:
            drawn = draw(key).startswith("0")
            missing = [name for name in MACHINES if drawn or name not in rows]
            note = make_note(traced, lowered, here, missing)
            notes.mkdir(parents=True, exist_ok=True)
            (notes / f"{key}.json").write_text(json.dumps(note))
        found = (name for name in MACHINES if name in rows)
        others = {name: read_program(rows[name], communication) for name in found}
        return Machines(here, others) if others else {}

    return ask


def install():
    """Add the hook to the `measure` of this kernel."""
    table = runpy.run_path(str(SOURCES / "book/program_table.py"))
    programs = table["group_rows"](table["read_rows"]())
    communication = import_module("examples.communication")
    folder = Path(os.environ["BOOK_NOTES"])
    communication.ELSEWHERE.append(make_hook(communication, programs, folder))
