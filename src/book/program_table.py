"""The table of programs that other machines' compilers compiled.

`nox -s remeasure -- programs` writes it. Kernels run this file too (see
tools/measure_hook.py): it needs Python alone.
"""

import csv
import tomllib
from functools import cache
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs/reference/data/programs.csv"

Row = dict[str, str]


@cache
def read_rows(table=TABLE) -> list[Row]:
    """Return the rows that were made with the versions of the book."""
    if not table.is_file():
        return []
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    made = version("jax"), settings["tool"]["shardbook"]["libtpu"]
    with table.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    return [row for row in rows if (row["jax"], row["libtpu"]) == made]


def group_rows(rows) -> dict[str, dict[str, Row]]:
    """Return rows by program and machine."""
    found = {}
    for row in rows:
        found.setdefault(row["program"], {})[row["machine"]] = row
    return found
