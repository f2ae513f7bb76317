"""What pages show and prove is counted as a reader would."""

import subprocess

import kept
import pytest
import shown
from book import export, proofs
from book.page import Cell, Page
from nbformat.v4 import new_output

PICTURE = '<div class="picture"></div>'
FENCES = [  # header, code, what it shows
    ("", "import jax\nx = 1", {}),
    (':fold: "Set-up"', "y = 2", {"text/html": f"{PICTURE}{PICTURE}"}),
    ("", "jax.set_mesh(x)\nP = jax.P", {}),
    (":expect: float32[8@x] and 2", "y", {"text/plain": "float32[8@x] and 2"}),
    ("", "z = 3\nassert z == 3 < 4", {}),
    ("", "z", {"image/svg+xml": "<svg/>"}),
    (":tags: [exercise, a]", "answer", {"text/html": f'{PICTURE}class="verdict"'}),
    (":check: it is so", "assert all(x for x in [1])", {}),
]
HEAD = "---\nkernelspec: {name: python3}\nneeds: jax\n---\n# Two words\n\nIt's `one`.\n"


@pytest.fixture
def page(tmp_path):
    fences = ("\n".join(["```{code-cell}", h, c, "```\n"]) for h, c, _ in FENCES)
    file = tmp_path / "docs/page.md"
    file.parent.mkdir()
    file.write_text(HEAD + "\n".join(fences) + ":::{note}\nThree words more.\n:::\n")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nrequires-python = ">=3.12"\ndependencies = []\n'
    )
    outputs = [
        [new_output("display_data", data=data)] if data else [] for *_, data in FENCES
    ]
    made = Page(file, file.parent)
    (tmp_path / "page.ipynb").write_text(
        export.notebook_text(made, file.parent, outputs)
    )
    return made


def test_a_page_is_counted(page, tmp_path):
    found = shown.row(page, tmp_path, lambda page: 2.5)
    assert found == {
        "open": 3,  # the expected one, the assertion, the plot
        "shown": 2,
        "facts": 2 + 2 + 1,
        "scaffolds": 0,
        "figures": 3,
        "words": 7,
        "screens": 2.5,
    }


def test_what_the_site_has_otherwise_is_not_known(page, tmp_path):
    page.file.write_text(page.text.replace("z = 3", "z = 4"))
    found = shown.row(Page(page.file, page.docs), tmp_path, lambda page: 2.5)
    assert [found[name] for name in ("shown", "figures", "screens")] == ["", "", ""]
    assert found["facts"] == 5


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("assert x", 1),
        ("assert a == b and c < d < e", 3),
        ('assert counts == {"all-gather": 1, "all-reduce": 2}', 2),
        ("assert (a, b, c) == (1, 2, 3)", 3),
        ("assert a in (1, 2, 3)", 1),
        ("assert counts == {}", 1),
        ("assert all(n > 1 for n in found)", 1),
        ("np.testing.assert_allclose(a, b)", 1),
        ("judge.program(answer).require()", 1),
        (
            "try:\n    f()\nexcept E:\n    pass\nelse:\n    raise AssertionError(1)",
            1,
        ),
        ("try:\n    f()\nfinally:\n    pass", 0),
        ("assert True", 0),
        ("%%every\nassert x == 1", 1),
    ],
)
def test_each_comparison_is_a_fact(code, count):
    assert proofs.facts(Cell(True, code, 1)) == count


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("float32[16@x,4]", 1),
        ("13 rows: arrays of 2, 16 and 1,024 rows, 1.5e-3", 5),
        ("nothing is sent", 1),
        ("mean -1.20", 1),
        ("...", 0),
        ("f32[16@x,32@y] to f32[32@y]   all-reduce over x: 16 B", 3),
        ("1 2 3 4 5 6 7", 7),
    ],
)
def test_each_number_and_type_of_an_expected_line_is_a_fact(line, count):
    assert proofs.tokens(line) == count
    assert proofs.facts(Cell(True, "x", 1, options={"expect": f"{line}\n"})) == count


def test_an_error_that_must_come_is_a_fact():
    assert proofs.facts(Cell(True, "f()", 1, options={"raises": "ValueError no"})) == 1


def test_what_was_kept_stands_beside_what_is(page, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(kept, "DOCS", page.docs)
    monkeypatch.setattr(shown.contents, "pages", lambda docs: [page])
    (page.docs / "index.md").write_text("# Index\n")
    monkeypatch.setattr(shown, "heights", shown.contextlib.nullcontext)
    monkeypatch.setattr(
        shown, "row", lambda page, site, height: dict.fromkeys(shown.COLUMNS, 4)
    )
    file = tmp_path / "kept.csv"
    shown.main(["--csv", str(file), "--before", str(file)])
    assert "(" not in capsys.readouterr().out
    file.write_text(file.read_text().replace("page,4", "page,5"))
    shown.main(["--before", str(file)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines[1:]] == [
        ["page", "4(5)", "4", "4"],
        ["all", "4(5)", "4", "4"],
    ]
    assert lines[1].endswith("100%(80%)")


def test_pages_of_a_revision_come_from_git(tmp_path):
    docs = shown.sources("HEAD", tmp_path)
    done = subprocess.run(
        ["git", "show", "HEAD:docs/index.md"],
        cwd=kept.ROOT,
        capture_output=True,
        check=True,
    )
    assert (docs / "index.md").read_bytes() == done.stdout
    assert shown.sources(None, tmp_path) == kept.DOCS


def test_the_table_of_before_is_kept():
    rows = shown.load(shown.BEFORE)
    assert len(rows) > 50
    assert all(int(row["open"]) >= int(row["shown"]) for row in rows.values())
