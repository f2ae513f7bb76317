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
COUNTS = 2, 4, 8, 16, 32, 64, 128, 256, 512
TWO = {16: (4, 4), 32: (4, 8), 64: (8, 8), 128: (8, 16), 256: (16, 16), 512: (16, 32)}
THREE = {64: (4, 4, 4), 128: (4, 4, 8), 256: (4, 8, 8), 512: (8, 8, 8)}
LINE = {count: (count,) for count in COUNTS}
INVENTED = {  # a way along each axis, and shapes
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
FIRST = 64  # devices at first, where there can be so many
MOST = 40  # the slider ends at 2 to this many bytes
SLIDER = f"""
<fieldset class="choice size"><legend>Operand on each device</legend><div>
<input type="range" max="{MOST}" aria-label="bytes, in powers of two">
<span class="number"><input type="number" name="bytes" value="{2**20}" min="0"
max="{2**MOST}" required aria-label="bytes"> bytes</span></div></fieldset>"""
SOURCES = "α and β from {}. What links can do at most; "  # noqa: RUF001
SOURCES += "other traffic and the start of a collective are left out."
NO_SOURCE = "α and β are invented. Find your own before you believe a time."  # noqa: RUF001
TYPICAL = {  # what stands there without script: kind and bytes
    "all-reduce, 1 KiB": ("all-reduce", 2**10),
    "all-reduce, 1 MiB": ("all-reduce", 2**20),
    "all-reduce, 1 GiB": ("all-reduce", 2**30),
    "all-gather, 1 MiB": ("all-gather", 2**20),
    "reduce-scatter, 1 MiB": ("reduce-scatter", 2**20),
    "all-to-all, 1 MiB": ("all-to-all", 2**20),
}


NETWORKS = MACHINES | {
    name: Machine(1e-6, 100e9, {n: [(k, way) for k in shapes[n]] for n in shapes}, ())
    for name, (way, shapes) in INVENTED.items()
}


def data() -> dict:
    """Return the menus, the links of each network, and the counts for each choice."""
    kinds, machines, others = (
        {name: name for name in names} for names in (KINDS, MACHINES, INVENTED)
    )
    menu = choice("kind", "Collective", kinds, "all-reduce")
    menu += choice("network", "Machine", machines, "TPU v5p")
    menu += choice("network", "Or a network whose link is invented", others, "")
    sizes, links = {}, {}
    for name, (alpha, beta, shapes, sources) in NETWORKS.items():
        devices, most = {str(n): str(n) for n in shapes}, min(FIRST, max(shapes))
        sizes[name] = choice("devices", "Devices", devices, str(most))
        if shapes[most][0][1] == "switch":
            sizes[name] += choice("how", "Algorithm", ALGORITHMS)
        found = ", ".join(f'<a href="{each}">{site(each)}</a>' for each in sources)
        words = SOURCES.format(found) if found else NO_SOURCE
        source = f'<p class="versions">{words}</p>'
        links[name] = {"alpha": alpha, "beta": beta, "source": source}
    return {
        "menus": [[[], {"": menu}], [["network"], sizes], [[], {"": SLIDER}]],
        "networks": links,
        "counts": {"|".join(key): counts(key, axes) for key, axes in choices()},
    }


def choices():
    """Yield all that can be chosen: kind, network, devices, algorithm; and its axes."""
    for name, machine in NETWORKS.items():
        for (count, axes), kind in product(machine.axes.items(), KINDS):
            for how in ALGORITHMS if axes[0][1] == "switch" else [None]:
                key = kind, name, str(count), *filter(None, [how])
                yield key, [(n, how or way) for n, way in axes]


def counts(key, axes) -> list:
    """Return steps, link load, the least that there can be, the network in words."""
    kind, name, count, *how = key
    words = [name, shape(NETWORKS[name].axes[int(count)]), *map(ALGORITHMS.get, how)]
    far, needed = least(kind, axes)
    load = float(link_load(kind, axes))
    return [hops(kind, axes), load, far, float(needed), ", ".join(words)]


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


def tables() -> dict[str, list[list[str]]]:
    """Return typical costs on each network, for those without script."""
    body = []
    for name, (alpha, beta, shapes, _) in NETWORKS.items():
        axes = shapes[min(FIRST, max(shapes))]
        costs = [cost(*each, axes, alpha, beta) for each in TYPICAL.values()]
        link = format_time(alpha), f"{beta / 1e9:g} GB/s"
        times = (f"{each.steps}: {format_time(each.seconds)}" for each in costs)
        body.append([f"{name}: {shape(axes)}", *link, *times])
    head = ["network", "a step takes", "a link carries", *TYPICAL]
    return {"Collectives of so many bytes a device: steps, and time": [head, *body]}
