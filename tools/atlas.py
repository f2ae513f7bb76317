"""Survey all operations with the JAX that is installed: `tools/atlas.py FOLDER`.

The table is kept as FOLDER/atlas-VERSION.csv, and what differs from the table of the
book's own JAX is printed.
"""

import os
import sys
from pathlib import Path

os.environ["JAX_NUM_CPU_DEVICES"] = "8"
os.environ["JAX_PLATFORMS"] = "cpu"
ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "src"))

import jax  # noqa: E402  (after its environment)

from examples import atlas  # noqa: E402
from examples.communication import read  # noqa: E402


def locked(lock) -> str:
    """Return the version of JAX that a lock file names."""
    lines = (line.partition("==") for line in lock.splitlines())
    return next(rest.split()[0] for name, _, rest in lines if name == "jax")


def main(folder):
    """Write the table of this JAX into `folder`, and print what differs."""
    rows = atlas.survey(read)
    atlas.save(rows, folder / f"atlas-{jax.__version__}.csv")
    book = folder / f"atlas-{locked((ROOT / 'requirements.lock').read_text())}.csv"
    differences = atlas.changes(rows, atlas.load(book)) if book.exists() else []
    for name, field, here, there in differences:
        print(f"{name}\n  {field}: {here or 'nothing'} -> {there or 'nothing'}")
    print(
        f"JAX {jax.__version__}: {len(rows)} operations, {len(differences)} differences"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
