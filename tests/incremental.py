"""Tests of a module that have passed are left out until something changes.

A plugin of pytest, `-p incremental`, in the gate and in `nox -s tests`: what it leaves
out, and what it marks, are files, each with the tests of one module or one launch file.
All others, about the engine and about what every page and module promises, always run.
"""

import re
import time
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

from book import marks
from book.marks import ROOT

SELECTION = "markexpr", "keyword", "deselect", "lf"  # options of pytest
START = time.time()
TESTS = re.compile(r"tests/(\w+)/(test|fuzz)_\1\.py")
IMPORT = re.compile(r"\b(?:from|import) +([^\n(]*(?:\([^)]*)?)")  # in strings, too
STRING = re.compile(r'(?<!")"[^"\n]+"(?!")')  # no docstring
FILE = re.compile(r"[\w-]+\.\w+")


def tests_of_modules() -> list[str]:
    """Return the test files that belong to one module or launch file."""
    return [name for name in marks.tracked_files() if TESTS.fullmatch(name)]


@cache
def words_of(name: str) -> set[str]:
    """Return the words of a program's strings, and `NAME.py` for what it imports."""
    if not name.endswith(".py") or name.startswith(("src/examples/", "launch/")):
        return set()  # no module imports another
    text = (ROOT / name).read_text()
    imports = re.findall(r"\w+", " ".join(IMPORT.findall(text)))
    strings = re.findall(r"\w+", " ".join(STRING.findall(text)))
    return {*FILE.findall(text), *strings, *(f"{word}.py" for word in imports)}


@cache
def files_by_word() -> dict[str, set[str]]:
    """Return the files that a word of a program may mean: a name, or a module's stem.

    None lies apart: the other tests of the browser, of a cluster, and cases of modules.
    """
    found = defaultdict(set)
    for name in marks.tracked_files():
        file = Path(name)
        if not re.match(r"tests/(browser|cluster)/|.*/cases\.jsonl$", name):
            found[file.name].add(name)
        if name.startswith("src/examples/"):
            found[file.stem].add(name)
    return found


@cache
def inputs_of_tests(test: str) -> frozenset[str]:
    """Return the files that the tests of one module may depend on.

    Those are its folder, what is launched, settings of the project; and programs,
    modules, pages and data that one of these programs names.
    """
    own, files = Path(test).parent, files_by_word()
    setting = rf"(?:launch|{own})/|[^/]+(?<!\.md)(?<!\.py)$|.*/__init__\.py$"
    more = {name for name in marks.tracked_files() if re.match(setting, name)}
    more |= {"tests/conftest.py", "tests/incremental.py", *files[own.name]}
    inputs = set()
    while more:
        inputs |= more
        words = set().union(*map(words_of, more))
        more = set().union(*(files[word] for word in words & files.keys())) - inputs
    return frozenset(inputs)


def are_unchanged(test: str) -> bool:
    """Return whether no input of these tests was written to since all began."""
    files = [ROOT / name for name in inputs_of_tests(test)]
    return all(f.is_file() and f.stat().st_mtime < START for f in files)


# ---------------------------------------------------------------------- the plugin


def pytest_configure(config):
    """Leave out what has passed; a worker leaves out the same."""
    if hasattr(config, "workerinput"):
        config.option.ignore = config.workerinput.get("marked")
    elif marks.cache_folder() and marks.tracked_files():
        config.pluginmanager.register(Recorder(config))


def pytest_collection_finish(session):
    """Let each report say how many tests its file has."""
    files = [item.nodeid.partition("::")[0] for item in session.items]
    counts = Counter(files)
    for item, file in zip(session.items, files, strict=True):
        item.user_properties.append(("tests", counts[file]))


class Recorder:
    """Leaves out the files that have a mark, and marks those whose tests all pass."""

    def __init__(self, config):
        """Look for marks: a key for what a file depends on, a part for a selection."""
        programs = "slurmctld -V", "mpirun --version", "openssl version"
        here, files = marks.describe_environment(*programs), tests_of_modules()
        keys = {file: marks.digest(inputs_of_tests(file), file, here) for file in files}
        chosen = (getattr(config.option, name, None) for name in SELECTION)
        chosen = config.args, config.getini("python_files"), *chosen
        part = marks.digest((), *map(str, chosen))
        self.marks = {file: f"{key}-{part}" for file, key in keys.items()}
        found = {file: marks.read_mark(mark) for file, mark in self.marks.items()}
        self.marked = {file: int(count) for file, count in found.items() if count}
        config.option.ignore = [str(ROOT / file) for file in self.marked]
        self.passed = Counter()  # steps of tests, by file

    @pytest.hookimpl(optionalhook=True)  # without xdist there is none
    def pytest_configure_node(self, node):
        """Send a worker the files to leave out."""
        node.workerinput["marked"] = node.config.option.ignore

    def pytest_runtest_logreport(self, report):
        """Mark a file when its last test has passed; a failure deletes its mark."""
        file = report.nodeid.partition("::")[0]
        count = dict(report.user_properties).get("tests", -1)  # a crash has none
        if file not in self.marks:
            return
        if report.failed:
            marks.delete_marks(self.marks[file].partition("-")[0])
        is_sure = report.passed and not hasattr(report, "wasxfail")
        # what is weekly may be of random cases
        self.passed[file] += is_sure and "weekly" not in report.keywords
        is_done = self.passed[file] == 3 * count  # set up, run, torn down
        if is_done and are_unchanged(file):
            marks.write_mark(self.marks[file], str(count))

    def pytest_terminal_summary(self, terminalreporter):
        """Print how many tests had passed before."""
        if self.marked:
            count, files = sum(self.marked.values()), len(self.marked)
            terminalreporter.write_line(f"{count} tests of {files} files had passed")

    def pytest_sessionfinish(self, session, exitstatus):
        """Take it for success that there is nothing to run, if all had passed."""
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.marked:
            session.exitstatus = 0
