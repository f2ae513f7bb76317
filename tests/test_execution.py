"""Pages run again when they must, and only then; what fails is named."""

import csv
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from execution import digest_environment, insert_key
from tiny_site import HEAD

from book.facts import facts
from book.page import Page

ROOT = Path(__file__).parents[1]
NOT_COPIED = "_build", "__pycache__", ".*"  # where others may write meanwhile

PAGE = """
# {title}

Some prose.

```{{code-cell}}
{code}
```
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project, with small pages of its own in the folder `small`."""
    copy = tmp_path_factory.mktemp("project") / "copy"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
    (copy / "docs/small/data").mkdir(parents=True)
    for name in "one", "two":  # without JAX, whose import takes longer than all else
        (copy / f"src/examples/{name}.py").touch()
    return copy


def environment(project):
    """Return the environment in which the copy's own files are found first."""
    paths = os.pathsep.join(str(project / name) for name in ("src", "docs/_ext"))
    return os.environ | {"PYTHONPATH": paths}


@pytest.fixture
def write(project):
    """Write a small page, which may read a file."""

    def write(name, code, data=""):
        head = HEAD.replace("jupytext:", f"data: {data}\njupytext:") if data else HEAD
        page = head + PAGE.format(title=name.capitalize(), code=code)
        (project / f"docs/small/{name}.md").write_text(page)

    return write


@pytest.fixture
def root(project):
    """Write the page that leads to the others, and remove all that it does not name."""

    def root(*names):
        for page in (project / "docs/small").glob("*.md"):
            if page.stem not in names:
                page.unlink()
        text = "\n".join(["# Root", "", "```{toctree}", *names, "```", ""])
        (project / "docs/small/root.md").write_text(text)

    return root


@pytest.fixture
def build(project):
    """Build the small pages; return the exit code, the log and who was executed."""

    def build(*options):
        only = "-Dinclude_patterns=small/*.md", "-Droot_doc=small/root"
        only += ("-Dexecution_kernels=",)  # this Python's own, which has all
        strict = "-W", "--keep-going", "--color", "-j2", "-dtrees"
        done = subprocess.run(
            [sys.executable, "-m", "sphinx", *strict, *only, *options, "docs", "html"],
            cwd=project,
            env=environment(project) | {"SHARDBOOK_CACHE": ""},  # its cache is its own
            capture_output=True,
            text=True,
            check=False,
        )
        log = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
        executed = set(re.findall(r"small/(\w+)\.md: Executing notebook", log))
        return done.returncode, log, executed

    return build


@pytest.fixture
def tell(project):
    """Replace something in a file of the copy, until the test ends."""
    originals = {}

    def tell(file, truth, lie):
        path = project / file
        text = originals.setdefault(path, path.read_text())
        assert text.count(truth) == 1
        path.write_text(text.replace(truth, lie))

    yield tell
    for path, text in originals.items():
        path.write_text(text)


LIES = {
    "arrays/trees": (  # a module's spec
        "src/examples/trees.py",
        "jax.P(axis) if np.ndim(x)",
        "jax.P() if np.ndim(x)",
        "+{'image': P(), 'label': P(), 'rate': P()}",
    ),
    "index": (  # a constant in a page
        "docs/index.md",
        '("all-reduce", ("y",), 4)',
        '("all-reduce", ("y",), 8)',
        "total = measure(jax.numpy.sum, a @ b)",
    ),
    "start/how-to-read": (  # an error that is expected
        "docs/start/how-to-read.md",
        'jax.make_mesh((16,), ("x",))',
        'jax.make_mesh((8,), ("x",))',
        "raised nothing, where `raises` expects ValueError",
    ),
}


