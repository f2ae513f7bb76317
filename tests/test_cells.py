"""The build judges every cell, shows what it proves, and runs a page when it must."""

import re
import shutil
from pathlib import Path

import execution
import pytest
from nbformat.v4 import new_output
from tiny_site import HEAD, Site

from book import exercises, guards, notes, program_table
from book.build_line import count_claims
from book.facts import ROOT
from book.page import Page
from examples.magic import as_html
from examples.processes import Output, Shown

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
    ":::{predict} A?\n- [ ] `3` — no\n- [x] `5`\n- [ ] `6`\n:::": "not in what",
    ":::{predict} B?\n- [x] the\n- [ ] `7` — no\n:::": "give 3 or 4 answers",
    ":expect: 2\nprint(3)": "cell 2 printed something else",
    ":tags: [hide-cell]\n:expect: 1\nTrue": "-1\n+True",
    ":expect: ...\nprint(3)": "expects no word, number or type",
    ":raises: ValueError a\nx = 1": "where `raises` expects ValueError: a",
    ":raises: ValueError c\nraise ValueError('d')": "expects ValueError: c",
    ":raises: ValueError\nraise ValueError('d')": "add a phrase of it",
    ":expects: 3\nx = 2": "an option that nothing knows: expects",
    "print(5)": "prints what nothing expects\n5",
    ":tags: [exercise, three]\nanswer = 0\nVerdict(answer >= 3)": "",
    ":tags: [exercise, stub]\nanswer = 3\nVerdict(answer >= 3)": "stub is accepted",
    ":tags: [exercise, wrong]\nanswer = 0\nVerdict(answer > 1)": "\nanswer = 2",
    ":tags: [exercise, reason]\n\nVerdict(False, 'odd')": "'too small' is not in Not",
    ":tags: [exercise, error]\nanswer = ''\nVerdict(answer[:0])": "'int' object is not",
}
LOST = {  # what follows an unexpected error is not judged
    ":check: two\nassert 1 == 2": "cell 1 is not true: two",
    ":check: three\nassert True\nx = 'assert x'": "cell 2 asserts nothing: three",
    "import os\n\nos._exit(1)": "cell 3 raised what no option expects\nKernel died",
    ":expect: 5\n6": "",
}
WHOLE = """:::{predict} Which?
- [ ] `x` over `2` — one line
      has not both
- [x] `1` and `2`
- [ ] `an` — a word is whole
- [ ] `d` — its end, too
:::"""
PAGES = {  # two import a module each, one reads a file
    "index": [
        ":expect: 0.10\nprint('0.10')",
        WHOLE,
        "---\nexpect: |\n  1 ... x\n\n  2\n---\nprint('1 and x  \\n\\n2')",
        "---\nexpect: |2\n    a\n  b\n---\nprint('  a\\n\\x1b[1mb')",
        ":raises: ZeroDivisionError division\n1 / 0",
        ":raises: 'KeyError: of ... x'\nraise KeyError('of /t' 'mp/ab/c.py:3 x')",
        ":raises: ValueError a\nclass IndivisibleError(Exception): ...\n\n"
        "raise IndivisibleError('a')",
        "class Picture:\n    _repr_html_ = lambda self: '<svg/>'\n\nPicture()",
        ":check: one is one\none = 1\nassert one == 1",
        ':fold: "Set-up: `x`"\nx = 1',
        ":expect: 1\nfrom examples.communication import ELSEWHERE\n\nlen(ELSEWHERE)",
    ],
    "first": [":expect: examples.one\nfrom examples import one\n\nprint(one.__name__)"],
    "second": [":tags: [hide-cell]\nimport examples.two"],
    "reader": [":tags: [hide-cell]\nprint(open('data/one.csv').read())"],
}
EVERY = "---\nexpect: |\n  [every process]\n  a < b\n---\n1"
SAME = 2 * [{"printed": "a < b"}]
PROCESSES = [  # options and code, what each process shows, what the build says
    (EVERY, SAME, ""),
    (EVERY, [*SAME[:1], {}], "+[process 0]"),
    (":fold: so\n%%every --raises E\nf()", [{"error": "E: 1"}], ""),
    (":fold: so\n%%every\nx", [{"value": "a", "html": "<table></table>"}], ""),
    (":fold: so\n%%every\nx", [{"printed": "5"}], "prints what nothing expects"),
    (
        ":check: so\n%%every\nassert x",
        [{"printed": "5"}],
        "prints what nothing expects",
    ),
]


def write_page(name, cells):
    """Return the text of a page."""
    data = "data/one.csv" * (name == "reader")
    head = HEAD.replace("kernelspec:", f"needs: jax\ndata: '{data}'\nkernelspec:")
    parts = [f"{head}# Page\n\nSome prose.\n"]
    for cell in cells:
        stub = re.search(r"exercise, (\w+)", cell)
        parts += [BOX.format(stub[1])] if stub else []
        is_text = cell.startswith(":::")
        parts.append(f"{cell}\n" if is_text else f"```{{code-cell}}\n{cell}\n```\n")
    return "\n".join(parts)


