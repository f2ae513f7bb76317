"""The page on three compilers: what is kept is of its own programs."""

import importlib.util
import re
import shutil
from pathlib import Path

import compilers
import pytest
import records

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs/global-view/data"
ROWS = records.read_table(DATA / "compilers.csv")
MISSING = [p for p in ("libtpu", "jax_plugins") if importlib.util.find_spec(p) is None]


def test_what_is_kept_was_compiled_from_the_programs_of_the_page():
    """Else run `nox -s remeasure -- compilers`, with the names of what changed."""
    programs = compilers.run_page_cells()["programs"]
    digests = {row["program"]: row["lowered"] for row in ROWS}
    assert digests == {
        name: compilers.digest_program(*program) for name, program in programs.items()
    }
    # "gather" and "gather x" are one program, for two kinds of meshes
    assert len({*digests.values()}) == len(programs) - 1


def test_every_program_is_kept_for_a_tpu_and_a_gpu_or_says_for_which():
    machines = {}
    for row in ROWS:
        machines.setdefault(row["program"], set()).add(row["machine"])
    fewer = {name for name, found in machines.items() if not {"H100", "v5p"} <= found}
    assert fewer == {"gather x", "gather y", "gather x, y"}


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}")
def test_the_program_for_a_laptop_prints_the_first_bytes_of_the_page(run, tmp_path):
    text = compilers.PAGE.read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.S)
    (tmp_path / "this.py").write_text(program)
    for name in "communication", "machines":
        shutil.copy(ROOT / f"src/examples/{name}.py", tmp_path)
    printed = run("this.py", cwd=tmp_path).splitlines()
    found = {line.split()[0]: int(line.split()[1]) for line in printed}
    table = {r["machine"]: int(r["sent"]) for r in ROWS if r["program"] == "step"}
    assert [*found] == ["CPU", "H100", "v5p", "v6e"]
    del found["CPU"]
    assert found == {machine: table[machine] for machine in found}
