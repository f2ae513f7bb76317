"""The gate runs every step, names what is red, and repeats what waits for a clock."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gate
import psutil
import pytest
from gate import Step

NOX = """
import subprocess, sys
from pathlib import Path
with open("ran", "a") as file:
    print(*sys.argv[1:3], file=file)
exec(Path(f"{sys.argv[1]}.py").read_text())
"""
LINT = "docs/a.py:1:2: E501 long\nb.py:3: ab ==> cd"
DOCS = "/x/docs/start/a.md:12: WARNING: cell 1 differs [cells.expect]"
LINKS = "[ERROR] file:///x/a.html#b | Cannot find fragment"
FUZZ = "FAILED tests/a/fuzz_a.py::test_b[1, 2] - late\n= 1 failed, 3 passed in 2s ="
TESTS = (
    "12 tests of 3 files had passed\n= 7 passed in 2s =\nERROR tests/test_a.py - late"
)
REDS = """\
RED lint: docs/a.py:1:2: E501 long
    nox -s lint
RED lint: b.py:3: ab ==> cd
    nox -s lint
RED docs: /x/docs/start/a.md:12: WARNING: cell 1 differs [cells.expect]
    nox -s page -- start/a
RED links: [ERROR] file:///x/a.html#b | Cannot find fragment
    nox -s links
RED fuzz: FAILED tests/a/fuzz_a.py::test_b[1, 2] - late
    nox -s fuzz -- 'tests/a/fuzz_a.py::test_b[1, 2]'
RED tests: ERROR tests/test_a.py - late
    nox -s tests -- tests/test_a.py
22 passed, 6 failed
"""
ONE = Step("one", "one", gate.NOTHING)


@pytest.fixture(autouse=True)
def checkout(tmp_path, monkeypatch):
    """Go to a folder where a session of nox is a script of its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gate, "NOX", (sys.executable, "nox.py"))
    Path("nox.py").write_text(NOX)


def write_sessions(**scripts):
    for name, script in scripts.items():
        Path(f"{name}.py").write_text(script)


def sessions_run():
    return Path("ran").read_text().splitlines()


def test_one_run_names_all_that_is_red_and_the_commands(capsys):
    logs = {"lint": LINT, "docs": DOCS, "links": LINKS, "fuzz": FUZZ, "tests": TESTS}
    write_sessions(**{k: f"print('''{v}'''); sys.exit(1)" for k, v in logs.items()})
    steps = [step for step in gate.STEPS if step.name in logs]
    assert not gate.run_steps(steps, 0)
    assert capsys.readouterr().out.endswith(REDS)
    assert len(sessions_run()) == len(steps)  # numbers are not repeated
    write_sessions(one="print('ERROR: no exit code')")
    assert gate.run_steps([ONE], 0)


def test_a_long_step_is_cut_and_a_late_one_is_not_tried(capsys, monkeypatch):
    assert not gate.run_steps([ONE], gate.LAST_START)
    untried = "UNTRIED one: nox -s one\n0 passed, 1 failed\n"
    assert capsys.readouterr().out.endswith(untried)
    monkeypatch.setattr(gate, "END", 2)
    write_sessions(one="import time; time.sleep(999)")
    assert not gate.run_steps([ONE], 0)
    assert "RED one: cut, since time is over: see docs" in capsys.readouterr().out


@pytest.mark.parametrize("failing", [2, 3])
def test_what_waits_for_a_clock_is_repeated_alone_at_most_twice(failing, capsys):
    red = "print('FAILED tests/test_a.py::test_b - late'); sys.exit(1)"
    write_sessions(one=f"if len([*open('ran')]) <= {failing}:\n    {red}")
    step = Step("one", "one", repeatable=".", repeat="one {}")
    assert gate.run_steps([step], 0) == (failing < 3)
    assert sessions_run()[1:] == ["one tests/test_a.py::test_b"] * 2
    text = capsys.readouterr().out
    assert text.count("REPEATED one: tests/test_a.py::test_b\n") == 2
    assert text.count("RED one: ") == (failing == 3)


@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGTERM])
def test_children_of_a_step_end_with_it_and_at_a_signal(number):
    """A shell that starts this in the background lets its programs ignore SIGINT."""
    sleep = "[sys.executable, '-c', 'import time; time.sleep(999)']"
    child = f"child = subprocess.Popen({sleep}); Path('new').write_text(str(child.pid))"
    write_sessions(one=f"{child}\nPath('new').rename('pid'); {number} and child.wait()")
    program = "import gate, signal; gate.NOX = 'python', 'nox.py'; "
    program += "signal.signal(signal.SIGINT, signal.default_int_handler); "
    program += "gate.STEPS = [gate.Step('one', 'one')]; print(gate.main('0'))"
    env = os.environ | {"PYTHONPATH": str(Path(gate.__file__).parent)}
    with subprocess.Popen([sys.executable, "-c", program], env=env) as process:
        while not Path("pid").exists():
            time.sleep(0.05)  # the limit of a test ends a hang
        if number:
            process.send_signal(number)
        assert bool(process.wait()) == bool(number)
    child = int(Path("pid").read_text())
    while psutil.pid_exists(child) and psutil.Process(child).status() != "zombie":
        time.sleep(0.05)


def test_a_weekly_part_does_not_run_again_where_it_was_green(monkeypatch):
    monkeypatch.setattr(os, "environ", {**os.environ})
    monkeypatch.setattr(subprocess, "check_output", lambda *_, **__: commit)
    a, b, c = (Step(name, name, gate.NOTHING) for name in "abc")
    write_sessions(a="", b="sys.exit(1)", c="")
    gate.LAST_GREEN.parent.mkdir()
    gate.LAST_GREEN.write_text("part,commit,day\nc,1234567,2026-11-26\n")
    commit = "1234567"
    assert not gate.run_parts([a, b, c])
    assert not gate.run_parts([a, b, c])
    commit = "7654321"
    assert gate.run_parts([a, c])
    assert sessions_run() == ["a", "b", "b", "a", "c"]
    rows = [row.split(",")[:2] for row in gate.LAST_GREEN.read_text().split()]
    assert rows[1:] == [["a", commit], ["c", commit]]
