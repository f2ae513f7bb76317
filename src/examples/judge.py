# SPDX-License-Identifier: MIT-0
"""A judge for exercises: every right answer counts, and a wrong one is told why.

An answer is right for what it does, not for how it is spelt. A sharding is judged by
the part of the array that each device holds, a program by its value first and then by
what it sends and stores.

    answer  jax.P("x"), a sharding, an array [N@x, M@y], or a function of arrays
    target  "0 2 / 4 6"    device 0 holds the upper left quarter, device 2 the upper
                           right one; "0,1 2,3": 0 and 1 both hold the left half
    layout  {0: (slice(0, 4), slice(0, 8)), ...}    what each device holds

Cost: a sharding or a value is judged without a message. A program is compiled, runs
once on its arguments as they are placed, and its result is fetched.

    JAX_NUM_CPU_DEVICES=8 python judge.py

The file needs JAX and NumPy alone; how to draw a layout and how to measure a program is
told to the judge, `Judge(draw, measure)`.
"""

import html
import itertools
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

BUDGETS = ("counts", "sent", "temporaries", "outputs")
FRAME = "border-left: .25rem solid currentColor; padding-left: 1rem"
BESIDE = "display: flex; flex-wrap: wrap; gap: 1rem 2rem"

Layout = Mapping[int, tuple[slice, ...]]


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


class Refused(Exception):
    """Why an answer cannot be judged at all, as a sentence."""


def _called(answer) -> str:
    """Name an object in words."""
    if answer is ...:
        return "three dots, unchanged"
    if isinstance(answer, np.ndarray | np.generic):
        return "NumPy, not a jax.Array"
    if isinstance(answer, jax.Array):
        return "an array"
    if answer is None or isinstance(answer, str | bool | int | float | complex):
        return repr(answer)
    kind = "jax.P" if isinstance(answer, jax.P) else type(answer).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


def _error(error: Exception) -> str:
    """Return the kind of an error and the first line of what it says."""
    line = next(iter(str(error).splitlines()), "").rstrip(".")
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


# ------------------------------------------------------- what each device holds


def layout(sharding: Sharding, shape: tuple[int, ...]) -> dict[int, tuple[slice, ...]]:
    """Return the part of an array of this shape that each device holds.

    Two shardings do the same to the array if their layouts are equal, whatever their
    meshes, axis names and specs. A sum still pending (`unreduced`) does not show.
    """
    if _unreduced(sharding):
        # JAX 0.9 has no `partitions`, and from 0.12 on an unreduced spec needs it
        partitions = getattr(sharding.spec, "partitions", sharding.spec)
        sharding = jax.NamedSharding(sharding.mesh, jax.P(*partitions))
    return {
        device.id: tuple(
            slice(*part.indices(n)[:2]) for part, n in zip(parts, shape, strict=True)
        )
        for device, parts in sharding.devices_indices_map(shape).items()
    }


