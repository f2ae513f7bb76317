"""Run every step of the gate, also after a red one; then name all that is red.

    tools/gate.py [--elapsed SECONDS]

A step is a session of nox in a process group of its own, which ends with it. What may
fail for lack of time (a test that starts processes, a page about them) is repeated
alone, at most twice. Each repeat is counted; nothing else is repeated. Logs and JUnit
XML stay in `docs/_build/gate`. The end is a table of steps, every red page, test and
link with the command that repeats it, and a sum.
"""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import NamedTuple

FOLDER = Path("docs/_build/gate")
LAST_START, END = 80 * 60, 87 * 60  # seconds after which no step starts, or goes on
REPEATS = 2
NOX = sys.executable, "-m", "nox", "-s"
RUNNING = set()  # process groups of steps
COLOUR = re.compile(r"\x1b\[[\d;]*m")
LINT = r"\S+:\d+:(?:\d+: \S.*| .+ ==> .*)"
SPHINX = r".*/docs/(?P<name>\S+?)\.\w+:(?:\d+:)? (?:WARNING|ERROR): .*"
SPHINX += r"|.*\b(?:WARNING|ERROR|CRITICAL): .*|\w+ error:"
LINKS = r"\[(?:ERROR|\d+)\] .*|BROKEN .*"
BEFORE = re.compile(r"^(\d+) (?:\w+ )+had passed$", re.M)
MARKED = "properties/property[@name='had_passed']"


class Step(NamedTuple):
    """A step of the gate, how its log is read, and what of it may be repeated."""

    name: str
    session: str  # of nox, with its arguments
    red: str = ""  # pattern of a red line of the log; without one, JUnit XML is read
    again: str = "nox -s tests -- {}"  # repeats it; {} is the test, or the group `name`
    alone: str = ""  # pattern of the names that may be repeated
    repeat: str = ""  # the session that repeats them; {} are the names
    is_first_of_two: bool = False  # the next one runs beside it, since it mostly waits


STEPS = [
    Step("lint", "lint", LINT, "nox -s lint"),
    Step("docs", "docs", SPHINX, "nox -s page -- {}", "processes/", "docs"),
    Step("links", "links", LINKS, "nox -s links"),
    Step("fuzz", "fuzz -- -m 'not weekly'", again="nox -s fuzz -- {}"),
    Step("tests", "tests -- -m 'not processes and not weekly' --durations=15"),
    Step("browser", "browser --", is_first_of_two=True),
    Step("cluster", "cluster -- -m 'not weekly'", alone=".", repeat="tests -- -n0 {}"),
    Step(
        "processes",
        "tests -- -m 'processes and not weekly' -n2",
        alone=".",
        repeat="tests -- -n0 {}",
    ),
]


class Red(NamedTuple):
    """What is wrong, in one line; the name to repeat it by; the command that does."""

    what: str
    name: str
    command: str


class Result(NamedTuple):
    """How a step went: seconds, also of the processor; its tests; red and repeated."""

    name: str
    seconds: float
    processor: float
    passed: int
    before: int  # that had passed, of the same content, and did not run
    reds: list[Red]
    repeats: list[str]


def run_group(command, log: Path, limit: float) -> tuple[int | None, float]:
    """Run a command in its own process group.

    Return its exit code, None if it was cut, and the seconds of the processor.
    """
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    RUNNING.add(process.pid)
    timer = Timer(limit, end_group, [process.pid])
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)  # usage: with children that have ended
    cut = not timer.is_alive()
    timer.cancel()
    end_group(process.pid)
    process.returncode = os.waitstatus_to_exitcode(status)
    return None if cut else process.returncode, usage.ru_utime + usage.ru_stime


def end_group(group: int):
    """Kill what is left of a process group."""
    RUNNING.discard(group)
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def end_all(*_):
    """Handle a signal: end with all steps."""
    for group in [*RUNNING]:
        end_group(group)
    os._exit(143)


def run_session(step: Step, session: str, name: str, end: float):
    """Run a session of nox and print its log.

    Return the seconds of the processor, how many passed, also before, and the red.
    """
    log, report = FOLDER / f"{name}.log", FOLDER / f"{name}.xml"
    report.unlink(missing_ok=True)
    words = shlex.split(session) + ([] if step.red else [f"--junit-xml={report}"])
    code, processor = run_group([*NOX, *words], log, end - time.monotonic())
    text = COLOUR.sub("", log.read_text(errors="replace"))
    print(text, end="", flush=True)
    passed, reds = read_report(report, step.again) if report.exists() else (0, [])
    if code != 0 and step.red:
        reds = [*dict.fromkeys(read_log(step, text))]
    if code is None or (code and not reds):
        how = "cut, since time is over" if code is None else f"exit code {code}"
        reds.append(Red(f"{how}: see {log}", "", f"nox -s {session}"))
    before = sum(map(int, BEFORE.findall(text)))
    return processor, passed, before, reds


