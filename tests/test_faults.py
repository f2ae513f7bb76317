"""Faults that `nox -s faults` tries fit the modules and name tests that exist."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import faults
import pytest

TESTS = Path(__file__).parent
MODULES = sorted(file.stem for file in (faults.ROOT / "src/examples").glob("[!_]*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_every_fault_fits_once_and_is_still_python(module):
    text = (faults.ROOT / f"src/examples/{module}.py").read_text()
    for fault in faults.read_faults(module):
        ast.parse(faults.apply_fault(text, fault))
        assert fault["new"] != fault["old"]


@pytest.mark.parametrize("module", MODULES)
def test_five_faults_or_more_are_caught_by_tests_that_there_are(module):
    listed = faults.read_faults(module)
    assert len({fault["what"] for fault in listed}) >= 5
    text = (TESTS / f"{module}/test_{module}.py").read_text()
    tests = re.findall(r"^def (test_\w+)\(", text, re.M)
    for fault in listed:
        words = re.findall(r"\w+", fault["caught_by"])
        assert any(word in test for word in words if len(word) > 5 for test in tests)


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


def test_an_expression_selects_as_pytest_does():
    assert selects("test_a and mesh3", "test_a[Auto-mesh3]")
    assert not selects("test_a and not (mesh3 or auto)", "test_a[Auto-mesh3]")


def test_the_gate_runs_a_test_that_catches_each_fault():
    missed = [
        f"{module}: {fault['what']}"
        for module, tests in gate_tests().items()
        for fault in faults.read_faults(module)
        if not any(selects(fault["caught_by"], test) for test in tests)
    ]
    assert missed == []


def test_every_list_belongs_to_a_module():
    assert {file.parent.name for file in TESTS.glob("*/faults.toml")} <= {*MODULES}


def test_a_text_that_is_gone_is_an_error():
    fault = {"what": "nothing", "old": "gone", "new": "here"}
    with pytest.raises(ValueError, match="nothing: found 0 times, not once"):
        faults.apply_fault("a module", fault)
