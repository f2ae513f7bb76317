"""Programs of pages, compiled for other machines: told apart, kept, shown, moved."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import measure_hook
import pytest
from on_devices import mesh_of
from records import read_table

from book import notes, program_table
from book.facts import facts
from examples import communication
from examples.communication import Collective, Program, measure

P = jax.P
ROOT = Path(__file__).resolve().parents[1]
GROUPS = ((0, 1, 2, 3), (4, 5, 6, 7))
PAIRS = ((0, 1), (1, 2), (2, 0))


def lowered(f, *args):
    traced = jax.jit(f).trace(*args)
    return traced, traced.lower()


def split(shape, spec, mesh, dtype="float32"):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=jax.NamedSharding(mesh, spec))


# ------------------------------------------------------------------------- a cell


@pytest.mark.parametrize(
    "found",
    [
        (),
        (Collective("all-gather", 512, ("x",), GROUPS),),
        (Collective("all-reduce", 0, ("x", "y"), GROUPS, 7),),
        (Collective("collective-permute", 4, None, PAIRS, None),),
        (Collective("all-to-all", 12, ("model",), GROUPS, 3, True),),
        (
            Collective("reduce-scatter", 8, ("x",), GROUPS, 2),
            Collective("all-gather", 8, ("x",), GROUPS),
        ),
    ],
)
def test_collectives_are_read_back_as_they_were_written(found):
    text = measure_hook.format_collectives(found)
    assert tuple(measure_hook.parse_collectives(text, communication)) == found


def test_equal_collectives_share_an_item_and_one_unknown_loop_makes_all_unknown():
    one = Collective("all-gather", 512, ("x",), GROUPS, 2)
    many = Collective("all-gather", 512, ("x",), GROUPS, None)
    texts = map(measure_hook.format_collectives, ([one, one], [one, many]))
    assert [text[:12] for text in texts] == ["4 all-gather", "? all-gather"]


# ------------------------------------------------------------------------ the key


def test_a_program_is_told_by_what_it_does_and_by_its_shardings():
    mesh, other = mesh_of(4, 2), mesh_of(2, 4)
    programs = {
        "rows": lowered(jnp.sum, split((64, 8), P("x"), mesh)),
        "columns": lowered(jnp.sum, split((64, 8), P(None, "x"), mesh)),
        "another mesh": lowered(jnp.sum, split((64, 8), P("x"), other)),
        "larger": lowered(jnp.sum, split((128, 8), P("x"), mesh)),
        "another type": lowered(jnp.sum, split((64, 8), P("x"), mesh, "int32")),
        "max": lowered(jnp.max, split((64, 8), P("x"), mesh)),
    }
    keys = {name: measure_hook.key_of(low) for name, (_, low) in programs.items()}
    assert len({*keys.values()}) == len(keys)
    again = lowered(lambda x: x.sum(), split((64, 8), P("x"), mesh))
    same = lowered(lambda x: x.sum(), split((64, 8), P("x"), mesh))
    assert measure_hook.key_of(again[1]) == measure_hook.key_of(same[1])


KEY = """\
import sys
import measure_hook, jax, jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
mesh = jax.make_mesh((4,), ("x",), (jax.sharding.AxisType.Auto,))
x = jax.device_put(jnp.ones((8, 8)), jax.NamedSharding(mesh, jax.P("x")))
junk = [object() for _ in range(int(sys.argv[1]) * 1000)]  # moves what follows
taught = custom_partitioning(lambda x: -x)
taught.def_partition(
    partition=lambda mesh, args, result: (mesh, jnp.negative, result.sharding, ()),
    sharding_rule="i j -> i j",
)
def f(x):
    jax.debug.callback(lambda x: None, x[0, 0])
    return (jnp.linalg.inv(taught(x)) * jnp.arange(8.0)).sum()
