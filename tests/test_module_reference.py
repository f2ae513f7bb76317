"""What the reference says of each module."""

import tomllib

import pytest

from book import module_reference
from book.facts import ROOT

MODULES = module_reference.files(ROOT / "src/examples")


def test_every_module_has_a_picture_and_no_other():
    declared = tomllib.loads((ROOT / "docs" / module_reference.PICTURES).read_text())
    assert [*declared] == [file.stem for file in MODULES]


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.stem)
def test_a_module_says_what_it_costs_and_how_it_runs(file):
    about, run = module_reference.description(file)
    assert module_reference.COST.search(about)
    assert f"python {file.name}" in run
