"""Run every step of the gate, also after a red one; then name all that is red.

    tools/gate.py SECONDS           the gate, of whose time these are gone
    tools/gate.py all [PART ...]    what it leaves to each week, without marks

A step is a session of nox in a process group of its own, which ends with it. What may
fail for lack of time (a test that starts processes, a page about them) is repeated
alone, at most twice, and each repeat is counted. Logs and JUnit XML stay in
`docs/_build/gate`. `tests/last_green.csv` has the last green run of each weekly part,
which does not run again at that commit: a run that was cut goes on where it was.
"""

import datetime
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

FOLDER = Path("docs/_build/gate")
LAST_GREEN = Path("tests/last_green.csv")
LAST_START, END = 80 * 60, 87 * 60  # seconds after which no step starts, or goes on
WEEKLY = 6 * 3600  # seconds more for each weekly part
NOX = sys.executable, "-m", "nox", "-s"

# Lines of a log that say what is red; a `name` can be run alone.
LINT = r"\S+:\d+:(?:\d+: \S.*| .+ ==> .*)"
SPHINX = r".*/docs/(?P<name>\S+?)\.\w+:(?:\d+:)? (?:WARNING|ERROR): .*"
SPHINX += r"|.*\b(?:WARNING|ERROR|CRITICAL): .*|\w+ error:.*"
LINKS = r"\[(?:ERROR|\d+)\] .*"
PYTEST = r"(?:FAILED|ERROR) (?P<name>\S+\.py(?:::.*?)?)(?: - .*)?"
NOTHING = r"(?!)"
PASSED = re.compile(
    r"^(?:=.* )?(\d+) (?:passed\b.*=|tests of \d+ files had passed)$", re.M
)


class Step(NamedTuple):
    """A session of nox, how its log tells what is red, and what of it is repeated."""

    name: str
    session: str  # with its arguments
    red: str = PYTEST
    alone: str = "tests -- {}"  # the session that runs a `name` alone
    repeatable: str = NOTHING  # pattern of names
    repeat: str = "tests -- -n0 {}"  # the session that repeats these


STEPS = [
    Step("lint", "lint", LINT),
    Step("docs", "docs", SPHINX, "page -- {}", "processes/", "docs"),
    Step("links", "links", LINKS),
    Step("fuzz", "fuzz -- -m 'not weekly'", alone="fuzz -- {}"),
    Step("tests", "tests -- -m 'not processes and not weekly' --durations=15"),
    Step("browser", "browser --"),
    Step("cluster", "tests -- tests/cluster -n0 -m 'not weekly'", repeatable="."),
    Step("processes", "tests -- -m 'processes and not weekly' -n2", repeatable="."),
]
DRAWS = "-m weekly --hypothesis-profile=weekly --dist=worksteal --max-worker-restart=99"
PARTS = [
    Step("draws", f"fuzz -- {DRAWS}", alone="fuzz -- {}"),
    Step("faults", "tests -- tests/test_faults.py -m weekly -n2"),
    Step("oldest", "tests -- --jax=oldest"),
    Step("newest", "tests -- --jax=newest"),
    Step("external", "links -- --external", LINKS),
    Step("cases", "tests -- -m weekly --ignore=tests/test_faults.py"),
    Step("cluster", "tests -- tests/cluster -n0 -m weekly"),
    Step("looks", "browser -- -k test_a_page_is_quiet"),
    Step("samples", "remeasure -- programs -- --sample=3", NOTHING),
    Step("reproducible", "docs -- --twice", NOTHING),
]


class Result(NamedTuple):
    """How a step went; `reds` are lines of its log, with the name of each."""

    step: Step
    seconds: float
    passed: int
    reds: dict[str, str]
    repeats: list[str]


