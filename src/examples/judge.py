# SPDX-License-Identifier: MIT-0
"""A judge for exercises: every right answer counts, and a wrong one is told why.

An answer is right for what it does, not for how it is spelt. A sharding is judged by
the part of the array that each device holds, a program by its value first and then by
what it sends and stores.

    answer  jax.P("x"), a sharding, an array [N@x, M@y], or a function of arrays
    target  "0 2 / 4 6"    device 0 holds the upper left quarter, device 2 the upper
                           right one; "0,1 2,3": 0 and 1 both hold the left half
    index_map  {0: (slice(0, 4), slice(0, 8)), ...}    what each device holds

Cost: a sharding or a value is judged without a message. A program is compiled, runs
once on its arguments as they are placed, and its result is fetched.

    JAX_NUM_CPU_DEVICES=8 python judge.py

The file needs JAX and NumPy alone; how to draw one and how to measure a program
is told to the judge, `Judge(draw, measure)`.
"""

import html
import itertools
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

FRAME = "border-left: .25rem solid currentColor; padding-left: 1rem"
BESIDE = "display: flex; flex-wrap: wrap; gap: 1rem 2rem"

IndexMap = Mapping[int, tuple[slice, ...]]
BUDGETS = ("counts", "sent", "temporaries", "outputs")


# ------------------------------------------------------------------ what is said


