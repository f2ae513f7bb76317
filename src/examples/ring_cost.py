# SPDX-License-Identifier: MIT-0
"""What a collective costs on a ring: bytes that a device sends, and rounds of messages.

P devices along a mesh axis form a ring. What every device must have goes all the way
round, a neighbour at a time; a sum grows at every device that it passes.

    kind             bytes sent of an operand of b bytes        rounds
    all-gather       (P - 1) b                                  P - 1
    reduce-scatter   (P - 1) / P b                              P - 1
    all-reduce       2 (P - 1) / P b                            2 (P - 1)
    all-to-all       (P - 1) / P b, each piece straight there   P - 1
    doubling         k b, an all-reduce of P = 2^k in pairs     k

A round is a message whose latency the next one waits for. Both ways round at once, a
ring is done in half the rounds, rounded up, and the bytes are the same. Nothing is run.

    JAX_NUM_CPU_DEVICES=8 python ring_cost.py

Copy this file alone: it needs JAX only.
"""

from numbers import Integral

import jax

PIECES = {  # what one device of P sends, in P-ths of its operand
    "all-gather": lambda size: size * (size - 1),
    "reduce-scatter": lambda size: size - 1,
    "all-reduce": lambda size: 2 * (size - 1),
    "all-to-all": lambda size: size - 1,
    "doubling": lambda size: size * (size.bit_length() - 1),
}


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


def main():
    """Print what a megabyte costs in each collective, among all devices there are."""
    size = jax.device_count()
    for kind in PIECES:
        if kind != "doubling" or not size & (size - 1):
            sent, rounds = ring_bytes(kind, 2**20, size), ring_rounds(kind, size)
            print(f"{kind:14} {sent:9} bytes a device, {rounds} rounds")


if __name__ == "__main__":
    main()