print(measure_hook.key_of(jax.jit(f).lower(x)))
"""


def test_options_of_a_compiler_tell_programs_apart_and_do_not_travel(tmp_path, keep):
    x = split((64, 8), P("x"), mesh_of(4, 2))
    asking = {"xla_cpu_enable_fast_math": True}
    keep(notes=tmp_path / "page")
    plain, other = jax.jit(jnp.sum), jax.jit(jnp.sum, compiler_options=asking)
    assert measure_hook.key_of(plain.lower(x)) != measure_hook.key_of(other.lower(x))
    measure(other, x)
    (file,) = tmp_path.glob("page/*.json")
    assert "compiler_options" in json.loads(file.read_text())["H100"]["note"]


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


def test_another_process_finds_the_same_key():
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX", "XLA"))}
    runs = ([sys.executable, "-c", KEY, junk] for junk in "19")
    options = {"env": clean, "capture_output": True, "text": True}
    keys = {subprocess.run(run, check=True, **options).stdout for run in runs}
    assert len(keys) == 1


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


def test_measure_has_a_column_for_each_machine(keep):
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
    assert measure(jnp.max, x).elsewhere == {}  # nobody kept that one
    assert program == Program(
        *(getattr(program, n) for n in program.__match_args__[:4])
    )


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


def test_answers_of_another_version_are_not_shown(keep):
    x = split((64, 8), P("x"), mesh_of(4, 2))
    _, low = lowered(jnp.sum, x)
    keep(stored_row(low, "H100", jax="0.0.1"), stored_row(low, "TPU v5p", libtpu="0.1"))
    assert measure(jnp.sum, x).elsewhere == {}


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


def test_a_commit_draws_some_of_what_is_kept_and_no_commit_draws_nothing(monkeypatch):
    keys = [f"{n:016x}" for n in range(400)]
    monkeypatch.delenv("BOOK_DRAW", raising=False)
    assert not any(measure_hook.draw(key).startswith("0") for key in keys)
    drawn = {}
    for commit in "abc":
        monkeypatch.setenv("BOOK_DRAW", commit)
        drawn[commit] = {key for key in keys if measure_hook.draw(key).startswith("0")}
        assert 5 < len(drawn[commit]) < 60
    assert len({frozenset(each) for each in drawn.values()}) == 3


HOOK = """\
import runpy, sys
tool, hook = sys.argv[1:]
runpy.run_path(hook)["watch"](tool)
assert "jax" not in sys.modules
import examples.other
from examples import communication
print(communication.installed)
"""


def test_the_hook_waits_for_the_import_and_touches_nothing_else(tmp_path):
    package = tmp_path / "examples"
    package.mkdir()
    for name in ("__init__", "other", "communication"):
        (package / f"{name}.py").write_text("installed = None")
    tool = tmp_path / "tool.py"
    tool.write_text(
        "def install(module, programs, notes): module.installed = notes or 'yes'"
    )
    run = [sys.executable, "-c", HOOK, tool, program_table.__file__]
    clean = {k: v for k, v in os.environ.items() if k != "BOOK_NOTES"}
    clean["PYTHONPATH"] = str(tmp_path)
    done = subprocess.run(run, env=clean, capture_output=True, text=True, check=True)
    assert done.stdout == "yes\n"


def test_every_kept_program_has_an_answer_of_each_machine():
    machines = {}
    for row in read_table(program_table.TABLE):
        machines.setdefault(row["program"], set()).add(row["machine"])
        assert row["note"] or measure_hook.read_program(row, communication)
        assert row["pages"]
    assert {frozenset(each) for each in machines.values()} == {
        frozenset({"CPU", *measure_hook.MACHINES})
    }


@pytest.mark.parametrize(("machine", "part"), [("TPU v5p", 3), ("H100", 6)])
def test_most_programs_send_the_same_elsewhere_and_few_hold_the_same(machine, part):
    """The page on costs says so of all programs that the book measures."""
    programs = {}
    for row in read_table(program_table.TABLE):
        if not row["note"]:
            programs.setdefault(row["program"], {})[row["machine"]] = row
    both = [
        [measure_hook.read_program(rows[n], communication) for n in ("CPU", machine)]
        for rows in programs.values()
        if len(rows) == 3
    ]
    messages = [[(p.counts, str(p.sent)) for p in pair] for pair in both]  # nan is text
    assert 0 < part * sum(here != there for here, there in messages) < len(both)
    more = sum(here.sent < there.sent for here, there in both)
    assert more < sum(here.sent > there.sent for here, there in both)
    assert 2 * sum(a.temporaries == b.temporaries for a, b in both) < len(both)
