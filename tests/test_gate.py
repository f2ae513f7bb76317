"""The gate runs every step, names what is red, and repeats what waits for a clock."""

import sys
from pathlib import Path

import gate
import pytest
from gate import Step

NOX = """
import sys
from pathlib import Path
with open("ran", "a") as file:
    print(*sys.argv[1:3], file=file)
exec(Path(f"{sys.argv[1]}.py").read_text())
"""
TEST = "tests/a/fuzz_a.py::test_b[1, 2]"
LOGS = {  # step -> what is red in its log, and the session that repeats this
    "lint": ("docs/a.py:1:2: E501 long", "lint"),
    "docs": ("/x/docs/start/a.md:12: WARNING: cell 1 [a]", "page -- start/a"),
    "links": ("[ERROR] file:///x/a.html#b | Cannot find fragment", "links"),
    "fuzz": (f"FAILED {TEST} - late", f"tests -- -n0 '{TEST}'"),
    "tests": ("ERROR tests/test_a.py - late", "tests -- -n0 tests/test_a.py"),
}
PASSED = (
    "12 tests of 3 files had passed\n= 7 passed in 2s =\n= 1 failed, 3 passed in 2s ="
)
ONE = Step("one", "one", gate.NOTHING)


@pytest.fixture(autouse=True)
def write(tmp_path, monkeypatch):
    """Go where a session of nox is a script of its name; return what writes one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gate, "NOX", (sys.executable, "nox.py"))
    Path("nox.py").write_text(NOX)
    return lambda name, script: Path(f"{name}.py").write_text(script)


def test_one_run_names_all_that_is_red_and_the_commands(write, capsys):
    end = ""
    for name, (line, again) in LOGS.items():
        write(name, f"print({PASSED!r}, {line!r}, sep='\\n'); sys.exit(1)")
        end += f"RED {name}: {line}\n    nox -s {again}\n"
    assert not gate.run_steps([step for step in gate.STEPS if step.name in LOGS], 0)
    end += f"{22 * len(LOGS)} passed, {len(LOGS)} failed\n"
    assert capsys.readouterr().out.endswith(end)
    write("one", "print('ERROR: no exit code')")
    assert gate.run_steps([ONE], 0)


@pytest.mark.parametrize("elapsed", [gate.END - 2, gate.END + 2])
def test_a_long_step_is_cut_and_so_is_a_late_one(write, capsys, elapsed):
    write("one", "import time; time.sleep(999)")
    assert not gate.run_steps([ONE], elapsed)
    assert "RED one: cut, since time is over: see docs" in capsys.readouterr().out


@pytest.mark.parametrize("failing", [2, 3])
def test_what_waits_for_a_clock_is_repeated_alone_at_most_twice(write, failing, capsys):
    red = "print('FAILED tests/test_a.py::test_b - late'); sys.exit(1)"
    write("one", f"if len([*open('ran')]) <= {failing}:\n    {red}")
    step = Step("one", "one", repeatable=".", alone="one {}")
    assert gate.run_steps([step], 0) == (failing < 3)
    again = "one tests/test_a.py::test_b\n"
    assert Path("ran").read_text().endswith(2 * again)
    text = capsys.readouterr().out
    assert text.count("REPEATED one: tests/test_a.py::test_b\n") == 2
    assert text.count("RED one: ") == (failing == 3)
