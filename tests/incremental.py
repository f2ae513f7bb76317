"""Tests of a module that have passed are left out until something changes.

A plugin of pytest, for whole runs (`nox -s tests`, `nox -s fuzz`): what it leaves out,
and what it marks, are files, each with the tests of one module or one launch file. All
other files, about the engine and about what every page and module promises, always run.
"""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from book.marks import (
    ROOT,
    are_unchanged,
    cache_folder,
    delete_mark,
    describe_environment,
    digest,
    read_mark,
    tracked_files,
    write_mark,
)

CLUSTER = "tests/cluster"
ENGINE_TESTS = re.compile(r"tests/(test_\w+\.py|browser/)")
TABLE = re.compile(r"(docs/(.*/)?data|tests/readers|tests/search)/[^/]+\.(csv|toml)")
WORD = re.compile(r"\w+")
TESTS = re.compile(r"tests/(\w+)/(test|fuzz)_\1\.py")


def module_of(name: str) -> str:
    """Return the module that a file belongs to, such as `halo`, if it is of one."""
    file = Path(name)
    return file.parent.name if file.parts[0] == "tests" else file.stem


def words_of(name: str) -> set[str]:
    """Return the words of what a file imports, and of its strings, docstrings apart."""
    tree = ast.parse((ROOT / name).read_text())
    nodes = [*ast.walk(tree)]
    docs = {id(n.value) for n in nodes if isinstance(n, ast.Expr)}
    found = [
        n.value for n in nodes if isinstance(n, ast.Constant) and id(n) not in docs
    ]
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found += [getattr(node, "module", ""), *(each.name for each in node.names)]
    return {
        word for text in found if isinstance(text, str) for word in WORD.findall(text)
    }


def words_in(name: str) -> set[str]:
    """Return the words of a file of tests, and of the programs that it names."""
    words = words_of(name)
    programs = (
        each
        for each in tracked_files()
        if each.endswith(".py") and not each.startswith("src/examples/")
    )
    return words.union(*(words_of(n) for n in programs if Path(n).stem in words))


@cache
def inputs_of_tests(test: str) -> frozenset[str]:
    """Return what the tests of one module may depend on.

    That is the whole tree but other modules, and their tests, of which no word is in
    the tests (no module imports another), prose that they do not name, and tables of
    pages and of readers that neither they nor their programs name.
    """
    files, text = tracked_files(), (ROOT / test).read_text()
    modules = {
        module_of(n) for n in files if n.startswith(("src/examples/", "launch/"))
    }
    words = words_in(test)
    others = modules - {module_of(test)} - words

    def belongs(name: str) -> bool:
        if name.endswith(".md"):
            return name.removeprefix("docs/") in text
        if TABLE.match(name):
            return Path(name).stem in words
        of_module = name.startswith(("src/examples/", "tests/"))
        is_other = of_module and module_of(name) in others
        return not is_other and not ENGINE_TESTS.match(name)

    return frozenset(filter(belongs, files))


def register(config):
    """Leave out what has passed, unless only some of the tests are to run."""
    if hasattr(config, "workerinput"):  # a worker leaves out what it is told to
        ignore(config, config.workerinput.get("had_passed", ()))
    elif cache_folder() and tracked_files():
        config.pluginmanager.register(Recorder(config))


def ignore(config, names):
    """Do not collect these files."""
    ignored = [str(ROOT / name) for name in names]
    config.option.ignore = [*(config.option.ignore or ()), *ignored]


def is_whole(config) -> bool:
    """Return whether all tests run that the marker expression selects."""
    option = config.option
    lf = getattr(option, "lf", False)  # not without its plugin
    chosen = option.keyword, lf, option.maxfail, option.ignore, option.deselect
    testpaths = config.args_source is config.ArgsSource.TESTPATHS
    return (testpaths or config.args == [CLUSTER]) and not any(chosen)


def file_of(nodeid: str) -> str:
    """Return the file of a test."""
    return nodeid.partition("::")[0]


def tests_of_modules() -> list[str]:
    """Return the test files that belong to one module or launch file."""
    return [name for name in tracked_files() if TESTS.fullmatch(name)]


class Recorder:
    """Leaves out the files that have a mark, and marks those whose tests all pass."""

    def __init__(self, config):
        """Look for marks."""
        self.half, self.is_whole = config.option.markexpr, is_whole(config)
        self.environment = describe_environment("slurmctld", "mpirun", "openssl")
        self.files = {*tests_of_modules()}
        self.done, self.expected = Counter(), Counter()
        self.not_passed, self.before = set(), {}
        places = tuple(map(file_of, config.args))  # a cluster needs no fuzzing
        here = (name for name in self.files if name.startswith(places))
        for name in here if self.is_whole else ():
            if (text := read_mark(self.key(name))) is not None:
                self.before[name] = int(text)
        ignore(config, self.before)

    def key(self, name) -> str:
        """Return the mark of a test file."""
        words = name, self.half, self.environment
        return digest("tests", inputs_of_tests(name), *words)

    @pytest.hookimpl(optionalhook=True)  # without xdist there is none
    def pytest_configure_node(self, node):
        """Send a worker the files to leave out."""
        node.workerinput["had_passed"] = [*self.before]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids):
        """Count the tests of each file, as a worker collected them."""
        self.expected = Counter(map(file_of, ids))

    def pytest_collection_finish(self, session):
        """Count the tests of each file, where there are no workers."""
        if session.items:
            self.expected = Counter(file_of(item.nodeid) for item in session.items)

    def pytest_runtest_logreport(self, report):
        """Mark a file when its last test has passed; a failure deletes its mark."""
        name = file_of(report.nodeid)
        if name not in self.files:
            return
        if (
            not report.passed
            or hasattr(report, "wasxfail")
            or "weekly" in report.keywords
        ):
            self.not_passed.add(name)  # a weekly test may be of random cases
        if report.failed:
            delete_mark(self.key(name))
        self.done[name] += report.when == "teardown"
        is_last = report.when == "teardown" and self.done[name] == self.expected[name]
        passed = is_last and self.is_whole and name not in self.not_passed
        if passed and are_unchanged(inputs_of_tests(name)):
            write_mark(self.key(name), str(self.done[name]))

    def pytest_terminal_summary(self, terminalreporter):
        """Print how many tests had passed before."""
        if self.before:
            count, files = sum(self.before.values()), len(self.before)
            terminalreporter.write_line(f"{count} tests of {files} files had passed")

    def pytest_sessionfinish(self, session, exitstatus):
        """Take it for success that there is nothing to run, if all had passed."""
        if exitstatus == 5 and self.before:
            session.exitstatus = 0
