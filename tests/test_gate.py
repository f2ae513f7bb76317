"""The gate runs every step, names what is red, and repeats what waits for a clock.

What it leaves out runs each week by parts, and goes on where it was cut.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gate
import psutil
import pytest
import weekly
from gate import Step

NOX = """
import subprocess, sys
from pathlib import Path
session, *words = sys.argv[1:]
report = next((word[12:] for word in words if word.startswith("--junit-xml=")), None)
exec(Path(f"{session}.py").read_text())
"""
WEEK = """
import sys
name = sys.argv[1]
open("ran", "a").write(name)
sys.exit(name == "b")
"""
TESTS = """
import sys
from pathlib import Path
tries = Path("tries")
count = len(tries.read_text()) if tries.exists() else 0
tries.write_text("x" * (count + 1))
failure = '<failure message="late&#10;more"/>' if count < {failing} else ""
Path(report).write_text(
    "<testsuites><testsuite>"
    f'<testcase classname="tests.test_a" name="test_b[1, 2]">{failure}</testcase>'
    '<testcase classname="tests.test_a" name="test_c"/>'
    '<testcase classname="tests.test_a" name="test_d"><skipped/></testcase>'
    "</testsuite></testsuites>"
)
sys.exit(bool(failure))
"""
SLEEPER = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(999)'])"


def wait_for_end(pid) -> bool:
    """Wait until a process has ended."""
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie":
        time.sleep(0.05)  # the limit of a test ends a hang
    return True


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run steps whose sessions are these scripts; return exit code and lines."""
    monkeypatch.chdir(tmp_path)
    Path("nox.py").write_text(NOX)
    monkeypatch.setattr(gate, "NOX", (sys.executable, "nox.py"))

    def run(*steps, elapsed=0, **sessions):
        for name, script in sessions.items():
            Path(f"{name}.py").write_text(script)
        code = gate.main(elapsed, [*steps])
        return code, capsys.readouterr().out.splitlines()

    return run


def test_a_red_step_ends_no_other(run):
    lint = "print('a.py:1:2: E501 long'); print('b.py:3: ab ==> cd'); sys.exit(1)"
    steps = Step("lint", "lint", gate.LINT, "nox -s lint"), Step("docs", "docs", "no")
    code, lines = run(*steps, lint=lint, docs="print('ran')")
    assert code == 1
    assert "ran" in lines
    assert [line for line in lines if line.startswith("RED")] == [
        "RED lint: a.py:1:2: E501 long",
        "RED lint: b.py:3: ab ==> cd",
    ]
    assert lines[-1] == "0 passed, 2 failed"


def test_a_long_step_is_cut_and_a_late_one_is_not_tried(run, monkeypatch):
    late = Step("late", "late", "no")
    code, lines = run(late, elapsed=gate.LAST_START)
    assert code == 1
    assert "UNTRIED late: nox -s late" in lines
    assert lines[-1] == "0 passed, 1 failed"
    monkeypatch.setattr(gate, "END", 2)
    code, lines = run(late, late="import time; time.sleep(999)")
    assert code == 1
    assert f"RED late: cut, since time is over: see {gate.FOLDER}/late.log" in lines


def test_tests_are_counted_also_those_that_had_passed(run):
    script = "print('12 tests of 3 files had passed')\n"
    script += TESTS.replace("{failing}", "9")
    step = Step("fuzz", "fuzz --", again="nox -s fuzz -- {}")
    code, lines = run(step, fuzz=script)
    assert code == 1
    assert "RED fuzz: tests/test_a.py::test_b[1, 2]  late" in lines
    assert "    nox -s fuzz -- 'tests/test_a.py::test_b[1, 2]'" in lines
    assert lines[-1] == "13 passed, 1 failed"
    assert Path("tries").read_text() == "x"  # numbers are not repeated


@pytest.mark.parametrize("failing", [2, 3])
def test_what_waits_for_a_clock_is_repeated_twice(run, failing):
    step = Step("slow", "tests --", alone=".", repeat="tests -- {}")
    code, lines = run(step, tests=TESTS.replace("{failing}", str(failing)))
    assert code == (failing > 2)
    assert sum(line.startswith("REPEATED slow: ") for line in lines) == 2
    assert sum(line.startswith("RED slow: ") for line in lines) == (failing > 2)


def test_steps_of_a_pair_run_together_and_their_children_end_with_them(run):
    meets = "import time\nwhile not Path('there').exists():\n    time.sleep(0.01)"
    script = f"print('pid', {SLEEPER}.pid); Path('there').touch()"
    steps = Step("one", "one", "no", is_first_of_two=True), Step("two", "two", "no")
    code, lines = run(*steps, one=meets, two=script)
    assert code == 0
    pid = int(next(line for line in lines if line.startswith("pid"))[4:])
    assert wait_for_end(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_children_of_a_step(run, number):
    Path("one.py").write_text(
        f"child = {SLEEPER}; Path('new').write_text(str(child.pid))\n"
        "Path('new').rename('pid'); child.wait()"
    )
    here = os.environ | {"PYTHONPATH": str(Path(gate.__file__).parent)}
    program = "import gate, sys; gate.NOX = sys.executable, 'nox.py'\n"
    program += "gate.main(0, [gate.Step('one', 'one', 'no')])"
    with subprocess.Popen([sys.executable, "-c", program], env=here) as process:
        while not Path("pid").exists():
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait() == 143
    assert wait_for_end(int(Path("pid").read_text()))


def test_a_red_line_names_its_page():
    (docs,) = (step for step in gate.STEPS if step.name == "docs")
    line = "/x/docs/start/a.md:12: WARNING: cell 1 differs [cells.expect]"
    ((what, name, command),) = gate.read_log(docs, f"before\n{line}\nafter\n")
    assert (what, name, command) == (line, "start/a", "nox -s page -- start/a")


def test_every_session_is_there():
    sessions = (Path(__file__).parents[1] / "noxfile.py").read_text()
    for step in gate.STEPS + weekly.PARTS:
        name = step.session.partition(" ")[0].replace("-", "_")
        assert f"def {name}(session)" in sessions


def test_a_part_of_the_week_that_is_green_does_not_run_again_at_its_commit(
    run, monkeypatch
):
    monkeypatch.setattr(os, "environ", {**os.environ})
    monkeypatch.setattr(weekly, "find_commit", lambda: "1234567")
    Path("nox.py").write_text(WEEK)
    weekly.LAST_GREEN.parent.mkdir()
    weekly.LAST_GREEN.write_text("part,commit,day\nc,1234567,2026-11-26\n")
    parts = [Step(name, name, "never") for name in "abc"]
    assert weekly.main([], parts) == 1
    assert Path("ran").read_text() == "ab"
    commits = {name: note["commit"] for name, note in weekly.read_notes().items()}
    assert commits == {"a": "1234567", "c": "1234567"}
    assert weekly.main([], parts) == 1
    assert Path("ran").read_text() == "abb"
    monkeypatch.setattr(weekly, "find_commit", lambda: "7654321")
    assert weekly.main(["a", "c"], parts) == 0
    assert Path("ran").read_text() == "abbac"


def test_notes_name_parts_that_there_are():
    assert weekly.read_notes().keys() <= {part.name for part in weekly.PARTS}
