import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from jax import lax
from on_devices import AUTO, mesh_of, on

from examples import communication
from examples.communication import Collective, measure, read


def blocks(mesh, n=16, m=8):
    """Return the type of an array whose block on each device is [n, m]."""
    shape = n * mesh.shape["x"], m * mesh.shape["y"]
    return jax.ShapeDtypeStruct(shape, "float32", sharding=on(mesh, "x", "y"))


def manual(mesh, f):
    """`f` of blocks, from arrays split along x and y to arrays of the same split."""
    spec = jax.P("x", "y")
    return jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)


@pytest.fixture
def mesh():
    return mesh_of(4, 2, kind=AUTO)


BLOCK = 16 * 8 * 4  # bytes
OPERATIONS = {
    "all-gather": lambda b: lax.all_gather(b, "x", tiled=True),
    "all-reduce": lambda b: lax.psum(b, "x"),
    "reduce-scatter": lambda b: lax.psum_scatter(b, "x", tiled=True),
    "all-to-all": lambda b: lax.all_to_all(b, "x", 0, 1, tiled=True),
    "collective-permute": lambda b: lax.ppermute(b, "x", [(0, 1), (1, 0)]),
}


@pytest.mark.parametrize("names", ["xy", "yx"])
@pytest.mark.parametrize("kind", OPERATIONS)
def test_a_collective_sends_what_its_formula_says(names, kind):
    """Axes belong to places in the mesh, not to the numbers of devices."""
    devices = np.array(jax.devices())[[7, 1, 5, 3, 6, 0, 4, 2]].reshape(2, 4)
    mesh = jax.sharding.Mesh(devices, tuple(names))
    program, g = measure(manual(mesh, OPERATIONS[kind]), blocks(mesh)), mesh.shape["x"]
    (collective,) = program.collectives
    assert collective == Collective(kind, BLOCK, ("x",), collective.groups)
    assert program.counts == {kind: 1}
    shares = {"all-gather": g - 1, "all-reduce": 2 * (g - 1) / g}
    shares |= {"collective-permute": 1}
    assert program.sent == collective.sent == BLOCK * shares.get(kind, (g - 1) / g)
    if kind == "all-reduce":  # its groups are the lines of the mesh along the axis
        lines = np.moveaxis(np.arange(8).reshape(2, 4), names.index("x"), -1)
        assert {*collective.groups} == {*map(tuple, lines.reshape(-1, g).tolist())}


def test_a_sum_of_four_terabytes_is_counted_and_does_not_run():
    program = measure(jnp.sum, blocks(mesh_of(4, 2), 2**18, 2**19))
    assert program.arguments == 2**40 * 4 // 8
    assert {(c.kind, c.bytes) for c in program.collectives} == {("all-reduce", 4)}


def loop_in_loop(block):
    def step(_, block):
        return lax.psum(block, "x") * 0.5

    def four_steps(i, block):
        return lax.fori_loop(0, 3, step, step(i, block))

    return lax.fori_loop(0, 7, four_steps, block)


def test_a_loop_multiplies_what_stands_in_it(mesh):
    """XLA:TPU does not note trip counts: then the loop itself is read."""
    compiled = jax.jit(manual(mesh, loop_in_loop)).lower(blocks(mesh)).compile()
    program = measure(compiled)
    assert program.counts == {"all-reduce": 7 + 7 * 3}
    assert sorted(c.times for c in program.collectives) == [7, 21]
    assert program.sent == 28 * 2 * BLOCK * 3 / 4
    text, notes = re.subn(r'"known_\w+":\{[^}]*\},?', "", compiled.as_text())
    assert notes
    assert read(text, mesh).collectives == program.collectives
    assert {c.axes for c in program.collectives} == {("x",)}
    for other in None, {"x": 2, "y": 2}:  # without the mesh its axes have no names
        assert {c.axes for c in read(text, other).collectives} == {None}


def test_a_jitted_function_has_its_own_options_and_arguments(mesh):
    x = blocks(mesh)
    first = jax.jit(lambda x, y: x, keep_unused=True)
    assert measure(first, x, x).arguments == 2 * BLOCK
    assert measure(lambda x, y: x, x, x).arguments == BLOCK
    whole = jax.jit(jnp.sin, out_shardings=on(mesh, None, "y"))
    assert measure(whole, x).counts == {"all-gather": 1}
    add = measure(lambda t, n, m: n * t["a"] + m, {"a": x, "b": None}, 2.0, np.int8(1))
    assert add.arguments >= BLOCK


