"""Data of the explorer of sends: the answers of three compilers, from sends.csv."""

import re
from functools import cache, partial
from itertools import product
from pathlib import Path

import jax
from explorers import choice, code, index_rows, spec_code

from examples.communication import RING
from examples.films import Cell, Message, cards
from examples.pictures import draw

SOURCE = Path(__file__).parents[1] / "reference/data/sends.csv"
ROWS = index_rows(SOURCE, ("line", "specs", "result", "machine"))
MACHINES = ["CPU", "TPU v5p", "H100"]
*LINES, PRODUCT, RESHARD = dict.fromkeys(line for line, *_ in ROWS)  # in its order
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
THREE = "CPU / TPU v5p / H100 where they differ"
FEW = f"What each of eight devices sends, its arrays split in these ways ({THREE})"
ALL = f"Sent by a device, arrays in all these ways ({THREE})"


def values(line, column) -> list[str]:
    """Return what a column of the keys has for a line, in the order of the table."""
    return [*dict.fromkeys(key[column] for key in ROWS if key[0] == line)]


CUTS, ORDERS = values(FIRST, 1), values(RESHARD, 1)  # of operands; of what moves


def sent(line, places, result="") -> list[float]:
    """Return the bytes that a device of each machine sends."""
    return [float(ROWS[line, places, result, machine]["sent"]) for machine in MACHINES]


def format_bytes(count) -> str:
    """Return bytes in words: `16 MiB`, `1.5 KiB`, `nothing`."""
    for unit, name in UNITS:
        if float(count) >= unit:
            return f"{float(count) / unit:.3g} {name}"
    return "nothing"


# ------------------------------------------------------------------- for the script


def data() -> dict:
    """Return the menus of this page and of the front page, and all answers."""
    row = next(iter(ROWS.values()))
    names = "jax", "libtpu", "jax-cuda13-plugin"
    versions = ", ".join([*(f"{name} {row[name]}" for name in names), row["date"]])
    source = f"Compiled for eight devices of each machine, without running: {versions}."
    door = '<input type="hidden" name="ask" value="operation">'
    few = operation_menus(FRONT_PAGE["lines"], spec_options(FRONT_PAGE["specs"]))
    return {
        "first": {"machine": "1"},
        "menus": menus(),
        "variants": {"door": {"menus": [[[], {"": door}], *few]}},
        "answers": answers(),
        "source": f'<p class="versions">{source}</p>',
        "missing": ["", "<p>That was not asked of the compilers: choose again.</p>"],
    }


def menus() -> list:
    """Return the choices of a kind of question, of specs, and of a line."""
    every = spec_options({text: code(spec_code(text)) for text in ORDERS})
    some = {text: every[text] for text in CUTS}
    to = {"": "where the compiler leaves it"}
    to |= {text: every[text] for text in values(PRODUCT, 2)[1:]}
    a, w = code("a[2048, 4096]"), code("w[4096, 8192]")
    ask = {
        "operation": "an operation",
        "product": f"a product {code(PRODUCT)}",
        "reshard": "from spec to spec",
    }
    (_, specs), lines = operation_menus(LINES, some)
    specs["product"] = choice("x", f"How is {a} split?", some, "x,-", "specs")
    specs["product"] += choice("w", f"How is {w} split?", some, "-,y", "specs")
    specs["product"] += choice("to", "Where shall the result be?", to, "", "specs")
    specs["reshard"] = choice("from", f"From: {a}", every, "x,y", "specs")
    specs["reshard"] += choice("into", "To", every, "-,xy", "specs")
    return [[[], {"": choice("ask", "What do you ask?", ask)}], [["ask"], specs], lines]


def operation_menus(lines, cuts) -> list:
    """Return the choices of a spec and of a line; each line has what it sends."""
    specs = {
        "operation": choice("spec", "How are its arrays split?", cuts, "xy,-", "specs")
    }
    found = {}
    for cut, (n, machine) in product(cuts, enumerate(MACHINES)):
        legend = f"Which line? Sent by {machine} (and what differs most)"
        options = {
            line: f"{code(line)}<em>{compare_sent(line, cut, n)}</em>" for line in lines
        }
        menu = choice("line", legend, options, FIRST, "lines")
        found[f"operation|{cut}|{n}"] = menu
    return [[["ask"], specs], [["ask", "spec", "machine"], found]]


def spec_options(names) -> dict[str, str]:
    """Return specs, each with its picture and its name."""
    with jax.set_mesh(jax.make_mesh((2, 4), ("x", "y"))):
        specs = {text: eval(f"jax.{spec_code(text)}") for text in names}
        drawn = {text: draw(spec, (16, 32)).at(scale=5) for text, spec in specs.items()}
    return {
        text: '<span class="pictured" aria-hidden="true">'
        f"{svg.replace('height: auto', '')}</span>{names[text]}"
        for text, svg in drawn.items()
    }


