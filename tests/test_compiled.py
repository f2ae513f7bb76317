"""What XLA compiled is kept, if it may be read back, and is then the same program."""

import json
import subprocess
import sys
from pathlib import Path

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


sharding = jax.NamedSharding(jax.sharding.get_mesh(), P("x", "y"))
a = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=sharding)
found = {}
for f in none, one_sum, one_shift_in_a_loop, two, gather_and_scatter:
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


def test_a_program_with_one_collective_at_most_is_read_back(runs):
    first, second = runs
    assert not any(read for read, *_ in first.values())
    read = {name for name, (read, *_) in second.items() if read}
    assert read == {"none", "one_sum", "one_shift_in_a_loop"}


def test_a_program_read_back_is_the_same(runs):
    first, second = runs
    assert {n: said for n, (_, *said) in first.items()} == {
        n: said for n, (_, *said) in second.items()
    }
    assert first["one_shift_in_a_loop"][1] == {"collective-permute": 3}
    assert sum(first["two"][1].values()) == 2
