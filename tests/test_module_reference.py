"""What the reference says of each module, and the cell that is its picture."""

import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from docutils import nodes
from module_pictures import find_cell, output_text

from book import module_reference

ROOT = Path(__file__).parents[1]
MODULES = module_reference.files(ROOT / "src/examples")


def cell(code, fold="", *texts):
    """Return a cell of MyST-NB that printed texts."""
    printed = [nodes.literal_block("", text) for text in texts]
    output = nodes.container("", *printed, nb_element="cell_code_output")
    source = nodes.container("", nodes.literal_block("", code))
    return nodes.container("", source, output, nb_element="cell_code", prompt_show=fold)


def test_a_picture_is_what_one_cell_gave():
    drawing = cell("draw(a)", "The drawing", "one", "two")
    page = nodes.section("", drawing, cell("half = 4"), cell("x = 1\nhalf = 5"))
    env = SimpleNamespace(get_doctree={"first": page}.__getitem__)
    for start in "The draw", "draw(":
        found, outputs = find_cell(env, {"page": "first", "cell": start})
        assert found is drawing
        assert [*map(output_text, outputs)] == ["one", "two"]
    for start, counts in ("The painting", (0, 0)), ("half", (2, 0)), ("x =", (1, 0)):
        words = "first: {} cells have a line .*, with {} outputs".format(*counts)
        with pytest.raises(ValueError, match=words):
            find_cell(env, {"page": "first", "cell": start})


def test_every_module_has_a_picture_and_no_other():
    declared = tomllib.loads((ROOT / "docs" / module_reference.PICTURES).read_text())
    assert [*declared] == [file.stem for file in MODULES]


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.stem)
def test_a_module_says_what_it_costs_and_how_it_runs(file):
    about, run = module_reference.description(file)
    assert module_reference.COST.search(about)
    assert f"python {file.name}" in run