def run_session(session: str, log: Path, end: float) -> int | None:
    """Run a session of nox into a log; return its exit code, or None if it was cut."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [*NOX, *shlex.split(session)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return process.wait(end - time.monotonic())
    except subprocess.TimeoutExpired:
        return None
    finally:  # a signal comes here, too
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def try_session(step: Step, session: str, number: int, end: float):
    """Run a session, and print its log; return how many passed, and what is red."""
    log = FOLDER / f"{step.name}-{number}.log"
    report = f" --junit-xml={log.with_suffix('.xml')}" if step.red == PYTEST else ""
    code = run_session(session + report, log, end)
    text = log.read_text(errors="replace")
    print(text, end="", flush=True)
    found = re.finditer(rf"^(?:{step.red})$", text, re.M) if code != 0 else ()
    reds = {each[0].strip(): each.groupdict().get("name") or "" for each in found}
    if code is None:
        reds[f"cut, since time is over: see {log}"] = ""
    elif code and not reds:
        reds[f"exit code {code}: see {log}"] = ""
    return sum(map(int, PASSED.findall(text))), reds


def run_step(step: Step, end: float) -> Result:
    """Run a step, and what may be repeated of it again, alone, at most twice."""
    start, repeats = time.monotonic(), []
    passed, reds = try_session(step, step.session, 0, end)
    for number in 1, 2:
        names = sorted({n for n in reds.values() if re.match(step.repeatable, n)})
        if not names or time.monotonic() > end:
            break
        session = step.repeat.format(shlex.join(names))
        more, again = try_session(step, session, number, end)
        passed, repeats = passed + more, repeats + names
        reds = {line: name for line, name in reds.items() if name not in names} | again
    return Result(step, time.monotonic() - start, passed, reds, repeats)


def print_end(results: list[Result], untried: list[Step]):
    """Print a table of the steps, all that is red and was repeated, and a sum."""
    print("\nseconds  passed  red  repeated")
    for step, seconds, passed, reds, repeats in results:
        print(f"{seconds:7.0f}{passed:8}{len(reds):5}{len(repeats):10}  {step.name}")
    print(f"logs and JUnit XML: {FOLDER}")
    for step, _, _, reds, repeats in results:
        for name in repeats:
            print(f"REPEATED {step.name}: {name}")
        for line, name in reds.items():
            again = step.alone.format(shlex.quote(name)) if name else step.session
            print(f"RED {step.name}: {line}\n    nox -s {again}")
    for step in untried:
        print(f"UNTRIED {step.name}: nox -s {step.session}")
    failed = sum(len(result.reds) for result in results) + len(untried)
    print(f"{sum(result.passed for result in results)} passed, {failed} failed")


def run_steps(steps: list[Step], elapsed: float) -> bool:
    """Run all steps for which there is time; return whether all are green."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    begin, results = time.monotonic() - elapsed, []
    for step in steps:
        if time.monotonic() - begin < LAST_START:
            results.append(run_step(step, begin + END))
    untried = steps[len(results) :]
    print_end(results, untried)
    return not untried and not any(result.reds for result in results)


def run_parts(parts: list[Step]) -> bool:
    """Run weekly parts that were not green at this commit; return whether all are."""
    what = "-1", "--format=%h", "--", ".", f":!{LAST_GREEN}"
    commit = subprocess.check_output(["git", "log", *what], text=True).strip()
    os.environ |= {"SHARDBOOK_CACHE": "", "BOOK_LOOKS": "all"}
    os.environ.setdefault("BOOK_DRAW", commit)
    are_green = True
    for part in parts:
        rows = [row.split(",") for row in LAST_GREEN.read_text().split()]
        if [part.name, commit] in [row[:2] for row in rows]:
            print(f"{part.name} was green at {commit}")
        elif run_steps([part], -WEEKLY):
            day = datetime.datetime.now(datetime.UTC).date().isoformat()
            rows = [row for row in rows if row[0] != part.name] + [
                [part.name, commit, day]
            ]
            LAST_GREEN.write_text("".join(f"{','.join(row)}\n" for row in rows))
        else:
            are_green = False
    return are_green


def main(first: str, *names: str) -> bool:
    """Run the gate, or `all` and parts of the week; return whether something is red."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if first != "all":
        return not run_steps(STEPS, float(first))
    parts = {part.name: part for part in PARTS}
    return not run_parts([parts[name] for name in names or parts])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
