"""What is stored beside pages is of the JAX of the lock, and of today's programs."""

import datetime
import importlib.util
import json
import re
import shutil

import compilers
import pytest
from records import ROOT, read_table

from book import facts

TABLES = sorted(ROOT.glob("docs/*/data/*.csv"))
COMPILED = read_table(ROOT / "docs/global-view/data/compilers.csv")
MISSING = [p for p in ("libtpu", "jax_plugins") if importlib.util.find_spec(p) is None]


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.name)
def test_table_is_of_the_jax_and_libtpu_of_the_lock(file):
    jax = file.stem.partition("-")[2] or facts.locked_version("jax")  # atlas-0.9.2.csv
    for row in read_table(file):
        assert row["jax"] == jax, "measure it again: `nox -s remeasure -- NAME`"
        assert row.get("libtpu", facts.facts().libtpu) == facts.facts().libtpu
        assert datetime.date.fromisoformat(row["date"])


def test_transcripts_are_of_the_jax_of_the_lock():
    data = json.loads((ROOT / "docs/processes/data/launching.json").read_text())
    assert data["versions"]["JAX"] == facts.locked_version("jax")


def test_compiled_rows_are_of_the_programs_of_the_page():
    """Else run `nox -s remeasure -- compilers`, with the names of what changed."""
    programs = compilers.run_page_cells()["programs"]
    assert {row["program"]: row["lowered"] for row in COMPILED} == {
        name: compilers.digest_program(*program) for name, program in programs.items()
    }


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}")
def test_the_program_for_a_laptop_prints_the_first_bytes_of_the_page(run, tmp_path):
    text = compilers.PAGE.read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.S)
    (tmp_path / "this.py").write_text(program)
    for name in "communication", "machines":
        shutil.copy(ROOT / f"src/examples/{name}.py", tmp_path)
    lines = map(str.split, run("this.py", cwd=tmp_path).splitlines())
    printed = {machine: sent for machine, sent, *_ in lines if machine != "CPU"}
    stored = {r["machine"]: r["sent"] for r in COMPILED if r["program"] == "step"}
    assert printed == {name: stored[name] for name in ("H100", "v5p", "v6e")}