def parse(picture: str, shape: tuple[int, ...]) -> dict[int, tuple[slice, ...]]:
    """Read a picture such as "0 2 / 4 6" as the layout of an array of this shape.

    A slash ends a row, a space a column, and commas join the devices that hold the same
    block; an array with one axis has one row. ValueError if that is no layout.
    """
    rows = [row.split() for row in picture.split("/")]
    grid = _grid(rows, shape, picture)
    found = {}
    for place, cell in zip(np.ndindex(*grid), itertools.chain(*rows), strict=True):
        for word in cell.split(","):
            if not word.isdigit() or int(word) in found:
                raise ValueError(f"{picture!r}: {word!r} is no device, or one too many")
            found[int(word)] = tuple(
                slice(i * n // parts, (i + 1) * n // parts)
                for i, n, parts in zip(place, shape, grid, strict=True)
            )
    return found


def _grid(rows, shape, picture: str) -> tuple[int, ...]:
    """Return into how many blocks a picture cuts each axis, if it can."""
    grid = (len(rows), len(rows[0]))
    if not rows[0] or {len(row) for row in rows} != {grid[1]}:
        raise ValueError(f"{picture!r}: give each row as many blocks as the first")
    if len(shape) == len(rows) == 1:
        grid = grid[1:]
    if len(grid) != len(shape):
        raise ValueError(
            f"{picture!r} is no picture of the shape {shape}: give one row for one "
            "axis, rows and columns for two, and a sharding instead for more"
        )
    if any(n % parts for n, parts in zip(shape, grid, strict=True)):
        raise ValueError(f"{picture!r} does not divide the shape {shape}")
    return grid


def notation(boxes: Layout) -> str:
    """Write the layout of an array with one or two axes as `parse` reads it."""
    rows: dict = {}
    for device, box in sorted(
        boxes.items(), key=lambda item: (_ends(item[1]), item[0])
    ):
        starts = _ends(box)
        rows.setdefault(starts[:-1], {}).setdefault(starts, []).append(str(device))
    return " / ".join(" ".join(map(",".join, row.values())) for row in rows.values())


def _ends(box) -> tuple:
    return tuple((part.start, part.stop) for part in box)


def _unreduced(sharding) -> frozenset:
    return frozenset(getattr(getattr(sharding, "spec", None), "unreduced", ()))


def _find(answer, shape: tuple[int, ...]) -> Sharding:
    """Return the sharding that `answer` is or has; a spec takes the mesh in context."""
    if isinstance(answer, jax.P):
        return _over_the_mesh(answer)
    if isinstance(answer, tuple | list):
        raise Refused(f"{answer} is a {type(answer).__name__}; write jax.P(...)")
    sharding = (
        answer if isinstance(answer, Sharding) else getattr(answer, "sharding", None)
    )
    if not isinstance(sharding, Sharding):
        raise Refused(f"the answer is {_called(answer)}; a sharding is wanted")
    if getattr(answer, "shape", shape) != shape:
        raise Refused(f"the array has the shape {answer.shape}, wanted is {shape}")
    return sharding


def _over_the_mesh(spec: jax.P) -> Sharding:
    mesh = jax.sharding.get_mesh()
    if mesh.empty:
        raise Refused("a spec alone names no mesh: call jax.set_mesh(mesh) first")
    return jax.NamedSharding(mesh, spec)


def _resolve(answer, shape: tuple[int, ...]) -> tuple[dict, frozenset]:
    """Return the layout of an answer, and the axes over which it is unreduced."""
    try:
        sharding = _find(answer, shape)
        spec = getattr(sharding, "spec", ())
        if len(spec) > len(shape):
            raise Refused(f"{spec} is for {len(spec)} axes, the array has {len(shape)}")
        return layout(sharding, shape), _unreduced(sharding)
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"JAX refuses this sharding: {_error(error)}") from error


def _target(target, shape: tuple[int, ...]) -> tuple[dict, frozenset]:
    if isinstance(target, str):
        return parse(target, shape), frozenset()
    try:
        return _resolve(target, shape)
    except Refused as refusal:
        raise ValueError(f"the target is no sharding: {refusal}") from refusal


# ----------------------------------------------- what is wrong with a sharding


def differences(mine: Layout, wanted: Layout, shape: tuple[int, ...]) -> list[str]:
    """Say in words how the layout `mine` differs from `wanted`; [] if it does not."""
    if mine == wanted:
        return []
    likely = (
        _other_devices(mine, wanted),
        _replicated(mine, wanted, shape),
        _transposed(mine, wanted, shape),
        _reordered(mine, wanted, shape),
        _other_blocks(mine, wanted),
    )
    found = [reason for reason in likely if reason]
    return [*found[:1], _first_difference(mine, wanted, shape)]


def _other_devices(mine, wanted):
    if mine.keys() == wanted.keys():
        return None
    used, target = (", ".join(map(str, sorted(boxes))) for boxes in (mine, wanted))
    if len(mine) == 1:
        return f"only device {used} holds the array"
    if mine.keys() < wanted.keys():
        return f"it uses {len(mine)} of the {len(wanted)} devices: {used}"
    return f"it uses the devices {used}; the target uses {target}"


