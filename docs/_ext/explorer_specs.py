"""Data of the explorer of specs: the parts that devices hold, from specs.csv.

What is asked stands here: meshes, shapes, the code that a reader copies, and the
exercises of the kind `judge.sharding(answer, PICTURE, SHAPE)`, whose spec is chosen.
tools/specs.py runs that code and keeps what came.
"""

import itertools
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from explorers import UniqueList, index_rows

from book.page import Page

DOCS = Path(__file__).parents[1]
SOURCE = DOCS / "arrays/data/specs.csv"
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
WIDE = 300  # of a picture
PIECE = re.compile(r"<text.*?</text>|<g>.*?</g>|<g .*?</g>.*?</g>")


@dataclass(frozen=True)
class Exercise:
    """An exercise: its meshes, and what its stub asks the judge for."""

    meshes: dict[str, str]
    target: str
    shape: str


@cache
def exercise(name) -> Exercise:
    """Return an exercise; its picture and its shape stand in the stub of its page."""
    page, meshes = EXERCISES[name]
    cells = Page(DOCS / f"{page}.md", DOCS).code
    (stub,) = (cell for cell in cells if {"exercise", name} <= {*cell.tags})
    target, shape = JUDGED.search(stub.source).groups()
    return Exercise(meshes, target, shape.replace(" ", ""))


def axes(mesh) -> str:
    """Return the names of a mesh's axes, a letter each."""
    return "".join(re.findall(r'"(\w)"', mesh))


def choices(mesh, every=False) -> list[str]:
    """Return what may stand for an array axis in a spec: `-`, `x`, `xy` and so on.

    In the explorer only x and y make a pair; in an exercise `every` two axes do.
    """
    names = axes(mesh)
    pairs = map("".join, itertools.permutations(names if every else names[:2], 2))
    return ["-", *names, *pairs]


def specs(mesh, shape, every=False) -> list[str]:
    """Return all specs for an array of this shape: `xy,-`."""
    ndim = shape.count(",") + 1
    return list(map(",".join, itertools.product(choices(mesh, every), repeat=ndim)))


def sizes(shape) -> tuple[int, ...]:
    """Return the numbers of a shape that the table writes as `16,32`."""
    return tuple(map(int, shape.split(",")))


def tuple_of(items) -> str:
    """Write a tuple as Python does."""
    items = [*items]
    return f"({', '.join(items)}{',' * (len(items) == 1)})"


def entry_code(dim) -> str:
    """Return the code of one entry of a spec."""
    if dim == "-":
        return "None"
    return f'"{dim}"' if len(dim) == 1 else tuple_of([f'"{name}"' for name in dim])


def spec(text) -> str:
    """Return the code of a spec that the table writes as `xy,-`."""
    return f"jax.P({', '.join(map(entry_code, text.split(',')))})"


def code(mesh, shape, text) -> str:
    """Return the code of a state."""
    values = {"mesh": mesh, "shape": tuple_of(shape.split(",")), "spec": spec(text)}
    return CODE.format(**values)


@cache
def rows() -> dict[tuple[str, str, str, str], dict[str, str]]:
    """Return the table: (exercise or nothing, mesh, shape, spec) -> row."""
    return index_rows(SOURCE, ("exercise", "mesh", "shape", "spec"))


def questions() -> list[tuple[str, str, str, str]]:
    """Return the keys of all rows, in the order of the table."""
    asked = [
        ("", name, shape, text)
        for (name, mesh), shape in itertools.product(MESHES.items(), SHAPES)
        for text in specs(mesh, shape)
    ]
    for name, known in ((name, exercise(name)) for name in EXERCISES):
        for mesh, made in known.meshes.items():
            every = specs(made, known.shape, every=True)
            asked += [(name, mesh, known.shape, text) for text in every]
    return asked


# ------------------------------------------------------------------- for the script


class Pictures(UniqueList):
    """Pictures, each once: its width, its height, and what is drawn."""

    def number_of(self, row) -> int:
        """Return the number of the picture of a row, whose mesh is in context."""
        from examples.cubes import cube  # noqa: PLC0415
        from examples.pictures import draw  # noqa: PLC0415  (JAX takes a second)
        from examples.shardings import notation  # noqa: PLC0415

        picture = draw(spec_of(row["spec"]), sizes(row["shape"]))
        maps = picture.boxes.items()
        boxes = {device: tuple(slice(*part) for part in box) for device, box in maps}
        if notation(boxes) != row["holds"]:
            raise ValueError(f"this is no picture of {row['holds']}: {picture.facts}")
        return self.add(cube(picture) if picture.shape[2:] else picture)

    def target(self, known) -> int:
        """Return the number of the picture that an exercise asks for."""
        from examples.pictures import draw  # noqa: PLC0415
        from examples.shardings import parse  # noqa: PLC0415

        size = sizes(known.shape)
        return self.add(draw(parse(known.target, size), size))

    def add(self, picture) -> int:
        """Return the number of what `draw` returned, without its title."""
        svg = picture.at(WIDE)
        high, wide = (int(re.search(rf'{at}="(\d+)"', svg)[1]) for at in ("t", "h"))
        svg = re.sub(r"<title>.*?</title>|^<svg[^>]*>", "", svg)
        svg = re.sub(r"\d+\.\d+", lambda found: f"{float(found[0]):.3g}", svg)
        svg = re.sub(r'<rect[^>]*fill-opacity="0"/>', "", svg).replace(" >", ">")
        return self.index_of([wide, high, "".join(PIECE.findall(svg))])


def nest(numbers, size, ndim) -> list:
    """Return a list of answers to all specs as a list for each array axis."""
    for _ in range(ndim - 1):
        numbers = [*map(list, itertools.batched(numbers, size))]
    return numbers


