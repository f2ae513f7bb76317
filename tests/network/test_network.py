"""What leaves a host: counted, by formula, and as it was measured."""

import csv
from pathlib import Path

import jax
import jax.numpy as jnp
import network_cost as tool
import numpy as np
import pytest
from cases import each_week
from jax import lax
from jax.sharding import AxisType

from examples.communication import Collective, Program, measure
from examples.network import leaving, messages, sum_by_hosts

P = jax.P
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "src" / "examples" / "network.py"


def mesh_of(shape, kind=AxisType.Explicit):
    devices = np.array(jax.devices())[: np.prod(shape)].reshape(shape)
    return jax.sharding.Mesh(devices, ("x", "y"), axis_types=(kind,) * 2)


def summed(x):
    return sum_by_hosts(x, inner="y", outer="x")


def flat(x):
    add = jax.shard_map(
        lambda block: lax.psum(block, ("x", "y")),
        in_specs=P(("x", "y")),
        out_specs=P(),
    )
    return add(x)


# ------------------------------------------------------------------------- the sum


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((2, 4), AxisType.Explicit),
        ((2, 3), AxisType.Auto),
        *(each_week(each, AxisType.Explicit) for each in ((1, 8), (4, 2))),
    ],
)
def test_it_is_the_sum_of_the_blocks_and_a_host_sends_a_part(shape, kind):
    """What crosses hosts is one all-reduce; a sum of all at once sends more."""
    rows, columns = shape
    count = rows * columns
    numbers = np.random.default_rng(0).integers(-9, 9, (count, 24, 2))
    with jax.set_mesh(mesh_of(shape, kind)):
        x = jax.device_put(numbers.reshape(-1, 2).astype(np.float32), P(("x", "y")))
        run = jax.jit(summed).lower(x).compile()
        total, inside, around = run(x), measure(run), measure(flat, x)
    assert np.array_equal(total, numbers.sum(0))
    assert total.sharding.is_fully_replicated
    hosts, block = np.repeat(range(rows), columns).tolist(), 4 * 24 * 2
    assert {*leaving(inside, hosts).values()} == {2 * block * (rows - 1) // rows}
    expected = -(-2 * block * (count - 1) // count) if rows > 1 else 0
    assert {*leaving(around, hosts).values()} == {expected}
    across = [step for step in inside.collectives if step.axes == ("x",)]
    steps = [(step.kind, step.bytes) for step in across]
    assert steps == [("all-reduce", block // columns)] * (rows > 1)


def test_it_keeps_the_dtype():
    with jax.set_mesh(mesh_of((2, 4))):
        for dtype in "float32", "bfloat16", "complex64", "int32":
            x = jax.ShapeDtypeStruct((64,), dtype)
            assert jax.eval_shape(summed, x).dtype == dtype


@pytest.mark.parametrize("kind", [AxisType.Explicit, each_week(AxisType.Auto)])
def test_arrays_of_numpy_and_those_cut_otherwise_are_laid_out(kind):
    numbers = np.arange(128, dtype=np.float32)
    with jax.set_mesh(mesh_of((2, 4), kind)):
        for x in numbers, jax.device_put(numbers, P("y")):
            assert np.array_equal(summed(x), numbers.reshape(8, 16).sum(0))


def test_what_does_not_add_up_is_refused():
    with jax.set_mesh(mesh_of((2, 4))):
        with pytest.raises(ValueError, match="bool does not add up: pass an array of"):
            summed(np.ones(64, bool))
        with pytest.raises(ValueError, match="list does not add up: pass an array of"):
            summed([1.0] * 64)


def test_its_gradient_is_that_of_psum():
    weights = np.arange(8, dtype=np.float32)
    with jax.set_mesh(mesh_of((2, 4))):
        x = jax.device_put(np.sin(np.arange(64, dtype=np.float32)), P(("x", "y")))
        gradients = [
            jax.jit(jax.grad(lambda x, f=f: (weights * f(x) ** 2).sum()))(x)
            for f in (summed, flat)
        ]
    np.testing.assert_allclose(*gradients, rtol=1e-5)
    assert gradients[0].sharding.is_equivalent_to(x.sharding, 1)


def test_a_block_that_cannot_be_cut_and_other_axes_are_refused():
    with jax.set_mesh(mesh_of((1, 8))):
        for x in jnp.ones(24), jnp.ones(()):
            complaint = "cannot be cut into 8 blocks of 8 parts"
            with pytest.raises(ValueError, match=complaint):
                summed(x)
        with pytest.raises(ValueError, match=r"no mesh axis .*host"):
            sum_by_hosts(jnp.ones(64), inner="y", outer="host")


# --------------------------------------------------------------------- who sends what


def collective(kind, groups, size=24, times=1):
    return Collective(kind, size, None, groups, times)


def test_an_all_to_all_sends_straight_to_everybody():
    found = messages(collective("all-to-all", ((0, 1, 2),)))
    everybody = [(a, b) for a in range(3) for b in range(3) if a != b]
    assert sorted(found) == [(a, b, 8) for a, b in everybody]


def test_a_permutation_sends_along_its_pairs():
    found = messages(collective("collective-permute", ((0, 2), (2, 0))))
    assert [*found] == [(0, 2, 24), (2, 0, 24)]


def test_the_others_go_around_in_the_order_of_the_group():
    found = [*messages(collective("all-gather", ((0, 2, 1),)))]
    assert found == [(0, 2, 48), (2, 1, 48), (1, 0, 48)]


def test_what_stays_with_a_host_is_not_counted():
    program = Program((collective("all-gather", ((0, 1), (2, 3))),))
    assert leaving(program, [0, 0, 1, 1]) == {0: 0, 1: 0}
    assert leaving(program, [0, 1, 0, 1]) == {0: 48, 1: 48}
    assert leaving(program, ["a", "a", "a", "b"]) == {"a": 24, "b": 24}


def test_a_loop_counts_as_often_as_it_runs():
    program = Program((collective("all-reduce", ((0, 1),), times=5),))
    assert leaving(program, [0, 1]) == {0: 5 * 24, 1: 5 * 24}


def test_a_loop_of_unknown_length_is_refused():
    program = Program((collective("all-reduce", ((0, 1),), times=None),))
    with pytest.raises(ValueError, match="give the loop a fixed length"):
        leaving(program, [0, 1])


def test_a_program_of_more_devices_is_refused():
    program = Program((collective("all-reduce", ((0, 1, 2),)),))
    with pytest.raises(ValueError, match="more devices than the 2 in hosts"):
        leaving(program, [0, 1])


@pytest.mark.parametrize("devices", [each_week(1), 8])
def test_it_runs_as_a_script(run, devices):
    printed = run(SCRIPT, devices=devices)
    assert printed.endswith(f" {devices}.0\n")


# ------------------------------------------------------------------------ kept data


with (ROOT / "docs/processes/data/network.csv").open(newline="") as file:
    ROWS = list(csv.DictReader(file))
CASES = [(row["program"], row["order"], int(row["block"])) for row in ROWS]
LARGE = [row for row in ROWS if int(row["block"]) >= tool.BLOCK]
each_program = pytest.mark.parametrize("name", tool.PROGRAMS)


def milliseconds(name, order, rate, block=tool.BLOCK):
    wanted = name, order, rate, str(block)
    keys = "program", "order", "rate", "block"
    (row,) = (row for row in ROWS if tuple(row[key] for key in keys) == wanted)
    return float(row["milliseconds"])


def test_every_case_is_there_in_order():
    assert [row["rate"] for row in ROWS] == [
        rate for rate in tool.RATES for _ in tool.cases(rate)
    ]
    assert [case for rate in tool.RATES for case in tool.cases(rate)] == CASES


def test_every_row_names_the_kernel():
    for row in ROWS:
        assert [*row][: len(tool.COLUMNS)] == [*tool.COLUMNS]
        assert len(row["linux"].split(".")) == 3


def test_every_row_has_the_bytes_of_the_formula_of_today():
    for row, case in zip(ROWS, CASES, strict=True):
        assert int(row["theory"]) == tool.theory(*case)


def test_hosts_sent_at_most_six_percent_more():
    for row in LARGE:
        theory = int(row["theory"])
        for host in ("host0", "host1"):
            assert theory <= int(row[host]) < 1.06 * theory + 4096, row


def test_at_the_slow_end_bytes_decide_and_at_the_fast_end_steps():
    slow, fast = (
        milliseconds("flat", "rows", rate) / milliseconds("by hosts", "rows", rate)
        for rate in ("100mbit", "none")
    )
    assert 1.25 < slow < 2.1
    assert fast < 1


@pytest.mark.parametrize("rate", ["100mbit", "300mbit"])
def test_the_order_of_the_mesh_decides_which_transpose_is_slow(rate):
    for cheap, dear in (("rows", "mixed"), ("mixed", "rows")):
        axis = "y" if cheap == "rows" else "x"
        ratio = milliseconds(f"transpose {axis}", dear, rate)
        ratio /= milliseconds(f"transpose {axis}", cheap, rate)
        assert ratio > 2


def test_a_mixed_order_makes_the_sum_slow():
    flat_ = [milliseconds("flat", order, "100mbit") for order in ("rows", "mixed")]
    assert flat_[1] > 3 * flat_[0]


# -------------------------------------------------------------- what the tool measures


def halved(group, size, hosts):
    """Return what a Gloo reduce-scatter sends out of host 0: halves, then an exchange.

    In step k a device swaps a half of what it still has with that at distance 2**k. In
    the end the parts lie in bit-reversed order, and go where they belong.
    """
    count = len(group)
    bits = count.bit_length() - 1
    sent = 0
    for place, device in enumerate(group):
        pairs = [(place ^ 2**step, size / 2 ** (step + 1)) for step in range(bits)]
        reverse = int(f"{place:0{bits}b}"[::-1], 2)
        for other, part in [*pairs, (reverse, size / count)]:
            crosses = hosts[device] == 0 != hosts[group[other]]
            sent += part if crosses else 0
    return sent


@each_program
def test_its_formulas_are_those_of_the_compiled_program(name):
    program, size = tool.PROGRAMS[name], 2**15
    for order, blocks in program.blocks.items():
        hosts = [device // tool.DEVICES for device in tool.ORDERS[order]]
        mesh = tool.mesh_of(order)
        x = program.array(size, mesh)
        assert x.size * x.dtype.itemsize == 8 * size
        with jax.set_mesh(mesh):
            found = measure(program.function, x)
        rings = [c for c in found.collectives if c.kind != "reduce-scatter"]
        sent = leaving(Program(tuple(rings)), hosts)[0]
        for c in found.collectives:
            if c.kind == "reduce-scatter":
                sent += sum(halved(group, c.bytes, hosts) for group in c.groups)
        assert sent == blocks * size == tool.theory(name, order, size)