def _replicated(mine, wanted, shape):
    whole = {tuple(slice(0, n) for n in shape)}
    if set(mine.values()) == whole and len(mine) > 1:
        return "every device holds the whole array (replicated)"
    if set(wanted.values()) == whole:
        return "the target is replicated: no device holds only a part"
    return None


def _transposed(mine, wanted, shape):
    swapped = {device: box[::-1] for device, box in _fractions(mine, shape).items()}
    if len(shape) == 2 and swapped == _fractions(wanted, shape):
        return "rows and columns are swapped: this is the transposed sharding"
    return None


def _fractions(boxes, shape) -> dict:
    return {
        device: [
            (Fraction(p.start, n), Fraction(p.stop, n))
            for p, n in zip(box, shape, strict=True)
        ]
        for device, box in boxes.items()
    }


def _reordered(mine, wanted, shape):
    blocks = [sorted(map(_ends, boxes.values())) for boxes in (mine, wanted)]
    if mine.keys() != wanted.keys() or blocks[0] != blocks[1]:
        return None
    if len(shape) > 2:
        return "the devices are in another order"
    order = f"{notation(mine)} instead of {notation(wanted)}"
    return f"the devices are in another order: {order}"


def _other_blocks(mine, wanted):
    grids = [
        [len(set(map(repr, parts))) for parts in zip(*boxes.values(), strict=True)]
        for boxes in (mine, wanted)
    ]
    cut, target = (" x ".join(map(str, grid)) for grid in grids)
    if cut == target:
        return None
    return f"the array is cut into blocks {cut}, in the target {target}"


def _first_difference(mine, wanted, shape) -> str:
    device = min(d for d in mine.keys() | wanted.keys() if mine.get(d) != wanted.get(d))
    has, wants = (_in_words(boxes.get(device), shape) for boxes in (mine, wanted))
    return f"device {device} holds {has}, the target wants {wants}"


def _in_words(box, shape) -> str:
    """Say in words which part of an array a box is."""
    if box is None:
        return "nothing"
    if _ends(box) == tuple((0, n) for n in shape):
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


def _by_path(tree) -> dict[str, object]:
    """Return the leaves of a tree by their paths; lists and tuples are the same."""
    try:
        leaves = jax.tree.leaves_with_path(tree, is_leaf=lambda leaf: leaf is None)
    except (ValueError, TypeError):
        return {"": tree}
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _pairs(mine: dict, wanted: dict) -> Iterator[tuple[str, object, object]]:
    """Yield path, mine, wanted for each leaf; Refused if the trees differ."""
    if len(mine) != len(wanted):
        given = f"the number of values is {len(mine)}"
        raise Refused(f"{given}, wanted is {len(wanted)}")
    strange = [path for path in mine if path not in wanted]
    if strange:
        raise Refused(f"there is a value {strange[0] or 'alone'} that is not wanted")
    yield from ((path, mine[path], leaf) for path, leaf in wanted.items())


def _matched(outputs, sharding) -> list[tuple]:
    """Pair each output with the sharding that it must have, if it must have one."""
    arrays, targets = _by_path(outputs), _by_path(sharding)
    if not targets.keys() <= {"", *arrays}:
        raise ValueError(f"sharding is for {[*targets]}, the outputs are {[*arrays]}")
    wanted = {path: targets.get(path, targets.get("")) for path in arrays}
    return [
        (arrays[path], target) for path, target in wanted.items() if target is not None
    ]


def _tolerance(*values) -> float:
    """Return the relative tolerance for the coarsest dtype; 0 if all are exact."""
    dtypes = [jnp.result_type(value) for value in values]
    steps = [jnp.finfo(d).eps for d in dtypes if jnp.issubdtype(d, np.inexact)]
    coarsest = max(map(float, steps), default=0.0) ** (2 / 3)
    accelerated = steps and jax.default_backend() != "cpu"
    return max(coarsest, 1e-2) if accelerated else coarsest  # products round coarsely


