"""Data of the explorer of sends: the answers of three compilers, from sends.csv."""

import re
from functools import cache
from itertools import product
from pathlib import Path

import jax
from explorers import Pictures, choice, code, index_rows, spec_code

from examples.communication import RING
from examples.films import Cell, Message, cards
from examples.pictures import draw

SOURCE = Path(__file__).parents[1] / "reference/data/sends.csv"
MACHINES = ["CPU", "TPU v5p", "H100"]
COMPILERS = "jax", "libtpu", "jax-cuda13-plugin"
PRODUCT, RESHARD = "a @ w", "jax.reshard(a, to)"
UNITS = (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")
PARTS = {"x": 2, "y": 4, "x,y": 8, "y,x": 8}  # of an axis cut over these
FIRST = "jnp.cumsum(a, 0)"  # three machines, three answers
FRONT_PAGE = {  # the front page asks a few of them
    "lines": [
        "w - 0.1 * jax.grad(loss)(w, a)",  # in a row of its own
        "a + b",
        "a.T",
        "a.sum(0)",
        "jax.nn.softmax(a)",
        "jnp.cumsum(a, 0)",
        "jnp.sort(a, 0)",
        "a.argmax(0)",
        "a[2:6]",
        "a.at[2:6].set(0)",
        "jnp.roll(a, 1, 0)",
        "jnp.concatenate([a, b])",
        "jnp.fft.fft2(a)",
    ],
    "specs": {
        "xy,-": "by rows",
        "-,xy": "by columns",
        "x,y": "in blocks",
        "x,-": "halves, 4 copies",
    },
}
MEANS = {  # what a device has after each, once a group
    "all-gather": "every device of a group gets the parts of the others",
    "all-reduce": "every device of a group gets the sum (or maximum) of all",
    "reduce-scatter": "every device of a group gets its part of the sum",
    "all-to-all": "every device of a group sends a piece to each other one",
    "collective-permute": "devices send to one other device each",
}
HOW = "How are its arrays split?"
THREE = "CPU / TPU v5p / H100 where they differ"


@cache
def rows() -> dict[tuple[str, str, str, str], dict[str, str]]:
    """Return the rows of the table: (line, specs, result, machine) -> row."""
    return index_rows(SOURCE, ("line", "specs", "result", "machine"))


def values(line, column) -> list[str]:
    """Return what the table has in a column of its keys for a line, in its order."""
    return [*dict.fromkeys(key[column] for key in rows() if key[0] == line)]


def lines() -> list[str]:
    """Return the operations of the table, in their order."""
    every = dict.fromkeys(line for line, *_ in rows())
    return [line for line in every if line not in (PRODUCT, RESHARD)]


def specs() -> tuple[list[str], list[str]]:
    """Return the specs of operands, and those between which an array moves."""
    return values(lines()[0], 1), values(RESHARD, 1)


def sent(line, places, result="") -> list[str]:
    """Return the bytes that a device of each machine sends."""
    return [format_bytes(rows()[line, places, result, m]["sent"]) for m in MACHINES]


def format_bytes(count) -> str:
    """Return bytes in words: `16 MiB`, `1.5 KiB`, `nothing`."""
    for unit, name in UNITS:
        if float(count) >= unit:
            return f"{float(count) / unit:.3g} {name}"
    return "nothing"


# ------------------------------------------------------------------- for the script


def data() -> dict:
    """Return the menus of this page and of the front page, and all answers."""
    pictures, row = Pictures(), next(iter(rows().values()))
    versions = [f"{name} {row[name]}" for name in COMPILERS]
    source = "Compiled for eight devices of each machine, without running: "
    source += ", ".join([*versions, row["date"]])
    return {
        "first": {"machine": "1"},
        "menus": menus(pictures),
        "variants": {"door": {"menus": door_menus(pictures)}},
        "answers": answers(pictures),
        "source": f'<p class="versions">{source}.</p>',
        "missing": ["", "<p>That was not asked of the compilers: choose again.</p>"],
        "pictures": [*pictures],
    }


def menus(pictures) -> list:
    """Return the choices of a kind of question, of specs, and of a line."""
    cuts, orders = specs()
    every = spec_options({text: code(spec_code(text)) for text in orders}, pictures)
    some = {text: every[text] for text in cuts}
    to = {"": "where the compiler leaves it"}
    to |= {text: every[text] for text in values(PRODUCT, 2)[1:]}
    a, w = code("a[2048, 4096]"), code("w[4096, 8192]")
    ask = {
        "operation": "an operation",
        "product": f"a product {code(PRODUCT)}",
        "reshard": "from spec to spec",
    }
    asked = {
        "operation": choice("spec", HOW, some, "xy,-", "specs"),
        "product": choice("x", f"How is {a} split?", some, "x,-", "specs")
        + choice("w", f"How is {w} split?", some, "-,y", "specs")
        + choice("to", "Where shall the result be?", to, "", "specs"),
        "reshard": choice("from", f"From: {a}", every, "x,y", "specs")
        + choice("into", "To", every, "-,xy", "specs"),
    }
    return [
        [[], {"": choice("ask", "What do you ask?", ask)}],
        [["ask"], asked],
        [["ask", "spec", "machine"], lines_menu(lines(), cuts)],
    ]


def door_menus(pictures) -> list:
    """Return the choices of the front page: a few lines, and one kind of question."""
    ways, lines = FRONT_PAGE["specs"], FRONT_PAGE["lines"]
    menu = '<input type="hidden" name="ask" value="operation">'
    menu += choice("spec", HOW, spec_options(ways, pictures), "xy,-", "specs")
    return [[[], {"": menu}], [["ask", "spec", "machine"], lines_menu(lines, ways)]]


def spec_options(names, pictures) -> dict[str, str]:
    """Return specs, each with its picture and its name."""
    with jax.set_mesh(jax.make_mesh((2, 4), ("x", "y"))):
        specs = {text: eval(f"jax.{spec_code(text)}") for text in names}
        drawn = {text: draw(spec, (16, 32)).at(scale=5) for text, spec in specs.items()}
    return {
        text: '<span class="pictured" aria-hidden="true">'
        f"{pictures[svg.replace('height: auto', '')]}</span>{names[text]}"
        for text, svg in drawn.items()
    }


def lines_menu(lines, cuts) -> dict[str, str]:
    """Return for each spec and machine the choice of a line, with what it sends."""
    found = {}
    for cut, (n, machine) in product(cuts, enumerate(MACHINES)):
        legend = f"Which line? Sent by {machine} (and what differs most)"
        options = {
            line: f"{code(line)}<em>{compare_sent(line, cut, n)}</em>" for line in lines
        }
        menu = choice("line", legend, options, FIRST, "lines")
        found[f"operation|{cut}|{n}"] = menu
    return found


def compare_sent(line, places, n) -> str:
    """Return what machine `n` sends, and the machine that differs most from it."""
    amounts = sent(line, places)
    counts = [float(rows()[line, places, "", machine]["sent"]) for machine in MACHINES]
    most = max(range(len(counts)), key=lambda other: abs(counts[other] - counts[n]))
    if amounts[most] == amounts[n]:
        return amounts[n]
    name = MACHINES[most].partition(" ")[0]
    return f"{amounts[n]} <small>{name} {amounts[most]}</small>"


def answers(pictures) -> dict[str, list[str]]:
    """Return for each question cards of the machines, and the answer of each."""
    drawn = {
        (kind, axes): pictures[exchange(kind, axes)]
        for kind, axes in product(MEANS, ("x", "y", "x,y"))
    }
    found = {}
    for question in dict.fromkeys(key[:3] for key in rows()):
        three = [rows()[*question, machine] for machine in MACHINES]
        explicit = explicit_words(three[0]["explicit"])
        shown = [machine_cards(three), *(answer(row, explicit, drawn) for row in three)]
        found["|".join(choices(*question))] = shown
    return found


def choices(line, specs, result) -> list[str]:
    """Return what is chosen to ask a question of the table."""
    if line == PRODUCT:
        return ["product", *specs.split(), result]
    return ["reshard", specs, result] if result else ["operation", specs, line]


def machine_cards(three) -> str:
    """Return what each machine answers: the choice of one of them is the comparison."""
    most = max(float(row["sent"]) for row in three) or 1
    options = {}
    for n, row in enumerate(three):
        kinds = dict.fromkeys(kind for kind, *_ in steps(row))
        options[str(n)] = (
            f"<b>{MACHINES[n]}</b>"
            f"<span>sends <strong>{format_bytes(row['sent'])}</strong></span>"
            f'<i style="--part: {float(row["sent"]) / most:.3g}"></i>'
            f"<span>{', '.join(kinds) or 'no collective'}</span>"
            f"<small>temporaries {format_bytes(row['held'])}</small>"
        )
    legend = f"{code(three[0]['line'])} on three machines: press one"
    return choice("machine", legend, options, "1", "cards")


def answer(row, explicit, drawn) -> str:
    """Return what a machine answers, with a picture of each collective."""
    figures = (
        f'<figure class="step">{drawn.get((kind, axes), "")}<figcaption>'
        f"<b>{kind}</b> of {words}<br>{MEANS.get(kind, '')}</figcaption></figure>"
        for kind, words, axes in steps(row)
    )
    return (
        '<p class="result">On Auto axes each of eight devices sends '
        f"{format_bytes(row['sent'])}. The result: {code(row['output'])}, "
        f'{cut_words(row["output"])}.</p><div class="steps">{"".join(figures)}</div>'
        f"{explicit}"
    )


def steps(row):
    """Yield the collectives of a program, once a kind and axes: name, moved, axes."""
    groups = {}
    for text in filter(None, row["collectives"].split("; ")):
        times, kind, _, size, _, _, axes = text.split(" ")
        groups.setdefault((kind, axes), []).append((int(times), int(size)))
    for (kind, axes), moved in groups.items():
        words = " and ".join(
            f"{f'{n} times ' * (n > 1)}{format_bytes(b)}" for n, b in moved
        )
        words += "" if axes == "?" else f" over {axes.replace(',', ' and ')}"
        if devices := PARTS.get(axes):
            all_of_it = sum(n * b for n, b in moved) * RING[kind](devices) / devices
            words += f", {format_bytes(all_of_it)} sent"
        yield kind, words, axes


def cut_words(kind) -> str:
    """Return where the axes of a type are cut, and into how many parts."""
    cuts = [
        f"{size} cut in {PARTS[axes]} over {axes.replace(',', ' and ')}"
        for size, axes in re.findall(r"(\d+)@\(?(x,y|y,x|x|y)", kind)
    ]
    return ", ".join(cuts) or "whole on every device"


def explicit_words(text) -> str:
    """Return the type under Explicit axes, or the refusal without whole shardings."""
    words = re.sub(r"NamedSharding\(mesh=.*?spec=(P\(.*?\))\)", r"\1", text)
    typed = f"the type {code(words)}."
    if not words.startswith("["):
        typed = f"refused, {code(words)}"
    return f"<p>Under Explicit axes: {typed}</p>"


def exchange(kind, axes) -> str:
    """Draw what device 0 sends to whom, and what each of its group has afterwards."""
    xs, ys = range(2 if "x" in axes else 1), range(4 if "y" in axes else 1)
    group = [4 * x + y for x in xs for y in ys]
    held = {number: [""] for number in range(8)}
    for place, number in enumerate(group):
        held[number] = held_cells(kind, group, place)
    goals = group[1:2] if kind == "collective-permute" else group[1:]
    return cards(held, [Message(0, goal) for goal in goals], shape=(2, 4)).svg


def held_cells(kind, group, place) -> list:
    """Return what a device of a group has after a collective; None is missing."""
    total = Cell(tuple(group))
    if kind == "all-reduce":
        return [total]
    if kind == "reduce-scatter":
        return [total if n == place else None for n in range(len(group))]
    if kind == "collective-permute":
        return [Cell((group[place - 1],))]
    piece = "abcdefgh"[place] if kind == "all-to-all" else ""
    return [Cell((owner,), piece) for owner in group]


# ----------------------------------------------------------------- without a script


def few() -> dict[str, list[list[str]]]:
    """Return the table of the front page."""
    title = "What each of eight devices sends, its arrays split in these ways"
    rows = {line: f"`{line}`" for line in FRONT_PAGE["lines"]}
    return {f"{title} ({THREE})": table(rows, FRONT_PAGE["specs"], cell)}


def tables() -> dict[str, list[list[str]]]:
    """Return the bytes that a device sends, for those without script."""
    every = {line: f"`{line}`" for line in lines()}
    cuts, orders = ({text: f"`{spec_code(text)}`" for text in each} for each in specs())
    of_operations = table(every, cuts, cell)
    of_products = table(cuts, cuts, lambda x, w: cell(PRODUCT, f"{x} {w}"))
    of_moves = table(orders, orders, lambda old, new: cell(RESHARD, old, new))
    return {
        f"Sent by a device, arrays in all these ways ({THREE})": of_operations,
        f"`a @ w`, rows: a; columns: w ({THREE})": of_products,
        f"jax.reshard from spec (rows) to spec (columns) ({THREE})": of_moves,
    }


def table(rows, columns, fill) -> list[list[str]]:
    """Return `fill(row, column)` as a table; rows and columns have their headings."""
    body = (
        [head, *(fill(row, each) for each in columns)] for row, head in rows.items()
    )
    return [["", *columns.values()], *body]


def cell(line, places, result="") -> str:
    """Return the bytes that a device sends, for each machine where they differ."""
    amounts = sent(line, places, result)
    return " / ".join(amounts if len({*amounts}) > 1 else amounts[:1])
