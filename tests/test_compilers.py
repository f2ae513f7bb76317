"""The page on three compilers: what is stored is of its own programs."""

import importlib.util
import re
import shutil

import compilers
import pytest
from records import ROOT, read_table

ROWS = read_table(ROOT / "docs/global-view/data/compilers.csv")
MISSING = [p for p in ("libtpu", "jax_plugins") if importlib.util.find_spec(p) is None]


def test_stored_rows_are_of_the_programs_of_the_page():
    """Else run `nox -s remeasure -- compilers`, with the names of what changed."""
    programs = compilers.run_page_cells()["programs"]
    assert {row["program"]: row["lowered"] for row in ROWS} == {
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
    stored = {r["machine"]: r["sent"] for r in ROWS if r["program"] == "step"}
    assert printed == {name: stored[name] for name in ("H100", "v5p", "v6e")}