def _host(array) -> np.ndarray:
    """Fetch an array; NumPy compares no random keys, and no small floats well."""
    if isinstance(array, jax.Array) and jnp.issubdtype(
        array.dtype, jax.dtypes.prng_key
    ):
        array = jax.random.key_data(array)
    array = np.asarray(array)
    if jnp.issubdtype(array.dtype, np.complexfloating):
        return array.astype(np.complex128)
    return array.astype(float) if jnp.issubdtype(array.dtype, np.floating) else array


def _close(mine, wanted, tolerance: float) -> np.ndarray:
    """Say where arrays agree, within a fraction of the largest wanted value."""
    if not tolerance:
        return np.asarray(mine == wanted)
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
    return np.isclose(mine, wanted, tolerance, tolerance * largest, equal_nan=True)


def _times(mine, wanted, tolerance: float):
    """Return by what number all of `wanted` is multiplied in `mine`, if by one."""
    square = np.vdot(wanted, wanted)
    factor = np.vdot(wanted, mine) / square if square else 0
    many = abs(factor) > 1e-6 and mine.size > 1
    return factor if many and _close(mine, factor * wanted, tolerance).all() else None


@np.errstate(all="ignore")
def compare(mine, wanted, tolerance: float) -> str | None:
    """Say in words how an array differs from the wanted one; None if it does not."""
    mine, wanted = _host(mine), _host(wanted)
    if mine.shape != wanted.shape:
        return f"has the shape {mine.shape}, wanted is {wanted.shape}"
    right = _close(mine, wanted, tolerance)
    if right.all():
        return None
    if mine.shape == mine.T.shape and _close(mine.T, wanted, tolerance).all():
        return "is transposed"
    factor = _times(mine, wanted, max(tolerance, 1e-9))
    if factor is not None:
        return f"is {factor:.6g} times the right one"
    where = tuple(map(int, np.argwhere(~right)[0]))
    at = f"at {list(where)} " if where else ""
    many = f"; {np.sum(~right)} of {right.size} elements are wrong" if where else ""
    return f"{at}is {_digits(mine[where])}, wanted is {_digits(wanted[where])}{many}"


def _digits(number) -> str:
    return f"{number:.6g}" if isinstance(number, np.inexact) else str(number)


def _is_number(value) -> bool:
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        kinds = (np.number, np.bool, jax.dtypes.prng_key)
        return any(jnp.issubdtype(value.dtype, kind) for kind in kinds)
    return isinstance(value, int | float | complex) and not isinstance(value, bool)


@np.errstate(all="ignore")
def _hint(mine, wanted, tolerance: float) -> str | None:
    """Say what is wrong with one entry of an answer, without giving it away."""
    if not _is_number(wanted):
        several = getattr(mine, "shape", ())
        right = not several and _plain(mine) == _plain(wanted)
        return None if right else f"is {_called(mine)}, which is not right"
    if not _is_number(mine):
        return f"is {_called(mine)}; a number is wanted"
    if np.shape(mine) or np.shape(wanted):
        return compare(mine, wanted, tolerance)
    mine, wanted = _host(mine)[()], _host(wanted)[()]
    if _close(mine, np.asarray(wanted), tolerance).all():
        return None
    return f"is {_digits(mine)}, which is {_off(mine, wanted)}"


def _plain(value):
    return " ".join(value.split()).casefold() if isinstance(value, str) else value


def _off(mine, wanted) -> str:
    if np.iscomplexobj(mine) or np.iscomplexobj(wanted):
        return "not right"
    small, large = sorted((abs(float(mine)), abs(float(wanted))))
    ratio = large / small if small and mine * wanted > 0 else math.nan
    direction = "large" if mine > wanted else "small"
    if ratio > 1.5 and math.isclose(ratio, round(ratio), rel_tol=1e-6):
        return f"{round(ratio)} times too {direction}"
    return f"too {direction}"


