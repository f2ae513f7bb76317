# SPDX-License-Identifier: MIT-0
"""A judge for exercises: every right answer counts, and a wrong one is told why.

An answer is right for what it does, not for how it is spelt. A sharding is judged by
the part of the array that each device holds, a program by its value first and then by
what it sends and stores.

    answer    jax.P("x"), a NamedSharding, an array [N@x, M@y], or a function
    target    "0 2 / 4 6"         devices as they lie over rows / columns, or a sharding
              "0,1 2,3"           devices 0 and 1 both hold the left half
    layout    {device id: (slice, slice)}     the index map that two shardings share

Judging a sharding or a value sends nothing. Judging a program compiles it, runs it once
on the arguments as they are placed, and fetches the result to compare it in NumPy.

    JAX_NUM_CPU_DEVICES=8 python judge.py
"""

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import jax
import numpy as np

BUDGETS = ("counts", "sent", "temporaries", "outputs")


@dataclass(frozen=True, repr=False)
class Verdict:
    """What the judge says: accepted if there is no reason against the answer.

    `reasons` are sentences; `facts` say what was measured; `pictures` are pairs of a
    title and anything that prints or displays itself.
    """

    reasons: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    pictures: tuple[tuple[str, object], ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the answer is accepted."""
        return not self.reasons

    def require(self) -> "Verdict":
        """Return the verdict; raise AssertionError with its text unless it passed."""
        if not self.passed:
            raise AssertionError(str(self))
        return self

    @property
    def _sentences(self) -> tuple[str, ...]:
        return tuple(text[:1].upper() + text[1:] for text in self.reasons + self.facts)

    def __repr__(self) -> str:
        """Spell the verdict out: the word, the sentences, the pictures as text."""
        lines = ["Accepted." if self.passed else "Not yet."]
        lines += [f"- {sentence}." for sentence in self._sentences]
        for title, picture in self.pictures:
            lines += ["", f"{title}:", *(f"  {line}" for line in _text(picture))]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        word = "Accepted" if self.passed else "Not yet"
        items = "".join(f"<li>{html.escape(text)}.</li>" for text in self._sentences)
        figures = "".join(_figure(title, picture) for title, picture in self.pictures)
        style = "border-left: .3rem solid currentColor; padding-left: 1rem"
        row = "display: flex; flex-wrap: wrap; gap: 1rem 2rem"
        return (
            f'<div class="verdict" role="group" aria-label="Verdict: {word}" '
            f'style="{style}"><p><strong>{word}.</strong></p>'
            + (f"<ul>{items}</ul>" if items else "")
            + (f'<div style="{row}">{figures}</div>' if figures else "")
            + "</div>"
        )


def _text(picture) -> list[str]:
    """Return the lines of a picture in plain text."""
    return str(picture).splitlines()


def _figure(title: str, picture) -> str:
    """Return a picture and its caption in HTML; one that is only text as it is."""
    for name in ("_repr_html_", "_repr_svg_"):
        if hasattr(picture, name):
            body = getattr(picture, name)()
            break
    else:
        body = f"<pre>{html.escape(str(picture))}</pre>"
    caption = f"<figcaption>{html.escape(title)}</figcaption>"
    style = "margin: 0; flex: 1 1 16rem; min-width: 0; overflow-x: auto"
    return f'<figure style="{style}">{caption}{body}</figure>'


# --------------------------------------------------------------------- layouts


def layout(sharding, shape: tuple[int, ...]) -> dict[int, tuple[slice, ...]]:
    """Return what each device holds: its id and one slice with numbers per axis.

    Two shardings are the same for an array of this shape if their layouts are equal,
    whatever their meshes, axis names and specs. Sums that are still pending
    (`jax.P(unreduced=...)`) do not show here.
    """
    if _pending(sharding):
        sharding = jax.NamedSharding(sharding.mesh, jax.P(*sharding.spec))
    return {
        device.id: tuple(slice(*part.indices(n)[:2]) for part, n in zip(box, shape))
        for device, box in sharding.devices_indices_map(shape).items()
    }


def _pending(sharding) -> frozenset:
    """Return the mesh axes over which the array is still to be summed."""
    return frozenset(getattr(getattr(sharding, "spec", None), "unreduced", ()))


def parse(text: str, shape: tuple[int, ...]) -> dict[int, tuple[slice, ...]]:
    """Read a picture such as "0 2 / 4 6" as a layout of an array of this shape.

    "/" parts the rows of the picture, spaces its columns, and a comma stands between
    devices that hold the same block. Raises ValueError if that is no layout.
    """
    cells = [row.split() for row in text.split("/")]
    grid = (len(cells), len(cells[0]))
    if len({len(row) for row in cells}) != 1 or not cells[0]:
        raise ValueError(f"the rows of {text!r} differ in length: give each as many")
    if len(shape) == 1 and grid[0] == 1:
        grid = grid[1:]
    if len(shape) != len(grid):
        raise ValueError(
            f"the picture {text!r} shows {len(grid)} axes, but the shape is {shape}: "
            "pass a sharding as the target"
        )
    if any(n % parts for n, parts in zip(shape, grid)):
        raise ValueError(f"an array {shape} cannot be cut into {grid} equal blocks")
    found = {}
    for place, cell in zip(np.ndindex(grid), sum(cells, [])):
        box = tuple(
            slice(i * n // parts, (i + 1) * n // parts)
            for i, n, parts in zip(place, shape, grid)
        )
        for word in cell.split(","):
            if not word.isdigit() or int(word) in found:
                raise ValueError(f"{word!r} in {text!r} is no device or is there twice")
            found[int(word)] = box
    return found


def notation(boxes: Mapping, shape: tuple[int, ...]) -> str:
    """Write a layout as `parse` reads it, for one or two axes."""
    cells = {}
    for device, box in sorted(boxes.items()):
        cells.setdefault(tuple(part.start for part in box), []).append(str(device))
    rows = {}
    for start, devices in sorted(cells.items()):
        rows.setdefault(start[:-1], []).append(",".join(devices))
    return " / ".join(" ".join(row) for row in rows.values())


def holds(box: tuple[slice, ...], shape: tuple[int, ...]) -> str:
    """Say in words which part of the array a box is."""
    if all(part == slice(0, n) for part, n in zip(box, shape)):
        return "the whole array"
    if len(shape) > 2:
        return "[" + ", ".join(f"{p.start}:{p.stop}" for p in box) + "]"
    names = ("element",) if len(shape) == 1 else ("row", "column")
    words = [
        f"{name} {part.start}"
        if part.stop - part.start == 1
        else f"{name}s {part.start}-{part.stop - 1}"
        for name, part, n in zip(names, box, shape)
        if part != slice(0, n)
    ]
    return " of ".join(words)


# -------------------------------------------------- what is wrong with a sharding


def _devices(boxes) -> str:
    return ", ".join(map(str, sorted(boxes)))


def _others(answer, target, shape):
    if set(answer) == set(target):
        return None
    if len(answer) == 1:
        return f"only device {_devices(answer)} holds the array: nothing is distributed"
    if set(answer) < set(target):
        many = f"{len(answer)} of the {len(target)} devices"
        return f"it uses {many}: {_devices(answer)}"
    return f"it uses devices {_devices(answer)}; the target uses {_devices(target)}"


def _replicated(answer, target, shape):
    whole = tuple(slice(0, n) for n in shape)
    if all(box == whole for box in answer.values()) and len(answer) > 1:
        return "every device holds the whole array (replicated)"
    if all(box == whole for box in target.values()):
        return "the target is replicated: there every device holds the whole array"
    return None


def _transposed(answer, target, shape):
    parts = {
        name: {
            device: tuple(
                (Fraction(part.start, n), Fraction(part.stop, n))
                for part, n in zip(box, shape)
            )
            for device, box in boxes.items()
        }
        for name, boxes in (("answer", answer), ("target", target))
    }
    swapped = {device: box[::-1] for device, box in parts["answer"].items()}
    if len(shape) == 2 and swapped == parts["target"]:
        return "rows and columns are swapped: this is the transposed sharding"
    return None


def _order(answer, target, shape):
    def pieces(boxes):
        return sorted([(p.start, p.stop) for p in box] for box in boxes.values())

    if set(answer) != set(target) or pieces(answer) != pieces(target):
        return None
    if len(shape) > 2:
        return "the devices are in another order"
    mine, wanted = notation(answer, shape), notation(target, shape)
    return f"the devices are in another order: {mine} instead of {wanted}"


def _cut(answer, target, shape):
    def cuts(boxes):
        starts = zip(*([part.start for part in box] for box in boxes.values()))
        return " x ".join(str(len(set(start))) for start in starts)

    if cuts(answer) == cuts(target):
        return None
    return f"it cuts the array into {cuts(answer)} blocks, the target {cuts(target)}"


def _first_difference(answer, target, shape):
    for device in sorted(target):
        if answer.get(device) != target[device]:
            mine = answer.get(device)
            has = holds(mine, shape) if mine is not None else "nothing"
            wants = holds(target[device], shape)
            return f"device {device} holds {has}, the target wants {wants}"
    extra = min(set(answer) - set(target))
    return f"device {extra} holds {holds(answer[extra], shape)}, the target nothing"


def differences(answer: Mapping, target: Mapping, shape) -> tuple[str, ...]:
    """Say how the layout `answer` differs from `target`; () if it does not."""
    if answer == target:
        return ()
    found = [rule(answer, target, shape) for rule in (_others, _replicated)]
    shapes = [rule(answer, target, shape) for rule in (_transposed, _order, _cut)]
    found += [text for text in shapes if text][:1]
    return (*filter(None, found), _first_difference(answer, target, shape))


# --------------------------------------------------------------- wrong-typed answers


def what(answer) -> str:
    """Name an object in words, with the hint that its kind calls for."""
    if answer is ...:
        return "the three dots: put your answer there"
    if answer is None:
        return "None: is there a return, or an answer at all"
    if isinstance(answer, np.ndarray | np.generic):
        return "NumPy, which lives on the host, and not a jax.Array"
    if isinstance(answer, jax.Array):
        return "an array"
    if isinstance(answer, str):
        return f"the text {answer!r}"
    kind = type(answer).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def _said(error: Exception) -> str:
    """Return the kind of an error and the first line that it says."""
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}".rstrip(".: ")


def find_sharding(answer, shape: tuple[int, ...]):
    """Return the sharding that an answer is or has.

    A spec is laid over the mesh in context. Raises ValueError if there is none.
    """
    if isinstance(answer, jax.sharding.Sharding):
        return answer
    if isinstance(answer, jax.P):
        mesh = jax.sharding.get_mesh()
        if mesh.empty:
            raise ValueError("a spec alone needs a mesh: call jax.set_mesh(mesh) first")
        return jax.NamedSharding(mesh, answer)
    if isinstance(answer, tuple | list):
        raise ValueError(f"{answer!r} is no sharding: write jax.P(...)")
    sharding = getattr(answer, "sharding", None)
    if not isinstance(sharding, jax.sharding.Sharding):
        raise ValueError(f"the answer is {what(answer)}; a sharding is wanted")
    if answer.shape != tuple(shape):
        raise ValueError(f"the array has shape {answer.shape}, wanted is {shape}")
    return sharding


# -------------------------------------------------------------- what is wrong with values


def _tolerance(*dtypes) -> float:
    """Return the relative tolerance for the coarsest of some dtypes; 0 if exact."""
    sizes = [np.dtype(jax.dtypes.canonicalize_dtype(d)) for d in dtypes]
    inexact = [d for d in sizes if jax.numpy.issubdtype(d, np.inexact)]
    return max((float(jax.numpy.finfo(d).eps) ** (2 / 3) for d in inexact), default=0.0)


def _close(answer, expected, tolerance) -> np.ndarray:
    """Say where two arrays agree, relative to the largest expected value."""
    if not tolerance:
        return answer == expected
    finite = np.abs(expected[np.isfinite(expected)])
    scale = finite.max(initial=0)
    return np.isclose(
        answer, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True
    )


def _number(array) -> np.ndarray:
    """Return an array on the host, small floats widened so that NumPy can compare."""
    array = np.asarray(array)
    if jax.numpy.issubdtype(array.dtype, np.complexfloating):
        return array.astype(np.complex128)
    if jax.numpy.issubdtype(array.dtype, np.floating):
        return array.astype(np.float64)
    return array


def _factor(answer, expected, tolerance):
    """Return the number by which the whole answer is too large, if it is one."""
    scale = np.vdot(expected, expected)
    factor = np.vdot(expected, answer) / scale if scale else 0
    if abs(factor) > 1e-6 and _close(answer, factor * expected, tolerance).all():
        return factor
    return None


def compare(answer, expected, tolerance: float, name: str = "the value"):
    """Say how one array of numbers differs from another; None if it does not."""
    answer, expected = _number(answer), _number(expected)
    if answer.shape != expected.shape:
        return f"{name} has shape {answer.shape}, wanted is {expected.shape}"
    close = _close(answer, expected, tolerance)
    if close.all():
        return None
    if answer.ndim == 2 and answer.shape == answer.T.shape:
        if _close(answer.T, expected, tolerance).all():
            return f"{name} is the transpose of the right one"
    if tolerance and np.isnan(answer).any():
        return f"{name} holds NaN"
    factor = _factor(answer, expected, max(tolerance, 1e-12))
    if factor is not None:
        return f"{name} is {factor:.6g} times the right one"
    where = tuple(int(i) for i in np.argwhere(~close)[0])
    at = f" at {list(where)}" if where else ""
    few = f"; {(~close).sum()} of {close.size} values are wrong" if where else ""
    return f"{name}{at} is {answer[where]:.6g}, not {expected[where]:.6g}{few}"
