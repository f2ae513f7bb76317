# SPDX-License-Identifier: MIT-0
"""Communication: which messages does a compiled program send, and what does it hold?

The compiler decides what is sent, and the optimised program (HLO) is where it says so.
`measure` compiles, reads that text instruction by instruction and never runs anything:
loops are multiplied out, and groups of devices get the names of their mesh axes back.

    x           [N@x, M@y]  an array, or a jax.ShapeDtypeStruct with such a sharding
    program     what the compiled program sends and holds on one device
    collective  one of its collectives: kind, bytes, axes, groups, times
    elsewhere   {machine: program} for what the compilers of other machines make of the
                same program, where `ELSEWHERE` holds a function that knows

Cost: one compilation, no message. What a device sends of its operand of b bytes, when
g devices take part and messages go around a ring: all-gather (g - 1) b; all-reduce
2 b (g - 1) / g; reduce-scatter and all-to-all b (g - 1) / g; collective-permute b.

    JAX_NUM_CPU_DEVICES=8 python communication.py
"""

import html
import json
import math
import operator
import re
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType

import jax
import numpy as np

RING = {  # what one device of g sends, in g-ths of its operand
    "all-gather": lambda g: (g - 1) * g,
    "all-reduce": lambda g: 2 * (g - 1),
    "reduce-scatter": lambda g: g - 1,
    "all-to-all": lambda g: g - 1,
    "ragged-all-to-all": lambda g: g - 1,  # at most
    "collective-permute": lambda g: g,
    "collective-broadcast": lambda g: g,
}
STEPS = {  # what the counter of a loop goes through: attributes, values -> value
    "tuple": lambda _, *values: values,
    "get-tuple-element": lambda says, values: values[int(says["index"])],
    "compare": lambda says, a, b: getattr(operator, says["direction"].lower())(a, b),
    "add": lambda _, a, b: a + b,
    "subtract": lambda _, a, b: a - b,
    "multiply": lambda _, a, b: a * b,
    **dict.fromkeys(("bitcast", "convert", "copy"), lambda _, value: value),
}
LONGEST = 10_000  # no loop is stepped through further than this
COLUMNS = ("collective", "over", "devices", "times", "operand", "sends")
ELSEWHERE: list[Callable] = []  # each: (Traced, Lowered, Program) -> elsewhere


