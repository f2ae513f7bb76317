"""The build judges every cell, shows what it proves, and runs a page when it must."""

import csv
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import execution
import nbformat.v4
import pytest
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.cache.main import JupyterCacheBase

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
    (':fold: "Set-up: `x`"', "x = 1"),
]
PAGES = {  # two import a module each, one reads a file
    "index": "print(6 * 7)",
    "first": "from examples import one\n\nprint(one.__name__)",
    "second": "import examples.two\n\nprint(examples.two.__name__)",
    "reader": 'print(open("data/one.csv").read())',
}


@pytest.fixture
def book(tmp_path):
    """A book without pages, of two modules and a table."""
    modules = tmp_path / "src/examples"
    for folder in modules, tmp_path / "docs/data":
        folder.mkdir(parents=True)
    for name in "__init__", "one", "two":
        (modules / f"{name}.py").touch()
    (tmp_path / "docs/data/one.csv").write_text("1,2")
    (tmp_path / "docs/conf.py").write_text(CONF.format(modules=modules))
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nrequires-python = ">=3.12"\ndependencies = []\n'
    )
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
    wanted = [*filter(None, [*BAD.values(), *LOST.values()])]
    for options in (), ("-j2",):
        status, output = build(book, *options)
        assert status == 1
        assert [words for words in wanted if words not in output] == [], output
        assert output.count("[cells.") == len(wanted)
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
    write(book, GOOD)
    assert build(book)[0] == 0


def test_a_page_runs_again_when_it_must_and_only_then(book):
    def executed(*options):
        status, output = build(book, *options)
        assert status == 0, output
        return set(re.findall(r"/(\w+)\.md: Executing notebook", output))

    for name, code in PAGES.items():
        data = "data/one.csv" if name == "reader" else ""
        write(book, [(":tags: [hide-cell]", code)], name, data)
    assert executed() == {*PAGES}
    (book / "src/examples/one.py").write_text("# another line\n")
    (book / "docs/data/one.csv").write_text("3,4")
    assert executed() == {"first", "reader"}
    assert "3,4" in (book / "html/reader.html").read_text()
    (book / "src/examples/one.py").write_text("")
    for name, old, new in ("second", "Some", "Other"), ("index", "6 * 7", "7 * 7"):
        page = book / f"docs/{name}.md"
        page.write_text(page.read_text().replace(old, new))
    assert executed() == {"index"}
    assert "Other prose" in (book / "html/second.html").read_text()
    assert executed("-Dexecution_environment=another") == {*PAGES}


def test_a_key_is_of_code_and_of_no_expectation(book):
    config = SimpleNamespace(
        execution_environment="",
        execution_modules=str(book / "src/examples"),
        execution_programs="",
    )
    app = SimpleNamespace(config=config)

    def find_key(*cell):
        write(book, [cell])
        return execution.page_key(app, Page(book / "docs/index.md", book / "docs"))[0]

    first = find_key("", "1 + 1")
    for options in ":expect: 2", ":check: it is so", ':fold: "Set-up"':
        assert find_key(options, "1 + 1") == first
    assert find_key("", "1 + 2") != first


def test_outputs_are_cached_one_page_at_a_time(tmp_path, monkeypatch):
    inside, counts = [], []

    def truncate(cache):
        inside.append(cache)
        time.sleep(0.1)  # long enough for the others, if they did not wait
        counts.append(len(inside))
        inside.remove(cache)

    def put(number):
        cell = nbformat.v4.new_code_cell(f"print({number})")
        bundle = CacheBundleIn(nbformat.v4.new_notebook(cells=[cell]), f"{number}.md")
        execution.cache_outputs(JupyterCacheBase(tmp_path), bundle)

    monkeypatch.setattr(JupyterCacheBase, "truncate_caches", truncate)
    _ = JupyterCacheBase(tmp_path).db
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(4)))
    assert counts == [1, 1, 1, 1]
    assert len(JupyterCacheBase(tmp_path).list_cache_records()) == 4


def test_the_environment_is_the_python_its_packages_and_its_variables(monkeypatch):
    def digest():
        return execution.digest_environment({"JAX_ENABLE_X64"})

    monkeypatch.setenv("JAX_ENABLE_X64", "0")
    found = {digest(), digest()}
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    found.add(digest())
    newer = SimpleNamespace(name="jax", version="99")
    monkeypatch.setattr("importlib.metadata.distributions", lambda: [newer])
    found.add(digest())
    assert len(found) == 3


ROW = {"program": "0123", "machine": "H100", "pages": "index", "temporaries": "77"}
ROW |= {"collectives": "", "note": "", "jax": version("jax")}
ROW |= {"libtpu": facts.facts().libtpu}


def test_a_page_runs_again_for_new_rows_of_its_programs(book, monkeypatch):
    """A program that no machine has compiled fails the build."""
    (book / "src/examples/communication.py").touch()
    write(book, [("", "from examples.communication import measure")])
    page, table, warned = (
        Page(book / "docs/index.md", book / "docs"),
        book / "t.csv",
        [],
    )
    config = SimpleNamespace(
        execution_environment="",
        execution_modules=str(book / "src/examples"),
        execution_programs=str(table),
    )
    app = SimpleNamespace(config=config, env=SimpleNamespace(found_docs={"index"}))
    monkeypatch.setattr(notes, "note_files", lambda page: [Path("0123.json")])
    monkeypatch.setattr(execution.LOG, "warning", lambda *w, **_: warned.append(w[0]))

    def find_key(**changes):
        with table.open("w", newline="") as file:
            writer = csv.DictWriter(file, ROW)
            writer.writeheader()
            writer.writerow(ROW | changes)
        execution.warn_of_missing(app)
        return execution.page_key(app, page)[0]

    none = find_key(machine="CPU")
    assert "1 of its programs are not kept for other machines" in warned[0]
    assert find_key(pages="another") == none
    assert len({none, find_key(), find_key(temporaries="78")}) == 3
    assert len(warned) == 1
