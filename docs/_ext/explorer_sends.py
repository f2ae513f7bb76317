"""Data of the explorer of sends: the answers of three compilers, from sends.csv."""

import re
from functools import cache
from pathlib import Path

from explorers import UniqueList, index_rows

from book.facts import facts

SOURCE = Path(__file__).parents[1] / "reference/data/sends.csv"
MACHINES = ["CPU", "TPU v5p", "H100"]
PRODUCT, RESHARD = "x @ w", "jax.reshard(x, to)"
NAMES = {"-": "None", "xy": '("x", "y")', "yx": '("y", "x")'}
UNITS = (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")
PARTS = {"x": 2, "y": 4, "(x,y)": 8, "(y,x)": 8}  # of an axis cut over these
FRONT_PAGE = {  # the front page asks a few of them
    "lines": [
        "w - 0.1 * jax.grad(loss)(w, x)",
        "x + y",
        "x.T",
        "x.sum()",
        "x.sum(0)",
        "jax.nn.softmax(x)",
        "jnp.cumsum(x, 0)",
        "jnp.sort(x, 0)",
        "x.argmax(0)",
        "x[2:6]",
        "x.at[2:6].set(0)",
        "jnp.roll(x, 1, 0)",
        "jnp.concatenate([x, y])",
        "jnp.fft.fft2(x)",
    ],
    "specs": {
        "xy,-": "by rows",
        "-,xy": "by columns",
        "x,y": "in blocks",
        "x,-": "halves, 4 copies",
    },
}
AXES = "x", "y", "x,y"
MEANS = {  # what a device has after each, once a group
    "all-gather": "every device of a group gets the parts of the others",
    "all-reduce": "every device of a group gets the sum (or maximum) of all",
    "reduce-scatter": "every device of a group gets its part of the sum",
    "all-to-all": "every device of a group sends a piece to each other one",
    "collective-permute": "devices send to one other device each",
}


@cache
def rows() -> dict[tuple[str, str, str, str], dict[str, str]]:
    """Return the rows of the table: (line, specs, result, machine) -> row."""
    return index_rows(SOURCE, ("line", "specs", "result", "machine"))


def format_bytes(count) -> str:
    """Return bytes in words: `16 MiB`, `1.5 KiB`, `nothing`."""
    count = float(count)
    for unit, name in UNITS:
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return "nothing"


def spec(text) -> str:
    """Return the code of a spec that the table writes as `xy,-`."""
    dims = (NAMES.get(dim, f'"{dim}"') for dim in text.split(","))
    return f"P({', '.join(dims)})"


def lines() -> list[str]:
    """Return the operations of the table, in their order."""
    every = dict.fromkeys(line for line, *_ in rows())
    return [line for line in every if line not in (PRODUCT, RESHARD)]


def specs(line) -> list[str]:
    """Return the specs of a line's first operand in the table, in their order."""
    return [*dict.fromkeys(key[1].split()[0] for key in rows() if key[0] == line)]


def results() -> list[str]:
    """Return the specs that a product's result is asked for; the first is none."""
    return [*dict.fromkeys(key[2] for key in rows() if key[0] == PRODUCT)]


def step(text) -> list[str]:
    """Return a collective of the table as [its name, what it moves]."""
    times, kind, _, size, _, _, axes = text.split(" ")
    often = "" if times == "1" else f"{times} times "
    over = "" if axes == "?" else f" over {axes.replace(',', ' and ')}"
    return [kind, f"{often}{format_bytes(size)}{over}", axes]


def trim(words) -> str:
    """Return the type under Explicit axes with specs in place of whole shardings."""
    return re.sub(r"NamedSharding\(mesh=.*?spec=(P\(.*?\))\)", r"\1", words)


def data() -> dict:
    """Return all answers, each once, and for each question their numbers."""
    answers, types, steps = UniqueList(), UniqueList(), UniqueList()

    def found(line, places, result):
        three = [rows()[line, places, result, machine] for machine in MACHINES]
        most = max(float(row["sent"]) for row in three) or 1
        parts = [round(float(row["sent"]) / most, 3) for row in three]
        return [*map(number, three), types.index_of(trim(three[0]["explicit"])), parts]

    def number(row):
        texts = (text for text in row["collectives"].split("; ") if text)
        own = [steps.index_of(step(text)) for text in texts]
        sizes = [format_bytes(row["sent"]), format_bytes(row["held"])]
        return answers.index_of([own, *sizes, types.index_of(row["output"])])

    cuts, orders = specs(lines()[0]), specs(RESHARD)
    return {
        "machines": MACHINES,
        "parts": PARTS,
        "versions": versions(),
        "means": MEANS,
        "lines": lines(),
        "specs": {name: spec(name) for name in orders},
        "pictures": pictures(orders),
        "exchanges": exchanges(),
        "results": results(),
        "door": FRONT_PAGE,
        "operation": [[found(line, cut, "") for cut in cuts] for line in lines()],
        "product": [
            [[found(PRODUCT, f"{x} {w}", to) for to in results()] for w in cuts]
            for x in cuts
        ],
        "reshard": [[found(RESHARD, a, b) for b in orders] for a in orders],
        "answers": answers,
        "steps": steps,
        "types": types,
    }


def pictures(specs) -> dict[str, str]:
    """Return a picture of an array with each spec, in the colours of its devices."""
    import jax  # noqa: PLC0415  (a second, which only a build of this data waits for)

    from examples.pictures import draw  # noqa: PLC0415

    def picture(text):
        dims = ({"-": None}.get(dim, tuple(dim)) for dim in text.split(","))
        svg = draw(jax.P(*dims), (16, 32)).at(200)
        svg = re.sub(r"<title>.*?</title>", "", svg)  # a reader reads the spec
        blocks = re.findall(r"<g>.*?</g>", svg)  # without the names of its axes
        points = re.findall(r"([\d.]+),([\d.]+)", "".join(blocks))
        x, y = (sorted(map(float, each)) for each in zip(*points, strict=True))
        box = f"{x[0] - 1} {y[0] - 1} {x[-1] - x[0] + 2} {y[-1] - y[0] + 2}"
        return (
            f'<svg viewBox="{box}" font-family="system-ui, sans-serif" font-size="11" '
            f'text-anchor="middle" aria-hidden="true">{"".join(blocks)}</svg>'
        )

    with jax.set_mesh(jax.make_mesh((2, 4), ("x", "y"))):
        return {text: picture(text) for text in specs}


def exchanges() -> dict[str, str]:
    """Return a picture for each collective and the axes that it goes over."""
    return {f"{kind} {axes}": exchange(kind, axes) for kind in MEANS for axes in AXES}


def exchange(kind, axes) -> str:
    """Draw the mesh: what device 0 sends to whom, and what each has afterwards.

    An arrow says who gets a part of device 0, not which way it takes.
    """
    together = [
        d for d in range(8) if "x" in axes or d < 4 if "y" in axes or d % 4 == 0
    ]
    goals = together[1:2] if kind == "collective-permute" else together[1:]
    parts = [device(d, together) for d in range(8)]
    arrows = "".join(map(arrow, goals))
    how = 'fill="none" stroke="currentColor" stroke-width="1.5"'
    return (
        '<svg viewBox="0 0 232 150" font-family="system-ui, sans-serif" font-size="14" '
        f'text-anchor="middle" aria-hidden="true">{"".join(parts)}'
        f"{strips(kind, together)}<g {how}>{arrows}</g></svg>"
    )


def corner(number) -> tuple[int, int]:
    """Return where a device begins: [2@x, 4@y] on the picture."""
    return 6 + 58 * (number % 4), 24 + 66 * (number // 4)


def arrow(number) -> str:
    """Draw the way from device 0 to another one."""
    (x, y), (end, top) = ((left + 23, up) for left, up in map(corner, (0, number)))
    line = f"M{x} {y + 42}L{end} {top - 2}"
    if number < 4:  # over those between
        line = f"M{x} {y - 1}C{x} {y - 20} {end} {y - 20} {end} {y - 2}"
    tip = f"M{end - 3} {top - 7}L{end} {top - 2}L{end + 3} {top - 7}"
    return f'<path d="{line}{tip}"/>'


def device(number, together) -> str:
    """Draw a device, pale where it takes no part."""
    x, y = corner(number)
    how = "" if number in together else ' opacity=".3"'
    return (
        f'<g{how}><rect x="{x}" y="{y}" width="46" height="24" rx="5" '
        f'fill="{facts().colours[number]}"/><text x="{x + 23}" y="{y + 17}" '
        f'fill="#0b0d10">{number}</text></g>'
    )


def strips(kind, together) -> str:
    """Draw what each device has after a collective, as a strip below it."""
    drawn = dict.fromkeys(together, "")
    lacks = ""
    for place, number in enumerate(together):
        x, y = corner(number)
        if kind == "reduce-scatter":
            lacks += f"M{x} {y + 27}h46v13h-46z"
        for other, path in held_areas(kind, together, place, x, y + 27):
            drawn[other] += path
    shown = (
        f'<path d="{d}" fill="{facts().colours[n]}"/>' for n, d in drawn.items() if d
    )
    return f'<path class="lacks" d="{lacks}"/>{"".join(shown)}'


def held_areas(kind, together, place, x, y):
    """Yield whose areas a device has in its strip from (x, y) on: (device, path)."""
    count = len(together)
    step = 46 / count
    if kind == "collective-permute":
        yield together[place - 1], box(x, y, 46, 13)
        return
    for n, other in enumerate(together):
        if kind == "all-gather":
            yield other, box(x + n * step, y, step, 13)
        elif kind == "all-to-all":  # a piece of each
            yield other, box(x + n * step, y, step / 2, 13)
        else:  # layers of a sum, whole or a part of it
            wide, at = (46, 0) if kind == "all-reduce" else (step, place * step)
            yield other, box(x + at, y + n * 13 / count, wide, 13 / count)


def box(x, y, wide, high) -> str:
    """Return an area as a path."""
    return f"M{x:.4g} {y:.4g}h{wide:.3g}v{high:.3g}h-{wide:.3g}z"


def versions() -> str:
    """Return what compiled, in a line."""
    row = next(iter(rows().values()))
    names = "jax", "libtpu", "jax-cuda13-plugin"
    return ", ".join([*(f"{name} {row[name]}" for name in names), row["date"]])


def cell(line, places, result="") -> str:
    """Return the bytes that a device sends, for each machine where they differ."""
    sent = [format_bytes(rows()[line, places, result, m]["sent"]) for m in MACHINES]
    return sent[0] if len({*sent}) == 1 else " / ".join(sent)


def few() -> dict[str, list[list[str]]]:
    """Return the table of the front page."""
    ways, asked = FRONT_PAGE["specs"], FRONT_PAGE["lines"]
    title = (
        "What each of eight devices sends, its arrays split in these ways "
        "(CPU / TPU v5p / H100 where they differ)"
    )
    body = ([f"`{line}`", *(cell(line, cut) for cut in ways)] for line in asked)
    return {title: [["", *ways.values()], *body]}


def tables() -> dict[str, list[list[str]]]:
    """Return the bytes that a device sends, as tables for those without script."""
    cuts, orders = specs(lines()[0]), specs(RESHARD)
    codes = [f"`{spec(cut)}`" for cut in cuts]
    three = "CPU / TPU v5p / H100 where they differ"
    return {
        f"Sent by a device, arrays in all these ways ({three})": [
            ["", *codes],
            *([f"`{line}`", *(cell(line, cut) for cut in cuts)] for line in lines()),
        ],
        f"`x @ w`, rows: x; columns: w ({three})": [
            ["", *codes],
            *(
                [f"`{spec(x)}`", *(cell(PRODUCT, f"{x} {w}") for w in cuts)]
                for x in cuts
            ),
        ],
        f"jax.reshard from spec (rows) to spec (columns) ({three})": [
            ["", *(f"`{spec(to)}`" for to in orders)],
            *([f"`{spec(a)}`", *(cell(RESHARD, a, b) for b in orders)] for a in orders),
        ],
    }
