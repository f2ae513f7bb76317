"""Survey all operations on three machines: `tools/survey.py FOLDER`.

The table is kept as FOLDER/atlas.csv, with a row for each operation and machine. With a
JAX that is not that of the lock only this machine is surveyed, and the table kept as
FOLDER/atlas-VERSION.csv. What differs from the book's table is printed.
"""

import os
import sys
from dataclasses import asdict
from pathlib import Path

os.environ["JAX_NUM_CPU_DEVICES"] = "8"
os.environ["JAX_PLATFORMS"] = "cpu"
ROOT = Path(__file__).resolve().parents[1]

import jax  # noqa: E402  (after its environment)
from records import COMPILERS, write_table  # noqa: E402

from book.facts import locked_version  # noqa: E402
from examples import atlas  # noqa: E402
from examples.communication import read  # noqa: E402
from examples.machines import described  # noqa: E402

MACHINES = {"CPU": None, "TPU v5p": "v5p:2x2x2", "H100": "h100"}  # and topologies


def devices(machine):
    """Return the eight devices of a machine, which is described unless it is this."""
    return described(MACHINES[machine]) if MACHINES[machine] else jax.devices()


def book_rows(file, machine):
    """Return the rows of a machine that the book has, if any."""
    try:
        return atlas.load(file, machine=machine)
    except ValueError:
        return []


def main(folder):
    """Write the table of this JAX into `folder`, and print what differs."""
    book, table = folder / "atlas.csv", []
    ours = jax.__version__ == locked_version("jax")
    for machine in MACHINES if ours else ["CPU"]:
        rows = atlas.survey(read, devices=devices(machine))
        table += [asdict(row) | {"machine": machine} for row in rows]
        differences = atlas.changes(book_rows(book, machine), rows)
        for name, field, before, now in differences:
            print(f"{name}\n  {field}: {before or 'nothing'} -> {now or 'nothing'}")
        words = f"differences from the book to JAX {jax.__version__}"
        print(f"{machine}: {len(differences)} {words}", flush=True)
    if ours:
        write_table(book, table, packages=COMPILERS)
    else:
        write_table(folder / f"atlas-{jax.__version__}.csv", table)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
