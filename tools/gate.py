"""Run every step of the gate, also after a red one; then name all that is red.

    tools/gate.py SECONDS           the gate, of whose time these are gone
    tools/gate.py all [PART ...]    what it leaves to each week, without marks

A step is a session of nox, and all that it starts ends with it. What may fail for lack
of time (a test that starts processes, a page about them) is repeated alone, at most
twice, and each repeat is counted. Logs and JUnit XML stay in `docs/_build/gate`.
`tests/last_green.csv` has the last green run of each weekly part, which does not run
again at that commit: a run that was cut goes on where it was.
"""

import os
import re
import shlex
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from subprocess import STDOUT, TimeoutExpired, getoutput
from typing import NamedTuple

from throwaway import run

FOLDER = Path("docs/_build/gate")
LAST_GREEN = Path("tests/last_green.csv")
END = 87 * 60  # seconds after which no step goes on
WEEKLY = 6 * 3600  # seconds more for each weekly part
NOX = sys.executable, "-m", "nox", "-s"

# Lines of a log that say what is red; a `name` can be run alone.
LINT = r"\S+:\d+:(?:\d+: \S.*| .+ ==> .*)"
SPHINX = r".*/docs/(?P<name>\S+?)\.\w+:(?:\d+:)? (?:WARNING|ERROR): .*"
SPHINX += r"|.*\b(?:WARNING|ERROR|CRITICAL): .*|\w+ error:.*"
LINKS = r"\[(?:ERROR|\d+)\] .*"
PYTEST = r"(?:FAILED|ERROR) (?P<name>\S+\.py(?:::.*?)?)(?: - .*)?"
NOTHING = r"(?!)"
PASSED = r"^(?:=.* )?(\d+) (?:passed\b.*=|tests of \d+ files had passed)$"


class Step(NamedTuple):
    """A session of nox, how its log tells what is red, and what of it is repeated."""

    name: str
    session: str  # with its arguments
    red: str = PYTEST
    alone: str = "tests -- -n0 {}"  # the session that runs names alone
    repeatable: str = NOTHING  # pattern of names


NEW = "-p incremental"  # of pytest: leave out what has passed
STEPS = [
    Step("lint", "lint", LINT),
    Step("docs", "docs", SPHINX, "page -- {}", "processes/"),
    Step("links", "links", LINKS),
    Step("fuzz", f"fuzz -- {NEW} -m 'not weekly'"),
    Step("tests", f"tests -- {NEW} -m 'not processes and not weekly' --durations=15"),
    Step("browser", "browser --"),
    Step(
        "cluster", f"tests -- {NEW} tests/cluster -n0 -m 'not weekly'", repeatable="."
    ),
    Step(
        "processes", f"tests -- {NEW} -m 'processes and not weekly' -n2", repeatable="."
    ),
]
DRAWS = "-m weekly --hypothesis-profile=weekly --dist=worksteal --max-worker-restart=99"
PARTS = [
    Step("draws", f"fuzz -- {DRAWS}"),
    Step("faults", "tests -- tests/test_faults.py -m weekly -n2"),
    Step("oldest", "tests -- --jax=oldest"),
    Step("newest", "tests -- --jax=newest"),
    Step("external", "docs links -- --external", LINKS),
    Step("cases", "tests -- -m weekly --ignore=tests/test_faults.py"),
    Step("cluster", "tests -- tests/cluster -n0 -m weekly"),
    Step("looks", "docs browser -- -k test_a_page_is_quiet"),
    Step("samples", "remeasure -- programs -- --sample=3", NOTHING),
    Step("reproducible", "docs -- --twice", NOTHING),
]


def try_session(step: Step, session: str, number: int, end: float):
    """Run a session, and print its log; return how many passed, and what is red."""
    log = FOLDER / f"{step.name}-{number}.log"
    report = f" --junit-xml={log.with_suffix('.xml')}" if step.red == PYTEST else ""
    command, seconds = [*NOX, *shlex.split(session + report)], end - time.monotonic()
    failure = cut = "cut, since time is over"
    with log.open("w") as file, suppress(TimeoutExpired):
        pipes = {"stdout": file, "stderr": STDOUT, "check": False}
        code = run(*command, timeout=seconds, **pipes).returncode
        failure = f"exit code {code}" if code else ""
    text = log.read_text(errors="replace")
    print(text, end="", flush=True)
    found = re.finditer(rf"^(?:{step.red})$", text, re.M) if failure else ()
    reds = {each[0].strip(): each.groupdict().get("name") or "" for each in found}
    if failure == cut or (failure and not reds):
        reds[f"{failure}: see {log}"] = ""
    return sum(map(int, re.findall(PASSED, text, re.M))), reds


def run_step(step: Step, end: float):
    """Run a step, and what may be repeated of it again, alone, at most twice.

    Returns its seconds, how many passed, lines of its log that are red, with the name
    of each, and what was repeated.
    """
    start, repeats = time.monotonic(), []
    passed, reds = try_session(step, step.session, 0, end)
    for number in 1, 2:
        names = sorted({n for n in reds.values() if re.match(step.repeatable, n)})
        if not names or time.monotonic() > end:
            break
        session = step.alone.format(shlex.join(names))
        more, again = try_session(step, session, number, end)
        passed, repeats = passed + more, repeats + names
        reds = {line: name for line, name in reds.items() if name not in names} | again
    return time.monotonic() - start, passed, reds, repeats


def print_end(results: dict[Step, tuple]) -> int:
    """Print a table of the steps and all that is red; return how much that is."""
    print("\nseconds  passed  red  repeated")
    for step, (seconds, passed, reds, repeats) in results.items():
        print(f"{seconds:7.0f}{passed:8}{len(reds):5}{len(repeats):10}  {step.name}")
    print(f"logs and JUnit XML: {FOLDER}")
    for step, (_, _, reds, repeats) in results.items():
        for name in repeats:
            print(f"REPEATED {step.name}: {name}")
        for line, name in reds.items():
            again = step.alone.format(shlex.quote(name)) if name else step.session
            print(f"RED {step.name}: {line}\n    nox -s {again}")
    _, passed, reds, _ = zip(*results.values(), strict=True)
    print(f"{sum(passed)} passed, {(failed := sum(map(len, reds)))} failed")
    return failed


def run_steps(steps: list[Step], elapsed: float) -> bool:
    """Run all steps, until time is over; return whether all are green."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() - elapsed + END
    return not print_end({step: run_step(step, end) for step in steps})


def run_parts(names: list[str]) -> bool:
    """Run parts of the week that were not green at this commit; are all green now?"""
    commit = getoutput(f"git log -1 --format=%h -- . ':!{LAST_GREEN}'")
    os.environ |= {"SHARDBOOK_CACHE": "", "BOOK_LOOKS": "all"}
    os.environ.setdefault("BOOK_DRAW", commit)
    green = dict(line.split(",", 1) for line in LAST_GREEN.read_text().split())
    parts = [part for part in PARTS if not names or part.name in names]
    for part in parts:
        is_green = green.get(part.name, "").startswith(commit)
        if not is_green and run_steps([part], -WEEKLY):
            green[part.name] = f"{commit},{datetime.now(UTC).date()}"
            LAST_GREEN.write_text("".join(f"{k},{v}\n" for k, v in green.items()))
    print(LAST_GREEN.read_text())
    return all(green.get(part.name, "").startswith(commit) for part in parts)


if __name__ == "__main__":
    first, *names = sys.argv[1:]
    is_green = run_parts(names) if first == "all" else run_steps(STEPS, float(first))
    sys.exit(not is_green)
