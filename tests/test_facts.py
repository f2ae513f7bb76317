"""What many files state comes from pyproject.toml, and nothing compares it as text."""

import ast
import re
import subprocess
from pathlib import Path

import copies
import pytest
from book import export, facts
from book.page import pages
from packaging.version import Version

ROOT = Path(__file__).parents[1]
BOOK = facts.facts()
TRACKED = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.split()


def test_the_lock_holds_the_release_that_pages_are_written_for():
    held = Version(facts.locked("jax"))
    assert f"{held.major}.{held.minor}" == BOOK.jax
    assert Version(BOOK.oldest_jax) <= held


def test_every_copy_is_as_its_tool_writes_it():
    for file, text in copies.copies().items():
        assert file.read_text() == text, "run `python tools/copies.py`"


def test_every_module_has_a_page_and_no_other_page_lies_there():
    folder = ROOT / "docs/reference/modules"
    there = {file: file.read_text() for file in folder.glob("*.md")}
    assert there == copies.stubs(), "run `python tools/copies.py`"


def test_the_copies_are_there():
    written = {str(file.relative_to(ROOT)) for file in copies.copies()}
    expected = {"README.md", "CITATION.cff", "docs/start/how-to-read.md"}
    expected |= {"docs/matplotlibrc", "docs/_static/site.css", "docs/_static/logo.svg"}
    expected.add("src/examples/pictures.py")
    assert expected <= written
    assert len([name for name in written if name.startswith("docs/figures/")]) == 3


def test_a_new_colour_or_version_reaches_every_copy(monkeypatch):
    colours = tuple(f"#00000{n}" for n in range(8))
    other = BOOK._replace(
        edition="2030.1",
        python="3.99",
        jax="7.8",
        oldest_jax="6.5",
        colours=colours,
        lines=tuple(f"#0000f{n}" for n in range(6)),
    )
    monkeypatch.setattr(copies, "facts", lambda: other)
    changed = copies.copies()
    assert all(file.read_text() != text for file, text in changed.items())
    told = "\n".join(changed.values())
    assert not [colour for colour in BOOK.colours[:7] if colour[1:] in told]
    for words in "JAX 7.8 on Python 3.99", "JAX 6.5 on", "(7, 8)", '"2030.1"':
        assert words in told


def test_no_other_file_writes_a_colour_of_the_devices():
    may = {*copies.copies(), ROOT / "pyproject.toml"}
    kinds = {".css", ".js", ".md", ".py", ".svg", ".toml", ".yaml"}
    others = {ROOT / name for name in TRACKED if Path(name).suffix in kinds} - may
    for file in filter(Path.is_file, others):
        text = file.read_text().lower()
        assert not [c for c in BOOK.colours if c in text], file


def test_no_page_writes_the_release_of_jax_itself():
    """But when something came with it stays true: "Since JAX 0.12"."""
    for page in pages(ROOT / "docs"):
        assert not re.search(rf"(?<!Since )JAX {BOOK.jax}\b", page.text), page.name


def test_a_notebook_says_what_a_page_names():
    text = "In JAX {{jax}} and {{oldest_jax}}.\n\n```{code-cell}\nf'{{jax}}'\n```\n"
    found = export.markdown(text, ROOT)
    assert found.startswith(f"In JAX {BOOK.jax} and {BOOK.oldest_jax}.\n")
    assert "f'{{jax}}'" in found
    assert "{{other}}" in export.markdown("{{other}}", ROOT)


# ----------------------------------------------------------- versions are not text


NUMBERS = re.compile(r"\d+(\.\d+)+\w*")
NAMES = re.compile(r"__version__|\bversion\(|\[.(?:jax|jaxlib|libtpu|version).\]")
ORDERED = ast.Lt, ast.LtE, ast.Gt, ast.GtE


def is_version(node):
    """Whether an expression is the text of a version."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(NUMBERS.fullmatch(node.value))
    return isinstance(node, ast.Subscript | ast.Attribute) and bool(
        NAMES.search(ast.unparse(node))
    )


def compared_as_text(code):
    """List the comparisons in which the text of a version is smaller or larger."""
    found = [node for node in ast.walk(ast.parse(code)) if is_ordering(node)]
    return [
        ast.unparse(n) for n in found if any(map(is_version, [n.left, *n.comparators]))
    ]


def is_ordering(node):
    return isinstance(node, ast.Compare) and any(
        isinstance(how, ORDERED) for how in node.ops
    )


@pytest.mark.parametrize(
    "code",
    [
        'row["jax"] >= "0.12"',
        'jax.__version__ < "0.12"',
        '"0.9.2" < found',
        "0 < row['libtpu'] <= best",
        'assert kept["a"]["jax"] > minimum',
    ],
)
def test_versions_compared_as_text_are_found(code):
    assert compared_as_text(code)


@pytest.mark.parametrize(
    "code",
    [
        "jax.__version_info__ >= (0, 12)",
        'row["jax"] == "0.12.0.1"',
        "Version(row['jax']) >= Version('0.12')",
        "0 < row['seconds'] < 10",
    ],
)
def test_versions_compared_as_numbers_are_not(code):
    assert not compared_as_text(code)


def test_no_program_compares_versions_as_text():
    for name in TRACKED:
        if name.endswith(".py") and (ROOT / name).exists():
            assert not compared_as_text((ROOT / name).read_text()), name


def test_no_page_compares_versions_as_text():
    for page in pages(ROOT / "docs"):
        for cell in page.code:
            if not cell.source.startswith("%"):
                assert not compared_as_text(cell.source), f"{page.name}: {cell.line}"
