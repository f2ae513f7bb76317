"""The tables that `nox -s remeasure -- pods` keeps: whole, and as the formulas say."""

import numpy as np
import pods
from pod_programs import CHIPS, MESHES
from records import read_table

from book.facts import ROOT

DOCS = ROOT / "docs" / "algorithms"
TABLE = read_table(DOCS / "data" / "pods.csv")
SLOW = "not compiled in 300 s"


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
        found = pods.formula_bytes(row["program"], row["machine"], chips)
        assert row["formula"] == str(found.get("formula", "")), row


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
