# SPDX-License-Identifier: MIT-0
"""Communication: which messages does a compiled program send, and what does it hold?

The compiler decides what is sent, and the optimised program (HLO) is where it says so.
`measure` compiles, reads that text instruction by instruction and never runs anything:
loops are multiplied out, and groups of devices get the names of their mesh axes back.

    x           [N@x, M@y]  an array, or a jax.ShapeDtypeStruct with such a sharding
    program     what the compiled program sends and holds on one device
    collective  one of its collectives: kind, bytes, axes, groups, times

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import jax
import jax.numpy as jnp
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
CALLS = (  # the attributes that name the computations an instruction runs
    "calls",
    "called_computations",
    "to_apply",
    "branch_computations",
    "true_computation",
    "false_computation",
)
INTEGERS = {  # what the counter of a loop is made of, beside comparisons
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "copy": lambda value: value,
    "bitcast": lambda value: value,
    "convert": lambda value: value,
}
LONGEST = 10_000  # no loop is stepped through further than this
COLUMNS = ("collective", "over", "devices", "times", "operand", "sends")


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
    memory: `arguments`, `outputs` and `temporaries` are None.
    """

    collectives: tuple[Collective, ...] = ()
    arguments: int | None = None
    outputs: int | None = None
    temporaries: int | None = None

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
        rows = [COLUMNS, *_rows(self)]
        columns = zip(*rows, strict=True)
        columns = [_aligned(column, place > 2) for place, column in enumerate(columns)]
        lines = map("  ".join, zip(*columns, strict=True))
        return "\n".join([*map(str.rstrip, lines), _memory(self)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the table as HTML, in the colours of the page that it stands on."""
        head, *body, foot = [_html_row(row) for row in (COLUMNS, *_rows(self))]
        return (
            '<div style="overflow-x: auto" role="region" tabindex="0" '
            'aria-label="What the compiled program sends"><table>'
            f"<caption>On one device: {_memory(self)}</caption><thead>{head}</thead>"
            f"<tbody>{''.join(body)}</tbody><tfoot>{foot}</tfoot></table></div>"
        )


def measure(f: Callable, *args) -> Program:
    """Compile `f(*args)`, without running it, and say what it sends and holds.

    f: a function of arrays, jitted or not. args: arrays, numbers, `ShapeDtypeStruct`s
    with shardings, or trees of them. A collective within one device is left out.
    Raises ValueError if `f` is not callable or an argument is none of these.
    """
    if not callable(f):
        raise ValueError(f"measure takes a function and its arguments, not {f!r}")
    for path, leaf in jax.tree.leaves_with_path(args):
        if not hasattr(leaf, "dtype") and not isinstance(leaf, int | float | complex):
            raise ValueError(
                f"args{jax.tree_util.keystr(path)} is a {type(leaf).__name__}: pass "
                "arrays, numbers or ShapeDtypeStructs, and close over everything else"
            )
    compiled = (f if hasattr(f, "lower") else jax.jit(f)).lower(*args).compile()
    text = _parse(compiled.as_text(), _meshes(args, compiled))
    held = compiled.memory_analysis()
    return Program(
        tuple(_walk(text)),
        held.argument_size_in_bytes,
        held.output_size_in_bytes,
        held.temp_size_in_bytes,
    )


def read(
    text: str, mesh: Mapping[str, int] | jax.sharding.Mesh | None = None
) -> Program:
    """Read the optimised program `text`, which may come from any machine.

    text: what `compiled.as_text()` returns. mesh: a mesh or its shape, `{"x": 4}`; the
    collectives' `axes` are None without. Raises ValueError if `text` has no entry.
    """
    shape = getattr(mesh, "shape", mesh)
    return Program(tuple(_walk(_parse(text, [dict(shape)] if shape else []))))


def _meshes(args, compiled: jax.stages.Compiled) -> list[dict[str, int]]:
    """Collect the shapes of the meshes of the arguments, then of the results."""
    shardings = [getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(args)]
    shardings += jax.tree.leaves(compiled.output_shardings)
    return [dict(s.mesh.shape) for s in shardings if hasattr(s, "mesh")]


# From text to instructions


@dataclass(frozen=True)
class _Instruction:
    """One line of a program: `%name = shape opcode(operands), key=value, ...`."""

    shape: str
    opcode: str
    operands: tuple[str, ...]
    attributes: dict[str, str]


@dataclass(frozen=True)
class _Text:
    """A program taken apart: instructions by computation and by name."""

    computations: dict[str, dict[str, _Instruction]]
    roots: dict[str, str]  # the instruction whose value a computation returns
    devices: int
    meshes: list[dict[str, int]]


def _parse(text: str, meshes: list[dict[str, int]]) -> _Text:
    """Take a program apart; of the meshes, keep those of as many devices."""
    header = re.match(r"\s*HloModule.*", text)
    if header is None or "\nENTRY " not in text:
        raise ValueError(
            "pass the text of a compiled program, from HloModule to the end"
        )
    computations, roots = {}, {}
    for line in re.sub(r"/\*index=\d+\*/", "", text).splitlines():
        if match := re.fullmatch(r"(ENTRY) .*{|%?([\w.-]+) (?:\(.*\) -> .*)?{", line):
            here = match[1] or match[2]
            computations[here] = {}
        elif match := re.fullmatch(r"\s+(ROOT )?%?([\w.-]+) = (.*)", line):
            computations[here][match[2]] = _instruction(match[3])
            roots |= {here: match[2]} if match[1] else {}
    numbers = re.findall(r"(?:num_partitions|replica_count)=(\d+)", header[0])
    devices = math.prod(map(int, numbers))
    meshes = [mesh for mesh in meshes if math.prod(mesh.values()) == devices]
    return _Text(computations, roots, devices, meshes)


def _instruction(text: str) -> _Instruction:
    """Take apart what stands behind the equals sign of a line."""
    head, *rest = _split(text)
    match = re.fullmatch(r"(.*?) ([\w-]+)\((.*)\)", head)
    if match is None:
        raise ValueError(f"no instruction of a compiled program: {text}")
    operands = tuple(part.split()[-1].lstrip("%") for part in _split(match[3]))
    attributes = dict(part.partition("=")[::2] for part in rest)
    return _Instruction(match[1], match[2], operands, attributes)


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


def _walk(
    program: _Text, name: str = "ENTRY", times: int | None = 1, branch: bool = False
) -> Iterator[Collective]:
    """Yield the collectives that run when computation `name` runs `times` times."""
    here = program.computations[name]
    for instruction in here.values():
        kind = instruction.opcode.removesuffix("-start")
        if kind in RING:
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


def _calls(
    program: _Text, caller: str, instruction: _Instruction
) -> Iterator[tuple[str, int | None]]:
    """Yield the computations that an instruction runs, and how often."""
    attributes = instruction.attributes
    if instruction.opcode == "while":
        trips = _trips(program, caller, instruction)
        yield attributes["condition"].lstrip("%"), _if_known(sum, (trips, 1))
        yield attributes["body"].lstrip("%"), trips
    elif not instruction.opcode.endswith(("-update", "-done")):  # -start ran it
        called = " ".join(attributes.get(key, "") for key in CALLS)
        yield from ((callee, 1) for callee in re.findall(r"[\w.-]+", called))


def _bytes(shape: str) -> int:
    """Add up the bytes of a shape such as `bf16[16,4]{1,0}`, or of a tuple of them."""
    total = 0
    for dtype, sizes, layout in re.findall(r"(\w+)\[([^]]*)\](\{[^}]*\})?", shape):
        cells = math.prod(map(int, re.findall(r"\d+", sizes)))
        packed = re.search(r"E\((\d+)\)", layout)  # s4[8]{0:E(4)}: two in a byte
        width = {"pred": 8, "token": 0, "opaque": 0}.get(dtype)
        width = width if width is not None else int(re.search(r"\d+", dtype)[0])
        bits = int(packed[1]) if packed else -(-width // 8) * 8
        total += -(-bits * cells // 8)
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
    places = np.unravel_index(np.arange(devices.size), tuple(sizes.values()))
    place = dict(zip(sizes, places, strict=True))
    for name, before, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", chosen):
        factor = int(size or sizes[name])
        stride = sizes[name] // (int(before or 1) * factor)
        place[name] = place[name] - place[name] // stride % factor * stride
    lines = {}  # devices that agree in all but what was chosen
    for device, *rest in zip(devices.tolist(), *map(list, place.values()), strict=True):
        lines.setdefault(tuple(rest), []).append(device)
    return list(lines.values())


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
    """Name the axes along which the members of a group differ, if they fill them.

    The pairs of a permutation need not. Without a mesh there are no names: None.
    """
    for mesh in meshes:
        moving = set()
        for group in groups:
            places = np.unravel_index(group, tuple(mesh.values()))
            pairs = zip(mesh, places, strict=True)
            moving |= {name for name, place in pairs if np.ptp(place)}
        filled = math.prod(mesh[name] for name in moving)
        if kind == "collective-permute" or {filled} == {*map(len, groups)}:
            return tuple(name for name in mesh if name in moving)
    return None


# How often does a loop run?


def _trips(program: _Text, caller: str, loop: _Instruction) -> int | None:
    """Count the trips of a loop; None if they depend on data.

    XLA notes the number on CPU and GPU. Elsewhere, step through the loop with what is
    known of its state, usually the counter alone, until the condition fails.
    """
    config = loop.attributes.get("backend_config", "")
    if noted := re.search(r"known_trip_count\W+n\W+(\d+)", config):
        return int(noted[1])
    condition = loop.attributes["condition"].lstrip("%")
    body = loop.attributes["body"].lstrip("%")
    state = _evaluate(program, caller, None, loop.operands[0])
    for trips in range(LONGEST):
        going = _evaluate(program, condition, [state])
        if not going:
            return None if going is None else trips
        state = _evaluate(program, body, [state])
    return None


def _evaluate(program: _Text, name: str, arguments: list | None, root: str = ""):
    """Work out the integer, or the tuple of them, that a computation returns.

    What is no integer, or depends on something unknown, is None.
    """

    @cache
    def value(of: str):
        instruction = program.computations[name][of]
        first = "".join(instruction.operands[:1])
        if not re.match(r"\(|(pred|[su]\d+)\[\]", instruction.shape):
            return None
        if instruction.opcode == "parameter":
            return arguments and arguments[int(first)]
        if instruction.opcode == "constant":
            return json.loads(first)  # 5, true
        values = [value(operand) for operand in instruction.operands]
        if instruction.opcode in ("call", "fusion"):
            ((callee, _),) = _calls(program, name, instruction)
            return _evaluate(program, callee, values)
        return _combine(instruction, values)

    return value(root or program.roots[name])


def _combine(instruction: _Instruction, values: list):
    """Apply an instruction to integers and tuples."""
    attributes = instruction.attributes
    if instruction.opcode == "tuple":
        return tuple(values)
    if None in values:
        return None
    if instruction.opcode == "get-tuple-element":
        return values[0][int(attributes["index"])]
    if instruction.opcode == "compare":
        return getattr(operator, attributes["direction"].lower())(*values)
    operation = INTEGERS.get(instruction.opcode)
    return operation and operation(*values)


# Tables


def _if_known(combine: Callable, values):
    """Combine the values, unless one of them is None."""
    return None if None in values else combine(values)


def _rows(program: Program) -> list[tuple[str, ...]]:
    """Return the cells of the table; equal collectives share a row."""
    times = {}
    for collective in program.collectives:
        same = replace(collective, times=None)
        times.setdefault(same, []).append(collective.times)
    rows = [_row(same, _if_known(sum, each)) for same, each in times.items()]
    total = ("in all", *[""] * 4, _size(program.sent))
    return [*(rows or [("none", *[""] * 5)]), total]


def _row(collective: Collective, times: int | None) -> tuple[str, ...]:
    """Return the cells of a collective that runs `times` times."""
    groups, permutes = collective.groups, collective.kind == "collective-permute"
    count = "unknown" if times is None else f"{times:,}"
    return (
        collective.kind,
        "unnamed" if collective.axes is None else ", ".join(collective.axes),
        f"{len(groups)} pairs" if permutes else f"{len(groups)} x {len(groups[0])}",
        f"up to {count}" if collective.conditional else count,
        _size(collective.bytes),
        _size(_if_known(math.prod, (collective.sent, times))),
    )


def _memory(program: Program) -> str:
    """Say what a device holds, in the words of the program's attributes."""
    names = ("arguments", "outputs", "temporaries")
    return ", ".join(f"{name} {_size(getattr(program, name))}" for name in names)


def _size(count: float | None) -> str:
    """Write bytes exactly and, if there are many, in a larger unit too."""
    if count is None or math.isnan(count):
        return "unknown"
    power = min(int(math.log2(max(count, 1))) // 10, 5)
    unit = f" ({count / 1024**power:.4g} {'KMGTP'[power - 1]}iB)" if power else ""
    return f"{count:,} B{unit}"


def _aligned(cells: tuple[str, ...], numbers: bool) -> list[str]:
    """Pad the cells of a column: words to the left, numbers to the right."""
    width = max(map(len, cells))
    return [cell.rjust(width) if numbers else cell.ljust(width) for cell in cells]


def _html_row(cells: tuple[str, ...]) -> str:
    """Return a row of the table: words to the left, numbers to the right."""
    tags = ['th scope="row"', *["td"] * 5]
    tags = ['th scope="col"'] * 6 if cells == COLUMNS else tags
    whole = "; white-space: nowrap"  # numbers may break before their larger unit
    styles = [*["left" + whole] * 3, "right" + whole, "right", "right"]
    texts = [html.escape(cell).replace(" B", "&nbsp;B") for cell in cells]
    parts = zip(tags, styles, texts, strict=True)
    row = [f'<{t} style="text-align: {s}">{text}</{t[:2]}>' for t, s, text in parts]
    return f"<tr>{''.join(row)}</tr>"


def main():
    """Show what the sum of a vector sends, on every device there is."""
    count = jax.device_count()
    ring = jax.NamedSharding(jax.make_mesh((count,), ("ring",)), jax.P("ring"))
    x = jnp.ones(8 * count, "float32", device=ring)
    print(measure(jnp.sum, x))


if __name__ == "__main__":
    main()