@dataclass(frozen=True)
class Collective:
    """One collective of a compiled program, as one device takes part in it.

    `kind` is XLA's name, `bytes` the size of the operand on one device. `axes` are the
    mesh axes that it runs over, or None where the groups follow no axes. `groups` are
    the devices that exchange data, by their place in the mesh; those of a permutation
    are pairs (source, target). `times` counts executions, loops multiplied out; None if
    the length of a loop is unknown. A `conditional` one stands in a branch: it runs so
    often only if that branch is taken every time.
    """

    kind: str
    bytes: int
    axes: tuple[str, ...] | None
    groups: tuple[tuple[int, ...], ...] = field(repr=False)
    times: int | None = 1
    conditional: bool = False

    @property
    def sent(self) -> int:
        """Bytes that one device sends in one execution, rounded up."""
        size = max(map(len, self.groups))
        return -(-RING[self.kind](size) * self.bytes // size)


@dataclass(frozen=True, repr=False)
class Program:
    """What a compiled program sends and holds, in bytes on one device.

    Any branch of a conditional may run, so all of them count: `counts` and `sent` may
    then be too large, never too small. `outputs` includes the table of pointers that
    XLA keeps when there are several. A program read from text knows nothing of its
    memory: `arguments`, `outputs` and `temporaries` are None. `elsewhere` maps names of
    other machines to their programs, or to the words in which their compiler refuses;
    a mapping that has `_repr_html_` is shown below the table.
    """

    collectives: tuple[Collective, ...] = ()
    arguments: int | None = None
    outputs: int | None = None
    temporaries: int | None = None
    elsewhere: Mapping = field(default=MappingProxyType({}), compare=False)

    @property
    def everywhere(self) -> tuple["Program", ...]:
        """The programs of all machines, this one first; ValueError if one has none."""
        if str in map(type, self.elsewhere.values()):
            raise ValueError(f"not every machine has it: {dict(self.elsewhere)}")
        return (self, *self.elsewhere.values())

    @property
    def counts(self) -> dict[str, int | None]:
        """Executions of each kind; None where the length of a loop is unknown."""
        kinds = sorted({c.kind for c in self.collectives})
        times = {k: [c.times for c in self.collectives if c.kind == k] for k in kinds}
        return {kind: _if_known(sum, times[kind]) for kind in kinds}

    @property
    def sent(self) -> int | float:
        """Bytes that one device sends in all; nan if a loop's length is unknown."""
        each = [_if_known(math.prod, (c.sent, c.times)) for c in self.collectives]
        return math.nan if None in each else sum(each)

    def __str__(self) -> str:
        """Return the table as text."""
        widths = [max(map(len, cells)) for cells in zip(*_rows(self), strict=True)]
        line = "  ".join(map("{{:{}{}}}".format, "<<<>>>", widths))
        lines = [line.format(*cells).rstrip() for cells in _rows(self)]
        lines += [_memory(self), *[str(self.elsewhere)][: len(self.elsewhere)]]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the table as HTML, in the colours of the page that it stands on."""
        head, *body, foot = map(_html_row, _rows(self))
        return (
            '<div style="overflow-x: auto" role="region" tabindex="0" '
            'aria-label="What the compiled program sends"><table>'
            f"<caption>On one device: {_memory(self)}</caption><thead>{head}</thead>"
            f"<tbody>{''.join(body)}</tbody><tfoot>{foot}</tfoot></table></div>"
            + getattr(self.elsewhere, "_repr_html_", str)()
        )


def measure(f: Callable, *args) -> Program:
    """Compile `f(*args)`, without running it, and say what it sends and holds.

    f: a function of arrays, jitted or not; or what is compiled already, without args.
    args: arrays, numbers, `ShapeDtypeStruct`s with shardings, or trees of them. A
    collective within one device is left out.
    Raises ValueError if `f` is not callable or an argument is none of these.
    """
    if not callable(f):
        raise ValueError(f"measure takes a function and its arguments, not {f!r}")
    for path, leaf in jax.tree.leaves_with_path(args):
        kind = getattr(getattr(leaf, "dtype", None), "kind", "")
        number = hasattr(leaf, "dtype") or isinstance(leaf, int | float | complex)
        if not number or kind in (*"OSUMm",):
            raise ValueError(
                f"args{jax.tree_util.keystr(path)} is a {type(leaf).__name__}: pass "
                "arrays, numbers or ShapeDtypeStructs, and close over everything else"
            )
    compiled, moved = f, ()
    if not isinstance(f, jax.stages.Compiled):
        traced = (f if hasattr(f, "trace") else jax.jit(f)).trace(*args)
        moved = traced, traced.lower()
        compiled = moved[1].compile()
    shardings = [getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(args)]
    shardings += jax.tree.leaves(compiled.output_shardings)
    meshes = [dict(s.mesh.shape) for s in shardings if hasattr(s, "mesh")]
    held = compiled.memory_analysis()
    kinds = "argument", "output", "temp"
    sizes = (getattr(held, f"{kind}_size_in_bytes") for kind in kinds)
    program = Program(tuple(_walk(_parse(compiled.as_text(), meshes))), *sizes)
    for ask in ELSEWHERE if moved else ():
        program = replace(program, elsewhere=ask(*moved, program))
    return program


def read(text: str, mesh: jax.sharding.Mesh | Mapping | None = None) -> Program:
    """Read the optimised program `text`, which may come from any machine.

    text: what `compiled.as_text()` returns. mesh: a mesh or its shape, `{"x": 4}`; the
    collectives' `axes` are None without. Raises ValueError if `text` has no entry.
    """
    if not isinstance(text, str):
        raise ValueError(f"pass the text of a compiled program, not {text!r}")
    shape = getattr(mesh, "shape", mesh)
    if not isinstance(shape, Mapping | None):
        raise ValueError(f"{mesh!r} is no mesh, and no shape of one such as {{'x': 4}}")
    return Program(tuple(_walk(_parse(text, [dict(shape)] if shape else []))))


# From text to instructions: `name = shape opcode(operands), key=value, ...` is a line.
# Lines stand in computations; the root of one is the line whose value it returns.

_Instruction = namedtuple("_Instruction", "shape opcode operands attributes")
_Text = namedtuple("_Text", "computations roots devices meshes")


def _parse(text: str, meshes: list[dict[str, int]]) -> _Text:
    """Take a program apart; of the meshes, keep those of as many devices."""
    if not text.lstrip().startswith("HloModule") or "\nENTRY " not in text:
        raise ValueError("pass the text of a compiled program, HloModule and all")
    computations, roots = {}, {}
    header, *lines = re.sub(r"%|/\*index=\d+\*/", "", text).strip().splitlines()
    for line in lines:
        if match := re.fullmatch(r"([\w.-]+) .*{", line):  # ENTRY main (...) -> ... {
            here = match[1]
            computations[here] = {}
        elif match := re.fullmatch(r"\s+(ROOT )?([\w.-]+) = (.*)", line):
            computations[here][match[2]] = _instruction(match[3])
            roots |= {here: match[2]} if match[1] else {}
    numbers = re.findall(r"(?:num_partitions|replica_count)=(\d+)", header)
    devices = math.prod(map(int, numbers))
    meshes = [mesh for mesh in meshes if math.prod(mesh.values()) == devices]
    return _Text(computations, roots, devices, meshes)


def _instruction(text: str) -> _Instruction:
    """Take apart what stands behind the equals sign of a line."""
    match = re.fullmatch(r"(.*?) ([\w-]+)(\(.*)", text)
    if match is None:
        raise ValueError(f"no instruction of a compiled program: {text}")
    operands, *rest = _split(match[3])
    names = [operand.split()[-1] for operand in _split(operands[1:-1])]
    attributes = dict(part.partition("=")[::2] for part in rest)
    return _Instruction(match[1], match[2], names, attributes)


def _split(text: str) -> list[str]:
    """Split at the commas that stand in no bracket and in no string."""
    parts, depth = [""], 0
    for token in re.findall(r'"(?:\\.|[^"\\])*"|[^][(){},"]+|.', text):
        depth += (token in "[({") - (token in "])}")
        if token == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    return [part.strip() for part in parts if part.strip()]


# From instructions to collectives


def _walk(program: _Text, name="ENTRY", times: int | None = 1, branch=False):
    """Yield the collectives that run when computation `name` runs `times` times."""
    here = program.computations[name]
    for instruction in here.values():
        kind = instruction.opcode.removesuffix("-start")
        if name.startswith("all-reduce-scatter"):  # XLA:TPU fuses a sum and its slice
            kind = kind.replace("all-reduce", "reduce-scatter")
        if kind in RING and not _continued(instruction, here):
            size = sum(_bytes(here[operand].shape) for operand in instruction.operands)
            groups = _groups(instruction.attributes, program.devices)
            if times != 0 and any(len(set(group)) > 1 for group in groups):
                axes = _axes(groups, program.meshes, kind)
                yield Collective(kind, size, axes, groups, times, branch)
        else:
            inside = branch or instruction.opcode == "conditional"
            for callee, trips in _calls(program, name, instruction):
                total = _if_known(math.prod, (times, trips))
                yield from _walk(program, callee, total, inside)


def _continued(instruction: _Instruction, here: dict[str, _Instruction]) -> bool:
    """Return whether XLA:TPU repeats, in a chain of fusions, what it has started."""
    config = instruction.attributes.get("backend_config", "")
    return "async_collective_fusion" in config and not any(
        "AsyncCollectiveStart" in other.attributes.get("custom_call_target", "")
        for other in here.values()
    )


def _calls(program: _Text, caller: str, instruction: _Instruction):
    """Yield the names of the computations that an instruction runs, and how often."""
    attributes = instruction.attributes
    if instruction.opcode == "while":
        trips = _trips(program, caller, instruction)
        yield attributes["condition"], _if_known(sum, (trips, 1))
        yield attributes["body"], trips
    elif not instruction.opcode.endswith(("-update", "-done")):  # -start ran it
        for key, value in attributes.items():
            if re.fullmatch(r"calls|to_apply|\w+_computations?", key):
                yield from ((callee, 1) for callee in re.findall(r"[\w.-]+", value))


def _bytes(shape: str) -> int:
    """Add up the bytes of a shape such as `bf16[16,4]{1,0}`, or of a tuple of them."""
    total = 0
    parts = r"(\w+)\[([^]]*)\](?:\{[^}]*E\((\d+)\))?"  # s4[8]{0:E(4)}: two in a byte
    for dtype, sizes, packed in re.findall(parts, shape):
        stored = {"pred": "u8", "token": "u0", "opaque": "u0"}.get(dtype, dtype)
        bits = int(packed or -(-_numbers(stored)[0] // 8) * 8)
        total += -(-bits * math.prod(_numbers(sizes)) // 8)
    return total


# From groups of devices to mesh axes


def _groups(attributes: dict[str, str], devices: int) -> tuple[tuple[int, ...], ...]:
    """Read the groups of a collective, or the pairs of a permutation."""
    pairs = attributes.get("source_target_pairs")
    text = pairs or attributes.get("replica_groups", "{}")
    if text.startswith("mesh"):  # mesh['x'=4,'y'=2], device_ids=([4,2]T(1,0)) {'x'}
        groups = _mesh_groups(text + attributes.get("device_ids", ""))
    elif text.startswith("["):  # [2,4]<=[4,2]T(1,0)
        shape, _, order = text.partition("<=")
        groups = _order(order).reshape(_numbers(shape)).tolist()
    else:  # {{0,2,4,6},{1,3,5,7}}, and {} for all devices
        groups = [_numbers(group) for group in re.findall(r"\{([\d, ]+)\}", text)]
        groups = groups if groups or pairs else [range(devices)]
    return tuple(map(tuple, groups))


def _mesh_groups(text: str) -> list[list[int]]:
    """Read `mesh['x'=4,'y'=2] {'x':(2)2}`: along the second factor of x = 2 * 2."""
    mesh, _, chosen = text.rpartition("{")
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", mesh)}
    order = re.search(r"\((.+)\)", mesh)  # of the devices, if not 0, 1, 2, ...
    devices = _order(order[1] if order else f"[{math.prod(sizes.values())}]").ravel()
    first = np.arange(devices.size)  # will be, at each place, the first of its group
    for name, before, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", chosen):
        inner = math.prod([*sizes.values()][[*sizes].index(name) :])
        factor = int(size or sizes[name])
        stride = inner // (int(before or 1) * factor)
        first -= first // stride % factor * stride
    return [devices[first == place].tolist() for place in np.unique(first)]


def _order(text: str) -> np.ndarray:
    """Read an order of devices: a list, or `[4,2]T(1,0)` for a transposed count."""
    if not text.startswith("["):
        return np.array(_numbers(text))
    shape, _, axes = text.partition("T")
    count = np.arange(math.prod(_numbers(shape))).reshape(_numbers(shape))
    return count.transpose(_numbers(axes)) if axes else count


def _numbers(text: str) -> list[int]:
    """Return the whole numbers in `text`."""
    return [int(digits) for digits in re.findall(r"\d+", text)]


def _axes(groups, meshes: list[dict[str, int]], kind: str) -> tuple[str, ...] | None:
    """Name the axes that the groups fill; the pairs of a permutation may leave gaps."""
    for mesh in meshes:
        places = [np.unravel_index(group, (*mesh.values(),)) for group in groups]
        lines = zip(mesh, *places, strict=True)
        moving = tuple(name for name, *line in lines if any(map(np.ptp, line)))
        filled = math.prod(mesh[name] for name in moving)
        if kind == "collective-permute" or {filled} == {*map(len, groups)}:
            return moving
    return None


# How often does a loop run?


def _trips(program: _Text, caller: str, loop: _Instruction) -> int | None:
    """Count the trips of a loop; None if they depend on data.

    XLA notes the number on CPU and GPU. Elsewhere, step through what is known of the
    loop's state, usually the counter alone, until the condition fails.
    """
    config = loop.attributes.get("backend_config", "")
    if known := re.search(r"known_trip_count\W+n\W+(\d+)", config):
        return int(known[1])
    state = _evaluate(program, caller, None, loop.operands[0])
    for trips in range(LONGEST):
        going = _evaluate(program, loop.attributes["condition"], [state])
        if not going:
            return None if going is None else trips
        state = _evaluate(program, loop.attributes["body"], [state])
    return None


def _evaluate(program: _Text, name: str, arguments: list | None, root: str = ""):
    """Work out what a computation returns, of integers and tuples; None if unknown."""

    @cache
    def value(of: str):
        shape, opcode, operands, attributes = program.computations[name][of]
        if not re.match(r"\(|(pred|[su]\d+)\[\]", shape):
            return None
        if opcode == "parameter":
            return arguments and arguments[int(operands[0])]
        if opcode == "constant":
            return json.loads(operands[0])  # 5, true
        values = [value(operand) for operand in operands]
        if opcode in ("call", "fusion"):
            callee = attributes.get("calls") or attributes["to_apply"]
            return _evaluate(program, callee, values)
        known = opcode in STEPS and (opcode == "tuple" or None not in values)
        return STEPS[opcode](attributes, *values) if known else None

    return value(root or program.roots[name])


# Tables


def _if_known(combine: Callable, values):
    """Combine the values, unless one of them is None."""
    return None if None in values else combine(values)


def _rows(program: Program) -> list[tuple[str, ...]]:
    """Return the table, row by row; equal collectives share one."""
    times, rows = {}, []
    for collective in program.collectives:
        same = replace(collective, times=None)
        times.setdefault(same, []).append(collective.times)
    for c, each in times.items():
        total = _if_known(sum, each)
        axes = "unnamed" if c.axes is None else ", ".join(c.axes)
        pairs = c.kind == "collective-permute"
        devices = f"{len(c.groups)} {'pairs' if pairs else f'x {len(c.groups[0])}'}"
        count = "up to " * c.conditional + (f"{total:,}" if total else "unknown")
        sizes = _size(c.bytes), _size(_if_known(math.prod, (c.sent, total)))
        rows.append((c.kind, axes, devices, count, *sizes))
    rows = rows or [("none", *[""] * 5)]
    return [COLUMNS, *rows, ("in all", *[""] * 4, _size(program.sent))]


def _memory(program: Program) -> str:
    """Return what a device holds, in the words of the program's attributes."""
    names = ("arguments", "outputs", "temporaries")
    return ", ".join(f"{name} {_size(getattr(program, name))}" for name in names)


def _size(count: float | None) -> str:
    """Write bytes exactly and, if there are many, in a larger unit too."""
    if count is None or math.isnan(count):
        return "unknown"
    power = min(int(math.log2(max(count, 1))) // 10, 5)
    unit = f" ({count / 1024**power:.4g} {'KMGTP'[power - 1]}iB)" if power else ""
    return f"{count:,} B{unit}"


def _html_row(cells: tuple[str, ...]) -> str:
    """Return a row of the table: words to the left, numbers to the right."""
    body = ['th scope="row"', *["td"] * 5]
    tags = ['th scope="col"'] * 6 if cells == COLUMNS else body
    sides = [*["left"] * 3, *["right"] * 3]
    row = "<tr>"
    for tag, side, cell in zip(tags, sides, cells, strict=True):
        # a number may break before its larger unit, and nothing breaks elsewhere
        text = html.escape(cell).replace(" ", "&nbsp;").replace("&nbsp;(", " (")
        row += f'<{tag} style="text-align: {side}">{text}</{tag[:2]}>'
    return row + "</tr>"


def main():
    """Show what the sum of a vector sends, on every device there is."""
    jax.set_mesh(jax.make_mesh((jax.device_count(),), ("ring",)))
    print(measure(jax.numpy.sum, jax.device_put(np.ones(5040), jax.P("ring"))))


if __name__ == "__main__":
    main()
