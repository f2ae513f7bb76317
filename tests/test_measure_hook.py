"""Programs of pages, compiled for other machines: found, shown, lowered, stored."""

import json

import jax
import jax.numpy as jnp
import measure_hook
import pytest
from on_devices import mesh_of
from records import read_table

from book import program_table
from examples import communication
from examples.communication import Collective, measure

P = jax.P
GATHER = Collective("all-gather", 256, ("x",), ((0, 1, 2, 3), (4, 5, 6, 7)))
ROW = {"note": "", "arguments": 64, "outputs": 4, "temporaries": 2048}
ROW |= {"collectives": measure_hook.format_collectives([GATHER])}


def split(spec, mesh):
    sharding = jax.NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct((64, 8), "float32", sharding=sharding)


def key_of(f, x):
    return measure_hook.key_of(jax.jit(f).trace(x).lower())


@pytest.fixture
def add_hook(monkeypatch):
    """Return a function that lets `measure` ask for rows of programs."""

    def add_hook(programs, folder=None):
        hook = measure_hook.make_hook(communication, programs, folder)
        monkeypatch.setattr(communication, "ELSEWHERE", [hook])

    return add_hook


def test_a_program_has_a_key_by_what_it_does_and_by_its_shardings():
    x = split(P("x"), mesh_of(4, 2))
    one, same, *others = (
        key_of(lambda x: x.sum(), x),
        key_of(lambda y: y.sum(), x),
        key_of(jnp.sum, split(P(None, "x"), mesh_of(4, 2))),
        key_of(jnp.sum, split(P("x"), mesh_of(2, 4))),
        key_of(jnp.max, x),
    )
    assert one == same
    assert len({one, *others}) == 4


def test_rows_are_those_of_the_versions_of_the_book(tmp_path):
    stored = program_table.TABLE.read_text()
    table = tmp_path / "old.csv"
    table.write_text(stored.replace(f",{jax.__version__},", ",0.0.1,"))
    assert len(program_table.read_rows()) == len(read_table(program_table.TABLE))
    assert program_table.read_rows(table) == []


def test_measure_has_a_column_for_each_machine_or_a_refusal(add_hook):
    x = split(P("x"), mesh_of(4, 2))
    rows = {"TPU v5p": ROW, "H100": ROW | {"collectives": ""}}
    refused = {"TPU v5p": ROW | {"note": "too large"}, "H100": ROW}
    add_hook({key_of(jnp.sum, x): rows, key_of(jnp.max, x): refused})
    program = measure(jnp.sum, x)
    counts = [each.counts for each in program.everywhere]
    assert counts == [{"all-reduce": 1}, {"all-gather": 1}, {}]
    here = program.temporaries
    assert str(program).splitlines()[-5:] == [
        "compiled for  CPU  TPU v5p   H100",
        "all-gather      0        1      0",
        "all-reduce      1        0      0",
        "bytes sent      6      768      0",
        f"temporaries  {here:>4}    2,048  2,048",
    ]
    assert '<th scope="col"' in program._repr_html_().partition("TPU v5p")[0]
    assert "refused" in str(measure(jnp.max, x))
    with pytest.raises(ValueError, match=r"TPU v5p.*too large"):
        _ = measure(jnp.max, x).everywhere
    assert measure(jnp.min, x).elsewhere == {}  # of which there is no row


def test_a_page_leaves_what_nobody_compiled_as_others_lower_it(add_hook, tmp_path):
    x = split(P("x", "y"), mesh_of(2, 4, kind=jax.sharding.AxisType.Auto))
    known = key_of(jnp.sum, x)
    add_hook({known: {"TPU v5p": ROW, "H100": ROW}}, tmp_path / "page")
    measure(jnp.sum, x)
    measure(lambda x: jnp.linalg.inv(x.T @ x), x)
    found = {f.stem: json.loads(f.read_text()) for f in tmp_path.glob("page/*.json")}
    assert "H100" not in found.pop(known)
    (new,) = found.values()
    assert new["devices"] == 8
    assert {"x": 2, "y": 4} in new["meshes"]
    assert new["H100"]["free"] == [[False], [True]]  # XLA chooses the result's sharding
    tpu, gpu = (bytes.fromhex(new[name]["module"]) for name in measure_hook.MACHINES)
    assert b"lapack" not in tpu + gpu  # but what each of them calls
    assert tpu != gpu


def test_most_programs_send_the_same_elsewhere_and_few_hold_the_same():
    """The page on costs says so of all programs that the book measures."""
    programs = program_table.group_rows(read_table(program_table.TABLE)).values()
    assert all(rows.keys() == {"CPU", *measure_hook.MACHINES} for rows in programs)
    whole = [
        {name: measure_hook.read_program(rows[name], communication) for name in rows}
        for rows in programs
        if not any(row["note"] for row in rows.values())
    ]
    for machine, part in ("TPU v5p", 3), ("H100", 6):
        both = [(each["CPU"], each[machine]) for each in whole]
        messages = [[(p.counts, str(p.sent)) for p in pair] for pair in both]  # nan
        assert 0 < part * sum(here != there for here, there in messages) < len(both)
        more = sum(here.sent < there.sent for here, there in both)
        assert more < sum(here.sent > there.sent for here, there in both)
        assert 2 * sum(a.temporaries == b.temporaries for a, b in both) < len(both)
