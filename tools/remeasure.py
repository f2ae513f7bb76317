"""Measure again what is kept, and say what changed: `tools/remeasure.py [NAME ...]`.

    nox -s remeasure                 all that records.toml names: an hour and more
    nox -s remeasure -- lu fft       these two
    nox -s remeasure -- failures -- killed    what follows goes to the measurement

Old and new values stand side by side; a mark says that they differ by more than noise.
A measurement that fails leaves its table as it was, but for rows that were finished;
the others go on.
"""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import records
from records import NOISE, RECORDS, ROOT, TABLES, Table, table_of

sys.path.append(str(ROOT / "docs/_ext"))

from book.facts import facts, locked

CPU = {
    "JAX_NUM_CPU_DEVICES": "8",
    "JAX_PLATFORMS": "cpu",
    "OPENBLAS_NUM_THREADS": "1",  # else LAPACK's threads fight with the devices
    "PYTHONPATH": str(ROOT / "src"),
}
Values = dict[tuple[str, ...], dict[str, str]]  # key -> column -> what stands there


class Change(NamedTuple):
    """A value that differs, where it stands, and whether by more than noise."""

    key: tuple[str, ...]
    column: str
    old: str
    new: str
    large: bool


def files_of(name: str) -> list[Path]:
    """Return the files that a measurement writes."""
    names = [file for file, table in TABLES.items() if table.measured_by == name]
    return sorted(f for each in names for f in ROOT.glob(f"docs/*/data/{each}"))


def values(file: Path) -> Values:
    """Return what a kept file holds, without versions, date and machine."""
    table = table_of(file)
    if file.suffix == ".json":
        found = json.loads(file.read_text())
        return {key: {"": text} for key, text in leaves(found)}
    columns = [*table.found, *table.noisy]
    return {
        table.key_of(row): {column: row.get(column, "") for column in columns}
        for row in records.read(file)
    }


def leaves(value, key=()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each value of nested data as text, with the way to it."""
    if isinstance(value, str):
        yield key, value
        return
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for name, each in pairs:
        yield from leaves(each, (*key, str(name)))


def changes(table: Table, old: Values, new: Values) -> list[Change]:
    """List the values that differ; a row that came or went has none on one side."""
    found = []
    for key in dict.fromkeys([*new, *old]):
        before, after = old.get(key, {}), new.get(key, {})
        for column in dict.fromkeys([*after, *before]):
            pair = before.get(column, ""), after.get(column, "")
            if pair[0] != pair[1]:
                large = is_large(table, key, column, *pair)
                found.append(Change(key, column, *pair, large))
    return found


def is_large(table: Table, key, column: str, old: str, new: str) -> bool:
    """Tell whether a value changed by more than what it measures does each time."""
    if column not in table.noisy:
        return key[0] not in table.noisy  # which is the first level of a JSON
    try:
        low, high = sorted((float(old), float(new)))
    except ValueError:
        return True
    return high > NOISE * low


def told(change: Change) -> str:
    """Return a change as a line."""
    where = " ".join(filter(None, [*change.key, change.column]))
    mark = "!" if change.large else " "
    return f"{mark} {where:50} {change.old or 'nothing'} -> {change.new or 'nothing'}"


def measure(name: str, words: list[str]) -> str:
    """Run one measurement, print what changed, and return a line that sums it up."""
    versions = {"libtpu": facts().libtpu, "jaxlib": locked("jaxlib")}
    command = shlex.split(RECORDS["measurements"][name].format(**versions))
    before = {file: values(file) for file in files_of(name)}
    print(f"== {name}", flush=True)
    start = time.monotonic()
    code = subprocess.call([*command, *words], cwd=ROOT, env=os.environ | CPU)
    took, count = time.monotonic() - start, 0
    for file in files_of(name):
        found = changes(table_of(file), before.get(file, {}), values(file))
        count += sum(change.large for change in found)
        print(f"{file.name}: {len(found)} values differ", *map(told, found), sep="\n")
    end = f"FAILED, exit code {code}" if code else f"{count} differ beyond noise"
    return f"{name:15} {took:6.0f} s  {end}"


def main(*words: str) -> int:
    """Measure what is named, or all; return an exit code."""
    cut = words.index("--") if "--" in words else len(words)
    names, rest = words[:cut], words[cut + 1 :]
    if unknown := {*names} - RECORDS["measurements"].keys():
        print(f"no {sorted(unknown)}: name some of {[*RECORDS['measurements']]}")
        return 2
    sums = [measure(name, rest) for name in names or RECORDS["measurements"]]
    print("== all", *sums, sep="\n")
    return 1 if any("FAILED" in line for line in sums) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
