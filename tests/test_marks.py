"""What was proved of the same content is not proved again, and only that."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import incremental
import pytest

from book import marks

ROOT = Path(__file__).parents[1]
CONFTEST = """
import incremental

def pytest_configure(config):
    incremental.register(config)
"""
SETTINGS = """
[tool.pytest]
testpaths = ["tests"]
pythonpath = ["src", "tests"]
"""
FILES = {
    "pyproject.toml": SETTINGS,
    "tests/conftest.py": CONFTEST,
    "src/examples/__init__.py": "",  # else the book's own is found before it
    "src/examples/halo.py": "width = 1\n",
    "src/examples/lu.py": "n = 1\n",
    "tests/halo/test_halo.py": "from examples import halo\ndef test_a():\n    halo\n",
    "tests/lu/test_lu.py": "from examples import lu\ndef test_b():\n    assert lu.n\n",
    "tests/test_engine.py": "def test_c():\n    pass\n",
    "docs/page.md": "words\n",
    "docs/data/halo.csv": "1\n",
    "docs/data/other.csv": "1\n",
    ".gitignore": "__pycache__/\n.pytest_cache/\n",
}
ALL = {"test_a", "test_b", "test_c"}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Make a checkout of two modules, one test of each, and one of the engine.

    Return it, and a cache with the marks of its tests.
    """
    folder = tmp_path_factory.mktemp("original")
    project, cache = folder / "project", folder / "cache"
    for name, text in FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (project / "src/book").mkdir(parents=True)
    for name in "src/book/marks.py", "tests/incremental.py":
        shutil.copy(ROOT / name, project / name)
    (project / "src/book/__init__.py").touch()
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    subprocess.run(["git", "add", "-A"], cwd=project, check=True)
    assert run(project, SHARDBOOK_CACHE=str(cache)) == (0, ALL)
    return project, cache


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Put marks into a folder of the test."""
    monkeypatch.setenv("SHARDBOOK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def project(originals, tmp_path, cache):
    """Copy the checkout; no test of it has a mark."""
    return shutil.copytree(originals[0], tmp_path / "project")


@pytest.fixture
def proved(originals, project, cache):
    """Copy the marks, too."""
    shutil.copytree(originals[1], cache)
    return project


def run(folder, *words, **variables):
    """Run the tests of a checkout; return the names of those that ran."""
    command = sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *words
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    clean |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}
    done = subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, check=False
    )
    lines = (line.split() for line in done.stdout.splitlines() if "::" in line)
    ran = {line[0].partition("::")[2] for line in lines if "::" in line[0]}
    return done.returncode, ran


def marks_in(cache) -> int:
    """Count marks."""
    return sum(1 for _ in cache.glob("marks/*"))


def test_another_checkout_leaves_out_what_has_passed(proved):
    assert run(proved) == (0, {"test_c"})
    assert run(proved, JAX_ENABLE_X64="1") == (0, ALL)
    (proved / "docs/data.csv").touch()  # which git does not know
    assert run(proved) == (0, ALL)


def test_workers_mark_and_leave_out_the_same(proved, cache):
    (proved / "src/examples/halo.py").write_text("width = 2\n")
    assert run(proved, "-pxdist", "-n2") == (0, {"test_a", "test_c"})
    assert marks_in(cache) == 3


def test_a_change_runs_what_depends_on_it(proved):
    for changed, again in (
        ("docs/page.md", set()),
        ("docs/data/other.csv", set()),
        ("docs/data/halo.csv", {"test_a"}),
        ("src/examples/halo.py", {"test_a"}),
        ("tests/lu/test_lu.py", {"test_b"}),
        ("pyproject.toml", {"test_a", "test_b"}),
    ):
        with (proved / changed).open("a") as file:
            file.write("\n")
        assert run(proved) == (0, again | {"test_c"})


def test_only_a_file_whose_tests_have_all_run_and_passed_is_marked(project, cache):
    for words in ["-k", "test_a"], ["tests/halo"], ["-x"]:
        assert run(project, *words)[0] == 0
    assert marks_in(cache) == 0
    text = "import pytest\ndef test_a():\n    pytest.skip('no')\n"
    (project / "tests/halo/test_halo.py").write_text(text)
    run(project)
    assert marks_in(cache) == 1


def test_a_failure_deletes_the_mark_of_the_same_content(project, cache):
    text = "import os\ndef test_a():\n    assert 'FAIL' not in os.environ\n"
    (project / "tests/halo/test_halo.py").write_text(text)
    assert run(project)[0] == 0
    assert marks_in(cache) == 2
    assert run(project, "tests/halo/test_halo.py", FAIL="1")[0] == 1
    assert marks_in(cache) == 1


def test_a_mark_is_void_after_two_weeks(cache):
    marks.write_mark("key", "text")
    assert marks.read_mark("key") == "text"
    old = time.time() - marks.LIFE - 1
    os.utime(cache / "marks/key", (old, old))
    assert marks.read_mark("key") is None


@pytest.mark.weekly
@pytest.mark.parametrize("test", sorted(incremental.tests_of_modules()))
def test_the_tests_of_a_module_need_nothing_else(tmp_path, test):
    """They pass in a tree that has what the mark digests, and no more."""
    for name in incremental.inputs_of_tests(test):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(marks.ROOT / name, tmp_path / name, follow_symlinks=False)
    command = sys.executable, "-m", "pytest", "-q", "-m", "not weekly", test
    environment = os.environ | {"SHARDBOOK_CACHE": ""}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