def test_the_names_are_those_of_the_mesh_of_arguments_or_of_the_result(mesh):
    line = on(jax.make_mesh((8,), ("line",), (AUTO,)))
    program = measure(jax.jit(lambda x: x.sum(0), out_shardings=line), blocks(mesh))
    assert {name for c in program.collectives for name in c.axes} == {"x", "y"}
    with jax.set_mesh(mesh_of(4, 2)):
        program = measure(lambda: jnp.ones((8,), out_sharding=jax.P("x")).sum())
    assert [c.axes for c in program.collectives] == [("x",)]


# Programs of other machines, as text.

MESH = {"x": 4, "y": 2}
PAIRS = "source_target_pairs={{0,1},{1,0}}"


def computation(name, *lines, after=""):
    """Return the text of a computation of eight numbers, `p`, that has these lines."""
    head = f"{name} (p: f32[8]) -> f32[8] {{", "%p = f32[8]{0} parameter(0)"
    return "\n  ".join([*head, *lines]) + f"\n}}{after}\n\n"


def program_of(*lines, before=""):
    """Read a program of eight devices whose entry has these lines."""
    header = "HloModule m, is_scheduled=true, num_partitions=8\n\n"
    return read(f"{header}{before}{computation('ENTRY %main', *lines)}", MESH)


LINES = (0, 2, 4, 6), (1, 3, 5, 7)
ALL = (tuple(range(8)),)
HALVES = (0, 2), (1, 3), (4, 6), (5, 7)


@pytest.mark.parametrize(
    ("text", "groups", "axes"),
    [
        ("{{0,2,4,6},{1,3,5,7}}", LINES, ("x",)),
        ("[2,4]<=[4,2]T(1,0)", LINES, ("x",)),
        ("mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}", LINES, ("x",)),
        ("mesh['a'=2,'b'=4], device_ids=(0,2,4,6,1,3,5,7) {'b'}", LINES, ("x",)),
        ("mesh['a'=2,'b'=2,'c'=2] {'b','a'}", LINES, ("x",)),
        ("{}", ALL, ("x", "y")),
        ("[1,8]<=[8]", ALL, ("x", "y")),
        ("mesh['x'=4,'y'=2] {'x':(2)2}", HALVES, None),  # a part of an axis is none
    ],
)
def test_every_spelling_of_groups_is_understood(text, groups, axes):
    collective = program_of(
        f"ROOT %r = f32[8]{{0}} all-reduce(%p), channel_id=1, replica_groups={text}, "
        "use_global_device_ids=true, to_apply=%add"
        ', metadata={op_name="jit(f)/x[(\\"a\\", {"}'
    ).collectives[0]
    assert {*map(frozenset, collective.groups)} == {*map(frozenset, groups)}
    assert collective.axes == axes


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("bf16[4,2]{1,0:T(8,128)(2,1)S(1)}", 16),
        ("s4[9]{0:E(4)}", 5),
        ("s4[9]{0}", 9),
        ("f8e4m3fn[3,3]{1,0}", 9),
        ("token[]", 0),
        ("f32[<=8]{0}", 32),
        ("(f32[2]{0}, (s8[3]{0}, pred[]))", 12),
    ],
)
def test_the_bytes_of_a_shape_are_added_up(shape, size):
    program = program_of(
        f"%q = {shape} custom-call(%p)",
        "ROOT %r = f32[] all-reduce(%q), replica_groups={}",
    )
    assert program.collectives[0].bytes == size


def test_an_asynchronous_collective_counts_once():
    program = program_of(
        "%a = (f32[8]{0}, f32[64]{0}) all-gather-start(%p), replica_groups={}",
        "%b = f32[64]{0} all-gather-done(%a)",
        "%c = (f32[8]{0}, f32[8]{0}, u32[], u32[]) collective-permute-start(%p), "
        + PAIRS,
        "%d = f32[8]{0} collective-permute-done(%c)",
        "%e = ((f32[8]{0}), f32[1]{0}, u32[]) async-start(%p), calls=%wrapped",
        "%f = ((f32[8]{0}), f32[1]{0}, u32[]) async-update(%e), calls=%wrapped",
        "%g = f32[1]{0} async-done(%f), calls=%wrapped",
        # TPU 7x: on a sparse core, from a call without operands
        "%h = ((), (), (s32[0]{0:S(2)})) custom-call-start(), "
        'custom_call_target="TODO(b/5)", called_computations={%core.2}',
        "%i = ((f32[8]{0}), f32[64]{0}) custom-call-update(%h, %p), "
        "output_to_operand_aliasing={{2,0}: (0, {2,0}), {2,1}: (0, {2,1})}",
        "ROOT %j = f32[64]{0} custom-call-done(%i)",
        before=computation(
            "%wrapped",
            "ROOT %r = f32[1]{0} reduce-scatter(%p), replica_groups={}, to_apply=%add",
            after=', execution_thread="main"',
        )
        + computation(
            "%core.2",
            "%t = (f32[8]{0:T(256)}) tuple(%p)",
            "%e = f32[8]{0:T(256)} get-tuple-element(%t), index=0",
            "ROOT %g = f32[64]{0} all-gather(%e), replica_groups={}",
        ),
    )
    once = {"collective-permute": 1, "reduce-scatter": 1}
    assert program.counts == {"all-gather": 2, **once}
    assert program.sent == 2 * 7 * 32 + 32 + 28


