"""Compile the programs of a page for machines that are not there.

`benchmarks/compilers.py FOLDER [NAME ...]` reads the programs from the page itself,
from its cells with the tag `compiled`. FOLDER/compilers.csv has a row for each program
and machine without a compiler in builds of the site. FOLDER/schedules.csv has the
instructions of a few programs, in their order. Names of programs compile these again,
and leave the other rows.
"""

import contextlib
import hashlib
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
from records import COMPILERS, ROOT, Row, read_table, write_table

from book.page import Page

PAGE = ROOT / "docs/global-view/compilers.md"
ATTRIBUTES = re.compile(r", (metadata|backend_config|frontend_attributes)=.*")


class Machine(NamedTuple):
    """A machine as the page calls it, as `described` does, and its mesh."""

    name: str
    chip: str
    hosts: int = 1
    sizes: tuple[int, ...] = (8,)

    @property
    def mesh(self) -> str:
        """The sizes of the mesh, as the table has them."""
        return "x".join(map(str, self.sizes))


H100, V5P, V6E = eight = [
    Machine("H100", "h100"),
    Machine("v5p", "v5p:2x2x2"),
    Machine("v6e", "v6e:2x4"),
]
KINDRED = [
    Machine("v5e", "v5e:2x4"),
    *(Machine(name.upper(), name) for name in ("a100", "h200", "b200")),
]
PODS = [
    Machine("H100", "h100", 64, (512,)),
    Machine("H100", "h100", 512, (4096,)),
    Machine("v5p", "v5p:8x8x8", 1, (512,)),
    Machine("v5p", "v5p:16x16x16", 1, (4096,)),
]
LINES = [
    Machine("H100", "h100", 8, (64,)),
    Machine("v5p", "v5p:2x4x4", 1, (32,)),
    Machine("v5p", "v5p:4x4x4", 1, (64,)),
    Machine("v5p", "v5p:4x4x8", 1, (128,)),
    Machine("v5p", "v5p:8x8x8", 1, (512,)),
]
TWO_AXES = [
    Machine("v5p", "v5p:4x4x4", 1, (4, 16)),
    Machine("v5p", "v5p:8x8x8", 1, (8, 64)),
]
ELSEWHERE = {  # programs that are not compiled for H100 and v5p, eight of each
    "gather": LINES,
    "gather x": TWO_AXES,
    "gather y": TWO_AXES,
    "gather x, y": TWO_AXES,
    "step": [*eight, *KINDRED],
    "step, flat": eight,
    "step, large": [*eight, *PODS],
    "product": eight,
    "product, flat": eight,
}
SCHEDULES = {  # the machines for which the instructions are kept, one of a name
    "step": eight,
    "gather": [m for m in LINES if m.sizes == (64,)][1:],
    "2 layers": [H100],
    "3 layers": [H100],
    "shifted": [H100, V5P],
}


def run_page_cells() -> dict:
    """Run the page's cells with the tag; return their names."""
    names = {}
    for cell in Page(PAGE, ROOT / "docs").code:
        if "compiled" in cell.tags:
            exec(cell.source, names)
    return names


def digest_program(f, arguments) -> str:
    """Digest what JAX hands to a compiler, on eight CPU devices in one or two axes."""
    for sizes in (8,), (2, 4):
        axes = tuple("xy"[: len(sizes)])
        mesh = jax.make_mesh(sizes, axes, (jax.sharding.AxisType.Auto,) * len(axes))
        with contextlib.suppress(ValueError), jax.set_mesh(mesh):  # has no axis y
            traced = jax.jit(f).trace(*arguments(mesh))
            text = traced.lower(lowering_platforms=("tpu",)).as_text()
            return hashlib.sha256(text.encode()).hexdigest()[:12]
    raise ValueError("a program of this page has the axes x, or x and y")


def compile_program(names: dict, program: str, machine: Machine) -> tuple[Row, str]:
    """Compile a program, and return its row in the table and its text."""
    devices = names["described"](machine.chip, machine.hosts)
    axes, auto = tuple("xy"[: len(machine.sizes)]), jax.sharding.AxisType.Auto
    mesh = names["fitting_mesh"](devices, machine.sizes, axes, auto)
    f, arguments = names["programs"][program]
    start = time.perf_counter()
    with jax.set_mesh(mesh):
        compiled = jax.jit(f).lower(*arguments(mesh)).compile()
    seconds = time.perf_counter() - start
    return {
        "program": program,
        "machine": machine.name,
        "mesh": machine.mesh,
        "chip": machine.chip,
        "hosts": machine.hosts if machine.chip.isalnum() else "",
        **names["as_row"](compiled),
        "lowered": digest_program(f, arguments),
        "seconds": f"{seconds:.1f}",
    }, compiled.as_text()


def read_schedule(row: Row, text: str) -> Iterator[Row]:
    """Yield the instructions of the main computation, without their attributes."""
    lines = text[text.index("\nENTRY ") :].splitlines()[2:]
    instructions = [ATTRIBUTES.sub("", line).strip() for line in lines if " = " in line]
    for number, each in enumerate(instructions, 1):
        about = {"program": row["program"], "machine": row["machine"]}
        yield about | {"line": number, "instruction": each}


def main(folder: Path, *only: str):
    """Compile these programs, or all, and keep both tables."""
    names = run_page_cells()
    plan = {name: ELSEWHERE.get(name, eight[:2]) for name in names["programs"]}
    order = [(name, m.name, m.mesh) for name in plan for m in plan[name]]
    chosen, rows = only or plan.keys(), []
    lines = [
        row
        for row in read_table(folder / "schedules.csv")
        if row["program"] in SCHEDULES.keys() - {*chosen}
    ]
    for name in chosen:
        for machine in plan[name]:
            row, text = compile_program(names, name, machine)
            print(*row.values(), flush=True)
            rows.append(row)
            if machine in SCHEDULES.get(name, ()):
                lines += read_schedule(row, text)
    write_table(folder / "compilers.csv", rows, order, COMPILERS)
    write_table(folder / "schedules.csv", lines, packages=COMPILERS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