def test_a_lie_fails_the_build_which_names_the_page_and_the_cell(project, tell):
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-j2", "-dlies"]
    build += ["-Dexecution_kernels="]  # this Python's own, which has all
    only = "-Dinclude_patterns=" + ",".join(f"{page}.md" for page in LIES)
    for file, truth, lie, _ in LIES.values():
        tell(file, truth, lie)
    done = subprocess.run(
        [*build, only, "docs", "lies-html"],
        cwd=project,
        env=environment(project),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    failures = done.stderr.split("WARNING: cell ")
    for page, (_, _, _, cell) in LIES.items():
        place = next(i for i, text in enumerate(failures) if f"{page}.md:" in text)
        assert cell in failures[place + 1], page


def test_the_environment_is_the_python_its_packages_and_its_variables(monkeypatch):
    monkeypatch.setenv("JAX_ENABLE_X64", "0")
    before = digest_environment({"JAX_ENABLE_X64"})
    assert digest_environment({"JAX_ENABLE_X64"}) == before
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    assert digest_environment({"JAX_ENABLE_X64"}) != before
    monkeypatch.setattr(sys, "version", "3.99")
    assert digest_environment(set()) != digest_environment({"JAX_ENABLE_X64"})


def test_a_new_jax_is_another_environment(monkeypatch):
    class Package:
        name, version = "jax", "99"

    before = digest_environment(set())
    monkeypatch.setattr("importlib.metadata.distributions", lambda: [Package])
    assert digest_environment(set()) != before


@pytest.mark.parametrize(
    "code",
    ["from examples.one import f", "from examples import one", "import examples.one"],
)
def test_imports_are_found_in_cells_alone(code, tmp_path):
    (tmp_path / "one.py").touch()
    (tmp_path / "two.py").touch()
    prose = "Copy `examples/two.py`.\n\n```{literalinclude} ../examples/two.py\n```\n"
    text = f"{prose}\n```{{code-cell}}\n{code}\n```\n"
    page = Page(tmp_path / "page.md", tmp_path, source=text)
    assert page.modules(tmp_path) == [tmp_path / "one.py"]


def test_the_key_moves_no_line():
    text = HEAD + PAGE.format(title="A", code="1")
    page = Page(Path("a.md"), Path(), source=text)
    other = Page(Path("a.md"), Path(), source=insert_key(page, "0123"))
    kernel = {"display_name": "Python 3", "name": "python3", "key": "0123"}
    assert other.front == page.front | {"kernelspec": kernel}
    assert other.text.splitlines()[10:] == text.splitlines()[10:]


MEASURED = """\
import jax

jax.config.update("jax_num_cpu_devices", 8)
from examples.communication import measure

mesh = jax.make_mesh((8,), ("x",))
rows = jax.NamedSharding(mesh, jax.P("x"))
measure(jax.numpy.sum, jax.ShapeDtypeStruct((64,), "float32", sharding=rows))"""


@pytest.fixture
def other_rows(project):
    """Write a table of other machines with a row of another page, and further rows."""
    table = project / "docs/reference/data/programs.csv"
    whole = table.read_text()
    head, first, *_ = whole.splitlines()

    def keep(*rows):
        table.write_text(f"{head}\n{first}\n")
        with table.open("a", newline="") as file:
            csv.DictWriter(file, head.split(","), restval="").writerows(rows)

    yield keep
    table.write_text(whole)


def compiled_row(program, machine):
    """Return a row as `nox -s remeasure -- programs` keeps it."""
    made = {"jax": importlib.metadata.version("jax"), "libtpu": facts().libtpu}
    sizes = {"arguments": 32, "outputs": 4, "temporaries": 77}
    row = {"program": program, "machine": machine, "pages": "small/measured"}
    return row | sizes | made


PAGES = {  # two import a module each, one reads a file, one measures a program
    "first": "from examples import one\n\nprint(one.__name__)",
    "second": "import examples.two\n\nprint(examples.two.__name__)",
    "reader": 'print(open("data/one.csv").read())',
    "neither": "print(6 * 7)",
    "measured": MEASURED,
}
FAILING = {
    "divides": "1 / 0",
    "warns": "import sys\n\nprint('a line on stderr', file=sys.stderr)",
}


@pytest.fixture
def small_site(root, write, project, other_rows):
    """Write these pages, before the first build; return the folder of what is built."""
    root(*PAGES, *FAILING)
    for name, code in (PAGES | FAILING).items():
        write(name, code, data="data/one.csv" if name == "reader" else "")
    (project / "docs/small/data/one.csv").write_text("1,2")
    other_rows()
    return project / "html/small"


def test_a_page_runs_again_when_it_must_and_what_fails_is_named(
    small_site, build, root, project, other_rows
):
    code, log, executed = build()
    assert executed == {*PAGES, *FAILING}
    check_failures(code, log)
    code, log, executed = build("-E")  # a second build does not forget
    assert not executed & {*PAGES}
    check_failures(code, log)
    assert "1,2" in (small_site / "reader.html").read_text()
    root(*PAGES)
    (note,) = (project / "docs/_build/notes/small-measured").glob("*/*.json")
    other_rows(*(compiled_row(note.stem, each) for each in ("TPU v5p", "H100")))
    check_changes(build, project, small_site)
    other_rows()  # as another branch has it
    check_return(build, project, small_site)
    assert build("-Dexecution_environment=another")[2] == {*PAGES}


def check_failures(code, log):
    """Check that a build names each failing page, with its cell, and the program."""
    assert code != 0
    assert "small/divides.md" in log
    assert "ZeroDivisionError" in log
    assert "1 / 0" in log
    assert re.search(r"small/warns.md.*stderr was found in .* cell", log)
    assert "1 of its programs are not kept" in log


def check_changes(build, project, html):
    """Change a module and a table, beside the rows; check what runs."""
    (project / "src/examples/one.py").write_text("# another line\n")
    (project / "docs/small/data/one.csv").write_text("3,4")
    code, log, executed = build()
    assert code == 0, log
    assert executed == {"first", "reader", "measured"}
    assert "3,4" in (html / "reader.html").read_text()
    assert (html / "measured.html").read_text().count(">77<") == 2


def check_return(build, project, html):
    """Take the module's change back, change prose and a cell: the rest is known."""
    (project / "src/examples/one.py").write_text("")
    for name, old, new in ("second", "Some", "Other"), ("neither", "6 * 7", "7 * 7"):
        page = project / f"docs/small/{name}.md"
        page.write_text(page.read_text().replace(old, new))
    code, log, executed = build()
    assert executed == {"neither"}
    assert "Other prose" in (html / "second.html").read_text()
    assert code
    assert "1 of its programs are not kept" in log
