"""Faults that `nox -s faults` tries fit the modules and name tests that exist."""

import ast
import re
from pathlib import Path

import faults
import pytest

TESTS = Path(__file__).parent
MODULES = sorted(file.stem for file in (faults.ROOT / "src/examples").glob("[!_]*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_every_fault_fits_once_and_is_still_python(module):
    text = (faults.ROOT / f"src/examples/{module}.py").read_text()
    for fault in faults.faults(module):
        ast.parse(faults.broken(text, fault))
        assert fault["new"] != fault["old"]


@pytest.mark.parametrize("module", MODULES)
def test_five_faults_or_more_are_caught_by_tests_that_there_are(module):
    listed = faults.faults(module)
    assert len({fault["what"] for fault in listed}) >= 5
    text = (TESTS / f"test_{module}.py").read_text()
    tests = re.findall(r"^def (test_\w+)\(", text, re.M)
    for fault in listed:
        words = re.findall(r"\w+", fault["caught_by"])
        assert any(word in test for word in words if len(word) > 5 for test in tests)


def test_every_list_belongs_to_a_module():
    assert {file.stem for file in faults.FOLDER.glob("*.toml")} <= {*MODULES}


def test_a_text_that_is_gone_is_an_error():
    fault = {"what": "nothing", "old": "gone", "new": "here"}
    with pytest.raises(ValueError, match="nothing: found 0 times, not once"):
        faults.broken("a module", fault)
