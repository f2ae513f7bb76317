"""The build judges every cell, shows what it proves, and runs a page when it must.

None of these pages is the book's but one, which gets a lie.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import execution
import pytest
from tiny_site import PROJECT

from book import facts, notes
from book.page import Page

ROOT = Path(__file__).parents[1]
CONF = """
from pathlib import Path
from book import notes
notes.CURRENT = Path("programs").resolve()
extensions = ["cells", "downloads", "myst_nb"]
exclude_patterns = ["cache", "jupyter_execute"]
html_theme = "sphinx_book_theme"
execution_modules = "{modules}"
nb_execution_mode, nb_execution_cache_path = "cache", "cache"
nb_execution_allow_errors = nb_merge_streams = True
nb_output_stderr = "remove-warn"
suppress_warnings = ["misc.highlighting_failure"]
"""
PAGE = """---
jupytext: {text_representation: {format_name: myst}}
kernelspec:
  display_name: Python 3
  name: python3
needs: jax
orphan: true
DATA
---

# Page

Some prose.

"""
BAD = {  # the options and the code of a cell -> what the build says
    (":expect: 2", "print(3)"): "cell 1 printed something else",
    (":raises: ValueError no", "1 / 0"): "raised    ZeroDivisionError: division",
    ("", "print('more')"): "cell 3 prints what nothing expects",
    (":tags: [hide-cell]\n:expect: 3", "4"): "cell 4 printed something else",
    ("", "import sys\n\n_ = sys.stderr.write('W0000 a line of a log')"): "",
}
LOST = {  # what follows an unexpected error is not judged
    (":check: two", "assert 1 == 2"): "cell 1 is not true: two",
    ("", "undefined"): "cell 2 raised what no option expects",
    (":expect: 5", "6"): "",
}
REAL = "start/how-to-read.md"
TRUTH, LIE = "device 7 holds [14 15]", "device 7 holds [15 16]"
GOOD = [
    (":expect: 0.10", "print('0.10')"),
    (":raises: ZeroDivisionError division", "1 / 0"),
    (":check: one is one", "one = 1\nassert one == 1"),
    (':fold: "Set-up: `x`"', "x = 1"),
]
ROW = {"program": "0123", "machine": "H100", "pages": "index", "temporaries": "77"}
ROW |= {"collectives": "", "note": "", "jax": version("jax")}
ROW |= {"libtpu": facts.facts().libtpu}
PAGES = {  # two import a module each, one reads a file
    "index": "print(6 * 7)",
    "first": "from examples import one\n\nprint(one.__name__)",
    "second": "import examples.two\n\nprint(examples.two.__name__)",
    "reader": 'print(open("data/one.csv").read())',
}


@pytest.fixture
def book(tmp_path):
    """A book without pages, of two more modules and a table."""
    modules = shutil.copytree(ROOT / "src/examples", tmp_path / "src/examples")
    (tmp_path / "docs/data").mkdir(parents=True)
    for name in "one", "two":
        (modules / f"{name}.py").touch()
    (tmp_path / "docs/data/one.csv").write_text("1,2")
    (tmp_path / "docs/conf.py").write_text(CONF.format(modules=modules))
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    return tmp_path


def write(book, cells, name="index", data=""):
    """Write a page of the book."""
    fences = (f"```{{code-cell}}\n{options}\n{code}\n```\n" for options, code in cells)
    text = PAGE.replace("DATA", f"data: '{data}'") + "\n".join(fences)
    (book / f"docs/{name}.md").write_text(text)


def build(book, *options):
    """Build the book; return the exit status, and all that the build printed."""
    command = [sys.executable, "-m", "sphinx", "-W", *options, "docs", "html"]
    paths = f"{ROOT}/docs/_ext{os.pathsep}{ROOT}/src"
    env = os.environ | {"PYTHONPATH": paths, "SHARDBOOK_CACHE": ""}
    done = subprocess.run(
        command, cwd=book, env=env, text=True, capture_output=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_each_failure_is_named_in_this_build_and_in_the_next(book):
    write(book, BAD)
    write(book, LOST, "lost")
    page = (ROOT / "docs" / REAL).read_text()
    assert page.count(TRUTH) == 1
    (book / "docs/real.md").write_text(page.replace(TRUTH, LIE))
    wanted = [*filter(None, [*BAD.values(), *LOST.values()]), f"-{LIE}\n+{TRUTH}"]
    for options in (), ("-j2",):
        status, output = build(book, *options)
        assert status == 1
        assert [words for words in wanted if words not in output] == [], output
        assert output.count("[cells.") == len(wanted)
        assert "WARNING: stderr was found in the cell outputs" in output
    line = PAGE.count("\n") + 1
    assert f"index.md:{line}: " in output


def test_what_is_proved_is_shown_and_a_new_expectation_needs_no_run(book):
    write(book, GOOD)
    status, output = build(book)
    assert status == 0, output
    page, notebook, text = (
        (book / f"html/index.{kind}").read_text() for kind in ("html", "ipynb", "md")
    )
    kind = '<p class="kind">ZeroDivisionError</p>'
    for words in "Checked: one is one", "Set-up: <code>x</code>", kind:
        assert words in page
    for words in '"raises-exception"', "# Checked: one is one", '"0.10\\n"':
        assert words in notebook
    assert "Traceback" not in page + notebook
    assert "```python\nprint('0.10')\n```\n\n```text\n0.10\n```" in text
    assert "```text\nZeroDivisionError: division by zero\n```" in text
    assert "code-cell" not in text
    write(book, [(":expect: 0.20", GOOD[0][1]), *GOOD[1:]])
    status, output = build(book)
    assert status == 1
    assert "Using cached" in output
    assert "-0.20\n+0.10" in output, output


def test_a_page_runs_again_when_it_must_and_only_then(book):
    def executed():
        status, output = build(book)
        assert status == 0, output
        return set(re.findall(r"/(\w+)\.md: Executing notebook", output))

    for name, code in PAGES.items():
        data = "data/one.csv" if name == "reader" else ""
        write(book, [(":tags: [hide-cell]", code)], name, data)
    assert executed() == {*PAGES}
    (book / "src/examples/one.py").write_text("# another line\n")
    (book / "docs/data/one.csv").write_text("3,4")
    for name, old, new in ("second", "Some", "Other"), ("index", "6 * 7", "7 * 7"):
        page = book / f"docs/{name}.md"
        page.write_text(page.read_text().replace(old, new))
    assert executed() == {"first", "reader", "index"}
    assert "3,4" in (book / "html/reader.html").read_text()
    assert "Other prose" in (book / "html/second.html").read_text()


@pytest.fixture
def find_key(book, monkeypatch):
    """Return a function that writes a page of one cell, and returns its key."""
    config = SimpleNamespace(
        execution_environment="",
        execution_modules=str(book / "src/examples"),
        execution_programs=str(book / "programs.csv"),
    )
    app = SimpleNamespace(config=config, env=SimpleNamespace(found_docs={"index"}))

    def find_key(code, options="", **changes):
        vars(config).update(changes)
        write(book, [(options, code)])
        execution.warn_of_missing(app)
        return execution.page_key(app, Page(book / "docs/index.md", book / "docs"))[0]

    return find_key


def test_a_key_is_of_code_and_environment_and_of_no_expectation(find_key, monkeypatch):
    first = find_key("1 + 1")
    for options in ":expect: 2", ":check: it is so", ':fold: "Set-up"':
        assert find_key("1 + 1", options) == first
    assert find_key("1 + 2") != first
    assert find_key("1 + 1", execution_environment="another") != first

    def digest(flag, package):
        monkeypatch.setenv("JAX_ENABLE_X64", flag)
        packages = [SimpleNamespace(name="jax", version=package)]
        monkeypatch.setattr("importlib.metadata.distributions", lambda: packages)
        return execution.digest_environment({"JAX_ENABLE_X64"})

    assert digest("0", "1") == digest("0", "1")
    assert len({digest("0", "1"), digest("1", "1"), digest("0", "2")}) == 3


def test_a_page_runs_again_for_new_rows_of_its_programs(book, find_key, monkeypatch):
    """A program that no machine has compiled fails the build."""
    warned = []
    monkeypatch.setattr(notes, "note_files", lambda page: [Path("0123.json")])
    monkeypatch.setattr(execution.LOG, "warning", lambda *w, **_: warned.append(w[0]))

    def key_with(**changes):
        with (book / "programs.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, ROW)
            writer.writeheader()
            writer.writerow(ROW | changes)
        return find_key("from examples.communication import measure")

    none = key_with(machine="CPU")
    assert "1 of its programs are not kept for other machines" in warned[0]
    assert key_with(pages="another") == none
    assert len({none, key_with(), key_with(temporaries="78")}) == 3
    assert len(warned) == 1
