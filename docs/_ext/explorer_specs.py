"""Data of the explorer of specs: the parts that devices hold, from specs.csv.

What is asked stands here: meshes, shapes, the code that a reader copies, and the
exercises of the kind `judge.sharding(answer, PICTURE, SHAPE)`, whose spec is chosen.
benchmarks/specs.py runs that code and keeps the answers.
"""

import re
from functools import cache
from html import escape
from itertools import permutations, product
from pathlib import Path

import jax
from explorers import choice, code, entry_code, index_rows, spec_code

from book.page import Page
from examples.cubes import cube
from examples.pictures import draw
from examples.shardings import parse

DOCS = Path(__file__).parents[1]
SOURCE = DOCS / "arrays/data/specs.csv"
ROWS = index_rows(SOURCE, ("exercise", "mesh", "shape", "spec"))
MESHES = {
    "8": '(8,), ("x",)',
    "2x4": '(2, 4), ("x", "y")',
    "4x2": '(4, 2), ("x", "y")',
    "2x2x2": '(2, 2, 2), ("x", "y", "z")',
}
SHAPES = ["64", "16,32", "12,20", "8,16,4"]
CODE = """\
import jax
import jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 8)
jax.set_mesh(jax.make_mesh({mesh}))
a = jnp.zeros({shape}, out_sharding={spec})
print(jax.typeof(a))"""
JUDGED = re.compile(r'^judge\.sharding\(answer, "([^"]+)", \(([\d, ]+)\)\)$', re.M)
EVEN = {
    "2x4": MESHES["2x4"],
    "2x2": '(2, 2), ("x", "y")',
    "2x2-even": '(2, 2), ("x", "y"), devices=jax.devices()[::2]',
}
EXERCISES = {  # the page, and the meshes that a reader can choose
    "interleaved-columns": ("arrays/meshes", {"2x4": '(2, 4), ("a", "b")'}),
    "eight-columns": ("arrays/pictures", {"8": MESHES["8"]}),
    "two-by-four": (
        "arrays/picture_to_spec",
        {n: MESHES[n] for n in ("8", "4x2", "2x4")},
    ),
    "transposed-blocks": ("arrays/picture_to_spec", {"2x4": MESHES["2x4"]}),
    "half-the-devices": ("arrays/equal_shardings", EVEN),
    "mysterious": ("arrays/picture_to_spec", {n: MESHES[n] for n in ("2x4", "2x2x2")}),
    "two-halves": ("start/judge", {"2x4": MESHES["2x4"]}),
}
FACTS = {
    "bytes": "bytes on a device",
    "copies": "copies of each part",
    "holds": "devices, block by block",
}
WIDE = 300  # of a picture


@cache
def stub(exercise) -> tuple[str, str]:
    """Return the picture and the shape that an exercise asks the judge for."""
    cells = Page(DOCS / f"{EXERCISES[exercise][0]}.md", DOCS).code
    (cell,) = (cell for cell in cells if {"exercise", exercise} <= {*cell.tags})
    target, shape = JUDGED.search(cell.source).groups()
    return target, shape.replace(" ", "")


@cache
def asked() -> dict[str, tuple[dict[str, str], list[str]]]:
    """Return the meshes and shapes to choose from, of each exercise and of none."""
    exercises = {n: (meshes, [stub(n)[1]]) for n, (_, meshes) in EXERCISES.items()}
    return {"": (MESHES, SHAPES)} | exercises


def entries(exercise, mesh) -> list[str]:
    """Return what may stand for an array axis in a spec: `-`, `x`, `xy` and so on.

    In the explorer only x and y make a pair; in an exercise every two axes do.
    """
    axes = re.findall(r'"(\w)"', mesh)
    pairs = permutations(axes if exercise else axes[:2], 2)
    return ["-", *axes, *map("".join, pairs)]


def questions() -> list[tuple[str, str, str, str]]:
    """Return the keys of all rows, in the order of the table."""
    return [
        (exercise, name, shape, ",".join(spec))
        for exercise, (meshes, shapes) in asked().items()
        for name, mesh in meshes.items()
        for shape in shapes
        for spec in product(entries(exercise, mesh), repeat=len(sizes(shape)))
    ]


def sizes(shape) -> tuple[int, ...]:
    """Return the numbers of a shape that the table writes as `16,32`."""
    return tuple(map(int, shape.split(",")))


def program(row) -> str:
    """Return the code of a state."""
    spec = f"jax.{spec_code(row['spec'])}"
    return CODE.format(mesh=MESHES[row["mesh"]], shape=sizes(row["shape"]), spec=spec)


# ------------------------------------------------------------------- for the script


def data() -> dict:
    """Return the menus and the answers of the explorer, and of each exercise."""
    row = next(iter(ROWS.values()))
    versions = f"Run on eight simulated devices: JAX {row['jax']}, {row['date']}."
    return form("") | {
        "source": f'<p class="versions">{versions}</p>',
        "variants": {f"answers-{name}": form(name) for name in EXERCISES},
    }