# ------------------------------------------------ what is wrong with a program


def _run(answer, args: tuple):
    """Return what the compiled answer returns; Refused in words if it cannot run."""
    if not callable(answer):
        called = _called(answer)
        raise Refused(f"the answer is {called}; the function itself is wanted")
    try:
        return jax.jit(_watched(answer))(*args)
    except Refused:
        raise
    except jax.errors.TracerArrayConversionError as error:
        raise Refused("the function calls NumPy on its arguments: use jnp") from error
    except Exception as error:
        raise Refused(f"your function raised {_error(error)}") from error


def _watched(answer: Callable) -> Callable:
    """Return `answer`, but Refused when it returns anything else than arrays."""

    def watched(*args):
        result = answer(*args)
        for leaf in _by_path(result).values():
            if not isinstance(leaf, jax.Array):
                called = _called(leaf)
                raise Refused(f"the function returned {called}; return a jax.Array")
        return result

    return watched


def _fetched(arg):
    key = jnp.issubdtype(getattr(arg, "dtype", bool), jax.dtypes.prng_key)
    return np.asarray(arg) if isinstance(arg, jax.Array) and not key else arg


def _spoken(counts: Mapping) -> str:
    """Say how many collectives of which kinds there are."""
    words = [
        f"{'unknown numbers of' if n is None else n} {kind}{'s' * (n != 1)}"
        for kind, n in counts.items()
    ]
    return " and ".join(words) or "no collective"


def _cost(program) -> str:
    """Say what a measured program sends."""
    counts = program.counts
    if not counts:
        return "there is no collective"
    verb = "sends" if list(counts.values()) == [1] else "send"
    amount = "an unknown number of" if math.isnan(program.sent) else program.sent
    return f"{_spoken(counts)} {verb} {amount} bytes a device"


def _over_counts(program, budget) -> str | None:
    counts = program.counts
    total = math.inf if None in counts.values() else sum(counts.values())
    exact = isinstance(budget, Mapping)
    if counts == budget if exact else total <= budget:
        return None
    limit = f"exactly {_spoken(budget)}" if exact and budget else f"{budget or 0}"
    return f"{_cost(program)}; the budget is {limit}"


def _over_bytes(program, name: str, budget: int) -> str | None:
    used = getattr(program, name)
    if used <= budget:
        return None
    verb = "a device sends" if name == "sent" else f"{name} take"
    number = "an unknown number of" if math.isnan(used) else used
    return f"{verb} {number} bytes, the budget allows {budget}"


def _over(program, budget: Mapping) -> list[str]:
    """Say in which ways a measured program exceeds its budget."""
    reasons = [
        _over_counts(program, limit)
        if name == "counts"
        else _over_bytes(program, name, limit)
        for name, limit in budget.items()
    ]
    return [reason for reason in reasons if reason]


def _used(program, budget: Mapping) -> list[str]:
    """Say how much of each budget of bytes a measured program uses."""
    return [
        f"{name}: {getattr(program, name)} of {limit} bytes"
        for name, limit in budget.items()
        if name != "counts"
    ]


# ------------------------------------------------------------------- the judge


