"""Faults that `nox -s faults` tries fit the modules and name tests that exist."""

import ast
import re
import subprocess
import sys

import faults
import pytest

MODULES = sorted(file.stem for file in (faults.ROOT / "src/examples").glob("[!_]*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_five_faults_that_fit_once_and_are_still_python(module):
    text = (faults.ROOT / f"src/examples/{module}.py").read_text()
    listed = faults.read_faults(module)
    assert len({fault["what"] for fault in listed}) >= 5
    for fault in listed:
        ast.parse(faults.apply_fault(text, fault))
        assert fault["new"] != fault["old"]


def gate_tests() -> dict[str, list[str]]:
    """List the tests of modules that the gate runs, by module."""
    files = [f"tests/{module}" for module in MODULES]
    command = sys.executable, "-m", "pytest", "--collect-only", "-qm", "not weekly"
    done = subprocess.run(
        [*command, *files], cwd=faults.ROOT, capture_output=True, text=True, check=True
    )
    found = re.findall(r"^tests/(\w+)/test_\w+\.py::(.*)$", done.stdout, re.M)
    return {module: [test for of, test in found if of == module] for module in MODULES}


def selects(expression, test) -> bool:
    """Return whether an expression for `-k` selects a test."""

    def value(word):
        is_operator = word[0] in ("and", "or", "not")
        return word[0] if is_operator else str(word[0].lower() in test.lower())

    return eval(re.sub(r"[\w:+\-.\[\]\\/]+", value, expression))


def test_the_gate_runs_a_test_that_catches_each_fault():
    missed = [
        f"{module}: {fault['what']}"
        for module, tests in gate_tests().items()
        for fault in faults.read_faults(module)
        if not any(selects(fault["caught_by"], test) for test in tests)
    ]
    assert missed == []
