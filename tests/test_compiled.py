"""What XLA compiled is kept, if it may be read back, and is then the same program."""

import json
import subprocess
import sys
from pathlib import Path

import compiled
import pytest

TOOLS = Path(__file__).parents[1] / "tools"
SCRIPT = """
import json, sys
from pathlib import Path

import jax, jax.numpy as jnp
from jax import lax

jax.config.update("jax_num_cpu_devices", 8)
sys.path[:0] = sys.argv[2:]
import compiled
from examples.communication import measure

compiled.keep(sys.argv[1])
events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name))
jax.set_mesh(jax.make_mesh((4, 2), ("x", "y")))
P = jax.P


def none(a):
    return jnp.sin(a) * a


def one_sum(a):
    return lax.psum(a, "x")


def one_shift_in_a_loop(a):
    pairs = [(i, (i + 1) % 4) for i in range(4)]
    return lax.fori_loop(0, 3, lambda _, a: lax.ppermute(a, "x", pairs), a)


def two(a):
    return lax.psum(a, "x") + lax.pmax(jnp.cos(a), "y")


def gather_and_scatter(a):
    rows = lax.all_gather(a, "x", tiled=True)
    return lax.psum_scatter(rows, "x", tiled=True)


def loop(a):
    pairs = [(i, (i + 1) % 4) for i in range(4)]
    return lax.fori_loop(0, 3, lambda _, a: lax.ppermute(jnp.sin(a), "x", pairs), a)


def a_loop_of_a_sum(a):
    return loop(lax.psum(a, "y"))


def a_sum_of_two_loops_in_a_row(a):
    return lax.psum(loop(loop(a) + 1), "y")


def a_loop_beside_a_sum(a):
    return loop(a) + lax.psum(jnp.cos(a), "y")


def two_loops_side_by_side(a):
    return loop(a) + loop(jnp.cos(a))


def a_branch_beside_a_sum(a):
    branch = lax.cond(a[0, 0] > 0, lambda a: lax.psum(a, "x"), lambda a: a, a)
    return branch + lax.psum(jnp.cos(a), "y")


sharding = jax.NamedSharding(jax.sharding.get_mesh(), P("x", "y"))
a = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=sharding)
found = {}
fs = none, one_sum, one_shift_in_a_loop, two, gather_and_scatter, a_loop_of_a_sum
fs += a_sum_of_two_loops_in_a_row, a_loop_beside_a_sum, two_loops_side_by_side
fs += (a_branch_beside_a_sum,)
for f in fs:
    events.clear()
    mapped = jax.shard_map(f, out_specs=P("x", "y"), check_vma=False)
    m = measure(mapped if f is not none else jax.jit(f), a)
    read = "/jax/compilation_cache/cache_hits" in events
    found[f.__name__] = read, m.counts, m.sent, m.temporaries, m.outputs
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What two processes found, one after the other, with one folder."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "script.py").write_text(SCRIPT)
    paths = str(TOOLS), str(TOOLS.parent / "src")
    command = sys.executable, str(folder / "script.py"), str(folder / "kept"), *paths
    outputs = [subprocess.check_output(command, text=True) for _ in range(2)]
    return [json.loads(output) for output in outputs]


def test_a_program_is_read_back_whose_collectives_keep_their_order(runs):
    first, second = runs
    assert not any(read for read, *_ in first.values())
    read = {name for name, (read, *_) in second.items() if read}
    assert set(first) - read == {
        "a_loop_beside_a_sum",
        "two_loops_side_by_side",
        "a_branch_beside_a_sum",
    }


LOOP = """
%body (p: (s32[], f32[8], f32[8])) -> (s32[], f32[8], f32[8]) {
  %p = (s32[], f32[8]{0}, /*index=2*/f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %moves = f32[8]{0} get-tuple-element(%p), index=1
  %stays = f32[8]{0} get-tuple-element(%p), index=2
  %next = s32[] fusion(%i), kind=kLoop, calls=%one_more
  %moved = f32[8]{0} collective-permute(%moves), source_target_pairs={{0,1}}
  %copied = f32[8]{0} copy(%stays)
  ROOT %all = (s32[], f32[8]{0}, f32[8]{0}) tuple(%next, %moved, %copied)
}

%condition (p.1: (s32[], f32[8], f32[8])) -> pred[] {
  %p.1 = (s32[], f32[8]{0}, f32[8]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  ROOT %less = pred[] fusion(%i.1), kind=kLoop, calls=%less_than_three
}

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %zero = s32[] constant(0)
  %b = f32[8]{0} FIRST(%a), to_apply=%add
  %c = f32[8]{0} negate(%a)
  %given = (s32[], f32[8]{0}, f32[8]{0}) tuple(%zero, GIVEN)
  %while = (s32[], f32[8]{0}, f32[8]{0}) while(%given), condition=%condition, body=%body
  %d = f32[8]{0} get-tuple-element(%while), index=INDEX
  ROOT %e = f32[8]{0} LAST(%d), to_apply=%add
}
"""


SUM, IN, OUT = "all-reduce", "%b, %c", "1"


@pytest.mark.parametrize(
    ("words", "ordered"),
    [
        ({"FIRST": SUM, "GIVEN": IN, "INDEX": OUT}, True),
        ({"FIRST": SUM, "GIVEN": "%c, %b", "INDEX": OUT}, False),  # it hands on the sum
        ({"LAST": SUM, "GIVEN": IN, "INDEX": OUT}, True),
        ({"LAST": SUM, "GIVEN": IN, "INDEX": "2"}, False),  # the sum does not need it
        ({"GIVEN": "%c, %b", "INDEX": "2"}, True),
    ],
)
def test_a_loop_keeps_its_place_if_it_reads_or_writes_what_is_shared(words, ordered):
    text = LOOP
    for word, meant in ({"FIRST": "sine", "LAST": "sine"} | words).items():
        text = text.replace(word, meant)
    assert compiled.is_ordered(text) == ordered


def test_a_program_read_back_is_the_same(runs):
    first, second = runs
    assert {n: said for n, (_, *said) in first.items()} == {
        n: said for n, (_, *said) in second.items()
    }
    assert first["one_shift_in_a_loop"][1] == {"collective-permute": 3}
    assert sum(first["two"][1].values()) == 2
