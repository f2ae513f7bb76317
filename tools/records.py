"""Tables that are measured once and kept beside pages; records.toml describes them.

Whatever measures calls `keep`, which adds versions, the date and the machine.
"""

import csv
import datetime
import os
import platform
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
NOISE = 1.5  # times may differ by this factor from one day to the next

Row = dict[str, object]


@dataclass(frozen=True)
class Table:
    """A kept file, and what stands in it.

    Attributes:
        measured_by: the measurement that writes it.
        key: the columns that tell one row from another.
        found: those that are the same each time.
        noisy: those that differ a little each time.
        where: the machine, how busy it was, and what the rows have in common.
        versions: the packages that are named, and the kernel, `linux`.
        other_jax: why it was made with another JAX than that of the lock, if it was.
    """

    measured_by: str
    key: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    noisy: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    other_jax: str = ""

    @property
    def columns(self) -> list[str]:
        """All columns, in order."""
        results = [*self.key, *self.found, *self.noisy]
        return [*results, *self.where, *self.versions, "date"]

    def key_of(self, row: Row) -> tuple[str, ...]:
        """Return what tells a row from the others."""
        return tuple(str(row.get(column, "")) for column in self.key)

    def stamp(self) -> Row:
        """Return what the writer knows itself: machine, versions and date."""
        machine = {"cores": os.cpu_count(), "load": f"{os.getloadavg()[0]:.1f}"}
        machine = {name: machine[name] for name in self.where if name in machine}
        versions = {name: version(name) for name in self.versions}
        return machine | versions | {"date": datetime.date.today().isoformat()}


TABLES = {name: Table(**fields) for name, fields in RECORDS["tables"].items()}


def table_of(path: Path) -> Table:
    """Return what records.toml says of a file.

    Raises:
        ValueError: if it says nothing.
    """
    for name, table in TABLES.items():
        if path.match(name):
            return table
    raise ValueError(f"{path.name} is not in records.toml")


def version(name: str) -> str:
    """Return the version of a package, or of the kernel."""
    if name == "linux":
        return platform.release().split("-")[0]
    return metadata.version(name)


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def keep(path: Path, rows: Iterable[Row], order: Iterable[tuple[str, ...]] = ()):
    """Write the table that has the name of `path`, at once or not at all.

    Args:
        path: the file; its name stands in records.toml.
        rows: what was found, without versions and date.
        order: keys. With them the rows of this table that were not measured again stay,
            if their key is one, and all rows stand in this order.

    Raises:
        ValueError: for two rows of one key, for a column that the table does not have,
            and for a file that is not in records.toml.
    """
    table, rows, order = table_of(path), list(rows), list(order)
    new = {table.key_of(row): table.stamp() | row for row in rows}
    if len(new) < len(rows):
        raise ValueError(f"{path.name} has several rows of one key")
    if order:
        old = read(path) if path.exists() else []
        new = {table.key_of(row): row for row in old} | new
        new = {key: new[key] for key in order if key in new}
    draft = path.with_name(f"{path.name}.draft")
    path.parent.mkdir(exist_ok=True)
    try:
        with draft.open("w", newline="") as file:
            writer = csv.DictWriter(file, table.columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(new.values())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
