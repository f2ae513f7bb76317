"""The build judges every cell, names all that fail, and shows what it proves."""

import os
import subprocess
import sys
from pathlib import Path

import cells
import pytest

from book import kernels

EXTENSIONS = Path(__file__).parents[1] / "docs/_ext"
CONF = """
from jupyter_client import KernelManager
KernelManager.transport_encryption.default_value = "auto"
extensions = ["cells", "downloads", "myst_nb"]
exclude_patterns = ["cache", "jupyter_execute"]
html_theme = "sphinx_book_theme"
execution_modules = "{modules}"
nb_execution_mode, nb_execution_cache_path = "cache", "cache"
nb_execution_allow_errors = nb_merge_streams = True
suppress_warnings = ["misc.highlighting_failure"]
"""
PAGE = """---
jupytext: {text_representation: {format_name: myst}}
kernelspec:
  display_name: Python 3
  name: python3
needs: jax
---

# Page

"""
BAD = {  # the options and the code of a cell -> what the build says
    (":expect: 2", "print(3)"): "cell 1 printed something else",
    (":raises: ValueError a", "one = 1"): "cell 2 raised nothing",
    (":raises: ValueError no", "1 / 0"): "raised    ZeroDivisionError: division",
    (":check: two", "assert 1 == 2"): "cell 4 is not true: two",
    (":check: nothing", "1 if 1 else 2"): "cell 5 asserts nothing: nothing",
    ("", "print('more')"): "cell 6 prints what nothing expects",
    (":tags: [remove-cell]\n:expect: 3", "4"): "cell 7 printed something else",
}
LOST = {  # what follows an unexpected error is not judged
    (":check: two", "assert 1 == 2"): "cell 1 is not true: two",
    ("", "undefined"): "cell 2 raised what no option expects",
    (":expect: 5", "6"): "",
}
GOOD = [
    (":expect: 0.10", "print('0.10')"),
    (":raises: ZeroDivisionError division", "1 / 0"),
    (":raises: ValueError odd", 'raise type("Odd", (ValueError,), {})("odd")'),
    (":check: one is one", "one = 1\nassert one == 1"),
    (':fold: "Set-up: x"', "x = 1"),
]


@pytest.fixture
def book(tmp_path):
    """An empty book."""
    modules = tmp_path / "src/examples"
    for folder in modules, tmp_path / "docs":
        folder.mkdir(parents=True)
    (tmp_path / "docs/conf.py").write_text(CONF.format(modules=modules))
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nrequires-python = ">=3.12"\ndependencies = []\n'
    )
    return tmp_path


def write(book, cells):
    """Write the only page of the book."""
    fences = (f"```{{code-cell}}\n{options}\n{code}\n```\n" for options, code in cells)
    (book / "docs/index.md").write_text(PAGE + "\n".join(fences))


def build(book, *options):
    """Build the book; return the exit status and all that was said."""
    command = [sys.executable, "-m", "sphinx", "-W", *options, "docs", "html"]
    kernels.prepare_profile(book / "ipython")
    env = os.environ | {"PYTHONPATH": str(EXTENSIONS)}
    env["IPYTHONDIR"] = str(book / "ipython")
    done = subprocess.run(
        command, cwd=book, env=env, text=True, capture_output=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("cells", [BAD, LOST])
def test_each_failure_is_named_in_this_build_and_in_the_next(book, cells):
    write(book, cells)
    for options in (), ("-j2",):
        status, output = build(book, *options)
        assert status == 1
        assert [words for words in cells.values() if words not in output] == [], output
        assert output.count("[cells.") == len([*filter(None, cells.values())])
    line = PAGE.count("\n") + 1
    assert f"index.md:{line}: " in output


def test_a_new_expectation_is_judged_on_the_outputs_kept(book):
    write(book, GOOD)
    status, output = build(book)
    assert status == 0, output
    page = (book / "html/index.html").read_text()
    assert "Checked: one is one" in page
    assert "Set-up: x" in page
    assert '<p class="kind">ZeroDivisionError</p>' in page
    assert "Traceback" not in page
    write(book, [(":expect: 0.20", GOOD[0][1]), *GOOD[1:]])
    status, output = build(book)
    assert status == 1
    assert "Using cached" in output
    assert "-0.20\n+0.10" in output, output
    write(book, GOOD)
    assert build(book)[0] == 0


def test_the_notebook_and_the_markdown_have_what_the_cells_gave(book):
    write(book, GOOD)
    assert build(book)[0] == 0
    notebook = (book / "html/index.ipynb").read_text()
    assert '"raises-exception"' in notebook
    assert "# Checked: one is one" in notebook
    assert '"0.10\\n"' in notebook
    assert "Traceback" not in notebook
    text = (book / "html/index.md").read_text()
    assert "```python\nprint('0.10')\n```\n\n```text\n0.10\n```" in text
    assert "```text\nZeroDivisionError: division by zero\n```" in text
    assert "code-cell" not in text


def test_an_option_that_cannot_be_read_ends_the_build_with_its_place(book):
    write(book, [*GOOD, (":raises: A: b: c", "1")])
    status, output = build(book)
    assert status > 0
    line = (book / "docs/index.md").read_text().count("\n") - 3
    assert f"index, line {line}: the options of a cell need quotes" in output


def test_words_of_a_folded_cell_may_hold_code():
    line = '<p class="{} admonition-title">Checked: `a < b`, `c`</p>\n<p>`d`</p>'
    context = {"body": line.format("collapsed") + line.format("expanded")}
    cells.format_fold_lines(None, "", "", context, None)
    shown = line.replace("`a < b`, `c`", "<code>a < b</code>, <code>c</code>")
    assert context["body"] == shown.format("collapsed") + shown.format("expanded")