@pytest.fixture
def make_book(tmp_path, monkeypatch):
    """Return what builds a book of these pages, three modules, and wrong answers."""
    monkeypatch.setenv("SHARDBOOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(notes, "CURRENT", tmp_path / "programs")
    monkeypatch.setattr(exercises, "WRONG_ANSWERS", tmp_path)
    for name in re.findall(r"exercise, (\w+)", str(FALSE)):
        (tmp_path / f"{name}.toml").write_text(WRONG)
    for name in "__init__", "one", "two":
        (tmp_path / f"{name}.py").touch()
    shutil.copy(ROOT / "src/examples/communication.py", tmp_path)

    def make_book(pages):
        files = {f"{name}.md": write_page(name, cells) for name, cells in pages.items()}
        return Site(
            tmp_path,
            files | {"data/one.csv": "1,2"},
            extensions=["cells", "downloads", "markup", "myst_nb"],
            html_theme="sphinx_book_theme",
            execution_modules=str(tmp_path),
            nb_execution_mode="cache",
            nb_output_stderr="remove-warn",
            suppress_warnings=["misc.highlighting_failure", "toc.not_included"],
        )

    return make_book


def pages_run(site):
    """Return the pages that the last build played."""
    return {*re.findall(r"/(\w+)\.md: Executing notebook", site.status)}


def test_each_build_reports_each_failure_and_errors_run_again(make_book):
    site = make_book({"index": FALSE, "lost": LOST})
    text = (site.folder / "docs/index.md").read_text()
    line = text.split("\n").index(":expect: 2")
    wanted = [f"index.md:{line}: ", "1 of its programs are not kept"]
    wanted += ["wrong, but in what", "for no reason", "no words in code or bold"]
    for ran in {"index", "lost"}, {"lost"}:
        assert pages_run(site) == ran
        for words in [*FALSE.values(), *LOST.values(), *wanted]:
            assert words in site.warnings
        site.build()


def test_pages_show_what_they_prove(make_book):
    site = make_book(PAGES)
    assert (site.warnings, pages_run(site)) == ("", {*PAGES})
    html, notebook, text = (site(f"index.{kind}") for kind in ("html", "ipynb", "md"))
    kind = '<p class="kind">ZeroDivisionError</p>'
    for words in "Checked: one is one", "Set-up: <code>x</code>", kind:
        assert words in html
    for words in '"raises-exception"', "# Checked: one is one", '"0.10\\n"':
        assert words in notebook
    assert "Answer 2 is right." in notebook
    assert not re.search("Traceback|/tmp/ab", html + notebook)
    assert "```python\nprint('0.10')\n```\n\n```text\n0.10\n```" in text
    assert "```text\nZeroDivisionError: division by zero\n```" in text


def test_pages_run_again_when_they_must(make_book, monkeypatch):
    site = make_book(PAGES | {"index": PAGES["index"][:1]})
    assert site.warnings == ""
    (site.folder / "one.py").write_text("# another line\n")
    for name, old, new in (
        ("data/one.csv", "1,2", "3,4"),
        ("second.md", "Some", "Other"),
        ("index.md", ": 0.10", ": 0.20"),
    ):
        file = site.folder / "docs" / name
        file.write_text(file.read_text().replace(old, new))
    site.build()
    assert pages_run(site) == {"first", "reader"}
    assert "-0.20\n+0.10" in site.warnings
    assert "3,4" in site("reader.html")
    assert "Other prose" in site("second.html")
    row = dict.fromkeys(execution.COLUMNS, "") | {"machine": "H100", "pages": "index"}
    monkeypatch.setattr(program_table, "read_rows", lambda: [row])
    site.build()  # with the answers of another machine
    assert pages_run(site) == {"index"}
    site.settings["execution_environment"] = "of another JAX"
    site.build()
    assert pages_run(site) == {*PAGES}


def read_cell(text):
    return Page(Path("a.md"), Path(), source=f"```{{code-cell}}\n{text}\n```").code[0]


@pytest.mark.parametrize(("text", "processes", "words"), PROCESSES)
def test_what_processes_show_is_text_unless_it_is_a_table(text, processes, words):
    output = Output(tuple(Shown(**fields) for fields in processes))
    data = {"text/plain": str(output), "text/html": as_html(output)}
    outputs = [new_output("display_data", data=data)]
    found = [fault for _, fault in guards.faults(read_cell(text), outputs)]
    assert [words in fault for fault in found] == [True] * bool(words)


def test_lines_errors_and_assertions_are_claims():
    texts = EVERY, ":raises: ValueError no\nf()", ":check: so\nassert a\nb.require()"
    assert [count_claims(read_cell(text)) for text in texts] == [2, 1, 2]


def test_an_option_that_myst_cannot_read_is_refused():
    with pytest.raises(ValueError, match="line 1: Invalid options format"):
        read_cell(":expect: 'a")
