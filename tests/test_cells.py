"""The build judges every cell, shows what it proves, and runs a page when it must."""

import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import execution
import pytest
from tiny_site import HEAD

from book import marks, program_table
from book.page import Page, pages

CONF = """
from pathlib import Path
from book import exercises, notes
BOOK = Path().resolve().parent
notes.CURRENT = BOOK / "programs"
exercises.WRONG_ANSWERS = BOOK
extensions = ["cells", "downloads", "myst_nb"]
html_theme = "sphinx_book_theme"
execution_modules = str(BOOK / "src/examples")
nb_execution_mode = "cache"
nb_output_stderr = "remove-warn"
suppress_warnings = ["misc.highlighting_failure", "toc.not_included"]
"""
FIRST = """
import os, pathlib, sys


class Verdict:
    def __init__(self, passed, reason="too small"):
        self.passed, self.reason, self._repr_html_ = passed, reason, lambda: "html"

    def __str__(self):
        return "Accepted." if self.passed else f"Not yet: {self.reason}."


_ = sys.stderr.write("W0000 a log")
pathlib.Path(os.environ["BOOK_NOTES"]).mkdir(parents=True)
pathlib.Path(os.environ["BOOK_NOTES"], "0123.json").touch()"""
WRONG = '[[wrong]]\nanswer = "answer = 2"\nreason = "too small"\n'
BOX = ":::{{admonition}} Exercise: {0}\n:class: exercise\nFind three.\n:::\n"
FALSE = {  # the options and the code of a cell -> what the build says
    FIRST: "stderr was found in the cell outputs",
    ":expect: 2\nprint(3)": "cell 2 printed something else",
    ":tags: [hide-cell]\n:expect: 3\n4": "cell 3 printed something else",
    ":tags: [exercise, three]\nanswer = 0\nVerdict(answer >= 3)": "",
    ":tags: [exercise, stub]\nanswer = 3\nVerdict(answer >= 3)": "stub is accepted",
    ":tags: [exercise, wrong]\nanswer = 0\nVerdict(answer > 1)": "\nanswer = 2",
    ":tags: [exercise, reason]\n\nVerdict(False, 'odd')": "'too small' is not in Not",
    ":tags: [exercise, error]\nanswer = ''\nVerdict(answer[:0])": "'int' object is not",
}
LOST = {  # what follows an unexpected error is not judged
    ":check: two\nassert 1 == 2": "cell 1 is not true: two",
    ":raises: ValueError no\n1 / 0": "raised    ZeroDivisionError: division",
    "import os\n\nos._exit(1)": "cell 3 raised what no option expects\nKernel died",
    ":expect: 5\n6": "",
}
TRUE = [
    ":expect: 0.10\nprint('0.10')",
    ":raises: ZeroDivisionError division\n1 / 0",
    ":check: one is one\none = 1\nassert one == 1",
    ':fold: "Set-up: `x`"\nx = 1',
    ":expect: 1\nfrom examples.communication import ELSEWHERE\n\nlen(ELSEWHERE)",
]
PAGES = {  # two import a module each, one reads a file
    "index": TRUE,
    "first": [":expect: examples.one\nfrom examples import one\n\nprint(one.__name__)"],
    "second": [":tags: [hide-cell]\nimport examples.two"],
    "reader": [":tags: [hide-cell]\nprint(open('data/one.csv').read())"],
}
ROW = {"program": "0123", "pages": "index", "collectives": "", "note": ""}
ROW |= {"machine": "H100"}


@pytest.fixture
def book(tmp_path):
    """A book without pages, of two more modules, a table, and wrong answers."""
    modules = shutil.copytree(marks.ROOT / "src/examples", tmp_path / "src/examples")
    (tmp_path / "docs/data").mkdir(parents=True)
    for name in "one", "two":
        (modules / f"{name}.py").touch()
    for name in re.findall(r"exercise, (\w+)", str(FALSE)):
        (tmp_path / f"{name}.toml").write_text(WRONG)
    (tmp_path / "docs/data/one.csv").write_text("1,2")
    (tmp_path / "docs/conf.py").write_text(CONF)
    return tmp_path


def write(book, name, cells):
    """Write a page of the book."""
    data = "data/one.csv" * (name == "reader")
    head = HEAD.replace("kernelspec:", f"needs: jax\ndata: '{data}'\nkernelspec:")
    parts = [f"{head}# Page\n\nSome prose.\n"]
    for cell in cells:
        stub = re.search(r"exercise, (\w+)", cell)
        parts += [BOX.format(stub[1])] if stub else []
        parts.append(f"```{{code-cell}}\n{cell}\n```\n")
    (book / f"docs/{name}.md").write_text("\n".join(parts))


def build(book):
    """Build the book; return the status, what is printed, and the pages that ran."""
    command = [sys.executable, "-m", "sphinx", "-W", "-j2", "docs", "html"]
    paths = f"{marks.ROOT}/docs/_ext{os.pathsep}{marks.ROOT}/src"
    env = os.environ | {"PYTHONPATH": paths, "SHARDBOOK_CACHE": str(book / "cache")}
    done = subprocess.run(
        command, cwd=book, env=env, text=True, capture_output=True, check=False
    )
    output = done.stdout + done.stderr
    ran = re.findall(r"/(\w+)\.md: Executing notebook", output)
    return done.returncode, output, {*ran}


def test_each_failure_is_named_in_each_build_and_errors_run_again(book):
    write(book, "index", FALSE)
    write(book, "lost", LOST)
    wanted = [*FALSE.values(), *LOST.values(), "1 of its programs are not kept"]
    for ran in {"index", "lost"}, {"lost"}:
        status, output, pages = build(book)
        assert (status, pages) == (1, ran), output
        assert [words for words in wanted if words not in output] == [], output
    line = (book / "docs/index.md").read_text().split("\n").index(":expect: 2")
    assert f"index.md:{line}: " in output


def test_pages_show_what_they_prove_and_run_again_when_they_must(book):
    for name, cells in PAGES.items():
        write(book, name, cells)
    status, output, ran = build(book)
    assert (status, ran) == (0, {*PAGES}), output
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
    (book / "src/examples/one.py").write_text("# another line\n")
    (book / "docs/data/one.csv").write_text("3,4")
    for name, old, new in ("second", "Some", "Other"), ("index", ": 0.10", ": 0.20"):
        file = book / f"docs/{name}.md"
        file.write_text(file.read_text().replace(old, new))
    status, output, ran = build(book)
    assert (status, ran) == (1, {"first", "reader"})
    assert "-0.20\n+0.10" in output
    assert "3,4" in (book / "html/reader.html").read_text()
    assert "Other prose" in (book / "html/second.html").read_text()


def test_a_key_is_of_the_environment_and_the_rows_of_programs(book, monkeypatch):
    write(book, "index", TRUE)
    page = Page(book / "docs/index.md", book / "docs")
    keys = set()
    for environment, size in ("", 77), ("another", 77), ("", 78):
        rows = [ROW | {"temporaries": size}]
        monkeypatch.setattr(program_table, "read_rows", lambda rows=rows: rows)
        settings = {"execution_environment": environment, "execution_modules": "none"}
        app = SimpleNamespace(config=SimpleNamespace(**settings))
        keys.add(execution.page_key(app, page))
    assert len(keys) == 3


def test_a_process_that_a_page_starts_ends_with_its_kernel():
    for page in pages(marks.ROOT / "docs"):
        code = "\n".join(cell.source for cell in page.code)
        tied = "--pdeathsig=KILL" in code
        assert tied or "subprocess.Popen" not in code, page.name
