"""The tables that `nox -s pods` keeps: whole, and as the formulas say."""

import csv
from pathlib import Path

import pods

DATA = Path(__file__).parents[1] / "docs" / "algorithms" / "data"


def rows_of(name):
    with DATA.joinpath(name).open(newline="") as file:
        return list(csv.DictReader(file))


TABLE = rows_of("pods.csv")


def number(row):
    """Which of the pods this row is about."""
    return [*pods.PODS].index(row["topology"])


def test_every_program_is_there_for_every_pod():
    wanted = {
        (name, topology)
        for name, program in pods.PROGRAMS.items()
        for topology, size in zip(pods.PODS, program.sizes, strict=True)
        if size
    }
    assert {(row["program"], row["topology"]) for row in TABLE} == wanted
    assert len(TABLE) == len(wanted)


def test_the_rows_stand_in_the_order_of_the_programs():
    keys = [(row["program"], row["topology"]) for row in TABLE]
    assert keys == [key for key in pods.order() if key in keys]


def test_a_row_is_about_what_the_program_list_says():
    for row in TABLE:
        program, pod = pods.PROGRAMS[row["program"]], number(row)
        assert row["chips"] == str(pods.PODS[row["topology"]]), row
        assert row["mesh"] == "x".join(map(str, pods.MESHES[program.axes][pod])), row
        assert row["shape"] == "x".join([str(program.sizes[pod])] * program.ndim), row
        assert row["dtype"] == program.dtype, row


def test_what_was_sent_is_what_the_formula_gives_today():
    for row in TABLE:
        program, pod = pods.PROGRAMS[row["program"]], number(row)
        shape = pods.MESHES[program.axes][pod]
        expected = pods.expected(program, program.sizes[pod], shape)
        assert row["formula"] == str(expected.get("formula", "")), row
        assert row["formula"] in ("", row["sent"]), row


def test_only_what_is_not_the_book_s_may_have_no_program():
    for row in TABLE:
        compiled = all(row[key] for key in ("arguments", "temporaries", "sent"))
        assert compiled != bool(row["note"]), row
        assert compiled or row["program"].startswith("jnp."), row


def test_the_torus_is_told_for_every_mesh_and_order():
    rows = rows_of("torus.csv")
    refused = [row for row in rows if row["note"]]
    assert {row["order"] for row in refused} == {"jax.make_mesh"}
    assert {row["mesh"] for row in rows} == {"512", "8x64", "16x32", "32x16", "8x8x8"}
    for row in rows:
        told = row["axis"] and 1 <= float(row["mean"]) <= int(row["longest"]) <= 12
        assert bool(told) != bool(row["note"])