@dataclass(frozen=True)
class Judge:
    """Judges answers. `draw(layout, shape)` shows a layout, `measure(f, *args)` a cost.

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
        shape = tuple(shape)
        wanted, pending = _target(target, shape)
        pictures = [("The target", self._picture(wanted, shape))]
        try:
            mine, unreduced = _resolve(answer, shape)
        except Refused as refusal:
            return Verdict((str(refusal),), (), tuple(pictures))
        pictures.append(("Your answer", self._picture(mine, shape)))
        reasons = differences(mine, wanted, shape)
        if unreduced != pending:
            axes = ", ".join(sorted(unreduced)) or "no axis"
            reasons.append(f"its sums are pending (unreduced) over {axes}")
        return Verdict(tuple(reasons), (), tuple(pictures))

    def value(self, answer, expected) -> Verdict:
        """Judge a number, a string, an array, or a tree of them.

        Floats are compared in the tolerance of their dtype, strings without regard to
        case and spaces. What is expected is not given away, except for arrays.
        """
        if isinstance(expected, tuple | list) and hasattr(answer, "tolist"):
            answer = answer.tolist()
        try:
            pairs = list(_pairs(_by_path(answer), _by_path(expected)))
        except Refused as refusal:
            return Verdict((str(refusal),))
        reasons = []
        for path, mine, wanted in pairs:
            tolerance = _tolerance(wanted) if _is_number(wanted) else 0
            hint = _hint(mine, wanted, tolerance)
            reasons += [f"the answer{' at ' * bool(path)}{path} {hint}"] * bool(hint)
        return Verdict(tuple(reasons))

    def array(self, answer, expected, sharding=None) -> Verdict:
        """Judge the values of a `jax.Array` and, if one is wanted, its sharding."""
        if not isinstance(answer, jax.Array):
            return Verdict((f"the answer is {_called(answer)}; return a jax.Array",))
        found = compare(answer, expected, _tolerance(expected))
        if found:
            return Verdict((f"the value {found}",))
        if sharding is None:
            return Verdict((), ("the value is right",))
        return self.sharding(answer, sharding, answer.shape)

    def program(self, answer, reference, *args, sharding=None, **budget) -> Verdict:
        """Judge a function by its value on `args`, its output sharding and its cost.

        reference: a function that gets the arguments in NumPy and returns what is
        wanted; sharding: the target for the output, or a tree of targets for many.
        Budgets: counts, an exact dict such as `{"all-reduce": 1}` or the largest total
        number; sent, temporaries, outputs, the largest number of bytes on a device.
        ValueError if a budget is unknown, or set without `measure`.
        """
        self._check(budget)
        expected = reference(*jax.tree.map(_fetched, args))
        try:
            outputs = _run(answer, args)
            pairs = list(_pairs(_by_path(outputs), _by_path(expected)))
        except Refused as refusal:
            return Verdict((str(refusal),))
        reasons = []
        for path, mine, wanted in pairs:
            floats = [leaf for leaf in jax.tree.leaves(args) if _is_number(leaf)]
            found = compare(mine, wanted, _tolerance(wanted, *floats))
            reasons += [f"the value{path} {found}"] * bool(found)
        if reasons:
            return Verdict(tuple(reasons))
        return self._affordable(answer, args, outputs, sharding, budget)

    def _affordable(self, answer, args, outputs, sharding, budget) -> Verdict:
        """Judge the output sharding and the cost of a program whose value is right."""
        reasons, pictures = [], ()
        for mine, target in _matched(outputs, sharding):
            verdict = self.sharding(mine, target, mine.shape)
            pictures = pictures if reasons else verdict.pictures
            reasons += verdict.reasons
        facts = ("the value is right",)
        if budget:
            program = self.measure(answer, *args)
            reasons += _over(program, budget)
            facts += (_cost(program), *_used(program, budget))
        if reasons:
            reasons[0] = f"the value is right, but {reasons[0]}"
            facts = ()
        return Verdict(tuple(reasons), facts, tuple(pictures))

    def _check(self, budget: Mapping):
        unknown = budget.keys() - set(BUDGETS)
        if unknown:
            raise ValueError(f"no budget is called {min(unknown)}: there are {BUDGETS}")
        if budget and self.measure is None:
            raise ValueError(
                "a budget must be measured: make the judge with "
                "Judge(draw, measure), measure from communication.py"
            )

    def _picture(self, boxes: Layout, shape: tuple[int, ...]):
        if self.draw:
            return self.draw(boxes, shape)
        if len(shape) in (1, 2):
            return notation(boxes)
        each = sorted(boxes.items())
        return "\n".join(f"device {d}: {_in_words(box, shape)}" for d, box in each)


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
