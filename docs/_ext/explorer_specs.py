"""Data of the explorer of specs: the parts that devices hold, from specs.csv.

benchmarks/specs.py has what is asked, by readers and by exercises, and asks it.
"""

from html import escape
from itertools import product

import jax
from explorers import choice, code, entry_code, index_rows, spec_code
from specs import SOURCE, asked, entries, program, sizes, stub

from examples.cubes import cube
from examples.pictures import draw
from examples.shardings import parse

ROWS = index_rows(SOURCE, ("exercise", "mesh", "shape", "spec"))
FACTS = {
    "bytes": "bytes on a device",
    "copies": "copies of each part",
    "holds": "devices, block by block",
}
WIDE = 300  # of a picture


# ------------------------------------------------------------------- for the script


def data() -> dict:
    """Return the menus and the answers of the explorer, and of each exercise."""
    row = next(iter(ROWS.values()))
    versions = f"Run on eight simulated devices: JAX {row['jax']}, {row['date']}."
    return form("") | {
        "source": f'<p class="versions">{versions}</p>',
        "variants": {f"answers-{name}": form(name) for name in asked() if name},
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
    meshes, shapes = asked()[""]
    held = "bytes on a device x copies of each part (-: the mesh has no such axis)"
    head = ["spec", "type", *(f"mesh {mesh.replace('x', ' x ')}" for mesh in meshes)]
    found = {f"Shape {sizes(s)}: {held}": [head, *lines(s)] for s in shapes}
    errors = [row for row in reversed(ROWS.values()) if row["error"]]
    refused = [["mesh", "shape", "spec", "error"]]
    for row in {row["error"].partition(":")[0]: row for row in errors}.values():
        mesh, shape = f"`{meshes[row['mesh']]}`", str(sizes(row["shape"]))
        refused.append([mesh, shape, in_code(row), row["error"]])
    return found | {"What JAX refuses, for example": refused}


def lines(shape):
    """Yield each spec that some mesh takes: its type, and what each mesh gives."""
    meshes = asked()[""][0]
    for spec in product(entries("", meshes["2x2x2"]), repeat=len(sizes(shape))):
        found = [ROWS.get(("", mesh, shape, ",".join(spec))) for mesh in meshes]
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
