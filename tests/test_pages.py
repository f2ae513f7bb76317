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

ROOT = Path(__file__).parents[1]
PAGES = pages(ROOT / "docs")
NAMES = [page.name for page in PAGES if page.name != "index"]
README = (ROOT / "README.md").read_text()
STARTS = (
    'import jax\n\njax.config.update("jax_num_cpu_devices", 8)',
    "from examples.magic import every\n"
    "from examples.processes import Processes\n\n"
    "four = every(Processes(4, devices=2))",
)
FORBIDDEN = re.compile(  # praise of ease, shouting, and other words for processes
    r"\bsimply\b|\beasily\b|!\s|\bworkers?\b|tutorial\b"
)


def code(page):
    return "\n".join(cell.source for cell in page.code)


def claims_something(page):
    options = {option for cell in page.code for option in cell.options} - {"fold"}
    return options or "assert" in code(page)


def prose(page):
    return re.sub(r"```.*?```|`[^`]*`", "", page.text, flags=re.S)


ANY_PAGE = {
    "tells search engines what it is": lambda page: len(page.description) > 20,
    "has the words of the house": lambda page: not FORBIDDEN.search(prose(page)),
    "shows errors by `raises`": lambda page: "raise AssertionError" not in page.text,
    "has a blank line between HTML and a heading": (
        lambda page: not re.search(r"^<.*>\n#", page.text, re.M)
    ),
}
NOTEBOOK = {
    "claims something that could fail": claims_something,
    "asks for eight devices first": lambda page: code(page).startswith(STARTS),
}
CELL = {
    "has at most 15 lines": lambda cell: cell.count("\n") < 15,
    "catches no error: `raises` shows it, or a helper returns what became of a call": (
        lambda cell: not re.search(r"^except\b", cell, re.M)
    ),
    "prints no mesh: its address is another at each build": (
        lambda cell: not cell.splitlines()[-1].startswith("jax.set_mesh(")
    ),
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_the_form_of_all_pages(page):
    rules = ANY_PAGE | NOTEBOOK if page.is_notebook else ANY_PAGE
    assert [words for words, holds in rules.items() if not holds(page)] == []
    for cell in page.code:
        assert [words for words, holds in CELL.items() if not holds(cell.source)] == []


def test_cells_are_formatted(tmp_path):
    """The first line of a cell that every process runs is not Python."""
    for page in PAGES:
        for cell in page.code:
            file = tmp_path / f"{page.name}-{cell.line}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(re.sub(r"\A%%every.*\n", "", cell.source) + "\n")
    ruff = "ruff", "format", "--diff", "--isolated", "--line-length=88", tmp_path
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_contents_have_every_page_once_and_readme_every_part():
    assert sorted(page.name for page in contents.pages(ROOT / "docs")) == sorted(NAMES)
    parts = {name.partition("/")[0] for name in NAMES}
    assert parts == {*re.findall(r"\(docs/([\w-]+)\)", README)}


def test_readme_shows_what_its_program_draws():
    names = {"jax": jax, "np": np, "draw": draw}
    exec(re.search("```python\n(.*?)```", README, re.S)[1], names)
    picture = (ROOT / "docs/figures/blocks.svg").read_text()
    assert draw(names["a"]).words in picture
