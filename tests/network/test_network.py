"""What leaves a host: counted, by formula, and as it was measured."""

import csv
from functools import partial
from itertools import permutations
from pathlib import Path

import jax
import network_cost as tool
import numpy as np
import pytest
from cases import each_refusal, each_week
from jax import lax
from on_devices import AUTO, EXPLICIT, devices

from examples.communication import Collective, Program, measure
from examples.network import leaving, messages, sum_by_hosts

P = jax.P
ROOT = Path(__file__).parents[2]


def summed(x, outer="x"):
    return sum_by_hosts(x, inner="y", outer=outer)


def flat(x):
    add = partial(lax.psum, axis_name=("x", "y"))
    return jax.shard_map(add, in_specs=P(("x", "y")), out_specs=P())(x)


# ------------------------------------------------------------------------- the sum


@pytest.mark.parametrize(
    ("shape", "kind", "dtype"),
    [
        ((2, 4), EXPLICIT, np.float32),
        ((2, 3), AUTO, np.complex64),
        each_week((1, 8), EXPLICIT, np.float32),
        each_week((4, 2), EXPLICIT, np.float32),
        each_week((8, 1), EXPLICIT, np.float32),
    ],
)
def test_it_is_the_sum_of_the_blocks_and_a_host_sends_a_part(shape, kind, dtype):
    """What crosses hosts is one all-reduce; a sum of all at once sends more.

    Arrays of NumPy and those cut otherwise are laid out.
    """
    (rows, columns), count = shape, np.prod(shape)
    numbers = np.random.default_rng(0).integers(-9, 9, (count, 24, 2)).astype(dtype)
    given = numbers.reshape(-1, 2)
    with devices(shape, kind):
        x = jax.device_put(given, P(("x", "y")))
        total, pull = jax.vjp(jax.jit(summed), x)
        (slope,) = pull(2 * total)
        inside, around = measure(summed, x), measure(flat, x)
        for other in given, jax.device_put(given, P("y")):
            assert np.array_equal(summed(other), total)
    assert np.array_equal(total, numbers.sum(0))
    assert np.array_equal(slope, np.tile(2 * total, (count, 1)))
    assert total.sharding.is_fully_replicated
    assert slope.sharding.is_equivalent_to(x.sharding, 2)
    hosts, block = np.repeat(range(rows), columns).tolist(), numbers[0].nbytes
    assert {*leaving(inside, hosts).values()} == {2 * block * (rows - 1) // rows}
    expected = -(-2 * block * (count - 1) // count) if rows > 1 else 0
    assert {*leaving(around, hosts).values()} == {expected}
    across = [(s.kind, s.bytes) for s in inside.collectives if s.axes == ("x",)]
    assert across == [("all-reduce", block // columns)] * (rows > 1)


# --------------------------------------------------------------------- who sends what


def collective(kind, *groups, times=1):
    return Collective(kind, 24, None, groups, times)


@pytest.mark.parametrize(
    ("kind", "groups", "sent"),
    [
        ("all-to-all", [(0, 1, 2)], [(a, b, 8) for a, b in permutations(range(3), 2)]),
        ("collective-permute", [(0, 2), (2, 0)], [(0, 2, 24), (2, 0, 24)]),
        ("all-gather", [(0, 2, 1)], [(0, 2, 48), (2, 1, 48), (1, 0, 48)]),
    ],
)
def test_messages_go_straight_to_the_target_or_around_the_group(kind, groups, sent):
    assert [*messages(collective(kind, *groups))] == sent


def test_what_leaves_a_host_counts_as_often_as_its_loop_runs():
    """What stays with a host is not counted."""
    for times, hosts, sent in (
        (1, [0, 0, 1, 1], {0: 0, 1: 0}),
        (1, [0, 1, 0, 1], {0: 48, 1: 48}),
        (5, ["a", "a", "a", "b"], {"a": 5 * 24, "b": 5 * 24}),
    ):
        program = Program((collective("all-gather", (0, 1), (2, 3), times=times),))
        assert leaving(program, hosts) == sent


def leaving_two(group, times):
    return leaving(Program((collective("all-reduce", group, times=times),)), [0, 1])


@each_refusal(
    (lambda: summed(np.ones(64, bool)), "bool does not add up: pass an array of"),
    (lambda: summed([1.0] * 64), "list does not add up: pass an array of"),
    (lambda: summed(np.ones(24)), "cannot be cut into 8 blocks of 4 parts"),
    (lambda: summed(np.ones(())), "cannot be cut into 8 blocks of 4 parts"),
    (lambda: summed(np.ones(64), "host"), "no mesh axis .*host"),
    (lambda: leaving_two((0, 1), None), "give the loop a fixed length"),
    (lambda: leaving_two((0, 1, 2), 1), "more devices than the 2 in hosts"),
)
def test_what_cannot_be_summed_or_counted_is_refused(call, words):
    with devices((2, 4)), pytest.raises(ValueError, match=words):
        call()


# ------------------------------------------------------------------------ kept data


def test_the_table_has_every_case_in_order_and_the_bytes_of_the_formula():
    """The page compares them with what the hosts sent, and compares the times."""
    with (ROOT / "docs/processes/data/network.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    cases = [(rate, *case) for rate in tool.RATES for case in tool.cases(rate)]
    for row, (rate, *case) in zip(rows, cases, strict=True):
        assert [*row][: len(tool.COLUMNS)] == [*tool.COLUMNS]
        assert [row["program"], row["order"], int(row["block"])] == case
        assert (row["rate"], row["theory"]) == (rate, str(tool.theory(*case)))
