"""Pages run again when they must, and only then; what fails is named."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from book.execution import environment, with_key
from book.page import Page
from tiny_site import HEAD

ROOT = Path(__file__).parents[1]
LEFT_BEHIND = shutil.ignore_patterns("_build", ".git", ".nox", ".venv", "__pycache__")

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
    shutil.copytree(ROOT, copy, ignore=LEFT_BEHIND)
    (copy / "docs/small").mkdir()
    return copy


@pytest.fixture
def write(project):
    """Write a small page."""

    def write(name, code):
        page = HEAD + PAGE.format(title=name.capitalize(), code=code)
        (project / f"docs/small/{name}.md").write_text(page)

    return write


@pytest.fixture
def build(project):
    """Build the small pages; return the exit code, the log and who was executed."""

    def build(*options):
        only = "-Dinclude_patterns=small/*.md", "-Droot_doc=small/root"
        strict = "-W", "--keep-going", "--color", "-j2", "-dtrees"
        done = subprocess.run(
            [sys.executable, "-m", "sphinx", *strict, *only, *options, "docs", "html"],
            cwd=project,
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


@pytest.fixture
def small_site(write, build, project):
    """Three pages that were built: two import a module each, one imports none."""
    root = "# Root\n\n```{toctree}\nfirst\nsecond\nneither\n```\n"
    (project / "docs/small/root.md").write_text(root)
    write("first", "from examples import padding\n\nprint(padding.__name__)")
    write("second", "import examples.trees\n\nprint(examples.trees.__name__)")
    write("neither", "print(6 * 7)")
    code, log, _ = build()
    assert code == 0, log


def test_a_page_runs_again_when_its_module_changes_and_only_then(
    small_site, build, write, project
):
    module = project / "src/examples/padding.py"
    original = module.read_text()
    module.write_text(original + "\n# another line\n")
    assert build()[2] == {"first"}
    module.write_text(original)
    write("neither", "print(7 * 7)")
    page = project / "docs/small/second.md"
    page.write_text(page.read_text().replace("Some prose", "Other prose"))
    assert build()[2] == {"neither"}  # the outputs of `first` are still known
    assert "Other prose" in (project / "html/small/second.html").read_text()
    assert build()[2] == set()
    assert build("-Dexecution_environment=another")[2] == {"first", "second", "neither"}


def test_a_page_runs_again_when_its_data_change(small_site, build, write, project):
    write("first", 'print(open("data/one.csv").read())')
    page = project / "docs/small/first.md"
    page.write_text(
        page.read_text().replace("---\n\n#", "data: data/one.csv\n---\n\n#")
    )
    table = project / "docs/small/data/one.csv"
    table.parent.mkdir()
    for text in "1,2", "3,4":
        table.write_text(text)
        assert build()[2] == {"first"}
        assert text in (project / "html/small/first.html").read_text()
    assert build()[2] == set()


def test_every_failing_page_is_named_with_its_cell(small_site, build, write):
    write("first", "1 / 0")
    write("second", "import sys\n\nprint('a line on stderr', file=sys.stderr)")
    for _ in range(2):  # a second build does not forget
        code, log, _ = build("-E")
        assert code != 0
        assert "small/first.md" in log
        assert "ZeroDivisionError" in log
        assert "1 / 0" in log
        assert re.search(r"small/second.md.*stderr was found in .* cell", log)


LIES = {
    "arrays/trees": (  # a module's spec
        "src/examples/trees.py",
        "jax.P(axis) if np.ndim(x)",
        "jax.P() if np.ndim(x)",
        'specs = batch_specs(batch, "batch")',
    ),
    "index": (  # a constant in a page
        "docs/index.md",
        '("all-reduce", ("y",), 4)',
        '("all-reduce", ("y",), 8)',
        "total = measure(jax.numpy.sum, a @ b)",
    ),
    "start/how-to-read": (  # an error that is expected
        "docs/start/how-to-read.md",
        'jax.make_mesh((16,), "x")',
        'jax.make_mesh((8,), "x")',
        'raise AssertionError("sixteen devices out of eight")',
    ),
}


def test_a_lie_fails_the_build_which_names_the_page_and_the_cell(project, tell):
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-j2", "-dlies"]
    only = "-Dinclude_patterns=" + ",".join(f"{page}.md" for page in LIES)
    for file, truth, lie, _ in LIES.values():
        tell(file, truth, lie)
    done = subprocess.run(
        [*build, only, "docs", "lies-html"],
        cwd=project,
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
    before = environment({"JAX_ENABLE_X64"})
    assert environment({"JAX_ENABLE_X64"}) == before
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    assert environment({"JAX_ENABLE_X64"}) != before
    monkeypatch.setattr(sys, "version", "3.99")
    assert environment(set()) != environment({"JAX_ENABLE_X64"})


def test_a_new_jax_is_another_environment(monkeypatch):
    class Package:
        name, version = "jax", "99"

    before = environment(set())
    monkeypatch.setattr("importlib.metadata.distributions", lambda: [Package])
    assert environment(set()) != before


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
    keyed = Page(Path("a.md"), Path(), source=with_key(page, "0123"))
    kernel = {"display_name": "Python 3", "name": "python3", "key": "0123"}
    assert keyed.front == page.front | {"kernelspec": kernel}
    assert keyed.text.splitlines()[10:] == text.splitlines()[10:]
