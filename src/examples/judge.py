# SPDX-License-Identifier: MIT-0
"""A judge for exercises: every right answer is accepted, a wrong one gets a reason.

An answer is right for what it does, not for how it is written. A value is compared in
the tolerance of its type, a program by its value first and then by what it sends and
stores, a sharding by the part of the array that each device holds.

    answer     a number, a string, an array [N@x, M@y], a tree of them, a function of
               arrays, or a sharding
    reference  what NumPy says instead, of arrays [N, M]
    verdict    accepted, or the reasons against it

Cost: a value is fetched. A program is compiled, runs once on its arguments as they are
placed, and its result is fetched. A sharding is judged without a message.

    JAX_NUM_CPU_DEVICES=8 python judge.py

The file needs JAX and NumPy alone. `Judge(draw, measure, differences)` takes how to
draw an index map, how to measure a program, and how to compare shardings; what an
exercise does not need may be left out.
"""

import html
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

FRAME = "border-left: .25rem solid currentColor; padding-left: 1rem"
BESIDE = "display: flex; flex-wrap: wrap; gap: 1rem 2rem"

BUDGETS = ("counts", "sent", "temporaries", "outputs")


# ------------------------------------------------------------------ the verdict


@dataclass(frozen=True, repr=False)
class Verdict:
    """The result of judging: accepted, if there is no reason against the answer.

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
        """Write the verdict as text: the word, the sentences, the pictures."""
        lines = [f"{self.word}.", *(f"- {line}" for line in _sentences(self))]
        for title, picture in self.pictures:
            lines += ["", f"{title}:", textwrap.indent(str(picture), "  ")]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{html.escape(line)}</li>" for line in _sentences(self))
        figures = "".join(_figure(*pair) for pair in self.pictures)
        listed = f"<ul>{items}</ul>" if items else ""
        drawn = f'<div style="{BESIDE}">{figures}</div>' if figures else ""
        return (
            f'<div class="verdict" role="group" aria-label="Verdict: {self.word}" '
            f'style="{FRAME}"><p><strong>{self.word}.</strong></p>{listed}{drawn}</div>'
        )


def _sentences(verdict: Verdict) -> list[str]:
    lines = verdict.reasons + verdict.facts
    return [line[:1].upper() + line[1:].removesuffix(".") + "." for line in lines]


def _figure(title: str, picture) -> str:
    shown = getattr(picture, "_repr_html_", None)
    body = shown() if shown else f"<pre>{html.escape(str(picture))}</pre>"
    return (
        '<figure style="margin: 0; min-width: 0; max-width: 100%; overflow-x: auto">'
        f"<figcaption>{html.escape(title)}</figcaption>{body}</figure>"
    )


class Refused(ValueError):
    """Something cannot be judged at all; the sentence says why."""


def _inline(answer) -> str:
    """Return an answer on one line, as Python prints it."""
    if answer is ...:
        return "three dots, unchanged"
    return textwrap.shorten(repr(answer), 400)


def _error(error: Exception) -> str:
    """Return the kind of an error and the first line of its message."""
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


# -------------------------------------------------- what is wrong with a value


def _leaves(tree) -> dict[str, object]:
    """Return the leaves of a tree by their paths; lists and tuples are the same."""
    try:
        leaves = jax.tree.leaves_with_path(tree, is_leaf=lambda leaf: leaf is None)
    except (ValueError, TypeError):  # keys that cannot be sorted
        return {"": tree}
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _wrong(name: str, answer, expected, inputs=()) -> list[str]:
    """Return which leaves of an answer, computed from `inputs`, are not as expected."""
    mine, wanted = _leaves(answer), _leaves(expected)
    if len(mine) != len(wanted):
        return [f"the number of values is {len(mine)}, wanted is {len(wanted)}"]
    if strange := mine.keys() - wanted.keys():
        return [f"there is a value {min(strange) or 'alone'} that is not wanted"]
    reasons = []
    for path, leaf in wanted.items():
        where = f"the {name} at {path}" if path else f"the {name}"
        if reason := compare(mine[path], leaf, _tolerance(leaf, *inputs)):
            reasons.append(f"{where} {reason}")
    return reasons


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
    """Return in words how a value differs from the wanted one; None if it does not.

    The words do not contain a wanted number or string, but an element of an array.
    """
    if not (_is_number(mine) and _is_number(wanted)):
        return _other_kind(mine, wanted)
    mine, wanted = _widen(mine), _widen(wanted)
    if mine.shape != wanted.shape:
        return f"has the shape {mine.shape}, wanted is {wanted.shape}"
    right = _close(mine, wanted, tolerance)
    if right.all():
        return None
    if right.shape:
        return _other_array(mine, wanted, tolerance)
    return f"is {_digits(mine[()])}, which is {_deviation(mine[()], wanted[()])}"


def _other_kind(mine, wanted) -> str | None:
    if _is_number(wanted) and np.asarray(wanted).dtype != bool:
        return f"is {_inline(mine)}; a number is wanted"
    alike = getattr(mine, "shape", ()) == getattr(wanted, "shape", ())
    right = alike and np.all(_plain(mine) == _plain(wanted))
    return None if right else f"is {_inline(mine)}, which is not right"


def _plain(value):
    return " ".join(value.split()).casefold() if isinstance(value, str) else value


def _widen(array) -> np.ndarray:
    """Fetch an array in a type in which NumPy compares well."""
    array = np.asarray(array)
    if jnp.issubdtype(array.dtype, np.inexact):
        return array.astype(np.promote_types(array.dtype, float))
    return array


def _close(mine, wanted, tolerance: float) -> np.ndarray:
    """Return where arrays agree, within a fraction of the largest wanted value."""
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


def _deviation(mine, wanted) -> str:
    if np.iscomplexobj([mine, wanted]) or not (mine > wanted or mine < wanted):
        return "not right"
    direction = "large" if mine > wanted else "small"
    ratio = max(mine / wanted, wanted / mine)
    if 1.5 < ratio < math.inf and math.isclose(ratio, round(ratio), rel_tol=1e-6):
        return f"{round(ratio)} times too {direction}"
    return f"too {direction}"


# ------------------------------------------------ what is wrong with a program


def _fetch(arg):
    """Return an argument as the reference gets it: arrays of numbers in NumPy."""
    return np.asarray(arg) if isinstance(arg, jax.Array) and _is_number(arg) else arg


def _run(answer, args: tuple):
    """Return the answer jitted, and what that returns; Refused if it cannot run."""
    if not callable(answer):
        shown = _inline(answer)
        raise Refused(f"the answer is {shown}; the function itself is wanted")

    try:
        jax.eval_shape(lambda *args: _arrays(answer(*args)), *args)
        run = jax.jit(answer)  # so that to measure it compiles nothing anew
        outputs = run(*args)
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"your function raised {_error(error)}") from error
    for array in jax.tree.leaves(outputs):
        if pending := getattr(array.sharding, "spec", jax.P()).unreduced:
            axes = ", ".join(sorted(pending))  # such an array cannot be fetched
            raise Refused(f"its sums are pending (unreduced) over {axes}")
    return run, outputs


def _arrays(outputs):
    """Return the outputs themselves; Refused if one of them is no array."""
    for leaf in _leaves(outputs).values():
        if not isinstance(leaf, jax.Array):
            shown = _inline(leaf)
            raise Refused(f"the function returned {shown}; return a jax.Array")
    return outputs


def _list_counts(counts: Mapping) -> str:
    """List collectives, such as "1 all-gather and 2 all-reduces"."""
    kinds = ((n, kind if n == 1 else f"{kind}s") for kind, n in counts.items())
    return " and ".join(f"{n or 'unknown'} {kind}" for n, kind in kinds)


def _sends(program) -> str:
    """Return what a measured program sends."""
    if not program.counts:
        return "there is no collective"
    verb = "sends" if list(program.counts.values()) == [1] else "send"
    return f"{_list_counts(program.counts)} {verb} {program.sent} bytes a device"


def _over_counts(program, allowed: Mapping) -> str | None:
    """Return which collectives a program has, unless they are just the allowed ones."""
    if program.counts == allowed:
        return None
    budget = f"exactly {_list_counts(allowed)}" if allowed else "0"
    return f"{_sends(program)}; the budget is {budget}"


def _over_bytes(name: str, used: float, allowed: int) -> str | None:
    """Return how many bytes a program needs, if that is too many or unknown (NaN)."""
    if not math.isnan(used) and used <= allowed:
        return None
    subject = "a device sends" if name == "sent" else f"{name} take"
    return f"{subject} {used} bytes, the budget allows {allowed}"


# ------------------------------------------------------------------- the judge


@dataclass(frozen=True)
class Judge:
    """Judges answers, with what it is given.

    `draw(index_map, shape)` returns a picture; without it verdicts have none.
    `measure(f, *args)` returns the counts and bytes of a program; without it no budget
    can be set. `differences(answer, target, shape)` returns sentences, and the index
    maps of the target and of the answer, if it has one; without it no sharding can be
    judged.
    """

    draw: Callable | None = None
    measure: Callable | None = None
    differences: Callable | None = None

    def sharding(self, answer, target, shape: tuple[int, ...]) -> Verdict:
        """Judge a sharding, or the sharding of an array, by what each device holds.

        answer: a sharding, a spec for the mesh in context, an array, or a
        `ShapeDtypeStruct`; target: any of these, or a picture such as "0 2 / 4 6".
        ValueError if the target is none.
        """
        if not self.differences:
            raise ValueError(
                "shardings must be compared: make a Judge(draw, measure, differences)"
            )
        shape = tuple(shape) if isinstance(shape, Iterable) else (shape,)
        reasons, index_maps = self.differences(answer, target, shape)
        pictures = [self.draw(boxes, shape) for boxes in index_maps if self.draw]
        titles = "The target", "Your answer"
        return Verdict(tuple(reasons), (), tuple(zip(titles, pictures, strict=False)))

    def value(self, answer, expected) -> Verdict:
        """Judge a number, a string, an array, or a tree of them.

        Floats are compared in the tolerance of their dtype, strings without regard to
        case and spaces. A reason does not contain what is expected, except for arrays.
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
            raise ValueError(f"the reference is {_inline(reference)}: pass a function")
        expected = reference(*jax.tree.map(_fetch, args))
        try:
            run, outputs = _run(answer, args)
        except Refused as refusal:
            return Verdict((str(refusal),))
        wrong = _wrong("value", outputs, expected, jax.tree.leaves(args))
        if wrong:
            return Verdict(tuple(wrong))
        misplaced, pictures = self._judge_shardings(outputs, expected, sharding)
        same = answer if hasattr(answer, "trace") else run  # not jitted twice
        over, facts = self._over(same, args, budget)
        reasons = misplaced + over
        if reasons:
            first = f"the value is right, but {reasons[0]}"
            return Verdict((first, *reasons[1:]), (), pictures)
        return Verdict((), ("the value is right", *facts), pictures)

    def _check(self, budget: Mapping):
        if unknown := budget.keys() - set(BUDGETS):
            raise ValueError(f"no budget is called {min(unknown)}: there are {BUDGETS}")
        if budget and not self.measure:
            raise ValueError("a budget must be measured: make a Judge(draw, measure)")

    def _over(self, answer, args, budget: dict) -> tuple[list[str], list[str]]:
        """Return by what a program exceeds its budget, and what it uses of it."""
        if not budget:
            return [], []
        program = self.measure(answer, *args)
        facts, reasons = [_sends(program)], []
        for name, allowed in budget.items():
            used = getattr(program, name)
            if name == "counts":
                reasons.append(_over_counts(program, allowed))
            else:
                reasons.append(_over_bytes(name, used, allowed))
                facts.append(f"{name}: {used} of {allowed} bytes")
        on = f"on {jax.default_backend().upper()} {{}}".format  # others may differ
        return [*map(on, filter(None, reasons))], [on(facts[0]), *facts[1:]]

    def _judge_shardings(self, outputs, expected, sharding) -> tuple[list[str], tuple]:
        """Return what is wrong with shardings of outputs, and pictures of the first."""
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


def main():
    """Judge a sum over all devices, first with a mistake in it."""
    rows = jax.NamedSharding(jax.make_mesh((jax.device_count(),), ("x",)), jax.P("x"))
    x = jnp.arange(8.0 * jax.device_count(), device=rows)
    print(Judge().program(lambda x: 2 * jnp.sum(x), np.sum, x))
    print(Judge().program(jnp.sum, np.sum, x).require())


if __name__ == "__main__":
    main()