@dataclass(frozen=True, repr=False)
class Verdict:
    """What a judge says: accepted, if there is no reason against the answer.

    `reasons` and `facts` are sentences, `pictures` pairs of a title and anything that
    displays or prints itself.
    """

    reasons: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    pictures: tuple[tuple[str, object], ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the answer is accepted."""
        return not self.reasons

    @property
    def word(self) -> str:
        """The verdict in a word or two."""
        return "Accepted" if self.passed else "Not yet"

    def require(self) -> "Verdict":
        """Return the verdict itself; AssertionError with its text unless it passed."""
        if not self.passed:
            raise AssertionError(str(self))
        return self

    def __repr__(self) -> str:
        """Spell the verdict out: the word, the sentences, the pictures as text."""
        lines = [f"{self.word}.", *(f"- {line}" for line in _sentences(self))]
        for title, picture in self.pictures:
            lines += ["", f"{title}:", textwrap.indent(str(picture), "  ")]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{html.escape(line)}</li>" for line in _sentences(self))
        figures = "".join(_figure(*pair) for pair in self.pictures)
        return (
            f'<div class="verdict" role="group" aria-label="Verdict: {self.word}" '
            f'style="{FRAME}"><p><strong>{self.word}.</strong></p>'
            + f"<ul>{items}</ul>" * bool(items)
            + f'<div style="{BESIDE}">{figures}</div>' * bool(figures)
            + "</div>"
        )


def _sentences(verdict: Verdict) -> list[str]:
    said = verdict.reasons + verdict.facts
    return [text[:1].upper() + text[1:].removesuffix(".") + "." for text in said]


def _figure(title: str, picture) -> str:
    shown = getattr(picture, "_repr_html_", None)
    body = shown() if shown else f"<pre>{html.escape(str(picture))}</pre>"
    return (
        '<figure style="margin: 0; min-width: 0; max-width: 100%; overflow-x: auto">'
        f"<figcaption>{html.escape(title)}</figcaption>{body}</figure>"
    )


class Refused(ValueError):
    """Why something cannot be judged at all, as a sentence."""


def _called(answer) -> str:
    """Show an answer in a line, as Python prints it."""
    shown = textwrap.shorten(repr(answer), 400)
    return "three dots, unchanged" if answer is ... else shown


def _error(error: Exception) -> str:
    """Return the kind of an error and the first line of what it says."""
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


# ------------------------------------------------------- what each device holds


def index_map(
    sharding: Sharding, shape: tuple[int, ...]
) -> dict[int, tuple[slice, ...]]:
    """Return the part of an array of this shape that each device holds.

    Two shardings do the same to the array if their index maps are equal, whatever their
    meshes, axis names and specs.
    """
    return {
        device.id: tuple(
            slice(*part.indices(n)[:2]) for part, n in zip(box, shape, strict=True)
        )
        for device, box in sharding.devices_indices_map(shape).items()
    }


def parse(picture: str, shape: tuple[int, ...]) -> dict[int, tuple[slice, ...]]:
    """Read a picture such as "0 2 / 4 6" as the index map of an array of this shape.

    A slash ends a row, a space a column, and commas join the devices that hold the same
    block; an array with one axis has one row. ValueError if that is no index map.
    """
    rows = [row.split() for row in picture.split("/")]
    grid = (len(rows), len(rows[0]))
    if len(shape) == len(rows) == 1:
        grid = grid[1:]
    regular = all(rows) and len(set(map(len, rows))) == 1 and len(grid) == len(shape)
    if not regular or any(n % parts for n, parts in zip(shape, grid, strict=True)):
        raise ValueError(f"{picture!r} does not cut the shape {shape} in equal blocks")
    found = {}
    for place, cell in zip(np.ndindex(*grid), itertools.chain(*rows), strict=True):
        box = tuple(
            slice(i * n // parts, (i + 1) * n // parts)
            for i, n, parts in zip(place, shape, grid, strict=True)
        )
        for word in cell.split(","):
            if not word.isdigit() or int(word) in found:
                raise ValueError(f"{picture!r}: {word!r} is no device, or one too many")
            found[int(word)] = box
    return found


def notation(boxes: IndexMap) -> str:
    """Write an index map as `parse` reads it, or a row for each cut but the last."""
    rows: dict = {}
    for device, box in sorted(boxes.items(), key=lambda item: item[::-1]):
        rows.setdefault(box[:-1], {}).setdefault(box, []).append(str(device))
    return " / ".join(" ".join(map(",".join, row.values())) for row in rows.values())


def _resolve(answer, shape: tuple[int, ...]) -> dict[int, tuple[slice, ...]]:
    """Return the index map that an answer gives to an array of this shape."""
    try:
        sharding = _find(answer)
        if getattr(answer, "shape", shape) != shape:
            raise Refused(f"the array has the shape {answer.shape}, wanted is {shape}")
        spec = getattr(sharding, "spec", jax.P())
        if len(spec) > len(shape):
            raise Refused(f"{spec} is for {len(spec)} axes, the array has {len(shape)}")
        if spec.unreduced:
            axes = ", ".join(sorted(spec.unreduced))
            raise Refused(f"its sums are pending (unreduced) over {axes}")
        return index_map(sharding, shape)
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"JAX refuses this sharding: {_error(error)}") from error


def _find(answer) -> Sharding:
    """Return the sharding that `answer` is or has; a spec takes the mesh in context."""
    if isinstance(answer, jax.P):
        mesh = jax.sharding.get_mesh()
        if mesh.empty:
            raise Refused("a spec alone names no mesh: call jax.set_mesh(mesh) first")
        return jax.NamedSharding(mesh, answer)
    sharding = getattr(answer, "sharding", answer)
    if not isinstance(sharding, Sharding):
        raise Refused(f"the answer is {_called(answer)}; a sharding is wanted")
    return sharding


# ----------------------------------------------- what is wrong with a sharding


def differences(mine: IndexMap, wanted: IndexMap, shape: tuple[int, ...]) -> list[str]:
    """Say in words how one index map differs from another; [] if it does not."""
    if mine == wanted:
        return []
    device = min(d for d in mine.keys() | wanted.keys() if mine.get(d) != wanted.get(d))
    has, wants = (_in_words(boxes.get(device), shape) for boxes in (mine, wanted))
    example = f"device {device} holds {has}, the target wants {wants}"
    return [_other_devices(mine, wanted) or _other_blocks(mine, wanted), example]


def _other_devices(mine: IndexMap, wanted: IndexMap) -> str | None:
    if mine.keys() == wanted.keys():
        return None
    used, target = (", ".join(map(str, sorted(boxes))) for boxes in (mine, wanted))
    if mine.keys() < wanted.keys():
        return f"it uses {len(mine)} of the {len(wanted)} devices: {used}"
    return f"it uses the devices {used}; the target uses {target}"


def _other_blocks(mine: IndexMap, wanted: IndexMap) -> str:
    """Say what kind of mistake it is when the same devices hold other parts."""
    (cut, places), (target, wanted_places) = _places(mine), _places(wanted)
    swapped = {device: place[::-1] for device, place in places.items()}
    if math.prod(cut) == 1:
        return "every device holds the whole array (replicated)"
    if math.prod(target) == 1:
        return "the target is replicated: no device holds only a part"
    if len(cut) == 2 and swapped == wanted_places:
        return "rows and columns are swapped: this is the transposed sharding"
    if cut == target:
        order = f"{notation(mine)} instead of {notation(wanted)}"
        return f"the devices are in another order: {order}"
    cut, target = (" x ".join(map(str, grid)) for grid in (cut, target))
    return f"the array is cut into blocks {cut}, in the target {target}"


def _places(boxes: IndexMap) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """Return into how many blocks each axis is cut, and which one each device has."""
    axes = [sorted(set(parts)) for parts in zip(*boxes.values(), strict=True)]
    places = {
        device: tuple(map(list.index, axes, box)) for device, box in boxes.items()
    }
    return [len(parts) for parts in axes], places


def _in_words(box: tuple[slice, ...] | None, shape: tuple[int, ...]) -> str:
    """Say in words which part of an array a box is."""
    if box is None:
        return "nothing"
    if box == tuple(slice(0, n) for n in shape):
        return "the whole array"
    if len(shape) > 2:
        return "[" + ", ".join(f"{part.start}:{part.stop}" for part in box) + "]"
    names = ("element",) if len(shape) == 1 else ("row", "column")
    return " of ".join(
        f"{name} {part.start}"
        if part.stop - part.start == 1
        else f"{name}s {part.start}-{part.stop - 1}"
        for name, part, n in zip(names, box, shape, strict=True)
        if part != slice(0, n)
    )


# -------------------------------------------------- what is wrong with a value


def _leaves(tree) -> dict[str, object]:
    """Return the leaves of a tree by their paths; lists and tuples are the same."""
    try:
        leaves = jax.tree.leaves_with_path(tree, is_leaf=lambda leaf: leaf is None)
    except (ValueError, TypeError):  # keys that cannot be sorted
        return {"": tree}
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _wrong(name: str, answer, expected, inputs=()) -> list[str]:
    """Say which leaves of an answer, computed from `inputs`, are not as expected."""
    mine, wanted = _leaves(answer), _leaves(expected)
    if len(mine) != len(wanted):
        return [f"the number of values is {len(mine)}, wanted is {len(wanted)}"]
    if strange := mine.keys() - wanted.keys():
        return [f"there is a value {min(strange) or 'alone'} that is not wanted"]
    reasons = {
        path: compare(mine[path], leaf, _tolerance(leaf, *inputs))
        for path, leaf in wanted.items()
    }
    return [
        f"the {name}{path and ' at '}{path} {reason}"
        for path, reason in reasons.items()
        if reason
    ]


def _tolerance(*values) -> float:
    """Return the relative tolerance of the coarsest type; 0 if all are exact."""
    types = [jnp.result_type(value) for value in values if _is_number(value)]
    steps = [float(jnp.finfo(t).eps) for t in types if jnp.issubdtype(t, np.inexact)]
    if steps and jax.default_backend() != "cpu":
        steps.append(1e-3)  # accelerators may multiply in fewer bits
    return max(steps, default=0.0) ** (2 / 3)


def _is_number(value) -> bool:
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return any(jnp.issubdtype(value.dtype, kind) for kind in (np.number, np.bool))
    return isinstance(value, int | float | complex) and not isinstance(value, bool)


@np.errstate(all="ignore")
def compare(mine, wanted, tolerance: float) -> str | None:
    """Say in words how a value differs from the wanted one; None if it does not.

    A wanted number or word is not given away, an element of an array is.
    """
    if not (_is_number(mine) and _is_number(wanted)):
        return _other_kind(mine, wanted)
    mine, wanted = _widened(mine), _widened(wanted)
    if mine.shape != wanted.shape:
        return f"has the shape {mine.shape}, wanted is {wanted.shape}"
    right = _close(mine, wanted, tolerance)
    if right.all():
        return None
    if right.shape:
        return _other_array(mine, wanted, tolerance)
    return f"is {_digits(mine[()])}, which is {_off(mine[()], wanted[()])}"


def _other_kind(mine, wanted) -> str | None:
    if _is_number(wanted):
        return f"is {_called(mine)}; a number is wanted"
    alike = getattr(mine, "shape", ()) == getattr(wanted, "shape", ())
    right = alike and np.all(_plain(mine) == _plain(wanted))
    return None if right else f"is {_called(mine)}, which is not right"


def _plain(value):
    return " ".join(value.split()).casefold() if isinstance(value, str) else value


def _widened(array) -> np.ndarray:
    """Fetch an array in a type in which NumPy compares well."""
    array = np.asarray(array)
    if jnp.issubdtype(array.dtype, np.inexact):
        return array.astype(np.promote_types(array.dtype, float))
    return array


def _close(mine, wanted, tolerance: float) -> np.ndarray:
    """Say where arrays agree, within a fraction of the largest wanted value."""
    if not tolerance:
        return mine == wanted
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
    return np.isclose(mine, wanted, tolerance, tolerance * largest, equal_nan=True)


def _other_array(mine, wanted, tolerance: float) -> str:
    if mine.shape == mine.T.shape and _close(mine.T, wanted, tolerance).all():
        return "is transposed"
    factor = np.vdot(wanted, mine) / np.vdot(wanted, wanted)
    multiple = _close(mine, factor * wanted, max(tolerance, 1e-9)).all()
    if multiple and mine.size > 1 and abs(factor) > 1e-6:
        return f"is {factor:.6g} times the right one"
    wrong = np.argwhere(~_close(mine, wanted, tolerance))
    where = tuple(map(int, wrong[0]))
    found = f"is {_digits(mine[where])}, wanted is {_digits(wanted[where])}"
    return f"at {list(where)} {found}; {len(wrong)} of {mine.size} elements are wrong"


def _digits(number) -> str:
    return f"{number:.6g}" if isinstance(number, np.inexact) else str(number)


def _off(mine, wanted) -> str:
    if np.iscomplexobj([mine, wanted]):
        return "not right"
    direction = "large" if mine > wanted else "small"
    ratio = max(mine / wanted, wanted / mine)
    if 1.5 < ratio < math.inf and math.isclose(ratio, round(ratio), rel_tol=1e-6):
        return f"{round(ratio)} times too {direction}"
    return f"too {direction}"


# ------------------------------------------------ what is wrong with a program


def _fetched(arg):
    """Return an argument as the reference gets it: arrays of numbers in NumPy."""
    return np.asarray(arg) if isinstance(arg, jax.Array) and _is_number(arg) else arg


def _run(answer, args: tuple):
    """Return what the compiled answer returns; Refused in words if it cannot run."""
    if not callable(answer):
        called = _called(answer)
        raise Refused(f"the answer is {called}; the function itself is wanted")

    @jax.jit
    def compiled(*args):
        return _arrays(answer(*args))

    try:
        outputs = compiled(*args)
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"your function raised {_error(error)}") from error
    for array in jax.tree.leaves(outputs):
        _resolve(array, array.shape)  # a pending sum cannot be fetched
    return outputs


def _arrays(outputs):
    """Return the outputs themselves; Refused if one of them is no array."""
    for leaf in _leaves(outputs).values():
        if not isinstance(leaf, jax.Array):
            called = _called(leaf)
            raise Refused(f"the function returned {called}; return a jax.Array")
    return outputs


def _spoken(counts: Mapping) -> str:
    """Say how many collectives of which kinds there are."""
    words = [f"{n or 'unknown'} {kind}{'s' * (n != 1)}" for kind, n in counts.items()]
    return " and ".join(words)


def _bill(program, budget: dict) -> tuple[list[str], list[str]]:
    """Say by what a measured program exceeds its budget, and what it uses of it."""
    verb = "sends" if list(program.counts.values()) == [1] else "send"
    cost = f"{_spoken(program.counts)} {verb} {program.sent} bytes a device"
    facts = [cost if program.counts else "there is no collective"]
    reasons = []
    for name, limit in budget.items():
        used = getattr(program, name)
        verb = "a device sends" if name == "sent" else f"{name} take"
        if name != "counts":
            facts.append(f"{name}: {used} of {limit} bytes")
            over = f"{verb} {used} bytes, the budget allows {limit}"
            reasons += [over] * (not used <= limit)
        elif used != limit:
            allowed = f"exactly {_spoken(limit)}" if limit else 0
            reasons.append(f"{facts[0]}; the budget is {allowed}")
    return reasons, facts


# ------------------------------------------------------------------- the judge


@dataclass(frozen=True)
class Judge:
    """Judges answers. `draw(index_map, shape)` shows one, `measure(f, *args)` a cost.

    Without `draw` the pictures are text; without `measure` no budget can be set.
    """

    draw: Callable | None = None
    measure: Callable | None = None

    def sharding(self, answer, target, shape: tuple[int, ...]) -> Verdict:
        """Judge a sharding, or the sharding of an array, by what each device holds.

        answer: a sharding, a spec for the mesh in context, an array, or a
        `ShapeDtypeStruct`; target: a picture (see `parse`) or any of these. ValueError
        if the target is none.
        """
        shape = tuple(shape) if isinstance(shape, Iterable) else (shape,)
        known = parse if isinstance(target, str) else _resolve
        wanted = known(target, shape)
        pictures = [("The target", self._picture(wanted, shape))]
        try:
            mine = _resolve(answer, shape)
            reasons = differences(mine, wanted, shape)
            pictures.append(("Your answer", self._picture(mine, shape)))
        except Refused as refusal:
            reasons = [str(refusal)]
        return Verdict(tuple(reasons), (), tuple(pictures))

    def value(self, answer, expected) -> Verdict:
        """Judge a number, a string, an array, or a tree of them.

        Floats are compared in the tolerance of their dtype, strings without regard to
        case and spaces. What is expected is not given away, except for arrays.
        """
        if isinstance(expected, tuple | list) and hasattr(answer, "tolist"):
            answer = answer.tolist()
        return Verdict(tuple(_wrong("answer", answer, expected)))

    def program(self, answer, reference, *args, sharding=None, **budget) -> Verdict:
        """Judge a function by its value on `args`, its output sharding and its cost.

        reference: a function that gets the arguments in NumPy and returns what is
        wanted; sharding: the target for the output, or a tree of targets for many.
        Budgets: counts, the collectives, exactly, such as `{"all-reduce": 1}`; sent,
        temporaries, outputs, the largest number of bytes on a device. ValueError if a
        budget has another name, or is set without `measure`.
        """
        self._check(budget)
        if not callable(reference):
            raise ValueError(f"the reference is {_called(reference)}: pass a function")
        expected = reference(*jax.tree.map(_fetched, args))
        try:
            outputs = _run(answer, args)
        except Refused as refusal:
            return Verdict((str(refusal),))
        wrong = _wrong("value", outputs, expected, jax.tree.leaves(args))
        if wrong:
            return Verdict(tuple(wrong))
        reasons, pictures = self._placed(outputs, expected, sharding)
        facts = []
        if budget:
            over, facts = _bill(self.measure(answer, *args), budget)
            reasons += over
        if reasons:
            first = f"the value is right, but {reasons[0]}"
            return Verdict((first, *reasons[1:]), (), pictures)
        return Verdict((), ("the value is right", *facts), pictures)

    def _check(self, budget: Mapping):
        if unknown := budget.keys() - set(BUDGETS):
            raise ValueError(f"no budget is called {min(unknown)}: there are {BUDGETS}")
        if budget and not self.measure:
            raise ValueError("a budget must be measured: make a Judge(draw, measure)")

    def _placed(self, outputs, expected, sharding) -> tuple[list[str], tuple]:
        """Say what is wrong with shardings of outputs, with pictures of the first."""
        targets = jax.tree.broadcast(
            sharding, expected, is_leaf=lambda leaf: leaf is None
        )
        arrays = _leaves(outputs)
        verdicts = [
            self.sharding(arrays[path], target, arrays[path].shape)
            for path, target in _leaves(targets).items()
            if target is not None
        ]
        verdicts.sort(key=lambda verdict: verdict.passed)
        reasons = [reason for verdict in verdicts for reason in verdict.reasons]
        return reasons, verdicts[0].pictures if verdicts else ()

    def _picture(self, boxes: IndexMap, shape: tuple[int, ...]):
        return self.draw(boxes, shape) if self.draw else notation(boxes)


def main():
    """Judge two shardings of one array on every device there is."""
    devices = jax.devices()
    shape = (2 * len(devices), 2 * len(devices))
    columns = " ".join(str(device.id) for device in devices)
    jax.set_mesh(jax.make_mesh((len(devices),), ("x",)))
    judge = Judge()
    print(judge.sharding(jax.P("x"), columns, shape))
    print(judge.sharding(jax.P(None, "x"), columns, shape).require())


if __name__ == "__main__":
    main()
