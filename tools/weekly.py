"""Run what the gate leaves to each week: `.ci/run all [PART ...]`.

Nothing is left out here for a mark. A part that is green is noted in
`tests/last_green.csv`, with the commit and the day; one that was green at this commit
does not run again, so that a run which was cut goes on where it was.
"""

import csv
import datetime
import os
import subprocess
import sys
from pathlib import Path

import gate
from gate import Step

LAST_GREEN = Path("tests/last_green.csv")
COLUMNS = "part", "commit", "day"
LIMIT = 6 * 3600  # seconds for a part
DRAWS = "-m weekly --hypothesis-profile=weekly --dist=worksteal --max-worker-restart=99"
PARTS = [
    Step("draws", f"fuzz -- {DRAWS}", again="nox -s fuzz -- {}"),
    Step("faults", "faults", r"MISSED .*", "nox -s faults"),
    Step("oldest", "tests -- --jax=oldest"),
    Step("newest", "tests -- --jax=newest"),
    Step("external", "links -- --external", gate.LINKS, "nox -s links -- --external"),
    Step("cases", "tests -- -m weekly"),
    Step("cluster", "cluster -- -m weekly"),
    Step("looks", "browser -- -k test_a_page_is_quiet"),
    Step("samples", "remeasure -- programs -- --sample=3", "never"),
    Step("reproducible", "docs -- --twice", "never"),
]


def find_commit() -> str:
    """Return the last commit of anything but the notes."""
    command = "git", "log", "-1", "--format=%h", "--", ".", f":!{LAST_GREEN}"
    return subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.strip()


def read_notes() -> dict[str, dict[str, str]]:
    """Return the last green run of each part."""
    with LAST_GREEN.open(newline="") as file:
        return {row["part"]: row for row in csv.DictReader(file)}


def write_note(part, commit):
    """Write that a part is green today."""
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    notes = read_notes() | {part: dict(zip(COLUMNS, (part, commit, day), strict=True))}
    with LAST_GREEN.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(notes[name] for name in sorted(notes))


def main(names, parts=PARTS) -> int:
    """Run the named parts, or all; return 1 if one is red."""
    os.environ |= {"SHARDBOOK_CACHE": "", "BOOK_LOOKS": "all"}
    commit, code = find_commit(), 0
    os.environ.setdefault("BOOK_DRAW", commit)
    for part in parts:
        if names and part.name not in names:
            continue
        if read_notes().get(part.name, {}).get("commit") == commit:
            print(f"{part.name} was green at {commit}")
        elif gate.main(0, [part], more=LIMIT):
            code = 1
        else:
            write_note(part.name, commit)
    return code


if __name__ == "__main__":
    if unknown := {*sys.argv[1:]} - {part.name for part in PARTS}:
        sys.exit(f"no part: {', '.join(sorted(unknown))}")
    sys.exit(main(sys.argv[1:]))
