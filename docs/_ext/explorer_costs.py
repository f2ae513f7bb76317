"""Data of the calculator of costs: steps and link loads of `ring_cost`.

The script multiplies and adds: `seconds = steps alpha + bytes load / beta`. All else is
counted here.
"""

from itertools import product
from pathlib import Path

from explorers import choice

from examples.ring_cost import KINDS, MACHINES, Machine, hops, least, link_load
from examples.ring_cost import network_cost as cost

SOURCE = Path(__file__).parents[2] / "src/examples/ring_cost.py"
INVENTED = 1e-6, 100e9  # the link of the page
COUNTS = 2, 4, 8, 16, 32, 64, 128, 256, 512
TWO = {16: (4, 4), 32: (4, 8), 64: (8, 8), 128: (8, 16), 256: (16, 16), 512: (16, 32)}
THREE = {64: (4, 4, 4), 128: (4, 4, 8), 256: (4, 8, 8), 512: (8, 8, 8)}
LINE = {count: (count,) for count in COUNTS}
NETWORKS = {  # a way along each axis, and shapes
    "ring, both ways": ("both ways", {n: LINE[n] for n in COUNTS[1:]}),
    "ring, one way": ("one way", LINE),
    "line": ("line", LINE),
    "torus, 2 axes": ("both ways", TWO),
    "torus, 3 axes": ("both ways", THREE),
    "grid, 2 axes": ("line", TWO),
    "grid, 3 axes": ("line", THREE),
    "switch": ("switch", LINE),
}
WORDS = {"both ways": "ring", "one way": "ring, one way"}
ALGORITHMS = {"switch": "one after another", "doubling": "doubling"}  # on a switch
SITES = {
    "https://jax-ml.github.io/scaling-book/": "How to Scale Your Model",
    "https://github.com/NVIDIA/nccl/": "NCCL, hwLat of a ring's step",
    "https://docs.cloud.google.com/": "Google Cloud",
}
MOST = 40  # the slider ends at 2 to this many bytes
SLIDER = f"""
<fieldset class="choice size"><legend>Operand on each device</legend><div>
<input type="range" max="{MOST}" aria-label="bytes, in powers of two">
<span class="number"><input type="number" name="bytes" value="{2**20}" min="0"
max="{2**MOST}" required aria-label="bytes"> bytes</span></div></fieldset>"""
SOURCES = (
    "α and β from {}. What links can do at most; other traffic and the start of a "  # noqa: RUF001
    "collective are left out."
)
NO_SOURCES = "α and β are invented. Find your own before you believe a time."  # noqa: RUF001
SIZES = 2**10, 2**20, 2**30


def networks() -> dict[str, Machine]:
    """Return machines, and networks whose link is invented."""
    return MACHINES | {
        name: Machine(*INVENTED, {n: [(k, way) for k in shapes[n]] for n in shapes}, ())
        for name, (way, shapes) in NETWORKS.items()
    }


def data() -> dict:
    """Return the menus, the links of each network, and the counts for each choice."""
    kinds, machines, others = (
        {name: name for name in names} for names in (KINDS, MACHINES, NETWORKS)
    )
    menu = choice("kind", "Collective", kinds, "all-reduce")
    menu += choice("network", "Machine", machines, "TPU v5p")
    menu += choice("network", "Or a network whose link is invented", others, "")
    sizes = {name: sizes_menu(machine.axes) for name, machine in networks().items()}
    return {
        "menus": [[[], {"": menu}], [["network"], sizes]],
        "networks": {name: link(*of) for name, of in networks().items()},
        "counts": {"|".join(key): counts(key, axes) for key, axes in all_choices()},
        "variants": {},
    }


def sizes_menu(shapes) -> str:
    """Return the choices of devices, of an algorithm on a switch, and of bytes."""
    options = {str(count): str(count) for count in shapes}
    menu = choice("devices", "Devices", options, str(min(64, max(shapes))))
    how = choice("how", "Algorithm", ALGORITHMS) if is_switch(shapes) else ""
    return menu + how + SLIDER