def form(exercise) -> dict:
    """Return the menus and the answers of an exercise, or of none."""
    meshes, shapes = asked()[exercise]
    mine = {
        "|".join((mesh, shape, *spec.split(","))): row
        for (name, mesh, shape, spec), row in ROWS.items()
        if name == exercise
    }
    made = {name: code(mesh) for name, mesh in meshes.items()}
    first = "" if exercise and len(meshes) > 1 else "2x4"
    menu = '<p class="here">Or choose the answer here.</p>' if exercise else ""
    menu += choice("mesh", code("jax.make_mesh"), made, first)
    menu += choice("shape", "Shape", {s: code(str(sizes(s))) for s in shapes}, "16,32")
    axes = {
        f"{n}|{s}": axes_menu(exercise, meshes[n], s) for n in meshes for s in shapes
    }
    menus = [[[], {"": menu}], [["mesh", "shape"], axes]]
    if not exercise:
        menus.append([None, {key: listing(row) for key, row in mine.items()}])
        return {"menus": menus, "answers": {k: state(row) for k, row in mine.items()}}
    text, shape = stub(exercise)
    wanted = figure(draw(parse(text, sizes(shape)), sizes(shape)), "The target")
    missing = [wanted, "<p>Choose a mesh, and an entry for each axis of the array.</p>"]
    answers = {key: verdict(row, wanted) for key, row in mine.items()}
    words = {"answers": answers, "missing": missing, "source": ""}
    return {"name": exercise, "menus": menus, **words}


def axes_menu(exercise, mesh, shape) -> str:
    """Return the choice of an entry for each axis of an array."""
    options = {each: code(entry_code(each)) for each in entries(exercise, mesh)}
    first = [""] * 3 if exercise else ["x", "y", "-"]
    return "".join(
        choice(f"axis{n}", f"Axis {n} of the array ({size}): split over", options, each)
        for n, size, each in zip(range(3), sizes(shape), first, strict=False)
    )


def listing(row) -> str:
    """Return the code of a state, to copy."""
    return (
        '<div class="listing"><pre tabindex="0" role="region" aria-label="The code of '
        f'this choice">{code(program(row))}</pre>'
        '<button type="button" name="copy">Copy</button></div>'
    )


def draw_row(row):
    """Return the picture of a row: which device holds which part."""
    mesh = asked()[row["exercise"]][0][row["mesh"]]
    with jax.set_mesh(eval(f"jax.make_mesh({mesh})")):
        return draw(eval(f"jax.{spec_code(row['spec'])}"), sizes(row["shape"]))


def figure(drawn, title="") -> str:
    """Return a picture as a figure; three axes make a cube."""
    svg = (cube(drawn) if drawn.shape[2:] else drawn).at(WIDE)
    return f'<figure class="part">{svg}<figcaption>{title}</figcaption></figure>'


def state(row) -> list[str]:
    """Return the picture of a state and the facts of its array, or JAX's refusal."""
    if row["error"]:
        kind, _, words = row["error"].partition(":")
        refused = f'<p class="refused">{code(kind)}:{escape(words)}</p>'
        return ["", f"<p>JAX refuses:</p>{refused}"]
    items = "".join(f"<dt>{FACTS[k]}</dt><dd>{row[k]}</dd>" for k in FACTS)
    type_ = f'<p class="type">{code(row["type"])}</p>'
    return [figure(draw_row(row)), f"{type_}<dl>{items}</dl>"]


def verdict(row, wanted) -> list[str]:
    """Return the pictures of the target and of an answer, and the judge's words."""
    own = figure(draw_row(row), "Your answer") if row["holds"] else ""
    word, *lines = escape(row["verdict"], quote=False).splitlines()
    reasons = "".join(f"<li>{line.removeprefix('- ')}</li>" for line in lines)
    return [
        wanted + own,
        f'<div class="verdict" role="group" aria-label="Verdict: {word.strip(".")}">'
        f"<p>{code(f'jax.{spec_code(row["spec"])}')}: <strong>{word}</strong></p>"
        f"{f'<ul>{reasons}</ul>' if lines else ''}</div>",
    ]


# ----------------------------------------------------------------- without a script


def tables() -> dict[str, list[list[str]]]:
    """Return the specs of each shape that some mesh takes, and examples of refusals."""
    held = "bytes on a device x copies of each part (-: the mesh has no such axis)"
    head = ["spec", "type", *(f"mesh {mesh.replace('x', ' x ')}" for mesh in MESHES)]
    found = {f"Shape {sizes(s)}: {held}": [head, *lines(s)] for s in SHAPES}
    errors = [row for row in reversed(ROWS.values()) if row["error"]]
    refused = [["mesh", "shape", "spec", "error"]]
    for row in {row["error"].partition(":")[0]: row for row in errors}.values():
        mesh, shape = f"`{MESHES[row['mesh']]}`", str(sizes(row["shape"]))
        refused.append([mesh, shape, in_code(row), row["error"]])
    return found | {"What JAX refuses, for example": refused}


def lines(shape):
    """Yield each spec that some mesh takes: its type, and what each mesh gives."""
    for spec in product(entries("", MESHES["2x2x2"]), repeat=len(sizes(shape))):
        found = [ROWS.get(("", mesh, shape, ",".join(spec))) for mesh in MESHES]
        taken = [row for row in found if row and row["type"]]
        if taken:
            yield [in_code(taken[0]), f"`{taken[0]['type']}`", *map(cell, found)]


def in_code(row) -> str:
    """Return the spec of a row as code in Markdown."""
    return f"`jax.{spec_code(row['spec'])}`"


def cell(row) -> str:
    """Return the bytes and copies that a mesh gives, or that it has no such axis."""
    if not row:
        return "-"
    return "refused" if row["error"] else f"{row['bytes']} B x {row['copies']}"
