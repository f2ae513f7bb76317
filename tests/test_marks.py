"""What was proved of the same content is not proved again, and only that."""

import os
import shutil
import subprocess
import sys
import time

import incremental
import pytest

from book import marks

FILES = {
    "pyproject.toml": '[tool.pytest]\ntestpaths = ["tests"]\n'
    'pythonpath = ["src", "tests", "tools"]\n',
    "tests/conftest.py": "",
    "src/examples/halo.py": "width = 1\n",
    "src/examples/lu.py": "n = 1\n",
    "tools/measure.py": "def test_a():\n    assert 'play.py halo.csv'\n",
    "tests/halo/test_halo.py": "from measure import test_a\nimport examples.halo\n",
    "tests/lu/test_lu.py": "import os\nfrom examples import lu\n"
    "def test_b():\n    assert lu.n and 'FAIL' not in os.environ\n",
    "tests/test_engine.py": "def test_c():\n    pass\n",
    ".gitignore": "__pycache__/\n",
    "src/book/__init__.py": "",
    "src/examples/__init__.py": "",
}
for name in "src/book/marks.py", "tests/incremental.py":
    FILES[name] = (marks.ROOT / name).read_text()
APART = "docs/halo.md docs/data/lu.csv docs/_static/halo.css docs/_ext/cells.py"
APART += " src/book/page.py tools/gate.py tests/browser/conftest.py"
ALL = {"test_a", "test_b", "test_c"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Make a checkout of two modules, and marks of their tests beside it."""
    monkeypatch.setenv("SHARDBOOK_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "project"
    for name, text in FILES.items():
        append(folder / name, text)
    for words in ("init", "-q"), ("add", "-A"):
        subprocess.run(["git", *words], cwd=folder, check=True)
    assert run(folder) == (0, ALL)
    return folder


def run(folder, *words, **variables):
    """Run the tests of a checkout; return the exit code, and which ran."""
    plugins = "-p", "incremental", "-p", "no:cacheprovider"
    command = sys.executable, "-m", "pytest", "-v", *plugins, *words
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    clean |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}
    clean["PYTHONPATH"] = f"{folder}/src:{folder}/tests"
    done = subprocess.run(command, cwd=folder, env=clean, stdout=-1, check=False)
    return done.returncode, {n for n in ALL if f"::{n} ".encode() in done.stdout}


def append(file, text="\n"):
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        opened.write(text)


def all_marks():
    return [*marks.cache_folder().glob("marks/*")]


def test_a_change_runs_what_depends_on_it(project, tmp_path):
    project = shutil.copytree(project, tmp_path / "another")
    for changed, again in (
        (APART, set()),
        ("docs/data/halo.csv", {"test_a"}),
        ("tools/play.py", {"test_a"}),
        ("src/examples/halo.py", {"test_a"}),
        ("tests/halo/new.jsonl", {"test_a"}),
        ("tests/lu/cases.jsonl", {"test_b"}),
        ("pyproject.toml", {"test_a", "test_b"}),
    ):
        for name in changed.split():
            append(project / name)
        subprocess.run(["git", "add", "-A"], cwd=project, check=True)
        assert run(project) == (0, again | {"test_c"})
    append(project / "src/examples/halo.py")
    assert run(project, "-pxdist", "-n2") == (0, {"test_a", "test_c"})
    assert run(project, JAX_ENABLE_X64="1") == (0, ALL)
    two_weeks_ago = 2 * (time.time() - marks.LIFE - 1,)
    for mark in all_marks():
        os.utime(mark, two_weeks_ago)
    assert run(project) == (0, ALL)
    (project / "docs/data.csv").touch()  # which git does not know
    assert run(project) == (0, ALL)


def test_only_a_file_whose_tests_have_all_run_and_passed_has_a_mark(project):
    assert run(project, "tests/lu", FAIL="1")[0] == 1
    assert len(all_marks()) == 1
    for words in ["-k", "test_b"], ["tests/halo"]:  # marks of other selections
        shutil.rmtree(marks.cache_folder())
        assert run(project, *words)[0] == 0
    assert run(project) == (0, ALL)
    shutil.rmtree(marks.cache_folder())
    skip = "import pytest\ndef test_a():\n    pytest.skip('no')\n"
    (project / "tests/halo/test_halo.py").write_text(skip)
    change = "    open(lu.__file__, 'a').write('# changed')\n"
    append(project / "tests/lu/test_lu.py", change)
    assert run(project) == (0, ALL)
    assert all_marks() == []


@pytest.mark.weekly
@pytest.mark.parametrize("test", sorted(incremental.tests_of_modules()))
def test_the_tests_of_a_module_need_nothing_else(tmp_path, test):
    for name in incremental.inputs_of_tests(test):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(marks.ROOT / name, tmp_path / name, follow_symlinks=False)
    command = sys.executable, "-m", "pytest", "-q", "-m", "not weekly", test
    subprocess.run(command, cwd=tmp_path, check=True)
