"""Tests of a module that have passed are left out until something changes.

A plugin of pytest, for whole runs (`nox -s tests`, `nox -s fuzz`): what it leaves out,
and what it marks, are files, each with the tests of one module or one launch file. All
other files, about the engine and about what every page and module promises, always run.
"""

import ast
import re
import time
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from book import marks
from book.marks import ROOT

CLUSTER = "tests/cluster"
START = time.time()
TESTS = re.compile(r"tests/(\w+)/(test|fuzz)_\1\.py")


def tests_of_modules() -> list[str]:
    """Return the test files that belong to one module or launch file."""
    return [name for name in marks.tracked_files() if TESTS.fullmatch(name)]


@cache
def words_of(name: str) -> frozenset[str]:
    """Return the words of a program's strings, and `NAME.py` for what it imports."""
    nodes = [*ast.walk(ast.parse((ROOT / name).read_text()))]
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            places = getattr(node, "module", ""), *(each.name for each in node.names)
            found |= {f"{word}.py" for p in places if p for word in p.split(".")}
        elif isinstance(node, ast.Constant) and id(node) not in docs:
            text = str(node.value)
            found |= {*re.findall(r"\w+", text), *re.findall(r"[\w-]+\.\w+", text)}
            found |= {
                f"{name}.py" for name in re.findall(r"(?:from|import) (\w+)", text)
            }
    return frozenset(found)


@cache
def inputs_of_tests(test: str) -> frozenset[str]:
    """Return the files that the tests of one module may depend on.

    Those are its folder, what is launched, settings of the project; programs that its
    tests, or these programs in turn, import or name; and modules, pages and data that
    one of them names. No module imports another.
    """
    files, own = marks.tracked_files(), str(Path(test).parent)
    apart = {"src/examples", "tests/browser", "tests/cluster"} - {own}
    programs = {n for n in files if n.endswith(".py") and not n.startswith((*apart,))}
    always = {"tests/conftest.py", "tests/incremental.py"}
    found = always | {name for name in programs if name.startswith(f"{own}/")}
    reached = words = frozenset()
    while found:
        reached |= found
        words = words.union(*map(words_of, found))
        found = {name for name in programs if Path(name).name in words} - reached

    def belongs(name: str) -> bool:
        file = Path(name)
        if name.startswith("src/examples/"):
            return bool({file.stem, file.name} & {*words, Path(own).name, "__init__"})
        is_near = name.startswith(("launch/", f"{own}/")) or file.name == "__init__.py"
        if is_near or name in reached:
            return True
        is_other = f"{file.parent}/test_{file.parent.name}.py" in files
        is_other = is_other and file.parent not in {
            Path(each).parent for each in reached
        }
        is_setting = name == file.name and file.suffix != ".md"
        is_data = file.suffix and file.name in words
        return not is_other and file.suffix != ".py" and (is_setting or is_data)

    return frozenset(filter(belongs, files))


# ---------------------------------------------------------------------- the plugin


def pytest_configure(config):
    """Leave out what has passed; a worker leaves out the same."""
    if hasattr(config, "workerinput"):
        config.option.ignore = config.workerinput.get("marked")
    elif marks.cache_folder() and marks.tracked_files():
        config.pluginmanager.register(Recorder(config))


def pytest_collection_finish(session):
    """Let each report say how many tests of its file there are."""
    counts = Counter(file_of(item.nodeid) for item in session.items)
    for item in session.items:
        item.user_properties.append(("tests_of_file", counts[file_of(item.nodeid)]))


def file_of(nodeid: str) -> str:
    """Return the file that collects a test; another one may define it."""
    return nodeid.partition("::")[0]


def are_unchanged(names) -> bool:
    """Return whether no file was written to since the tests began."""
    files = [ROOT / name for name in names]
    return all(f.is_file() and f.stat().st_mtime < START for f in files)


def is_whole(config) -> bool:
    """Return whether all tests run that the marker expression selects."""
    option = config.option
    lf = getattr(option, "lf", False)  # not without its plugin
    chosen = option.keyword, lf, option.maxfail, option.ignore, option.deselect
    testpaths = config.args_source is config.ArgsSource.TESTPATHS
    return (testpaths or config.args == [CLUSTER]) and not any(chosen)


class Recorder:
    """Leaves out the files that have a mark, and marks those whose tests all pass."""

    def __init__(self, config):
        """Look for marks."""
        self.is_whole = is_whole(config)
        programs = "slurmctld -V", "mpirun --version", "openssl version"
        chosen = *config.args, *config.getini("python_files"), config.option.markexpr
        self.environment, self.part = (
            marks.describe_environment(*programs),
            marks.digest((), *chosen),
        )
        self.files = {*tests_of_modules()}
        self.done, self.not_passed, self.marked = Counter(), set(), {}
        if self.is_whole:
            found = {name: marks.read_mark(self.mark(name)) for name in self.files}
            self.marked = {name: int(count) for name, count in found.items() if count}
            config.option.ignore = [str(ROOT / name) for name in self.marked]

    @pytest.hookimpl(optionalhook=True)  # without xdist there is none
    def pytest_configure_node(self, node):
        """Send a worker the files to leave out."""
        node.workerinput["marked"] = node.config.option.ignore

    def mark(self, name: str) -> str:
        """Return the mark of the tests of a file that this run selects."""
        return f"{self.content(name)}-{self.part}"

    def content(self, name: str) -> str:
        """Return how all marks of a file of tests begin."""
        return marks.digest(inputs_of_tests(name), name, self.environment)

    def pytest_runtest_logreport(self, report):
        """Mark a file when its last test has passed; a failure deletes its mark."""
        if (name := file_of(report.nodeid)) not in self.files:
            return
        if report.failed:
            marks.delete_marks(self.content(name))
        is_sure = report.passed and not hasattr(report, "wasxfail")
        if not is_sure or "weekly" in report.keywords:  # that may be of random cases
            self.not_passed.add(name)
        self.done[name] += report.when == "teardown"
        is_last = self.done[name] == dict(report.user_properties)["tests_of_file"]
        passed = is_last and self.is_whole and name not in self.not_passed
        if passed and are_unchanged(inputs_of_tests(name)):
            marks.write_mark(self.mark(name), str(self.done[name]))

    def pytest_terminal_summary(self, terminalreporter):
        """Print how many tests had passed before."""
        if self.marked:
            count, files = sum(self.marked.values()), len(self.marked)
            terminalreporter.write_line(f"{count} tests of {files} files had passed")

    def pytest_sessionfinish(self, session, exitstatus):
        """Take it for success that there is nothing to run, if all had passed."""
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.marked:
            session.exitstatus = 0