def as_jax(text) -> str:
    """Return a spec as JAX writes it."""
    return f"P{tuple_of(map(entry_code, text.split(',')))}".replace('"', "'")


def spec_of(text):
    """Return a spec that the table writes as `xy,-`."""
    from jax import P  # noqa: PLC0415  (it takes a second)

    return P(*(None if dim == "-" else (*dim,) for dim in text.split(",")))


class Answers:
    """The answers, each once, and for each question a number."""

    def __init__(self):
        """Begin with none."""
        self.pictures, self.words = Pictures(), UniqueList()
        self.states, self.verdicts = UniqueList(), UniqueList()

    def add_words(self, words, text) -> int:
        """Return the number of words about a spec, without the spec."""
        return self.words.index_of(words.replace(as_jax(text), "{}"))

    def add_state(self, row) -> int:
        """Return the number of a type and what belongs to it, or of a refusal."""
        if row["error"]:
            return self.states.index_of(self.add_words(row["error"], row["spec"]))
        values = [row["type"], int(row["bytes"]), int(row["copies"]), row["holds"]]
        return self.states.index_of([*values, self.pictures.number_of(row)])

    def add_verdict(self, row) -> int:
        """Return the number of a picture, or -1, and of the verdict's lines."""
        lines = row["verdict"].splitlines()
        numbers = (self.add_words(line, row["spec"]) for line in lines)
        picture = self.pictures.number_of(row) if row["holds"] else -1
        return self.verdicts.index_of([picture, *numbers])

    def answer_all(self, name, mesh, made, shape) -> list:
        """Return the numbers of the answers to all specs, nested as in the array."""
        import jax  # noqa: PLC0415

        every, ask = bool(name), self.add_verdict if name else self.add_state
        keys = ((name, mesh, shape, text) for text in specs(made, shape, every))
        with jax.set_mesh(eval(f"jax.make_mesh({made})")):
            found = [ask(rows()[key]) for key in keys]
        return nest(found, len(choices(made, every)), shape.count(",") + 1)

    def exercise_data(self, name) -> dict:
        """Return what belongs to an exercise."""
        known = exercise(name)
        shape, meshes = known.shape, known.meshes.items()
        return {
            "shape": shape,
            "target": self.pictures.target(known),
            "meshes": known.meshes,
            "choices": {mesh: choices(made, every=True) for mesh, made in meshes},
            "verdicts": {
                mesh: self.answer_all(name, mesh, made, shape) for mesh, made in meshes
            },
        }


def data() -> dict:
    """Return all answers, each once, and for each question their numbers."""
    found, meshes = Answers(), MESHES.items()
    states = {
        mesh: {shape: found.answer_all("", mesh, made, shape) for shape in SHAPES}
        for mesh, made in meshes
    }
    exercises = {name: found.exercise_data(name) for name in EXERCISES}
    made = [MESHES, *(each["meshes"] for each in exercises.values())]
    every = itertools.chain(*(each.values() for each in made))
    dims = dict.fromkeys(dim for mesh in every for dim in choices(mesh, every=True))
    return {
        "code": CODE,
        "meshes": MESHES,
        "choices": {mesh: choices(made) for mesh, made in meshes},
        "shapes": {shape: tuple_of(shape.split(",")) for shape in SHAPES},
        "names": {dim: entry_code(dim) for dim in dims},
        "states": states,
        "exercises": exercises,
        "answers": found.states,
        "verdicts": found.verdicts,
        "words": found.words,
        "versions": versions(),
        "pictures": found.pictures,
    }


def versions() -> str:
    """Return what answered, in a line."""
    row = next(iter(rows().values()))
    return f"JAX {row['jax']}, {row['date']}"


# ----------------------------------------------------------------- without a script


def cell(mesh, shape, text) -> str:
    """Return the bytes and copies that a mesh makes, or that it has no such axis."""
    row = rows().get(("", mesh, shape, text))
    if row is None:
        return "-"
    return "refused" if row["error"] else f"{row['bytes']} B x {row['copies']}"


def line(shape, text, kind) -> list[str]:
    """Return a line of a table: a spec, its type, and what each mesh makes of it."""
    return [f"`{spec(text)}`", f"`{kind}`", *(cell(m, shape, text) for m in MESHES)]


def table(shape) -> list[list[str]]:
    """Return the specs that some mesh takes for an array of this shape."""
    found = [row for key, row in rows().items() if key[::2] == ("", shape)]
    types = {row["spec"]: row["type"] for row in found if row["type"]}
    order = [text for text in specs(MESHES["2x2x2"], shape) if text in types]
    head = ["spec", "type", *(f"mesh {mesh.replace('x', ' x ')}" for mesh in MESHES)]
    return [head, *(line(shape, text, types[text]) for text in order)]


def refusals() -> list[list[str]]:
    """Return one refusal of each kind."""
    first = {row["error"].partition(":")[0]: row for row in reversed(rows().values())}
    found = [["mesh", "shape", "spec", "error"]]
    for row in (row for kind, row in first.items() if kind):
        mesh, shape = f"`{MESHES[row['mesh']]}`", tuple_of(row["shape"].split(","))
        found.append([mesh, shape, f"`{spec(row['spec'])}`", row["error"]])
    return found


def tables() -> dict[str, list[list[str]]]:
    """Return the specs of each shape that some mesh takes, and examples of refusals."""
    held = "bytes on a device x copies of each part (-: the mesh has no such axis)"
    found = {f"Shape {tuple_of(s.split(','))}: {held}": table(s) for s in SHAPES}
    return found | {"What JAX refuses, for example": refusals()}
