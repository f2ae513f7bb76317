# SPDX-License-Identifier: MIT-0
"""What a collective costs on a ring, a torus or a switch: steps, bytes, seconds.

P devices along a mesh axis form a ring. What every device must have goes all the way
round, a neighbour at a time; a sum grows at every device that it passes.

    kind             bytes sent of an operand of b bytes        rounds
    all-gather       (P - 1) b                                  P - 1
    reduce-scatter   (P - 1) / P b                              P - 1
    all-reduce       2 (P - 1) / P b                            2 (P - 1)
    all-to-all       (P - 1) / P b, each piece straight there   P - 1
    doubling         k b, an all-reduce of P = 2^k in pairs     k

A round is a message whose latency the next one waits for. Both ways round at once, a
ring is done in half the rounds, rounded up, and the bytes are the same.

A network has axes, each `(n, way)`, in the way of `WAYS`. Data are cut into as many
parts as there are axes, and each part begins on another axis, so that all links work.
Of this `hops` counts the steps that follow one another, `link_load` the bytes that the
busiest link carries, those that only pass a device among them. `network_cost` is

    t = hops alpha + link_load b / beta

    alpha  seconds a step takes, however small the message
    beta   bytes a second through a link, each way

Nothing is run, and no device is asked. Work that overlaps, other programs on the links
and what starting a collective takes are left out.

    JAX_NUM_CPU_DEVICES=8 python ring_cost.py

Copy this file alone: it needs JAX only.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import inf, prod
from numbers import Integral
from typing import NamedTuple

import jax

PIECES = {  # what one device of P sends, in P-ths of its operand
    "all-gather": lambda size: size * (size - 1),
    "reduce-scatter": lambda size: size - 1,
    "all-reduce": lambda size: 2 * (size - 1),
    "all-to-all": lambda size: size - 1,
    "doubling": lambda size: size * (size.bit_length() - 1),
}


# -------------------------------------------------------------------------- a ring


def check_kind(kind: str, size: int):
    """Raise ValueError unless so many devices can take part in such a collective."""
    if kind not in PIECES:
        raise ValueError(f"{kind!r} is no collective of {[*PIECES]}")
    if size < 1 or (kind == "doubling" and size & (size - 1)):
        raise ValueError(f"{size} devices: pass 1 or more, for doubling a power of two")


def check_ways(ways: int):
    """Raise ValueError unless a ring can be passed round in so many ways."""
    if not isinstance(ways, Integral) or ways not in (1, 2):
        raise ValueError(f"a ring has 1 or 2 ways round, not {ways}")


def ring_bytes(kind: str, operand: int, size: int) -> int:
    """Return how many bytes one of `size` devices sends of its `operand` bytes.

    `kind` is XLA's name of a collective, such as "all-gather", or "doubling". Raises
    ValueError if it is another one, or `size` is not a power of two for doubling.
    """
    check_kind(kind, size)
    return -(-PIECES[kind](size) * operand // size)


def ring_rounds(kind: str, size: int, ways: int = 1) -> int:
    """Return how many messages follow one another before the collective is done.

    `kind` is XLA's name of a collective, such as "all-gather", or "doubling". Raises
    ValueError if it is another one, or `ways` is not 1 or 2.
    """
    check_kind(kind, size)
    check_ways(ways)
    once_round = -(-(size - 1) // ways)
    rounds = {"all-gather": once_round, "reduce-scatter": once_round}
    rounds |= {"all-reduce": 2 * once_round, "all-to-all": size - 1}
    rounds |= {"doubling": size.bit_length() - 1}
    return rounds[kind]


# ----------------------------------------------------------------------- a network


class Way(NamedTuple):
    """What passing everything along an axis of n devices takes.

    `hops` follow one another, `far` of them lead to the farthest device, and `links`
    leave a device, on average. The busiest carries `gathered` blocks when each device
    has one for all others, `exchanged` pieces when it has another for each.
    """

    hops: int
    far: int
    links: Fraction
    gathered: Fraction
    exchanged: Fraction


def _both_ways(n: int) -> Way:
    """A ring: a half of what is farthest goes either way."""
    return Way(n // 2, n // 2, 2, Fraction(n - 1, 2), Fraction(n * n // 4, 2))


def _one_way(n: int) -> Way:
    """A ring whose devices send to the next one only."""
    return Way(n - 1, n - 1, 1, n - 1, n * (n - 1) // 2)


def _open_ring(n: int) -> Way:
    """A ring that is cut at one place; the busiest link is at an end, or amid."""
    return Way(n - 1, n - 1, Fraction(2 * (n - 1), n), n - 1, n * n // 4)


def _switch(n: int) -> Way:
    """Each device has one link to a switch, and serves the others in turn."""
    return Way(n - 1, 1, 1, n - 1, n - 1)


def _doubling(n: int) -> Way:
    """On a switch, with all that a device has in one message, to 1, 2, 4 ... away."""
    passed = sum(away.bit_count() for away in range(n))  # pieces take a hop a bit
    return Way((n - 1).bit_length(), 1, 1, n - 1, passed)


WAYS = {
    "both ways": _both_ways,
    "one way": _one_way,
    "line": _open_ring,
    "switch": _switch,
    "doubling": _doubling,
}
KINDS = "all-gather", "reduce-scatter", "all-reduce", "all-to-all"
Axes = Sequence[tuple[int, str]]


class Cost(NamedTuple):
    """Steps that follow one another, bytes over the busiest link, and the time.

    `bound` says which of the two takes longer, "latency" or "bandwidth".
    """

    steps: int
    link_bytes: float
    seconds: float
    bound: str


def check_network(kind: str, axes: Axes):
    """Raise ValueError unless this is a collective, and these are axes of a network."""
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no collective of {[*KINDS]}")
    for n, way in axes:
        if not isinstance(n, Integral) or n < 1 or way not in WAYS:
            raise ValueError(f"{(n, way)} is no axis: pass 1 or more, and of {[*WAYS]}")


def hops(kind: str, axes: Axes) -> int:
    """Return how many steps of a collective follow one another in such a network.

    Raises ValueError for a `kind` or a way that is none.
    """
    check_network(kind, axes)
    return (1 + (kind == "all-reduce")) * sum(WAYS[way](n).hops for n, way in axes)


def link_load(kind: str, axes: Axes) -> Fraction:
    """Return what the busiest link carries, in operands of one device.

    Raises ValueError for a `kind` or a way that is none.
    """
    check_network(kind, axes)
    long = [(n, WAYS[way](n)) for n, way in axes if n > 1]
    if kind == "all-to-all":
        return max((Fraction(way.exchanged) / n for n, way in long), default=Fraction())
    sizes = [n for n, _ in long]
    once = (_before(sizes, i) * way.gathered for i, (_, way) in enumerate(long))
    return max(once, default=Fraction()) * _share(kind, prod(sizes))


def _before(sizes: list[int], i: int) -> Fraction:
    """Return how many blocks are one when they come to axis `i`, mean of all parts.

    A part has passed none of the others, or that before it, or two of them ...
    """
    counts = range(len(sizes))
    passed = (prod(sizes[i - k] for k in range(1, count + 1)) for count in counts)
    return Fraction(sum(passed), len(sizes))


def _share(kind: str, count: int) -> Fraction:
    """Return how large a block is, in operands, and both times of an all-reduce."""
    return Fraction(1 + (kind == "all-reduce"), 1 if kind == "all-gather" else count)


def network_cost(
    kind: str, operand: int, axes: Axes, alpha: float, beta: float
) -> Cost:
    """Return what a collective costs whose operand has so many bytes on each device.

    Raises ValueError for a `kind` or a way that is none, and for an operand or a link
    that no machine has.
    """
    check_link(operand, alpha, beta)
    steps, sent = hops(kind, axes), float(operand * link_load(kind, axes))
    latency, bandwidth = steps * alpha, sent / beta
    bound = "latency" if latency > bandwidth else "bandwidth"
    return Cost(steps, sent, latency + bandwidth, bound)


def check_link(operand: int, alpha: float, beta: float):
    """Raise ValueError unless an operand is some bytes, and a link can send them."""
    if not isinstance(operand, Integral) or operand < 0:
        raise ValueError(
            f"an operand of {operand} bytes: pass a whole number, 0 or more"
        )
    if not (0 <= alpha < inf and 0 < beta < inf):
        raise ValueError(f"a link of {alpha} s and {beta} B/s: pass 0 or more, above 0")


def least(kind: str, axes: Axes) -> tuple[int, Fraction]:
    """Return the hops and operands a link without which no algorithm can do.

    The farthest device is so far, and what each device must get comes over its links.
    """
    check_network(kind, axes)
    ways, count = [WAYS[way](n) for n, way in axes if n > 1], prod(n for n, _ in axes)
    needed = (count - 1) * _share(kind, count)
    links = sum(way.links for way in ways) or 1  # one device has none, and needs none
    return sum(way.far for way in ways), Fraction(needed) / links


# ------------------------------------------------------------------------ machines


class Machine(NamedTuple):
    """A machine's links: alpha in seconds, beta in bytes a second, each way.

    `axes` has the network of so many devices; `sources` tell alpha, beta and which
    slices are rings.
    """

    alpha: float
    beta: float
    axes: dict[int, Axes]
    sources: tuple[str, ...]


def _slices(shapes: str, wraps) -> dict[int, Axes]:
    """Return the axes of slices such as 4x8; `wraps` of (n, all sizes) is a ring."""
    slices = [tuple(map(int, shape.split("x"))) for shape in shapes.split()]
    ways = {True: "both ways", False: "line"}
    return {prod(s): tuple((n, ways[wraps(n, s)]) for n in s) for s in slices}


def _switched(*sizes: int) -> dict[int, Axes]:
    """Return the axes of so many devices on one switch."""
    return {n: ((n, "switch"),) for n in sizes}


BOOK = "https://jax-ml.github.io/scaling-book"
TPUS = f"{BOOK}/sharding/", f"{BOOK}/tpus/"  # a hop of 1 us; bytes a link, one way
NCCL = "https://github.com/NVIDIA/nccl/blob/master/src/graph/tuning.cc"
GPUS = NCCL, f"{BOOK}/gpus/"  # its hwLat of a ring's step, protocol Simple
V5P = "https://docs.cloud.google.com/tpu/docs/v5p"
SMALL = _slices("2x2 2x4 4x4 4x8 8x8 8x16 16x16", lambda n, _: n == 16)
LARGE = _slices("2x2x1 2x2x2 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8", lambda _, s: min(s) >= 4)
MACHINES = {  # bandwidths are what links can do at most; latencies are rough
    "TPU v5e": Machine(1e-6, 45e9, SMALL, TPUS),
    "TPU v5p": Machine(1e-6, 90e9, LARGE, (*TPUS, V5P)),
    "TPU v6e": Machine(1e-6, 90e9, SMALL, TPUS),
    "A100, NVLink": Machine(3.4e-6, 300e9, _switched(2, 4, 8), GPUS),
    "H100, NVLink": Machine(3.4e-6, 450e9, _switched(2, 4, 8), GPUS),
    "GB200, NVLink": Machine(3.4e-6, 900e9, _switched(2, 4, 8, 16, 32, 64), GPUS),
    "H100, InfiniBand": Machine(  # one GPU of each host
        14e-6, 50e9, _switched(2, 4, 8, 16, 32, 64, 128, 256, 512), GPUS
    ),
}


def main():
    """Print what a megabyte costs in each collective, among all devices there are."""
    size = jax.device_count()
    for kind in PIECES:
        if kind != "doubling" or not size & (size - 1):
            sent, rounds = ring_bytes(kind, 2**20, size), ring_rounds(kind, size)
            print(f"{kind:14} {sent:9} bytes a device, {rounds} rounds")
    for name, (alpha, beta, shapes, _) in MACHINES.items():
        for axes in shapes.values():
            time = 1e6 * network_cost("all-reduce", 2**20, axes, alpha, beta).seconds
            shape = " x ".join(f"{n} {way}" for n, way in axes)
            print(f"{name:16} {shape:40} all-reduce {time:7.1f} microseconds")


if __name__ == "__main__":
    main()
