"""Survey all operations with the JAX that is installed: `tools/survey.py FOLDER`.

The table is kept as FOLDER/atlas.csv, or, for a JAX that is not that of the lock, as
FOLDER/atlas-VERSION.csv; what differs from the book's table is printed.
"""

import os
import sys
from dataclasses import asdict
from pathlib import Path

os.environ["JAX_NUM_CPU_DEVICES"] = "8"
os.environ["JAX_PLATFORMS"] = "cpu"
ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "src"), str(ROOT / "docs/_ext")]

import jax  # noqa: E402  (after its environment)
from book.facts import locked  # noqa: E402
from records import keep  # noqa: E402

from examples import atlas  # noqa: E402
from examples.communication import read  # noqa: E402


def main(folder):
    """Write the table of this JAX into `folder`, and print what differs."""
    rows, book = atlas.survey(read), folder / "atlas.csv"
    ours = jax.__version__ == locked("jax")
    differences = atlas.changes(atlas.load(book), rows)
    keep(book if ours else folder / f"atlas-{jax.__version__}.csv", map(asdict, rows))
    for name, field, before, now in differences:
        print(f"{name}\n  {field}: {before or 'nothing'} -> {now or 'nothing'}")
    print(f"{len(differences)} differences from the book to JAX {jax.__version__}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
