"""What many files state, and one file decides: pyproject.toml.

Pages write it as `{{jax}}`; what cannot read it is written by `tools/copies.py`.
"""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]


class Facts(NamedTuple):
    """The edition of the book, the versions that it is for, and its colours.

    Attributes:
        edition: the year and the month.
        python: the oldest Python.
        jax: the release that pages are written for.
        oldest_jax: the oldest release on which the modules pass their tests.
        libtpu: the compiler for TPUs with which pods were compiled.
        colours: those of devices 0 to 7, as areas with dark words on them.
        lines: those of lines in plots, which stand out on white and on black.
    """

    edition: str
    python: str
    jax: str
    oldest_jax: str
    libtpu: str
    colours: tuple[str, ...]
    lines: tuple[str, ...]


@cache
def facts() -> Facts:
    """Return what pyproject.toml says."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, ours = settings["project"], settings["tool"]["shardbook"]
    bounds = dict(line.split(">=") for line in project["dependencies"])
    return Facts(
        project["version"],
        project["requires-python"].removeprefix(">="),
        bounds["jax"],
        ours["oldest-jax"],
        ours["libtpu"],
        tuple(ours["device-colours"]),
        tuple(ours["line-colours"]),
    )


def substitutions() -> dict[str, str]:
    """Return what pages may name, such as `{{jax}}`."""
    told = facts()._asdict()
    return {name: text for name, text in told.items() if isinstance(text, str)}


def filled_in(text) -> str:
    """Return text with what it names in place."""
    if "{{" in text:
        for name, value in substitutions().items():
            text = text.replace(f"{{{{{name}}}}}", value)
    return text


@cache
def locked(package) -> str:
    """Return the version of a package that requirements.lock holds."""
    lock = (ROOT / "requirements.lock").read_text()
    return re.search(rf"^{package}==(\S+)", lock, re.M)[1]
