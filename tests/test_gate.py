"""The gate runs every step, names what is red, and repeats what waits for a clock."""

import os
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
MARKED = '<properties><property name="had_passed" value="1"/></properties>'


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
    steps = Step("lint", "lint", gate.LINT, "nox -s lint"), Step("late", "late", "no")
    code, lines = run(*steps, lint=lint, late="print('ran')")
    assert code == 1
    assert "ran" in lines
    red = [line for line in lines if line.startswith("RED")]
    assert red == ["RED lint: a.py:1:2: E501 long", "RED lint: b.py:3: ab ==> cd"]
    assert lines[-1] == "0 passed, 2 failed"


def test_a_red_step_without_a_red_line_is_named(run):
    code, lines = run(Step("docs", "docs", gate.SPHINX), docs="sys.exit(3)")
    assert code == 1
    assert f"RED docs: exit code 3: see {gate.FOLDER}/docs.log" in lines


def test_tests_are_counted_and_named(run):
    script = TESTS.replace("{failing}", "9")
    code, lines = run(Step("tests", "tests --"), tests=script)
    assert code == 1
    assert "RED tests: tests/test_a.py::test_b[1, 2]  late" in lines
    assert "    nox -s tests -- 'tests/test_a.py::test_b[1, 2]'" in lines
    assert lines[-1] == "1 passed, 1 failed"
    assert Path("tries").read_text() == "x"  # numbers are not repeated


def test_a_step_names_its_own_command(run):
    step = Step("fuzz", "fuzz --", again="nox -s fuzz -- {}")
    lines = run(step, fuzz=TESTS.replace("{failing}", "9"))[1]
    assert "    nox -s fuzz -- 'tests/test_a.py::test_b[1, 2]'" in lines


def test_what_had_passed_counts(run):
    script = "print('12 tests of 3 files had passed')\n"
    script += TESTS.replace("{failing}", "0").replace("<skipped/>", MARKED)
    code, lines = run(Step("tests", "tests --"), tests=script)
    assert code == 0
    assert lines[-1] == "14 passed, 0 failed"


@pytest.mark.parametrize(("failing", "repeats"), [(0, 0), (1, 1), (2, 2), (3, 2)])
def test_what_waits_for_a_clock_is_repeated_twice(run, failing, repeats):
    step = Step("slow", "tests --", alone=".", repeat="tests -- {}")
    code, lines = run(step, tests=TESTS.replace("{failing}", str(failing)))
    assert code == (failing > 2)
    assert sum(line.startswith("REPEATED slow: ") for line in lines) == repeats
    assert sum(line.startswith("RED slow: ") for line in lines) == (failing > 2)


def test_only_what_matches_is_repeated(run):
    red = r"FAILED (?P<name>.+), cell \d"
    words = "print('FAILED start/a, cell 1'); print('FAILED processes/b, cell 2')"
    script = f"import sys\nif words: print(words)\nelse:\n    {words}\n    sys.exit(1)"
    step = Step("play", "play", red, "again {}", "processes/", "play -- {}")
    code, lines = run(step, play=script)
    assert "['--', 'processes/b']" in lines
    assert [line for line in lines if line.startswith("RED")] == [
        "RED play: FAILED start/a, cell 1"
    ]
    assert "    again start/a" in lines
    assert code == 1


def test_children_of_a_step_end_with_it(run):
    sleeper = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(999)'])"
    script = f"print('pid', {sleeper}.pid)"
    _, lines = run(Step("leaves", "leaves", "no"), leaves=script)
    pid = int(next(line for line in lines if line.startswith("pid"))[4:])
    assert wait_for_end(pid)


def test_one_step_runs_beside_the_next(run):
    meets = "import time\nwhile not Path('there').exists():\n    time.sleep(0.01)"
    steps = Step("one", "one", "no", is_first_of_two=True), Step("two", "two", "no")
    code, lines = run(*steps, one=meets, two="Path('there').touch()")
    assert code == 0
    assert [line.split()[-1] for line in lines[-4:-2]] == ["one", "two"]


def test_a_signal_ends_all_steps(tmp_path):
    (tmp_path / "nox.py").write_text(NOX)
    sleeps = (
        "import os, time; Path('pid').write_text(str(os.getpid())); time.sleep(999)"
    )
    (tmp_path / "long.py").write_text(sleeps)
    code = "import gate, sys; gate.NOX = sys.executable, 'nox.py'\n"
    code += "gate.main(0, [gate.Step('long', 'long', 'no')])"
    path = {"PYTHONPATH": str(Path(gate.__file__).parent)}
    command, env = (sys.executable, "-c", code), os.environ | path
    with subprocess.Popen(command, cwd=tmp_path, env=env) as process:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.01)
        process.terminate()
        assert process.wait() == 143
    assert wait_for_end(int((tmp_path / "pid").read_text()))


def test_late_steps_are_untried_and_red(run):
    code, lines = run(Step("late", "late"), elapsed=gate.LAST_START)
    assert code == 1
    assert "UNTRIED late: nox -s late" in lines
    assert lines[-1] == "0 passed, 1 failed"


def test_a_step_is_cut_at_the_end(run, monkeypatch):
    monkeypatch.setattr(gate, "END", 2)
    script = "import time; time.sleep(999)"
    code, lines = run(Step("long", "long", "no"), long=script)
    assert code == 1
    assert f"RED long: cut, since time is over: see {gate.FOLDER}/long.log" in lines


@pytest.mark.parametrize(
    ("step", "line", "name"),
    [
        ("lint", "src/a.py:1:2: unformatted: File would be reformatted", ""),
        (
            "docs",
            "/x/docs/start/a.md:12: WARNING: cell 1 differs [cells.expect]",
            "start/a",
        ),
        ("docs", "WARNING: unknown node", ""),
    ],
)
def test_red_lines_are_recognised(step, line, name):
    (chosen,) = (each for each in gate.STEPS if each.name == step)
    ((what, found, command),) = gate.read_log(chosen, f"before\n{line}\nafter\n")
    assert what == line.partition("\n")[0]
    assert found == name
    assert command.startswith("nox -s ")
    assert name in command


def test_every_session_is_there():
    sessions = (Path(__file__).parents[1] / "noxfile.py").read_text()
    for step in gate.STEPS + weekly.PARTS:
        name = step.session.partition(" ")[0].replace("-", "_")
        assert f"def {name}(session)" in sessions