def test_a_sum_that_is_fused_with_its_slice_is_a_reduce_scatter():
    """XLA:TPU writes it so, and pads what it sums."""
    program = program_of(
        "%f = f32[4]{0} fusion(%p), kind=kCustom, calls=%all-reduce-scatter.7",
        "ROOT %r = f32[4]{0} all-reduce(%f), replica_groups={{0,1,2,3}}",
        before=computation(
            "%all-reduce-scatter.7",
            "%pad = f32[32]{0} pad(%p, %z), padding=0_24",
            "%sum = f32[32]{0} all-reduce(%pad), replica_groups={}, to_apply=%add",
            "ROOT %s = f32[4]{0} dynamic-slice(%sum, %i), dynamic_slice_sizes={4}",
        ),
    )
    assert program.counts == {"all-reduce": 1, "reduce-scatter": 1}
    assert program.sent == 7 * 128 // 8 + 2 * 3 * 16 // 4


def test_a_collective_that_fusions_share_is_counted_where_it_starts():
    """XLA:TPU flies a gather over a product: three fusions repeat it, one starts it."""
    gather = (
        "%a = f32[64]{0:T(256)} all-gather(%p), replica_groups={}, "
        'backend_config={"async_collective_fusion_config":{"flag_start":"-1"}}'
    )
    end = '%c = f32[64]{0} custom-call(%p, %a), custom_call_target="AsyncCollective'
    program = program_of(
        "%s = (f32[8]{0}, s32[2]{0:S(4)}) fusion(%p), calls=%begin",
        "%f = f32[64]{0} fusion(%s), calls=%async_collective_fusion.7",
        "ROOT %d = f32[64]{0} fusion(%s), calls=%end",
        before=computation("%begin", gather, f'ROOT {end}Start"')
        + computation("%async_collective_fusion.7", f"ROOT {gather}")
        + computation("%end", gather, f'ROOT {end}Done"'),
    )
    assert program.counts == {"all-gather": 1}
    assert program.collectives[0].axes == ("x", "y")
    assert program.sent == 7 * 32


def test_calls_and_both_spellings_of_branches_are_followed():
    inner = "ROOT %r = f32[8]{0} all-reduce(%p), replica_groups={{0,1},{2,3}}"
    program = program_of(
        "%a = f32[8]{0} call(%p), to_apply=%inner",
        "%b = f32[8]{0} fusion(%a), kind=kCustom, calls=%inner",
        '%c = f32[8]{0} custom-call(%b), custom_call_target="offload", '
        "called_computations={%inner, %inner}",
        "%d = f32[8]{0} conditional(%p, %p, %p), "
        "true_computation=%inner, false_computation=%inner",
        "ROOT %e = f32[8]{0} conditional(%p, %p, %p), "
        "branch_computations={%inner, %inner}",
        before=computation("%inner", inner),
    )
    assert program.counts == {"all-reduce": 8}
    assert [c.conditional for c in program.collectives] == [False] * 4 + [True] * 4
    assert str(program).count("up to 4") == 1


def test_operands_of_a_tuple_count_and_what_moves_nothing_does_not():
    program = program_of(
        "%a = f32[8]{0} collective-permute(%p), source_target_pairs={{0,0},{1,1}}",
        "%b = f32[8]{0} collective-permute(%p), source_target_pairs={}",
        "%all-gather = f32[8]{0} copy(%p)",
        '%c = f32[8]{0} negate(%all-gather), metadata={op_name=" all-gather(%p)"}',
        '%d = f32[8]{0} custom-call(%b), custom_call_target="all-to-all"',
        "ROOT %e = (f32[8]{0}, /*index=5*/f32[8]{0}) all-to-all(%p, %p, %p, %p, "
        "%p, /*index=5*/%p, %p, %p), replica_groups={}",
    )
    assert [c.bytes for c in program.collectives] == [8 * 32]
    assert program.sent == 7 * 32


QUOTED = r', backend_config="{\"known_trip_count\":{\"n\":\"3\"}}"'


