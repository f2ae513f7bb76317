"""The tables that `nox -s remeasure -- pods` keeps: whole, and as the formulas say."""

import importlib.util
import shutil
import subprocess
import sys

import numpy as np
import pods
import pytest
from pod_programs import CHIPS, HIDDEN, LAYERS, MESHES, WIDTH
from records import read_table

from book.facts import ROOT

DOCS = ROOT / "docs" / "algorithms"
TABLE = read_table(DOCS / "data" / "pods.csv")
SLOW = "not compiled in 300 s"
COMPILERS = all(map(importlib.util.find_spec, ("libtpu", "jax_plugins")))


def key(row):
    return row["program"], row["machine"], row["chips"]


def test_every_program_is_there_on_every_machine_in_order():
    assert [*map(key, TABLE)] == pods.order()
    assert {machine for _, machine, _ in pods.order()} == {"v5p", "h100"}


def test_a_row_is_about_what_programs_and_formulas_say_today():
    for row in TABLE:
        chips = int(row["chips"])
        program, n, shape = pods.at_size(row["program"], chips)
        assert row["topology"] == pods.MACHINES[row["machine"]][chips], row
        assert row["mesh"] == "x".join(map(str, shape)), row
        assert row["shape"] == "x".join(map(str, program.shape(n))), row
        assert row["dtype"] == program.dtype, row
        assert np.prod(MESHES[program.axes][CHIPS.index(chips)]) == chips
        found = pods.formula_bytes(row["program"], row["machine"], int(row["chips"]))
        assert row["formula"] == str(found.get("formula", "")), row


def test_what_was_sent_is_what_the_formula_gives_where_the_page_says_so():
    rows = [row for row in TABLE if row["formula"] and row["sent"]]
    others = [row for row in rows if row["sent"] != row["formula"]]
    assert len(rows) > 80
    assert {key(row)[:2] for row in others} == {("training, sharded", "v5p")}
    for row in others:  # see the page: all-reduces, of which some are in bfloat16
        times = 1 if row["chips"] == "8" else 2
        biases = 4 * LAYERS * (HIDDEN + WIDTH)
        assert abs(int(row["sent"]) - times * int(row["formula"])) < biases, row


def test_a_row_has_numbers_or_says_why_not():
    for row in TABLE:
        compiled = [bool(row[name]) for name in ("temporaries", "sent", "instructions")]
        assert all(compiled) if any(compiled) else row["note"], row
        assert bool(row["off_host"]) == (all(compiled) and row["machine"] == "h100")
        if row["sent"] and row["machine"] == "h100":  # on one host nothing leaves it
            assert (row["off_host"] == "0") == (row["chips"] == "8"), row
        if row["note"] and row["note"] != SLOW:
            assert row["program"].startswith("jnp."), row


def test_other_meshes_send_what_their_formulas_give():
    for row in read_table(DOCS / "data" / "meshes.csv"):
        program, n, _ = pods.at_size(row["program"], 512)
        shape = tuple(map(int, row["mesh"].split("x")))
        mesh = pods.AbstractMesh(shape, program.axes)
        with pods.jax.sharding.use_abstract_mesh(mesh):
            formula = program.formula(program, n, mesh)
        assert int(row["x"]) + int(row["y"]) == formula, row


@pytest.mark.skipif(not COMPILERS, reason="needs libtpu and jax-cuda13-plugin")
def test_what_the_page_shows_to_a_reader_runs_alone(tmp_path):
    page = (DOCS / "pods.md").read_text()
    code, shown = (
        page.partition(f"```{kind}\n")[2].partition("```")[0]
        for kind in ("python", "text")
    )
    for name in ("communication", "machines", "matmul"):
        shutil.copy(ROOT / "src" / "examples" / f"{name}.py", tmp_path)
    tmp_path.joinpath("this.py").write_text(code)
    run = subprocess.run(
        [sys.executable, "this.py"],
        cwd=tmp_path,
        env={"JAX_PLATFORMS": "cpu", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == shown
