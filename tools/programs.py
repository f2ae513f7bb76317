"""Compile what pages measure for machines that are not there: `tools/programs.py`.

Pages write their programs into docs/_build/programs (see measure_hook.py). Those
without a row are compiled for as many TPU v5p chips and H100 GPUs as they have devices.
docs/reference/data/programs.csv has a row for each program and machine, this one
included. Rows of programs that no page has any more are removed.

Rows of another JAX or libtpu are compiled again. `--sample=3` compiles three stored
programs, and fails where a row differs; `BOOK_DRAW`, a commit's hash, draws them, and
must have been set when the pages ran. Then it runs the tests that need compilers.
"""

import argparse
import json
import math
import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402  (JAX reads the variable above)
import measure_hook  # noqa: E402
import numpy as np  # noqa: E402
from jax.extend.backend import get_compile_options  # noqa: E402
from jax.extend.mlir import ir  # noqa: E402
from jaxlib.xla_client import DeviceList  # noqa: E402
from records import COMPILERS, read_table, write_table  # noqa: E402

from book import notes, program_table  # noqa: E402
from book.page import pages  # noqa: E402
from examples import communication  # noqa: E402
from examples.machines import described  # noqa: E402

COLUMNS = "name", "machine", "devices", "seconds", "collectives", "note"


# ---------------------------------------------------------------- one compilation


def compile_program(note, program, devices):
    """Compile a lowered program as JAX does, for these devices."""
    client, number = devices[0].client, note["devices"]
    assignment = np.array([devices])
    options = get_compile_options(1, number, assignment, backend=client)
    options.parameter_is_tupled_arguments = program["tupled"]
    build = options.executable_build_options
    build.allow_spmd_sharding_propagation_to_parameters = program["free"][0]
    build.allow_spmd_sharding_propagation_to_output = program["free"][1]
    with jax.jit(abs).lower(0).compiler_ir().context:  # it knows JAX's dialects
        module = ir.Module.parse(bytes.fromhex(program["module"]))
        places = DeviceList(tuple(devices))
        return client.compile(
            module, executable_devices=places, compile_options=options
        )


def measure_program(note, program, devices) -> dict:
    """Return the fields of a program's row: what it sends and holds."""
    start = time.perf_counter()
    executable = compile_program(note, program, devices)
    seconds = round(time.perf_counter() - start, 1)
    text = executable.hlo_modules()[0].to_string()
    meshes = (m for m in note["meshes"] if math.prod(m.values()) == note["devices"])
    read_back = communication.read(text, next(meshes, None))
    held = executable.get_compiled_memory_stats()
    kinds = {"arguments": "argument", "outputs": "output", "temporaries": "temp"}
    sizes = {k: getattr(held, f"{v}_size_in_bytes") for k, v in kinds.items()}
    return measure_hook.row_fields(replace(read_back, **sizes)) | {"seconds": seconds}


def compile_row(key, note, machine) -> dict:
    """Compile one program for one machine, and return its row without its pages."""
    about = {"program": key, "machine": machine, "name": note["name"]}
    about["devices"] = note["devices"]
    program = note[machine]
    try:
        if "note" in program:
            return about | program
        devices = chips(machine, note["devices"])
        return about | measure_program(note, program, devices)
    except Exception as error:  # a compiler's refusal is an answer
        return about | {"note": measure_hook.refusal(error)}


def chips(machine, count) -> list:
    """Return so many chips of a machine, as its compiler describes them."""
    if machine == "H100":
        hosts = -(-count // 8)
        return described("h100", hosts=hosts, per_host=count // hosts)
    return described("v5p:2x2x2" if count <= 8 else "v5p:4x4x4")[:count]


# --------------------------------------------------------------------- all of them


def read_programs() -> dict[str, tuple[dict, list[str]]]:
    """Return the programs of pages: key -> their note, names of pages."""
    programs = {}
    for page in pages(DOCS):
        for file in notes.note_files(page.name):
            old, own = programs.get(file.stem, ({}, []))
            programs[file.stem] = old | json.loads(file.read_text()), [*own, page.name]
    return programs


def read_answers() -> dict[str, dict[str, dict]]:
    """Return the stored rows: program -> machine -> row."""
    return program_table.group_rows(program_table.read_rows())


def select_jobs(programs, *, stored) -> list[tuple[str, dict, str]]:
    """Return what has a stored row, or what has none: key, program, machine."""
    old = read_answers()
    return [
        (key, note, machine)
        for key, (note, _) in programs.items()
        for machine in measure_hook.MACHINES
        if machine in note and (machine in old.get(key, {})) == stored
    ]


def main():
    """Compile what is missing; keep each row as it comes."""
    programs = read_programs()
    where = {key: own for key, (_, own) in programs.items()}
    new, jobs = changed_rows(programs), select_jobs(programs, stored=False)
    print(f"{len(programs)} programs, {len(jobs)} compilations", flush=True)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        for done in as_completed([pool.submit(compile_row, *job) for job in jobs]):
            new.append(done.result())
            print(*(new[-1].get(name, "") for name in COLUMNS), flush=True)
            if len(new) % 20 == 0:
                write_rows(new, where)
    write_rows(new, where)


def changed_rows(programs) -> list[dict]:
    """Return the rows of this machine that differ from the stored ones."""
    old, rows = read_answers(), []
    for key, (note, _) in programs.items():
        about = {"program": key, "machine": "CPU", "name": note["name"]}
        new = about | {"devices": note["devices"]} | note["CPU"]
        was = old.get(key, {}).get("CPU", {})
        if any(was.get(name) != str(value) for name, value in new.items()):
            rows.append(new)
    return rows


def compile_sample(count) -> int:
    """Compile stored programs, drawn by the commit; return 1 if one differs."""
    old, drawn = read_answers(), select_jobs(read_programs(), stored=True)
    keys = sorted({key for key, *_ in drawn}, key=measure_hook.draw)[:count]
    different = 0
    for key, note, machine in drawn:
        if key in keys:
            new, was = compile_row(key, note, machine), old[key][machine]
            changed = {k: (was[k], str(v)) for k, v in new.items() if was[k] != str(v)}
            changed.pop("seconds", None)
            different += bool(changed)
            print(key, note["name"], machine, changed or "as kept", flush=True)
    if not keys:
        print("no page ran since this commit: nothing is drawn")
    tests = [sys.executable, "-m", "pytest", "-q", "-n0", "tests/machines"]
    tests += ["tests/test_compilers.py", "tests/test_pods.py"]  # with all compilers
    failed = different or not keys
    return int(bool(failed)) or subprocess.call(tests, cwd=ROOT)


def write_rows(new, where):
    """Write the table: new rows, and older ones that a page still has."""
    played = {page for own in where.values() for page in own}
    old = [*read_table(program_table.TABLE), *new]
    rows = {(each["program"], each["machine"]): each for each in old}
    stamped = []
    for (key, _), each in rows.items():
        own = set(str(each.get("pages", "")).split()) - played | {*where.get(key, ())}
        if own:
            stamped.append(each | {"pages": " ".join(sorted(own))})
    stamped.sort(key=lambda each: (each["pages"], each["program"], each["machine"]))
    write_table(program_table.TABLE, stamped, packages=COMPILERS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, help="how many of them")
    given = parser.parse_args()
    sys.exit(compile_sample(given.sample) if given.sample else main())
