"""Programs of pages, compiled for other machines: told apart, kept, shown, moved."""

import csv
import json

import jax
import jax.numpy as jnp
import measure_hook
import pytest
from on_devices import mesh_of
from records import read_table

from book import notes, program_table
from book.facts import facts
from examples import communication
from examples.communication import Collective, measure

P = jax.P
GROUPS = ((0, 1, 2, 3), (4, 5, 6, 7))


def lowered(f, *args):
    traced = jax.jit(f).trace(*args)
    return traced, traced.lower()


def split(shape, spec, mesh, dtype="float32"):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=jax.NamedSharding(mesh, spec))


# ------------------------------------------------------------------------ the key


def test_a_program_has_a_key_by_what_it_does_and_by_its_shardings():
    mesh, x = mesh_of(4, 2), split((64, 8), P("x"), mesh_of(4, 2))
    programs = [
        *[lowered(lambda x: x.sum(), x) for _ in "ab"],
        lowered(jnp.sum, split((64, 8), P(None, "x"), mesh)),
        lowered(jnp.sum, split((64, 8), P("x"), mesh_of(2, 4))),
        lowered(jnp.max, x),
    ]
    one, same, *others = (measure_hook.key_of(low) for _, low in programs)
    assert one == same
    assert len({one, *others}) == 4


def test_a_commit_draws_some_programs_and_no_commit_draws_none(monkeypatch):
    keys = [f"{n:016x}" for n in range(400)]
    drawn = []
    for commit in "", "a", "b":
        monkeypatch.setenv("BOOK_DRAW", commit)
        drawn.append({key for key in keys if measure_hook.draw(key).startswith("0")})
    assert drawn[0] == set()
    assert drawn[1] != drawn[2]
    assert all(5 < len(each) < 60 for each in drawn[1:])


def test_notes_of_a_page_come_back_with_its_key(tmp_path, monkeypatch):
    monkeypatch.setattr(notes, "CURRENT", tmp_path / "current")
    monkeypatch.setenv("SHARDBOOK_CACHE", str(tmp_path))
    assert notes.note_files("part/page") == []
    for key, program in ("old", "a"), ("new", "b"):
        notes.begin_notes("part/page", key)
        folder = notes.notes_of("part/page")
        folder.mkdir(parents=True)
        (folder / f"{program}.json").write_text("{}")
        assert [file.stem for file in notes.note_files("part/page")] == [program]
    notes.begin_notes("part/page", "old")  # whose outputs were still kept
    assert [file.stem for file in notes.note_files("part/page")] == ["a"]


# ------------------------------------------------------------- what measure shows


@pytest.fixture
def keep(tmp_path, monkeypatch):
    """Return a function that keeps rows, and lets `measure` ask for them."""
    monkeypatch.setattr(communication, "ELSEWHERE", [])

    def keep(*rows, notes=None):
        columns, table = {name for row in rows for name in row}, tmp_path / "kept.csv"
        with table.open("w", newline="") as file:
            writer = csv.DictWriter(file, [*columns])
            writer.writeheader()
            writer.writerows(rows)
        programs = program_table.group_rows(program_table.read_rows(table))
        measure_hook.install(communication, programs, notes)

    return keep


def stored_row(low, machine, **found):
    row = {"program": measure_hook.key_of(low), "machine": machine, "note": ""}
    sizes = {"arguments": 64, "outputs": 4, "temporaries": 2048}
    gather = Collective("all-gather", 256, ("x",), GROUPS)
    collectives = measure_hook.format_collectives([gather])
    made = {"jax": jax.__version__, "libtpu": facts().libtpu}
    return row | sizes | made | {"collectives": collectives} | found


