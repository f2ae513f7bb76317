"""Every page runs as a plain notebook, and one that does not is named with its cell."""

from dataclasses import replace

import elsewhere
import notebooks
import pytest
import tiny_site

from examples import charts, communication

HEAD = tiny_site.HEAD.removesuffix("---\n") + "needs: jax\n---\n"
PROJECT = '[project]\nrequires-python = ">=3.12"\ndependencies = ["jax>=0.12"]\n'
PAGES = {
    "good.md": f"{HEAD}# Good\n\n```{{code-cell}}\nassert True\n```\n",
    "bad.md": f"{HEAD}# Bad\n\n```{{code-cell}}\n1 / 0\n```\n",
    "ugly.md": f"{HEAD}# Ugly\n\n```{{list-table}}\n- - a\n```\n",
    "prose.md": "# Prose\n",
}


@pytest.fixture
def book(tmp_path, monkeypatch):
    """Write a book of four pages; the kernel is the one of this Python."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    for name, text in PAGES.items():
        (docs / name).write_text(text)
    monkeypatch.setenv("JUPYTER_PATH", "")
    monkeypatch.setenv("SHARDBOOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(notebooks, "DOCS", docs)
    monkeypatch.setattr(notebooks, "MODULES", tmp_path / "src")
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path / "build")
    monkeypatch.setattr(notebooks, "SITE", tmp_path / "site")
    monkeypatch.setattr(notebooks, "WRONG", tmp_path / "wrong")
    monkeypatch.setattr(notebooks, "PLAYED", tmp_path / "build/played.json")
    monkeypatch.setattr(notebooks, "environment", lambda needs: "python3")


@pytest.mark.processes
@pytest.mark.usefixtures("book")
def test_all_failures_are_reported_with_page_and_cell(capsys):
    assert notebooks.main([]) == 1
    words = capsys.readouterr().out
    assert "FAILED bad, cell-2: ZeroDivisionError: division by zero\n1 / 0" in words
    assert "FAILED ugly, the directive 'list-table'" in words
    assert "1 of 3 notebooks ran" in words


@pytest.mark.processes
def test_a_whole_run_leaves_out_what_passed_and_a_name_plays_it(better, capsys):
    for names, count in (["better"], 0), ([], 0), ([], 2), (["better"], 0):
        notebooks.main(names)
        words = capsys.readouterr().out
        assert (f"{count} notebooks had passed" in words) == bool(count)
        assert ("ok   " in words) == (not count)


EXERCISE = f"""{HEAD}# Better

```{{code-cell}}
class Verdict:
    def __init__(self, passed):
        self.passed, self._repr_html_ = passed, lambda: "html"

    def __str__(self):
        return "Accepted." if self.passed else "Not yet: too small."


print("three")
```

:::{{admonition}} Exercise: three
:class: exercise
Find three.
:::

```{{code-cell}}
:tags: [exercise, three]

answer = 0
Verdict(answer >= 3)
```
"""
WRONG = """\
[[wrong]]
answer = "answer = 2"
reason = "too small"
"""


@pytest.fixture
def better(book, tmp_path):
    """Add a page with an exercise, to which there is a wrong answer."""
    (tmp_path / "docs/better.md").write_text(EXERCISE)
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong/three.toml").write_text(WRONG)
    return tmp_path


@pytest.mark.processes
def test_stubs_and_wrong_answers_are_tried_and_kept(better):
    assert notebooks.main(["better"]) == 0
    (page,) = notebooks.pages(["better"])
    kept = notebooks.played()["better"]
    assert kept["key"] == notebooks.key_of(page)
    assert kept["faults"] == []
    said = {"passed": False, "text": "Not yet: too small."}
    assert kept["exercises"] == {"three": [said, said]}
    (better / "wrong/three.toml").write_text(WRONG + "# more\n")
    assert kept["key"] != notebooks.key_of(page)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("answer = 0", "answer = 3", "exercise three: its stub is accepted"),
        ("answer >= 3", "answer >= 2", "a wrong answer is accepted:\nanswer = 2"),
        ("too small", "too large", "'too small' is not in Not yet: too large"),
        ("Verdict(answer", "Verdikt(answer", "NameError: name 'Verdikt'"),
    ],
)
def test_an_answer_that_is_misjudged_is_a_failure(better, capsys, old, new, words):
    (better / "docs/better.md").write_text(EXERCISE.replace(old, new))
    assert notebooks.main(["better"]) == 1
    assert words in capsys.readouterr().out


@pytest.mark.processes
def test_other_words_than_the_site_shows_are_a_failure(better, capsys):
    (page,) = notebooks.pages(["better"])
    site = [[{"output_type": "stream", "name": "stdout", "text": "two\n"}], []]
    (better / "site").mkdir()
    text = notebooks.export.notebook_text(page, notebooks.MODULES, site)
    (better / "site/better.ipynb").write_text(text)
    assert notebooks.main(["better"]) == 1
    words = capsys.readouterr().out
    assert "cell-2 shows other words than the site" in words
    assert "-two\n+three" in words


PROCESSES = f"""{HEAD}# Processes