def count_loop(counter, bound, direction, config="", fused=False):
    """Count the collectives of a loop that counts in one slot and sums in another.

    Its condition has one, too. The step of 2 stays in the state, as XLA:TPU has it.
    """
    start, change = counter
    step = "fusion(%i, %s), calls=%next" if fused else f"{change}(%i, %s)"
    state = "(s32[], f32[8]{0:T(256)}, s32[]{:T(128)S(6)}, /*index=3*/s32[])"
    shapes = {"slot": "s32[]{:T(128)}", "b": "f32[8]{0}", "n": "s32[]", "s": "s32[]"}
    slots = [
        f"%{name} = {shape} get-tuple-element(%t), index={i}"
        for i, (name, shape) in enumerate(shapes.items())
    ]
    slots = f"%t = {state} parameter(0)", *slots
    condition = (
        f"%x = f32[8]{{0}} collective-permute(%n), {PAIRS}",
        f"ROOT %lt = pred[]{{:T(512)}} compare(%slot, %n), direction={direction}",
    )
    body = (
        "%i = s32[]{:T(128)} copy(%slot)",
        f"%j = s32[] {step}",
        "%sum = f32[8]{0} all-reduce(%b), replica_groups={}",
        f"ROOT %u = {state} tuple(%j, %sum, %n, /*index=3*/%s)",
    )
    added = "%a = s32[] parameter(0)", "%b = s32[] parameter(1)"
    return program_of(
        f"%i = s32[]{{:T(128)}} constant({start})",
        f"%n = s32[] constant({bound})",
        "%constant.2 = s32[]{:T(128)} constant(2)",
        f"%t = {state} tuple(%i, %p, %n, /*index=3*/%constant.2)",
        f"ROOT %w = {state} while(%t), condition=%cond, body=%body.sunk{config}",
        before=computation("%next", *added, f"ROOT %c = s32[] {change}(%a, %b)")
        + computation("%cond", *slots, *condition)
        + computation("%body.sunk", *slots, *body),
    ).counts


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("loop", "trips"),
    [
        (((1, "add"), 10, "LT"), 5),
        (((0, "add"), 10, "LE"), 6),
        (((10, "subtract"), 0, "GT"), 5),
        (((10, "subtract"), 0, "GE"), 6),
        (((0, "add"), 8, "NE"), 4),
        (((0, "add"), 10, "EQ"), 0),
        (((1, "multiply"), 100, "LT"), 7),
        (((0, "remainder"), 10, "LT"), None),
        (((0, "add"), 1_000_000, "LT"), None),  # too long to be stepped through
        (((0, "add"), 10, "LT", QUOTED), 3),
    ],
    ids=itertools.count(),
)
def test_a_loop_runs_as_its_text_says_or_is_unknown(loop, trips, fused):
    """Its condition runs once more than its body."""
    counts = count_loop(*loop, fused=fused)
    assert counts.get("all-reduce", 0) == trips
    assert counts["collective-permute"] == (None if trips is None else trips + 1)


PROGRAM = "text of a compiled program"


@each_refusal(
    (lambda: measure("text", 1), "takes a function and its arguments, not 'text'"),
    (lambda: measure(jnp.sum, "text"), r"args\[0\] is a str: pass arrays"),
    (lambda: measure(jnp.sum, 1, {"a": [{1}]}), r"args\[1\]\['a'\]\[0\] is a set"),
    (lambda: read(None), "pass the text of a compiled program, not None"),
    (lambda: read("HloModule a\n\nENTRY b {", "x"), "'x' is no mesh"),
    (lambda: read(jax.jit(jnp.sin).lower(1.0).as_text()), PROGRAM),
    (lambda: read("ENTRY %main () -> f32[] {\n}\n"), PROGRAM),
    (lambda: program_of("%a = f32[8] what is this"), "instruction of a .*: f32"),
)
def test_what_is_no_program_is_refused_in_words(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_machine_that_refuses_takes_part_in_no_claim(mesh, monkeypatch):
    """Whoever stands in ELSEWHERE is asked with what was traced and lowered."""
    asked = []

    def ask(traced, lowered, here):
        asked.append((traced.fun_name, "stablehlo" in lowered.as_text(), here.sent))
        return {"small": "does not fit", "large": here}

    monkeypatch.setattr(communication, "ELSEWHERE", [ask])
    program = measure(jnp.sum, blocks(mesh))
    assert asked == [("sum", True, program.sent)]
    assert "does not fit" in str(program)
    with pytest.raises(ValueError, match=r"not every machine has it.*does not fit"):
        _ = program.everywhere
    compiled = jax.jit(jnp.sum).lower(blocks(mesh)).compile()
    assert measure(compiled).everywhere == (program,)  # nobody can be asked
