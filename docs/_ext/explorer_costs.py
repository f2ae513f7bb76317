"""Data of the calculator of costs: steps and link loads of `ring_cost`.

The script multiplies and adds: `seconds = steps alpha + bytes load / beta`. All else is
counted here: for a collective on a network its steps, what the busiest link carries as
two whole numbers, over and under a line, and the same of the least.
"""

from pathlib import Path

from examples.ring_cost import KINDS, MACHINES, WAYS, Machine, hops, least, link_load
from examples.ring_cost import network_cost as cost

SOURCE = Path(__file__).parents[2] / "src/examples/ring_cost.py"
INVENTED = 1e-6, 100e9  # the link of the page
COUNTS = 2, 4, 8, 16, 32, 64, 128, 256, 512
TWO = {16: (4, 4), 32: (4, 8), 64: (8, 8), 128: (8, 16), 256: (16, 16), 512: (16, 32)}
THREE = {64: (4, 4, 4), 128: (4, 4, 8), 256: (4, 8, 8), 512: (8, 8, 8)}


def lines(way, sizes=COUNTS):
    """Return the axes of so many devices along one."""
    return {count: ((count, way),) for count in sizes}


def tori(way, shapes):
    """Return the axes of tori."""
    return {count: tuple((n, way) for n in shape) for count, shape in shapes.items()}


NETWORKS = {  # with the link of the page
    "ring, both ways": lines("both ways", COUNTS[1:]),
    "ring, one way": lines("one way"),
    "line": lines("line"),
    "torus, 2 axes": tori("both ways", TWO),
    "torus, 3 axes": tori("both ways", THREE),
    "grid, 2 axes": tori("line", TWO),
    "grid, 3 axes": tori("line", THREE),
    "switch": lines("switch"),
}
WORDS = {
    "both ways": "ring",
    "one way": "ring, one way",
    "line": "line",
    "switch": "switch",
    "doubling": "switch",
}
HOWS = {"switch": "one after another", "doubling": "doubling"}
SITES = {
    "https://jax-ml.github.io/scaling-book/": "How to Scale Your Model",
    "https://github.com/NVIDIA/nccl/": "NCCL, hwLat of a ring's step",
    "https://docs.cloud.google.com/": "Google Cloud",
}
MEANS = {
    "all-gather": "every device gets the operands of all",
    "reduce-scatter": "every device gets its part of the sum",
    "all-reduce": "every device gets the sum",
    "all-to-all": "every device sends a piece of its operand to each",
}
SIZES = 2**10, 2**20, 2**30
UNITS = {"seconds": ["s", "ms", "µs"], "bytes": ["B", "KiB", "MiB", "GiB", "TiB"]}


def networks() -> dict[str, Machine]:
    """Return machines, and networks whose link is invented."""
    return MACHINES | {n: Machine(*INVENTED, axes, ()) for n, axes in NETWORKS.items()}


def hows(axes) -> list[str]:
    """Return the algorithms on such a network: a switch has two."""
    return [*HOWS] if all(way in HOWS for _, way in axes) else [""]


def with_algorithm(axes, how):
    """Return the axes with the algorithm that is chosen."""
    return tuple((n, how or way) for n, way in axes)


def shape(axes) -> str:
    """Return axes in words: `8 (line) x 16 (ring)`, `4 x 4 x 4 (ring)`."""
    ways = [WORDS[way] for _, way in axes]
    if len({*ways}) == 1:
        return f"{' x '.join(str(n) for n, _ in axes)} ({ways[0]})"
    return " x ".join(f"{n} ({way})" for (n, _), way in zip(axes, ways, strict=True))


def count_costs(kind, axes) -> list[int]:
    """Return steps and load of a collective, and of the least that there can be."""
    far, needed = least(kind, axes)
    load = link_load(kind, axes)
    over = load.numerator, load.denominator, needed.numerator, needed.denominator
    return [hops(kind, axes), *over[:2], far, *over[2:]]


def data() -> dict:
    """Return for each network its link, and for each size and algorithm the counts."""
    return {
        "kinds": MEANS,
        "hows": HOWS,
        "units": UNITS,
        "machines": len(MACHINES),
        "networks": {name: network(*each) for name, each in networks().items()},
    }


def network(alpha, beta, shapes, sources) -> dict:
    """Return the data of a network for the script."""
    return {
        "alpha": alpha,
        "beta": beta,
        "sources": [[site(address), address] for address in sources],
        "shapes": {count: shape(axes) for count, axes in shapes.items()},
        "counts": {
            how: {
                count: [count_costs(kind, with_algorithm(axes, how)) for kind in MEANS]
                for count, axes in shapes.items()
            }
            for how in hows(next(iter(shapes.values())))
        },
    }


def site(address) -> str:
    """Return the name of a source, and where in it."""
    name, rest = next(
        (name, address.removeprefix(start))
        for start, name in SITES.items()
        if address.startswith(start)
    )
    return f"{name}: {rest.strip('/').rpartition('/')[2]}"


def time(seconds) -> str:
    """Return a time in words: `14 µs`, `1.76 ms`."""
    unit, name = next(
        ((10**-n, name) for n, name in ((0, "s"), (3, "ms")) if seconds >= 10**-n),
        (1e-6, "µs"),
    )
    return f"{float(f'{seconds / unit:.3g}'):,g} {name}"


def typical() -> list[tuple[str, int]]:
    """Return a middle and the largest size of machines, 64 devices of others."""
    ends = [
        (name, count)
        for name, each in MACHINES.items()
        for count in ([*each.axes][len(each.axes) // 2], [*each.axes][-1])
    ]
    return ends + [(name, 64) for name in NETWORKS]


def row(name, count, cells) -> list[str]:
    """Return a line of a table: for each pair of kind and size, steps and time."""
    alpha, beta, shapes, _ = networks()[name]
    found = [cost(kind, size, shapes[count], alpha, beta) for kind, size in cells]
    costs = (f"{each.steps}: {time(each.seconds)}" for each in found)
    return [f"{name}: {shape(shapes[count])}", *costs]


def tables() -> dict[str, list[list[str]]]:
    """Return typical costs, for those without script."""
    links = [
        [name, time(each.alpha), f"{each.beta / 1e9:g} GB/s"]
        for name, each in MACHINES.items()
    ]
    sizes = [("all-reduce", size) for size in SIZES]
    kinds = [(kind, SIZES[1]) for kind in MEANS]
    return {
        "Links: what a step takes, and what passes each way": [
            ["machine", "alpha", "beta"],
            *links,
        ],
        "An all-reduce of so many bytes a device: steps, and time": [
            ["network", "1 KiB", "1 MiB", "1 GiB"],
            *(row(*each, sizes) for each in typical()),
        ],
        "Collectives of 1 MiB a device: steps, and time": [
            ["network", *MEANS],
            *(row(*each, kinds) for each in typical()),
        ],
    }


assert [*MEANS] == [*KINDS], "each collective has its words"
assert {*WORDS} == {*WAYS}, "each way has its word"
