"""What every page promises, whatever it is about."""

import re
import subprocess

import jax
import numpy as np
import pytest

from book import contents
from book.facts import ROOT
from book.page import pages
from examples.pictures import draw

PAGES = pages(ROOT / "docs")
README = (ROOT / "README.md").read_text()
STARTS = (
    'import jax\n\njax.config.update("jax_num_cpu_devices", 8)',
    "from examples.magic import every\n"
    "from examples.processes import Processes\n\n"
    "four = every(Processes(4, devices=2))",
)
FORBIDDEN = re.compile(  # praise of ease, shouting, and other words for processes
    r"\bsimply\b|\beasily\b|!\s|\bworkers?\b|tutorial\b"
    # what travels is up to each compiler: name it, or say that one does so
    r"|\bthe\s+compiler\s+(?:adds|copies|exchanges|gathers|inserts|moves|reduces|sends)\b",
    re.I,
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_the_form_of_all_pages(page):
    assert len(page.description) > 20, "search engines show it"
    prose = re.sub(r"```.*?```|`[^`]*`", "", page.text, flags=re.S)
    assert FORBIDDEN.findall(prose) == []
    assert not re.search(r"^<.*>\n#", page.text, re.M), "put a blank line below HTML"
    code = "\n".join(cell.source for cell in page.code)
    assert not re.search(r"^except\b|raise AssertionError", code, re.M), "use `raises`"
    assert [c.line for c in page.code if c.source.count("\n") >= 15] == [], "too long"
    assert "subprocess.Popen" not in code or "--pdeathsig=KILL" in code, "it may stay"
    if page.is_notebook:
        options = {option for cell in page.code for option in cell.options}
        assert options - {"fold"} or "assert" in code, "claim what could fail"
        assert code.startswith(STARTS)


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
    names = sorted(page.name for page in PAGES if page.name != "index")
    assert sorted(page.name for page in contents.pages(ROOT / "docs")) == names
    parts = {name.partition("/")[0] for name in names}
    assert parts == {*re.findall(r"\(docs/([\w-]+)\)", README)}


def test_readme_shows_what_its_program_draws():
    names = {"jax": jax, "np": np, "draw": draw}
    exec(re.search("```python\n(.*?)```", README, re.S)[1], names)
    picture = (ROOT / "docs/figures/blocks.svg").read_text()
    assert draw(names["a"]).words in picture