def is_switch(shapes) -> bool:
    """Return whether a network is a switch, which has two algorithms."""
    return all(axes[0][1] == "switch" for axes in shapes.values())


def link(alpha, beta, shapes, sources) -> dict:
    """Return the link of a network, and where it comes from."""
    links = ", ".join(f'<a href="{each}">{site(each)}</a>' for each in sources)
    words = SOURCES.format(links) if links else NO_SOURCES
    return {"alpha": alpha, "beta": beta, "source": f'<p class="versions">{words}</p>'}


def all_choices():
    """Yield all that can be chosen: kind, network, devices, algorithm; and its axes."""
    for name, machine in networks().items():
        ways = ALGORITHMS if is_switch(machine.axes) else [""]
        for (count, axes), way, kind in product(machine.axes.items(), ways, KINDS):
            key = kind, name, str(count), *filter(None, [way])
            yield key, [(n, way or own) for n, own in axes]


def counts(key, axes) -> list:
    """Return steps, link load, the least that there can be, the network in words."""
    kind, name, count, *how = key
    words = [name, shape(networks()[name].axes[int(count)]), *map(ALGORITHMS.get, how)]
    far, needed = map(float, least(kind, axes))
    load = float(link_load(kind, axes))
    return [hops(kind, axes), load, far, needed, ", ".join(words)]


def shape(axes) -> str:
    """Return axes in words: `8 (line) x 16 (ring)`, `4 x 4 x 4 (ring)`."""
    ways = [WORDS.get(way, way) for _, way in axes]
    if len({*ways}) == 1:
        return f"{' x '.join(str(n) for n, _ in axes)} ({ways[0]})"
    return " x ".join(f"{n} ({way})" for (n, _), way in zip(axes, ways, strict=True))


def site(address) -> str:
    """Return the name of a source, and where in it."""
    (name,) = (SITES[start] for start in SITES if address.startswith(start))
    return f"{name}: {address.strip('/').rpartition('/')[2]}"


def format_time(seconds) -> str:
    """Return a time in words: `14 µs`, `1.76 ms`."""
    unit, name = (1, "s") if seconds >= 1 else (1e-3, "ms")
    if seconds < 1e-3:
        unit, name = 1e-6, "µs"
    return f"{float(f'{seconds / unit:.3g}'):,g} {name}"


def typical() -> list[tuple[str, int]]:
    """Return a middle and the largest size of machines, 64 devices of others."""
    found = []
    for name, machine in MACHINES.items():
        sizes = [*machine.axes]
        found += [(name, sizes[len(sizes) // 2]), (name, sizes[-1])]
    return found + [(name, 64) for name in NETWORKS]


def line(name, count, cells) -> list[str]:
    """Return a line of a table: for each pair of kind and size, steps and time."""
    alpha, beta, shapes, _ = networks()[name]
    found = [cost(kind, size, shapes[count], alpha, beta) for kind, size in cells]
    costs = (f"{each.steps}: {format_time(each.seconds)}" for each in found)
    return [f"{name}: {shape(shapes[count])}", *costs]


def tables() -> dict[str, list[list[str]]]:
    """Return typical costs, for those without script."""
    sizes = [("all-reduce", size) for size in SIZES]
    kinds = [(kind, SIZES[1]) for kind in KINDS]
    return {
        "Links: what a step takes, and what passes each way": [
            ["machine", "alpha", "beta"],
            *(
                [name, format_time(alpha), f"{beta / 1e9:g} GB/s"]
                for name, (alpha, beta, _, _) in MACHINES.items()
            ),
        ],
        "An all-reduce of so many bytes a device: steps, and time": [
            ["network", "1 KiB", "1 MiB", "1 GiB"],
            *(line(*each, sizes) for each in typical()),
        ],
        "Collectives of 1 MiB a device: steps, and time": [
            ["network", *KINDS],
            *(line(*each, kinds) for each in typical()),
        ],
    }
