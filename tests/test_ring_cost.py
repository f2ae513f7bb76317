import pytest

from examples.communication import RING, Collective
from examples.ring_cost import PIECES, ring_bytes, ring_rounds


@pytest.mark.parametrize("kind", sorted(PIECES.keys() & RING.keys()))
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_measuring_a_program_counts_the_same_bytes(kind, size):
    """`communication` reads compiled text alone, and so has factors of its own."""
    for operand in 8, 100, 4096:
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


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6])
def test_both_ways_round_an_odd_ring_and_an_even_one(size):
    assert ring_rounds("all-gather", size, ways=2) == size // 2
    assert ring_rounds("all-reduce", size, ways=2) == 2 * (size // 2)


def test_a_collective_of_another_name_has_no_price():
    with pytest.raises(ValueError, match="'psum' is no collective of"):
        ring_bytes("psum", 1, 8)
    with pytest.raises(ValueError, match="'psum' is no collective of"):
        ring_rounds("psum", 8)


def test_bytes_are_rounded_up():
    assert ring_bytes("all-reduce", 100, 8) == 175
    assert ring_bytes("reduce-scatter", 1, 8) == 1


@pytest.mark.parametrize("ways", [0, 3, 1.0])
def test_a_third_way_round_is_refused(ways):
    with pytest.raises(ValueError, match=f"1 or 2 ways round, not {ways}"):
        ring_rounds("all-gather", 8, ways)


@pytest.mark.parametrize("f", [ring_bytes, ring_rounds])
def test_what_cannot_pair_up_has_no_price(f):
    more = (8,) if f is ring_bytes else ()
    for kind, size in ("doubling", 6), ("doubling", 12), ("all-gather", 0):
        with pytest.raises(ValueError, match=f"{size} devices: pass 1 or more"):
            f(kind, *more, size)