def compare_sent(line, cut, n) -> str:
    """Return what machine `n` sends, and the machine that differs most from it."""
    counts = sent(line, cut)
    pairs = zip(MACHINES, counts, strict=True)
    name, most = max(pairs, key=lambda pair: abs(pair[1] - counts[n]))
    own, other = format_bytes(counts[n]), format_bytes(most)
    return own if own == other else f"{own} <small>{name.split()[0]} {other}</small>"


def answers() -> dict[str, list[str]]:
    """Return for each question cards of the machines, and the answer of each."""
    found = {}
    for question in dict.fromkeys(key[:3] for key in ROWS):
        three = [ROWS[*question, machine] for machine in MACHINES]
        explicit = explicit_words(three[0]["explicit"])
        shown = [machine_cards(three), *(answer(row) + explicit for row in three)]
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


def answer(row) -> str:
    """Return what a machine answers, with a picture of each collective."""
    figures = (
        f'<figure class="step">{exchange(kind, axes)}<figcaption>'
        f"<b>{kind}</b> of {words}<br>{MEANS[kind]}</figcaption></figure>"
        for kind, words, axes in steps(row)
    )
    return (
        '<p class="result">On Auto axes each of eight devices sends '
        f"{format_bytes(row['sent'])}. The result: {code(row['output'])}, "
        f'{cut_words(row["output"])}.</p><div class="steps">{"".join(figures)}</div>'
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
        if devices := PARTS.get(axes):  # none where the axes are not known: `?`
            all_of_it = sum(n * b for n, b in moved) * RING[kind](devices) / devices
            over = axes.replace(",", " and ")
            words += f" over {over}, {format_bytes(all_of_it)} sent"
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
    words = code(re.sub(r"NamedSharding\(mesh=.*?spec=(P\(.*?\))\)", r"\1", text))
    typed = f"the type {words}." if text.startswith("[") else f"refused, {words}"
    return f"<p>Under Explicit axes: {typed}</p>"


@cache
def exchange(kind, axes) -> str:
    """Draw what device 0 sends to whom, and what each of its group has afterwards."""
    if axes not in PARTS:
        return ""
    xs, ys = range(2 if "x" in axes else 1), range(4 if "y" in axes else 1)
    group = [4 * x + y for x in xs for y in ys]
    total, held = Cell(tuple(group)), {number: [""] for number in range(8)}
    for place, number in enumerate(group):
        held[number] = {
            "all-gather": [Cell((owner,)) for owner in group],
            "all-reduce": [total],
            "reduce-scatter": [total if each == number else None for each in group],
            "all-to-all": [Cell((owner,), "abcdefgh"[place]) for owner in group],
            "collective-permute": [Cell((group[place - 1],))],
        }[kind]
    goals = group[1:2] if kind == "collective-permute" else group[1:]
    return cards(held, [Message(0, goal) for goal in goals], shape=(2, 4)).svg


# ----------------------------------------------------------------- without a script


def few() -> dict[str, list[list[str]]]:
    """Return the table of the front page."""
    lines = {line: f"`{line}`" for line in FRONT_PAGE["lines"]}
    return {FEW: table(lines, FRONT_PAGE["specs"], cell)}


def tables() -> dict[str, list[list[str]]]:
    """Return the bytes that a device sends, for those without script."""
    lines = {line: f"`{line}`" for line in LINES}
    orders = {text: f"`{spec_code(text)}`" for text in ORDERS}
    cuts = {text: orders[text] for text in CUTS}
    of_products = table(cuts, cuts, lambda x, w: cell(PRODUCT, f"{x} {w}"))
    of_moves = table(orders, orders, partial(cell, RESHARD))
    return {
        ALL: table(lines, cuts, cell),
        f"`a @ w`, rows: a; columns: w ({THREE})": of_products,
        f"jax.reshard from spec (rows) to spec (columns) ({THREE})": of_moves,
    }


def table(rows, columns, fill) -> list[list[str]]:
    """Return `fill(row, column)` as a table; rows and columns have their headings."""
    body = ([rows[row], *(fill(row, each) for each in columns)] for row in rows)
    return [["", *columns.values()], *body]


def cell(line, places, result="") -> str:
    """Return the bytes that a device sends, for each machine where they differ."""
    amounts = [format_bytes(count) for count in sent(line, places, result)]
    return " / ".join(amounts if len({*amounts}) > 1 else amounts[:1])
