"""Read the facts of pyproject.toml that many files state; pages write `{{jax}}`."""

import re
import tomllib
from functools import cache
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]


@cache
def facts() -> SimpleNamespace:
    """Return the edition of the book, the versions that it is for, and its colours."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, own = settings["project"], settings["tool"]["shardbook"]
    bounds = dict(line.split(">=") for line in project["dependencies"])
    return SimpleNamespace(
        edition=project["version"],  # year and month
        python=project["requires-python"].removeprefix(">="),  # the oldest
        jax=bounds["jax"],  # the release that pages are written for
        oldest_jax=own["oldest-jax"],  # on which the modules pass their tests
        libtpu=own["libtpu"],  # the compiler for TPUs
        colours=own["device-colours"],  # of devices 0 to 7: areas with dark words
        lines=own["line-colours"],  # of lines in plots, on white and on black
    )


def fill_facts(text) -> str:
    """Return text with each `{{name}}` of a fact replaced by the fact."""
    known = vars(facts())
    return re.sub(r"\{\{(\w+)\}\}", lambda name: known.get(name[1], name[0]), text)


@cache
def locked_version(package) -> str:
    """Return the version of a package in requirements.lock."""
    lock = (ROOT / "requirements.lock").read_text()
    return re.search(rf"^{package}==(\S+)", lock, re.M)[1]
