"""Programs of pages, compiled for other machines: found and shown."""

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


def test_a_program_has_a_key_by_what_it_does_and_by_its_shardings():
    x = split(P("x"), mesh_of(4, 2))
    assert key_of(lambda x: x.sum(), x) == key_of(lambda y: y.sum(), x)
    others = split(P(None, "x"), mesh_of(4, 2)), split(P("x"), mesh_of(2, 4))
    keys = {key_of(jnp.sum, each) for each in (x, *others)}
    assert len({*keys, key_of(jnp.max, x)}) == 4


def test_measure_has_a_column_for_each_machine_or_a_refusal(monkeypatch):
    x = split(P("x"), mesh_of(4, 2))
    rows = {"TPU v5p": ROW, "H100": ROW | {"collectives": ""}}
    refused = {"TPU v5p": ROW | {"note": "too large"}, "H100": ROW}
    programs = {key_of(jnp.sum, x): rows, key_of(jnp.max, x): refused}
    hook = measure_hook.make_hook(communication, programs)
    monkeypatch.setattr(communication, "ELSEWHERE", [hook])
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


@pytest.mark.parametrize(("machine", "part"), [("TPU v5p", 3), ("H100", 6)])
def test_most_programs_send_the_same_elsewhere_and_few_hold_the_same(machine, part):
    """The page on costs says so of all programs that the book measures."""
    programs = program_table.group_rows(read_table(program_table.TABLE)).values()
    assert all(rows.keys() == {"CPU", *measure_hook.MACHINES} for rows in programs)
    both = [
        [measure_hook.read_program(rows[n], communication) for n in ("CPU", machine)]
        for rows in programs
        if not any(row["note"] for row in rows.values())
    ]
    messages = [[(p.counts, str(p.sent)) for p in pair] for pair in both]  # nan
    assert 0 < part * sum(here != there for here, there in messages) < len(both)
    more = sum(here.sent < there.sent for here, there in both)
    assert more < sum(here.sent > there.sent for here, there in both)
    assert 2 * sum(a.temporaries == b.temporaries for a, b in both) < len(both)
