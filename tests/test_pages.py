"""What every page promises, whatever it is about."""

import re
import subprocess
from pathlib import Path

import jax
import numpy as np
import pytest

from book import contents
from book.page import pages
from examples.pictures import draw

DOCS = Path(__file__).parents[1] / "docs"
SOURCES = pages(DOCS)
PAGES = [page for page in SOURCES if page.is_notebook]
CHAPTERS = [page for page in SOURCES if page.name != "index"]
SETUP = 'import jax\n\njax.config.update("jax_num_cpu_devices", 8)'
PROCESSES = """\
from examples.magic import every
from examples.processes import Processes

four = every(Processes(4, devices=2))"""


def name(page):
    return page.name


def cells(page):
    return [cell.source for cell in page.code]


each_page = pytest.mark.parametrize("page", PAGES, ids=name)
each_source = pytest.mark.parametrize("page", SOURCES, ids=name)


@each_page
def test_it_claims_something_that_could_fail(page):
    options = {option for cell in page.code for option in cell.options} - {"fold"}
    assert options or any("assert" in cell for cell in cells(page))


@each_page
def test_it_asks_for_eight_devices_first(page):
    assert cells(page)[0].startswith((SETUP, PROCESSES))


@each_page
def test_it_names_what_it_needs(page):
    code = "\n".join(cells(page))
    modules = re.findall(r"^from examples\.(\w+) import", code, re.M)
    texts = [(DOCS / f"../src/examples/{name}.py").read_text() for name in modules]
    imports = "\n".join([code, *texts])
    for package in ("matplotlib", "rich", "jaxdecomp", "optax", "flax"):
        if re.search(rf"^(import|from) {package}\b", imports, re.M):
            assert package in page.needs
    assert "visualize" not in code or {"rich", "matplotlib"} <= {*page.needs}


@each_page
def test_its_cells_are_short(page):
    for cell in cells(page):
        assert len(cell.splitlines()) <= 15, cell


@each_page
def test_its_cells_are_formatted(page, tmp_path):
    """The first line of a cell that every process runs is not Python."""
    for number, cell in enumerate(cells(page)):
        code = re.sub(r"\A%%every.*\n", "", cell)
        tmp_path.joinpath(f"cell_{number:02}.py").write_text(code + "\n")
    ruff = "ruff", "format", "--diff", "--isolated", "--line-length=88", tmp_path
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@each_source
def test_an_error_that_it_expects_must_come(page):
    """An error is shown, by `raises`, or a helper returns what became of a call.

    So a call that is accepted gives something else than the page expects. A bare `try`
    that forgets its `else` would publish a claim that cannot fail.
    """
    assert "raise AssertionError" not in page.text
    for cell in cells(page):
        assert not re.search(r"^except\b", cell, re.MULTILINE), cell


@each_page
def test_no_cell_ends_in_a_mesh(page):
    """What `jax.set_mesh` returns prints its address, another one at each build."""
    for cell in cells(page):
        assert not cell.splitlines()[-1].startswith("jax.set_mesh("), cell


@each_source
def test_it_tells_search_engines_what_it_is(page):
    assert len(page.description) > 20


@each_source
def test_it_uses_the_words_of_the_house(page):
    """No praise of ease, no shouting; `host` and `worker` are called processes."""
    prose = re.sub(r"```.*?```|`[^`]*`", "", page.text, flags=re.S)
    for word in (r"\bsimply\b", r"\beasily\b", r"!\s", r"\bworkers?\b", r"tutorial\b"):
        assert not re.search(word, prose), word


def test_the_contents_have_every_page_once():
    assert sorted(map(name, contents.pages(DOCS))) == sorted(map(name, CHAPTERS))


def test_readme_links_every_part():
    readme = (DOCS.parent / "README.md").read_text()
    parts = {page.name.partition("/")[0] for page in CHAPTERS}
    assert parts == {*re.findall(r"\(docs/([\w-]+)\)", readme)}


def test_readme_shows_what_its_program_draws():
    code = re.search(
        "```python\n(.*?)```", (DOCS.parent / "README.md").read_text(), re.S
    )
    names = {"jax": jax, "np": np, "draw": draw}
    exec(code[1], names)
    assert draw(names["a"]).words in (DOCS / "figures/blocks.svg").read_text()
