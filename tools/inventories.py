"""Refresh docs/_inventories: where JAX, NumPy and Python document each of their names.

What is published wins. A kept name that is not published stays: it is public, but not
documented, and leads to the page of its module. Only the namespaces that are kept
already are taken.
"""

import runpy
from pathlib import Path

import sphobjinv

DOCS = Path(__file__).resolve().parents[1] / "docs"


def merged(kept, published):
    """Return the entries of an inventory: those published, then those only kept."""
    spaces = {entry.name.rpartition(".")[0] for entry in kept}
    found = {entry.name: entry for entry in kept} | {
        entry.name: entry
        for entry in published
        if entry.domain == "py" and entry.name.rpartition(".")[0] in spaces
    }
    return [found[name] for name in sorted(found)]


def refresh(file, address):
    """Bring one inventory up to what is published at an address."""
    kept = sphobjinv.Inventory(file)
    new = sphobjinv.Inventory(url=f"{address}/objects.inv")
    new.objects = merged(kept.objects, new.objects)
    sphobjinv.writebytes(file, sphobjinv.compress(new.data_file(contract=True)))
    print(f"{file.name}: {kept.count} names before, {new.count} now")


if __name__ == "__main__":
    settings = runpy.run_path(DOCS / "conf.py")
    for address, file in settings["intersphinx_mapping"].values():
        refresh(DOCS / file, address)
