"""Read the facts of pyproject.toml that many files state; pages write `{{jax}}`."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Facts(NamedTuple):
    """The edition of the book, the versions that it is for, and its colours."""

    edition: str  # year and month
    python: str  # the oldest
    jax: str  # the release that pages are written for
    oldest_jax: str  # on which the modules pass their tests
    libtpu: str  # the compiler for TPUs
    colours: tuple[str, ...]  # of devices 0 to 7, as areas with dark words on them
    lines: tuple[str, ...]  # of lines in plots, on white and on black


@cache
def facts() -> Facts:
    """Return the facts of pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, ours = settings["project"], settings["tool"]["shardbook"]
    bounds = dict(line.split(">=") for line in project["dependencies"])
    python = project["requires-python"].removeprefix(">=")
    versions = python, bounds["jax"], ours["oldest-jax"], ours["libtpu"]
    colours = tuple(ours["device-colours"]), tuple(ours["line-colours"])
    return Facts(project["version"], *versions, *colours)


def substitutions() -> dict[str, str]:
    """Return the facts that are text, by the names that pages write."""
    return {k: fact for k, fact in facts()._asdict().items() if isinstance(fact, str)}


def fill_facts(text) -> str:
    """Return text with each `{{name}}` of a fact replaced by the fact."""
    known = substitutions()
    return re.sub(r"\{\{(\w+)\}\}", lambda name: known.get(name[1], name[0]), text)


@cache
def locked_version(package) -> str:
    """Return the version of a package in requirements.lock."""
    lock = (ROOT / "requirements.lock").read_text()
    return re.search(rf"^{package}==(\S+)", lock, re.M)[1]