def read_log(step: Step, text: str) -> Iterator[Red]:
    """Yield each red line of a log."""
    for found in re.finditer(rf"^(?:{step.red})$", text, re.M):
        name = found.groupdict().get("name") or ""
        whole = "{}" in step.again and not name  # it has no name of its own
        again = f"nox -s {step.session}" if whole else step.again.format(name)
        yield Red(found[0].strip().partition("\n")[0], name, again)


def read_report(report: Path, again: str) -> tuple[int, list[Red]]:
    """Return how many tests of JUnit XML passed, and those that did not."""
    passed, reds = 0, []
    for case in ET.parse(report).iter("testcase"):
        wrong = [each for each in case if each.tag in ("failure", "error")]
        absent = case.find("skipped"), case.find(MARKED)
        passed += not wrong and absent == (None, None)
        where, name = case.get("classname"), case.get("name")
        file = (where or name).replace(".", "/") + ".py"
        name = f"{file}::{name}" if where else file
        for each in wrong[:1]:
            words = each.get("message", "").partition("\n")[0][:200]
            command = again.format(shlex.quote(name))
            reds.append(Red(f"{name}  {words}", name, command))
    return passed, reds


def run_step(step: Step, end: float) -> Result:
    """Run a step, and what may be repeated of it again, alone."""
    start = time.monotonic()
    first = run_session(step, step.session, step.name, end)
    processor, passed, before, reds = first
    repeats = []
    for number in range(1, REPEATS + 1):
        again = [red for red in reds if step.alone and re.match(step.alone, red.name)]
        if not again or time.monotonic() > end:
            break
        names = dict.fromkeys(red.name for red in again)
        session = step.repeat.format(shlex.join(names))
        name = f"{step.name}-{number}"
        more, new, _, still = run_session(step, session, name, end)
        processor, passed = processor + more, passed + new
        repeats += [f"{name}: {number}. repeat" for name in names]
        reds = [*dict.fromkeys([red for red in reds if red not in again] + still)]
    seconds = time.monotonic() - start
    return Result(step.name, seconds, processor, passed, before, reds, repeats)


def summary(steps: list[Step], results: list[Result]) -> Iterator[str]:
    """Yield the lines of the end."""
    yield "\nseconds  of processor  passed  before  red  repeated"
    for name, *numbers, reds, repeats in results:
        counts = *numbers, len(reds), len(repeats)
        yield "{:7.0f}{:14.0f}{:8}{:8}{:5}{:10}  {}".format(*counts, name)
    yield f"logs and JUnit XML: {FOLDER}"
    for result in results:
        yield from (f"REPEATED {result.name}: {each}" for each in result.repeats)
        for red in result.reds:
            yield f"RED {result.name}: {red.what}\n    {red.command}"
    untried = steps[len(results) :]
    yield from (f"UNTRIED {step.name}: nox -s {step.session}" for step in untried)
    failed = sum(len(result.reds) for result in results) + len(untried)
    passed = sum(result.passed + result.before for result in results)
    yield f"{passed} passed, {failed} failed"


def main(elapsed: float, steps=STEPS, more: float = 0) -> int:
    """Run all steps for which there is time; return 1 if anything is red or untried.

    elapsed: seconds already gone; more: seconds by which the limits are later.
    """
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, end_all)
    FOLDER.mkdir(parents=True, exist_ok=True)
    begun, jobs = time.monotonic() - elapsed + more, []
    with ThreadPoolExecutor() as pool:
        for step in steps:
            if time.monotonic() - begun < LAST_START:
                jobs.append(pool.submit(run_step, step, begun + END))
                if not step.is_first_of_two:
                    wait(jobs)
    results = [job.result() for job in jobs]
    print(*summary(steps, results), sep="\n")
    return int(len(results) < len(steps) or any(each.reds for each in results))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--elapsed", type=float, default=0, help="seconds already gone")
    sys.exit(main(parser.parse_args().elapsed))