def test_measure_has_a_column_for_each_machine_of_these_versions(keep):
    x = split((64, 8), P("x"), mesh_of(4, 2))
    _, low = lowered(jnp.sum, x)
    keep(stored_row(low, "TPU v5p"), stored_row(low, "H100", collectives=""))
    program = measure(jnp.sum, x)
    assert [each.counts for each in program.everywhere] == [
        {"all-reduce": 1},
        {"all-gather": 1},
        {},
    ]
    assert [each.sent for each in program.everywhere] == [6, 3 * 256, 0]
    here = program.temporaries
    assert str(program).splitlines()[-5:] == [
        "compiled for  CPU  TPU v5p   H100",
        "all-gather      0        1      0",
        "all-reduce      1        0      0",
        "bytes sent      6      768      0",
        f"temporaries  {here:>4}    2,048  2,048",
    ]
    assert '<th scope="col"' in program._repr_html_().partition("TPU v5p")[0]
    assert measure(jnp.max, x).elsewhere == {}  # of which there is no row
    communication.ELSEWHERE.clear()
    keep(stored_row(low, "H100", jax="0.0.1"), stored_row(low, "TPU v5p", libtpu="0.1"))
    assert measure(jnp.sum, x).elsewhere == {}


def test_a_refusal_is_shown_and_no_claim_for_all_machines_holds(keep, monkeypatch):
    x = split((64, 8), P(None, "x"), mesh_of(2, 4))
    _, low = lowered(jnp.sum, x)
    keep(stored_row(low, "TPU v5p", note="too large"), stored_row(low, "H100"))
    program = measure(jnp.sum, x)
    assert "refused" in str(program)
    with pytest.raises(ValueError, match=r"TPU v5p.*too large"):
        _ = program.everywhere
    monkeypatch.setattr(communication, "ELSEWHERE", [])  # as in a copy of the module
    alone = measure(jnp.sum, x)
    assert alone.elsewhere == {}
    assert alone.everywhere == (alone,)
    assert "compiled for" not in str(alone) + alone._repr_html_()


# ------------------------------------------------------------ what a page leaves


def test_a_page_leaves_what_nobody_compiled_as_others_lower_it(keep, tmp_path):
    mesh = mesh_of(2, 4, kind=jax.sharding.AxisType.Auto)
    a, b = split((64, 8), P("x"), mesh), split((8, 64), P("x", "y"), mesh)
    _, known = lowered(jnp.sum, a)
    rows = stored_row(known, "TPU v5p"), stored_row(known, "H100")
    keep(*rows, notes=tmp_path / "page")
    measure(jnp.sum, a)
    measure(lambda b: jnp.linalg.inv(b @ b.T), b)
    notes = {f.stem: json.loads(f.read_text()) for f in tmp_path.glob("page/*.json")}
    assert "H100" not in notes.pop(measure_hook.key_of(known))
    (new,) = notes.values()
    assert new["devices"] == 8
    assert {"x": 2, "y": 4} in new["meshes"]
    tpu, gpu = (bytes.fromhex(new[name]["module"]) for name in measure_hook.MACHINES)
    assert b"lapack" not in tpu + gpu  # but what each of them calls
    assert tpu != gpu


def test_every_kept_program_has_an_answer_of_each_machine():
    machines = {}
    for row in read_table(program_table.TABLE):
        machines.setdefault(row["program"], set()).add(row["machine"])
        assert row["note"] or measure_hook.read_program(row, communication)
        assert row["pages"]
    assert {frozenset(each) for each in machines.values()} == {
        frozenset({"CPU", *measure_hook.MACHINES})
    }


def test_most_programs_send_the_same_elsewhere_and_few_hold_the_same():
    """The page on costs says so of all programs that the book measures."""
    programs = {}
    for row in read_table(program_table.TABLE):
        if not row["note"]:
            program = measure_hook.read_program(row, communication)
            programs.setdefault(row["program"], {})[row["machine"]] = program
    whole = [each for each in programs.values() if len(each) == 3]
    for machine, part in ("TPU v5p", 3), ("H100", 6):
        both = [(each["CPU"], each[machine]) for each in whole]
        messages = [[(p.counts, str(p.sent)) for p in pair] for pair in both]  # nan
        assert 0 < part * sum(here != there for here, there in messages) < len(both)
        more = sum(here.sent < there.sent for here, there in both)
        assert more < sum(here.sent > there.sent for here, there in both)
        assert 2 * sum(a.temporaries == b.temporaries for a, b in both) < len(both)
