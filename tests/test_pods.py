"""The tables that `nox -s remeasure -- pods` keeps: whole, and as the formulas say."""

import importlib.util
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pods
import pytest
from pod_programs import CHIPS, HIDDEN, LAYERS, MESHES, PROGRAMS, WIDTH
from records import read_table

from book.facts import ROOT
from examples.communication import Collective

DOCS = ROOT / "docs" / "algorithms"
TABLE = read_table(DOCS / "data" / "pods.csv")
SLOW = "not compiled in 300 s"
COMPILERS = all(map(importlib.util.find_spec, ("libtpu", "jax_plugins")))


def key(row):
    return row["program"], row["machine"], row["chips"]


def hosts(*shape, per_host=2):
    """Return a mesh of devices, so many of them on each host."""
    of = np.arange(np.prod(shape)) // per_host
    each = [SimpleNamespace(process_index=host) for host in of.tolist()]
    return SimpleNamespace(devices=np.array(each).reshape(shape))


def test_every_program_is_there_on_every_machine_in_order():
    assert [*map(key, TABLE)] == pods.order()
    assert {machine for _, machine, _ in pods.order()} == {"v5p", "h100"}


def test_words_choose_programs_machines_and_sizes():
    assert pods.select_keys(["summa", "h100", "512"]) == [("summa", "h100", "512")]
    assert pods.select_keys(["torus"]) == pods.select_keys(["meshes", "torus"]) == []
    assert {*pods.select_keys([])} == {*pods.order()}
    sizes = [int(chips) for *_, chips in pods.select_keys(["fftn slabs", "tsqr"])]
    assert sizes == sorted([*pods.CHIPS] * 4)


def test_a_row_is_about_what_the_program_list_says():
    for row in TABLE:
        chips = int(row["chips"])
        program, n, shape = pods.at_size(row["program"], chips)
        assert row["topology"] == pods.MACHINES[row["machine"]][chips], row
        assert row["mesh"] == "x".join(map(str, shape)), row
        assert row["shape"] == "x".join(map(str, program.shape(n))), row
        assert row["dtype"] == program.dtype, row
        assert np.prod(MESHES[program.axes][CHIPS.index(chips)]) == chips


def test_the_formula_is_that_of_today():
    for row in TABLE:
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
        if row["note"] and row["note"] != SLOW:
            assert row["program"].startswith("jnp."), row


def test_on_one_host_nothing_leaves_it():
    rows = [row for row in TABLE if row["machine"] == "h100" and row["sent"]]
    assert all((row["off_host"] == "0") == (row["chips"] == "8") for row in rows)


@pytest.mark.parametrize(
    ("kind", "groups", "expected"),
    [
        ("all-gather", [(0, 1), (2, 3)], 0),
        ("all-gather", [(0, 1, 2, 3)], 3 * 8),  # a ring leaves each host once
        ("all-gather", [(0, 2, 1, 3)], 3 * 8),  # in whatever order it is written
        ("all-gather", [(0, 2), (1, 3)], 2 * 8),  # two rings, over both
        ("all-reduce", [(0, 1, 2, 3)], 2 * 6),
        ("reduce-scatter", [(0, 2), (1, 3)], 2 * 4),
        ("all-to-all", [(0, 1, 2, 3)], 2 * 2 * 2),  # two devices, two quarters each
        ("all-to-all", [(0, 1), (2, 3)], 0),
        ("collective-permute", [(0, 1), (1, 2), (2, 3), (3, 0)], 8),
        ("collective-permute", [(0, 2), (1, 3)], 2 * 8),
    ],
)
def test_the_host_that_sends_most_is_counted(kind, groups, expected):
    once = Collective(kind, 8, ("x",), tuple(groups))
    assert pods.off_host([once], hosts(4)) == expected
    thrice = Collective(kind, 8, ("x",), tuple(groups), times=3)
    assert pods.off_host([once, thrice], hosts(4)) == 4 * expected


def test_a_loop_that_ends_when_it_likes_counts_for_one_step():
    before = Collective("all-reduce", 4, ("x",), ((0, 1),))
    inside = Collective("all-reduce", 12, ("x",), ((0, 1),), times=None)
    [step] = pods.one_step([before, inside])
    assert (step.bytes, step.times) == (12, 1)
    assert pods.one_step([before, before]) == [before, before]


def test_what_a_compiler_says_of_memory_is_kept():
    words = "W1123 remat.cc:3] Can't reduce memory use below 1GiB; only to 2GiB"
    done = subprocess.CompletedProcess([], 0, 'noise\n{"sent": 1}\n', f"{words}\nE x")
    note = "Can't reduce memory use below 1GiB; only to 2GiB"
    assert pods.read_result(done) == {"sent": 1, "note": note}
    without_note = subprocess.CompletedProcess([], 0, '{"sent": 1}\n', "")
    assert pods.read_result(without_note) == {"sent": 1}
    failed = subprocess.CompletedProcess([], 1, "", "a\nXError: too large\nmore")
    assert pods.read_result(failed) == {"note": "XError: too large"}


def test_the_torus_is_told_for_every_mesh_and_order():
    rows = read_table(DOCS / "data" / "torus.csv")
    shapes = [(512,), *pods.SHAPES, (8, 8, 8)]
    refused = [row for row in rows if row["note"]]
    assert {row["order"] for row in refused} == {"jax.make_mesh"}
    assert {row["mesh"] for row in rows} == {"x".join(map(str, s)) for s in shapes}
    for row in rows:
        has_links = row["axis"] and 1 <= float(row["mean"]) <= int(row["longest"]) <= 12
        assert bool(has_links) != bool(row["note"])


def test_other_meshes_send_what_their_formulas_give():
    for row in read_table(DOCS / "data" / "meshes.csv"):
        program, n, _ = pods.at_size(row["program"], 512)
        shape = tuple(map(int, row["mesh"].split("x")))
        mesh = pods.AbstractMesh(shape, program.axes)
        with pods.jax.sharding.use_abstract_mesh(mesh):
            formula = program.formula(program, n, mesh)
        assert int(row["x"]) + int(row["y"]) == formula, row


def test_rows_of_the_same_mesh_agree_in_both_tables():
    table = {key(row): row for row in TABLE}
    for row in read_table(DOCS / "data" / "meshes.csv"):
        if row["mesh"] == "16x32":
            other = table[row["program"], "h100", "512"]
            assert row["off_host"] == other["off_host"]


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


def test_every_program_has_a_size_for_each_number_of_chips():
    for name, program in PROGRAMS.items():
        assert len(program.sizes) == len(CHIPS) == 3, name
        assert len(program.axes) == len(MESHES[program.axes][0])
