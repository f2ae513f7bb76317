"""Faults that `nox -s faults` tries fit the modules and name tests that exist."""

import ast
import re

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


@pytest.mark.parametrize("module", MODULES)
def test_the_tests_that_catch_a_fault_are_there(module):
    """`nox -s faults` runs them."""
    text = (faults.TESTS / f"{module}/test_{module}.py").read_text()
    for fault in faults.read_faults(module):
        assert any(word in text for word in re.findall(r"\w{4,}", fault["caught_by"]))
