"""Tables that are measured once and stand beside pages, with versions and the date."""

import csv
import datetime
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPILERS = "jax", "libtpu", "jax-cuda13-plugin"

Row = dict[str, object]


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the version of each package."""
    return {name: version(name) for name in packages}


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table; without a file, none."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_table(path: Path, rows: Iterable[Row], order=(), packages=("jax",)):
    """Write a table; a row that lacks versions or a date gets those of now.

    Args:
        path: the file; its columns stay where they are.
        rows: what was measured.
        order: keys, values of the first columns. With them the rows of the file that
            were not measured again stay, and all rows stand in this order.
        packages: those whose versions matter.
    """
    now = versions(packages) | {"date": datetime.date.today().isoformat()}
    rows, old, order = [row | now | row for row in rows], read_table(path), [*order]
    names = dict.fromkeys(name for row in [*old[:1], *rows] for name in row)
    if order:
        first = [*names][: len(order[0])]
        found = {tuple(str(row[name]) for name in first): row for row in [*old, *rows]}
        rows = [found[key] for key in order if key in found]
    columns = [name for name in names if any(name in row for row in rows)]
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
