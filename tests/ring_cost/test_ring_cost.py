import math
from collections import Counter
from fractions import Fraction
from itertools import product

import pytest
from cases import each_refusal

from examples.communication import RING, Collective
from examples.ring_cost import (
    KINDS,
    MACHINES,
    PIECES,
    WAYS,
    hops,
    least,
    link_load,
    network_cost,
    ring_bytes,
    ring_rounds,
)


@pytest.mark.parametrize("kind", sorted(PIECES.keys() & RING.keys()))
def test_measuring_a_program_counts_the_same_bytes(kind):
    """`communication` reads compiled text alone, and so has factors of its own."""
    for size, operand in product((1, 2, 3, 8), (100, 4096)):
        collective = Collective(kind, operand, ("x",), (tuple(range(size)),))
        assert collective.sent == ring_bytes(kind, operand, size)


@pytest.mark.parametrize(
    ("kind", "sent", "one_way", "both_ways"),
    [
        ("all-gather", 700, 7, 4),
        ("reduce-scatter", 88, 7, 4),
        ("all-reduce", 175, 14, 8),
        ("all-to-all", 88, 7, 7),
        ("doubling", 300, 3, 3),
    ],
)
def test_a_hundred_bytes_on_eight_devices(kind, sent, one_way, both_ways):
    assert ring_bytes(kind, 100, 8) == sent
    assert ring_rounds(kind, 8) == one_way
    assert ring_rounds(kind, 8, ways=2) == both_ways
    assert ring_bytes("reduce-scatter", 1, 8) == 1
    assert [ring_rounds("all-gather", n, ways=2) for n in (1, 2, 5, 6)] == [0, 1, 2, 3]


LINK, LINE = (1e-6, 1e9), [(4, "line")]


@each_refusal(
    (lambda: ring_bytes("psum", 1, 8), "'psum' is no collective of"),
    (lambda: network_cost("doubling", 1, LINE, *LINK), "'doubling' is no coll"),
    (lambda: ring_rounds("all-gather", 8, 3), "1 or 2 ways round, not 3"),
    (lambda: ring_bytes("doubling", 8, 6), "6 devices: pass 1 or more"),
    (lambda: hops("all-gather", [(0, "line")]), r"\(0, 'line'\) is no axis: pass"),
    (lambda: link_load("all-gather", [(2.0, "line")]), r"\(2.0, 'line'\) is no ax"),
    (lambda: least("all-gather", [(4, "star")]), r"\(4, 'star'\) is no axis: pass"),
    (lambda: network_cost("all-gather", -1, LINE, *LINK), "an operand of -1"),
    (lambda: network_cost("all-gather", 1, LINE, math.nan, 1), "a link of nan s"),
    (lambda: network_cost("all-gather", 1, LINE, 0, 0), "a link of 0 s and 0"),
    (lambda: network_cost("all-gather", 1, LINE, 0, math.inf), "and inf B/s"),
)
def test_what_has_no_price_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# ----------------------------------------------- networks, against schedules played out

SIZES = [1, 2, 3, 5, 8]
BRICKS = [
    ((3, "both ways"), (5, "both ways")),
    ((1, "line"), (3, "line"), (4, "one way")),
    ((4, "both ways"), (2, "both ways"), (3, "both ways")),
    ((3, "switch"), (4, "doubling")),
]
LINES = [((n, way),) for n in SIZES for way in WAYS]


def walk(n, start, step, count):
    """Return the links from `start` on: each is the device that sends, and its port."""
    return [((start + step * k) % n, step) for k in range(count)]


def shortest(n, start, goal):
    up, down = (goal - start) % n, (start - goal) % n
    if up == down:
        half = Fraction(1, 2)
        return [(half, walk(n, start, 1, up)), (half, walk(n, start, -1, down))]
    return [(1, walk(n, start, *((1, up) if up < down else (-1, down))))]


def in_bits(n, start, goal):
    """A hop for each bit of the distance, the least first."""
    away = (goal - start) % n
    bits = [1 << k for k in range(n.bit_length()) if away >> k & 1]
    return [(1, [((start + (away & (bit - 1))) % n, "out") for bit in bits])]


ROUTES = {  # from a place on an axis of n to another: shares, and the links of each
    "both ways": shortest,
    "one way": lambda n, a, b: [(1, walk(n, a, 1, (b - a) % n))],
    "line": lambda n, a, b: [(1, walk(n, a, 1 if b > a else -1, abs(b - a)))],
    "switch": lambda n, a, b: [(1, [(a, "out")] if a != b else [])],
    "doubling": in_bits,
}


