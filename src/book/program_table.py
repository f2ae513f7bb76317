"""The table of programs that other machines' compilers compiled, and how pages get it.

`read_rows` reads what `nox -s remeasure -- programs` writes. Each kernel calls `watch`
when it starts (see kernels.py). When a page imports `examples.communication`,
`tools/measure_hook.py` gives the rows to `measure`, and stores what the page measures.
JAX is not imported before a page does that itself, so this file needs Python alone.
"""

import csv
import os
import runpy
import shutil
import sys
import tomllib
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs/reference/data/programs.csv"
TOOL = ROOT / "tools/measure_hook.py"
MODULE = "examples.communication"

Row = dict[str, str]


def read_rows(table=TABLE) -> list[Row]:
    """Return the rows that were made with the versions of the book."""
    if not table.is_file():
        return []
    return parse_rows(table, table.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def parse_rows(table, changed) -> list[Row]:
    """Return the rows of a table that was changed at this time."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    libtpu = settings["tool"]["shardbook"]["libtpu"]
    made = {"jax": version("jax"), "libtpu": libtpu}
    with table.open(newline="") as file:
        return [row for row in csv.DictReader(file) if made.items() <= row.items()]


def group_rows(rows) -> dict[str, dict[str, Row]]:
    """Return rows by program and machine."""
    found = {}
    for row in rows:
        found.setdefault(row["program"], {})[row["machine"]] = row
    return found


class ImportHook:
    """A finder that calls a function with one module after its import."""

    def __init__(self, name, act):
        """Store the name of the module, and the function."""
        self.name, self.act = name, act

    def find_spec(self, name, path=None, target=None):
        """Return the module's spec, if it is this one."""
        spec = PathFinder.find_spec(name, path) if name == self.name else None
        if spec:
            run = spec.loader.exec_module

            def run_and_act(module):
                run(module)
                self.act(module)

            spec.loader.exec_module = run_and_act
        return spec


def watch(tool=TOOL):
    """Call `install` of a tool after the import: with module, rows and notes folder."""
    folder = os.environ.get("BOOK_NOTES", "")
    if folder:
        shutil.rmtree(folder, ignore_errors=True)

    def act(module):
        install = runpy.run_path(str(tool))["install"]
        install(module, group_rows(read_rows()), Path(folder) if folder else None)

    sys.meta_path.insert(0, ImportHook(MODULE, act))
