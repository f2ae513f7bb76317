"""Compile what pages measure for machines that are not there: `benchmarks/programs.py`.

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

import jax
import measure_hook
import numpy as np
from jax.extend.backend import get_compile_options
from jax.extend.mlir import ir
from jaxlib.xla_client import DeviceList
from records import COMPILERS, ROOT, read_table, write_table

from book import notes, program_table
from book.page import pages
from examples import communication
from examples.machines import described

TESTS = [f"tests/test_{name}.py" for name in ("explorers", "pods", "records")]
TESTS += ["tests/machines"]
SIZES = {"arguments": "argument", "outputs": "output", "temporaries": "temp"}


# ---------------------------------------------------------------- one compilation


def chips(machine, count) -> list:
    """Return so many chips of a machine, as its compiler describes them."""
    if machine == "H100":
        hosts = -(-count // 8)
        return described("h100", hosts=hosts, per_host=count // hosts)
    return described("v5p:2x2x2" if count <= 8 else "v5p:4x4x4")[:count]


def compile_program(program, devices):
    """Compile a lowered program as JAX does, for these devices."""
    client = devices[0].client
    options = get_compile_options(1, len(devices), np.array([devices]), backend=client)
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
    executable = compile_program(program, devices)
    seconds = round(time.perf_counter() - start, 1)
    text = executable.hlo_modules()[0].to_string()
    meshes = (m for m in note["meshes"] if math.prod(m.values()) == note["devices"])
    held = executable.get_compiled_memory_stats()
    sizes = {k: getattr(held, f"{v}_size_in_bytes") for k, v in SIZES.items()}
    found = replace(communication.read(text, next(meshes, None)), **sizes)
    return measure_hook.row_fields(found) | {"seconds": seconds}


def compile_row(key, note, machine) -> dict:
    """Return the row of a program for one machine, without its pages."""
    row = {"program": key, "machine": machine, "name": note["name"]}
    row["devices"], program = note["devices"], note[machine]
    if machine == "CPU" or "note" in program:  # the page compiled it, or JAX refused
        return row | program
    try:
        devices = chips(machine, note["devices"])
        return row | measure_program(note, program, devices)
    except Exception as error:  # a compiler's refusal is an answer
        return row | {"note": measure_hook.refusal(error)}


# --------------------------------------------------------------------- all of them


def read_programs() -> tuple[dict[str, dict], dict[str, set[str]]]:
    """Return the notes of programs, and the names of their pages."""
    programs, where = {}, {}
    for page in pages(ROOT / "docs"):
        for file in notes.note_files(page.name):
            note = json.loads(file.read_text())
            programs[file.stem] = programs.get(file.stem, {}) | note
            where.setdefault(file.stem, set()).add(page.name)
    return programs, where


def differences(row, stored) -> dict:
    """Return what differs in a row, seconds apart: its key and field -> old, new."""
    key, machine = row["program"], row["machine"]
    old = stored.get(key, {}).get(machine, {})
    new = {name: str(value) for name, value in row.items() if name != "seconds"}
    return {
        (key, machine, name): (old.get(name), value)
        for name, value in new.items()
        if old.get(name) != value
    }


def write_rows(new, where):
    """Write the table: new rows, and older ones that a page still has."""
    played, rows = set().union(*where.values()), {}
    for row in [*read_table(program_table.TABLE), *new]:
        own = {*row.get("pages", "").split()} - played | where.get(
            row["program"], set()
        )
        rows[row["program"], row["machine"]] = row | {"pages": " ".join(sorted(own))}
    rows = [row for row in rows.values() if row["pages"]]
    rows.sort(key=lambda row: (row["pages"], row["program"], row["machine"]))
    write_table(program_table.TABLE, rows, packages=COMPILERS)


def compile_rows(jobs):
    """Compile programs for machines, many at a time; yield rows as they come."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        for done in as_completed([pool.submit(compile_row, *job) for job in jobs]):
            row = done.result()
            print(*row.values(), flush=True)
            yield row


def compile_missing(programs, where, stored, jobs):
    """Compile what has no row, and write the table; it may be cut, and go on."""
    here = [compile_row(key, note, "CPU") for key, note in programs.items()]
    new = [r for r in here if differences(r, stored)]
    print(f"{len(programs)} programs, {len(jobs)} compilations", flush=True)
    for row in compile_rows(jobs):
        new.append(row)
        if len(new) % 20 == 0:
            write_rows(new, where)
    write_rows(new, where)


def compile_sample(stored, jobs) -> int:
    """Compile stored programs again; return 1 if a row differs, or a test fails."""
    changed = {}
    for row in compile_rows(jobs):
        changed |= differences(row, stored)
    print(changed or f"{len(jobs)} compilations gave what is stored")
    tests = [sys.executable, "-m", "pytest", "-q", "-n0", *TESTS]  # with all compilers
    return int(subprocess.call(tests, cwd=ROOT) or bool(changed) or not jobs)


def main(sample) -> int:
    """Compile what has no row, or a sample of what has; return 1 if a row is wrong."""
    programs, where = read_programs()
    stored = program_table.group_rows(program_table.read_rows())
    every = [
        (key, note, machine)
        for key, note in programs.items()
        for machine in measure_hook.MACHINES
        if machine in note
    ]
    missing = [job for job in every if job[2] not in stored.get(job[0], {})]
    if not sample:
        compile_missing(programs, where, stored, missing)
        return 0
    drawn = sorted(
        {job[0] for job in every if job not in missing}, key=measure_hook.draw
    )
    return compile_sample(stored, [job for job in every if job[0] in drawn[:sample]])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, help="how many of them")
    sys.exit(main(parser.parse_args().sample))