def devices(axes):
    return [*product(*(range(n) for n, _ in axes))]


def moved(device, i, to):
    return (*device[:i], to, *device[i + 1 :])


def exchange(axes):
    """Return what each link carries when all send a piece to each: axis after axis."""
    loads = Counter()
    for start, goal in product(devices(axes), repeat=2):
        at = start
        for i, (n, way) in enumerate(axes):
            for share, links in ROUTES[way](n, at[i], goal[i]):
                for place, port in links:
                    loads[i, moved(at, i, place), port] += share
            at = moved(at, i, goal[i])
        assert at == goal
    return Fraction(max(loads.values(), default=0)) / len(devices(axes))


def copied(n, way, start):
    """Return what links carry of a block that all n need: a copy stays on its way."""
    if way in ("switch", "doubling"):  # each copy is one of n - 1 messages
        return {(start, "out"): n - 1}
    loads = Counter()
    for goal in range(n):
        for share, links in ROUTES[way](n, start, goal):
            loads |= Counter(dict.fromkeys(links, share))
    return loads


def gather(axes):
    """Return what the busiest link carries when each block goes to all, in parts."""
    long = [i for i, (n, _) in enumerate(axes) if n > 1]
    loads = Counter()
    for first in range(len(long)):
        count = 1
        for i in long[first:] + long[:first]:
            for device in devices(axes):
                for (place, port), share in copied(*axes[i], device[i]).items():
                    part = Fraction(count, len(long)) * share
                    loads[i, moved(device, i, place), port] += part
            count *= axes[i][0]
    return max(loads.values(), default=Fraction())


@pytest.mark.parametrize("axes", LINES + BRICKS, ids=str)
def test_the_busiest_link_is_that_of_a_schedule_played_out(axes):
    count, gathered = len(devices(axes)), gather(axes)
    assert link_load("all-gather", axes) == gathered
    assert link_load("reduce-scatter", axes) == gathered / count
    assert link_load("all-reduce", axes) == 2 * gathered / count
    assert link_load("all-to-all", axes) == exchange(axes)


STEPS = {"one way": 4 + 7, "both ways": 2 + 4, "line": 4 + 7}  # on five, on eight
STEPS |= {"switch": 4 + 7, "doubling": 3 + 3}


@pytest.mark.parametrize("way", WAYS)
def test_steps_of_axes_add_up(way):
    axes = [(5, way), (1, "line"), (8, way)]
    assert hops("all-gather", axes) == STEPS[way]
    assert hops("all-reduce", axes) == 2 * STEPS[way]


def test_no_schedule_is_below_the_least_and_rings_of_one_length_reach_it():
    for kind, axes in product(KINDS, LINES + BRICKS):
        far, load = least(kind, axes)
        assert far <= hops(kind, axes)
        assert load <= link_load(kind, axes)
    for kind in "all-gather", "reduce-scatter", "all-reduce":
        for sizes in (5, 5), (4, 4, 4), (8,):
            torus = [(n, "both ways") for n in sizes]
            assert least(kind, torus)[1] == link_load(kind, torus)


# ------------------------------------------------------------------------------ costs


def test_an_all_reduce_of_the_page():
    sizes = (10_000, 14.175e-6, "latency"), (100_000_000, 1764e-6, "bandwidth")
    for operand, seconds, bound in sizes:
        cost = network_cost("all-reduce", operand, [(8, "one way")], 1e-6, 100e9)
        assert cost == (14, 1.75 * operand, pytest.approx(seconds), bound)


def test_nothing_is_sent_by_one_device_and_of_nothing():
    for kind in KINDS:
        assert network_cost(kind, 4096, [(1, "line")], *LINK) == (0, 0, 0, "bandwidth")
        assert network_cost(kind, 4096, [], *LINK)[:3] == (0, 0, 0)
        empty = network_cost(kind, 0, LINE, *LINK)
        assert empty == (hops(kind, LINE), 0, empty.steps * 1e-6, "latency")


def test_a_slice_of_tpus_is_a_torus_where_it_is_large_enough():
    """As Google's pages say of v5p, and the scaling book of v5e and v6e."""
    v5e, v5p, v6e = (MACHINES[f"TPU {name}"].axes for name in ("v5e", "v5p", "v6e"))
    assert {way for _, way in v5p[32] + v6e[64]} == {"line"}
    assert {way for _, way in v5p[64]} == {"both ways"}
    assert v5e[128] == ((8, "line"), (16, "both ways"))