```{{code-cell}}
---
expect: |
  [processes 0, 1]
  3
---
from IPython.display import display

box = '<div role="group" aria-label="processes 0, 1"><pre>3</pre></div>'
display({{"text/plain": "[processes 0, 1]\\n3", "text/html": box}}, raw=True)
```
"""


@pytest.mark.processes
@pytest.mark.usefixtures("book")
def test_what_processes_show_is_compared_with_what_a_cell_expects(tmp_path, capsys):
    file = tmp_path / "docs/processes.md"
    file.write_text(PROCESSES)
    assert notebooks.main(["processes"]) == 0
    file.write_text(PROCESSES.replace("\n  3\n", "\n  4\n"))
    assert notebooks.main(["processes"]) == 1
    assert "-4\n+3" in capsys.readouterr().out


BASE = f"""{HEAD}# A base

```{{code-cell}}
:raises: ValueError odd

raise type("Odd", (ValueError,), {{}})("odd")
```
"""


@pytest.mark.processes
@pytest.mark.usefixtures("book")
@pytest.mark.parametrize("kind", ["ValueError", "Odd", "KeyError"])
def test_an_error_may_be_told_by_a_base_of_its_class(kind, capsys):
    (notebooks.DOCS / "base.md").write_text(BASE.replace(": ValueError", f": {kind}"))
    assert notebooks.main(["base"]) == (kind == "KeyError")
    assert ("raised    Odd: odd" in capsys.readouterr().out) == (kind == "KeyError")


CHECKS = f"""{HEAD}# Checks

```{{code-cell}}
:check: the sum is six

total = sum([1, 2, 3])
assert total == 6
for n in []:
    assert n == 7
```
"""


@pytest.mark.processes
@pytest.mark.usefixtures("book")
def test_a_changed_check_that_does_not_fail_is_named(capsys):
    (notebooks.DOCS / "checks.md").write_text(CHECKS)
    assert notebooks.main(["checks"], percent=100) == 1
    (page,) = notebooks.pages(["checks"])
    kept = notebooks.outcome(page)
    assert kept["changes"] == 4
    believed = ["13 check: assert n != 7", "13 check: assert n == 8"]
    assert sorted(kept["believed"]) == believed
    assert "FAILED checks, line 13 check: assert n != 7" in capsys.readouterr().out


@pytest.mark.processes
@pytest.mark.usefixtures("book")
def test_a_change_may_raise_any_error_but_those_of_nonsense(monkeypatch):
    (notebooks.DOCS / "checks.md").write_text(
        CHECKS.replace("    assert n == 7", "    n")
    )
    (page,) = notebooks.pages(["checks"])
    (name,) = notebooks.changes.sample(page, 100, "")
    made = {name: [("an index", "[][1]"), ("a name", "unknown"), ("a sum", "1 / 0")]}
    monkeypatch.setattr(notebooks.changes, "sample", lambda *_: made)
    assert notebooks.main(["checks"], percent=100) == 1
    (believed,) = notebooks.outcome(page)["believed"]
    assert "a name  NameError" in believed


@pytest.mark.processes
@pytest.mark.usefixtures("book")
def test_named_pages_run_alone(capsys):
    assert notebooks.main(["good"]) == 0
    assert "1 of 1 notebooks ran" in capsys.readouterr().out


@pytest.mark.processes
@pytest.mark.usefixtures("book")
def test_a_name_that_no_page_has_fails():
    assert notebooks.main(["goood"]) == 1


def test_the_lock_gives_versions_without_hashes():
    lock = (
        "colorama==0.4.6 ; sys_platform == 'win32' \\\n    --hash=sha256:ab \\\n"
        "    --hash=sha256:cd\njax==0.12.0.1 \\\n    --hash=sha256:ef\n"
    )
    expected = "colorama==0.4.6 ; sys_platform == 'win32'\njax==0.12.0.1\n"
    assert notebooks.constraints(lock) == expected


def test_what_only_the_site_shows_of_other_machines_is_left_out():
    program = communication.Program((), 4, 4, 4)
    table = elsewhere.Machines(program, {"H100": program})
    told = replace(program, elsewhere=table)
    assert "compiled for" in str(told) + told._repr_html_()
    assert notebooks.here(str(told)).strip() == str(program)
    assert notebooks.here(told._repr_html_()) == program._repr_html_()
    assert notebooks.here("temporaries 4 B\nmore") == "temporaries 4 B\nmore"
    rows = {"cut": {"CPU": 8, "H100": 4}, "whole": {"CPU": 0, "H100": 1}}
    alone = {name: {"CPU": bars["CPU"]} for name, bars in rows.items()}
    chart, mine = (charts.bars(each, "B")._repr_html_() for each in (rows, alone))
    assert notebooks.here(chart) == notebooks.here(mine)
    other = charts.bars(alone | {"cut": {"CPU": 9}}, "B")._repr_html_()
    assert notebooks.here(other) != notebooks.here(mine)
