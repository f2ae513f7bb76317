# SPDX-License-Identifier: MIT-0
"""How soon 1, 2 and 4 processes take cells, beside a Python that only imports JAX.

    nox -s remeasure -- start

They take turns. The seconds of the processes are those until all have met; the ratio is
to the seconds of the import.
"""

import subprocess
import sys
from statistics import median
from time import perf_counter

from timing import DOCS, round_floats, write_rows

from examples.processes import Processes

COUNTS = 1, 2, 4
RESULTS = DOCS / "processes/data/start.csv"


def time_import():
    """Return how long a Python needs to import JAX and to end."""
    start = perf_counter()
    subprocess.run([sys.executable, "-c", "import jax"], check=True)
    return perf_counter() - start


def time_start(count):
    """Return how long it takes until `count` processes of two devices have met."""
    start = perf_counter()
    with Processes(count, devices=2):
        return perf_counter() - start


def main(rounds=7):
    """Print the table, and write it with the place and the day for the page."""
    turns = [(time_import(), *map(time_start, COUNTS)) for _ in range(rounds)]
    lines = []
    for place, count in enumerate(COUNTS, start=1):
        ratio = median(turn[place] / turn[0] for turn in turns)
        seconds = median(turn[place] for turn in turns)
        lines.append(
            round_floats({"processes": count, "seconds": seconds, "imports": ratio})
        )
        print(*lines[-1].values())
    write_rows(RESULTS, lines, device="2 x cpu each")


if __name__ == "__main__":
    main()
