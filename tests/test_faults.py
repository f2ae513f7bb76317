"""Faults that are planted in modules, one at a time, are caught by their tests.

tests/MODULE/faults.toml lists them: the old text, the new one, and which tests must
then fail. `nox -s tests -- tests/test_faults.py -k fft` plants those of one module, in
a copy of the sources.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(file.stem for file in (ROOT / "src/examples").glob("[!_]*.py"))
PYTEST = sys.executable, "-m", "pytest", "-q", "-m", "not weekly"


def read_faults(module) -> list[dict[str, str]]:
    return tomllib.loads((ROOT / f"tests/{module}/faults.toml").read_text())["fault"]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_five_faults_that_fit_once_and_are_still_python(module):
    text, faults = (ROOT / f"src/examples/{module}.py").read_text(), read_faults(module)
    assert len({fault["what"] for fault in faults}) >= 5
    for fault in faults:
        assert text.count(fault["old"]) == 1
        ast.parse(text.replace(fault["old"], fault["new"]))


def test_the_gate_runs_a_test_that_catches_each_fault():
    command = *PYTEST, "--collect-only", *(f"tests/{module}" for module in MODULES)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    tests = re.findall(r"^tests/(\w+)/test_\w+\.py::(.*)$", done.stdout.lower(), re.M)
    missed = []
    for module in MODULES:
        own = [test for of, test in tests if of == module]
        for fault in read_faults(module):
            if not any(selects(fault["caught_by"].lower(), test) for test in own):
                missed.append(f"{module}: {fault['what']}")
    assert missed == []


def selects(expression, test) -> bool:
    """Return whether pytest's `-k` with this expression selects a test."""
    return Expression.compile(expression).evaluate(lambda word, **_: word in test)


def run_tests(module, source, selection) -> int:
    """Run tests of a module of these sources; return pytest's exit code."""
    path = f"pythonpath={source} docs/_ext tools benchmarks tests"
    command = *PYTEST, "-x", "-o", path, "-p", "no:cacheprovider", f"tests/{module}"
    env = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.call([*command, "-k", selection], cwd=ROOT, env=env)


@pytest.mark.weekly
@pytest.mark.timeout(0)  # each test of a module has its own
@pytest.mark.parametrize("module", MODULES)
def test_faults_are_caught(module, tmp_path):
    """A fault that ends or blocks the tests' process is caught, too."""
    source, faults = tmp_path / "src", read_faults(module)
    shutil.copytree(ROOT / "src", source)
    file = source / f"examples/{module}.py"
    text = file.read_text()
    every = " or ".join(f"({fault['caught_by']})" for fault in faults)
    assert run_tests(module, source, every) == pytest.ExitCode.OK
    cannot_run = {*pytest.ExitCode} - {pytest.ExitCode.TESTS_FAILED}
    missed = []
    for fault in faults:
        file.write_text(text.replace(fault["old"], fault["new"]))
        if run_tests(module, source, fault["caught_by"]) in cannot_run:
            missed.append(fault["what"])
    assert missed == []
