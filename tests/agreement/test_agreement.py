"""What differs between processes, programs or copies, is found in all of them."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from on_devices import AUTO, EXPLICIT, devices
from on_processes import refused, share_processes

from examples import agreement
from examples.agreement import assert_replicated, assert_same_program

pytestmark = pytest.mark.processes
P = jax.P
SOURCE = Path(agreement.__file__).parents[1]

# In each of four processes; of some things process 1 has others.
NAMES = """
import jax, jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from examples.agreement import assert_replicated, assert_same_program
P = jax.P
me = jax.process_index()
other = me == 1
mesh = jax.make_mesh((4, 2), ("x", "y"))
table = np.arange(128, dtype=np.float32).reshape(16, 8)

def placed(table, *spec, mesh=mesh):
    sharding = NamedSharding(mesh, P(*spec))
    part, dtype = table.__getitem__, table.dtype
    return jax.make_array_from_callback(table.shape, sharding, part, dtype=dtype)

x = placed(table, "x")
reshaped = lambda x: x.reshape(3) if other else x
thing = object() if other else 1.0
column = table + other * (np.arange(8) == 4).astype("f")
some = Mesh(np.array(jax.devices())[2:6], ("d",), axis_types=mesh.axis_types[:1])
order = mesh.devices[::-1] if other else mesh.devices
turned = Mesh(order, ("x", "y"), axis_types=mesh.axis_types)
copies = NamedSharding(mesh, P())
blocks = [np.zeros(3, np.float32) for _ in range(2)]
blocks[1].view(np.uint32)[2] ^= other
blocks = [jax.device_put(b, d) for b, d in zip(blocks, jax.local_devices())]
one_bit_on_one_device = jax.make_array_from_single_device_arrays((3,), copies, blocks)
"""
four = share_processes(4, 2, NAMES, env={"PYTHONPATH": str(SOURCE)})


# ------------------------------------------------------------------------- one process


@pytest.mark.parametrize(
    ("shape", "kind"), [((2, 4), AUTO), ((2, 2), EXPLICIT)], ids=str
)
def test_equal_copies_and_one_program_pass(shape, kind):
    """Copies on all devices or some; keys, numbers and NaN, and nothing at all."""
    key, table = jax.random.key(0), np.arange(64.0).reshape(8, 8)
    with devices(shape, kind):
        x = jax.device_put(table, P("x"))
        for spec in P(None, "y"), P():
            assert_replicated(jax.device_put(table, spec))
        for value in np.full((8, 8), np.nan, "f"), np.float32(3), np.zeros((0, 3), "f"):
            assert_replicated(jax.device_put(value, P()))
        assert_same_program(jnp.sum, x)
        assert_same_program(jax.jit(lambda tree: tree["a"] * 2), {"a": x})
    assert_same_program(jnp.sum, np.ones(3))
    assert_replicated({"key": key, "step": 3, "rate": 0.1, "no": None})
    assert_replicated([])


def test_replicas_that_differ_on_the_devices_of_one_process_are_found():
    with devices((2, 4)):
        halves = jax.NamedSharding(jax.sharding.get_mesh(), P("x"))
    blocks = jax.device_put([np.zeros(2, np.float32)] * 8, jax.devices())
    blocks[6] = -blocks[6]
    array = jax.make_array_from_single_device_arrays((4,), halves, blocks)
    with pytest.raises(
        AssertionError, match=r"\['w'\]\[2:4\]: process 0 \| process 0$"
    ):
        assert_replicated({"b": np.ones(3), "w": array})


def test_what_has_no_bits_or_is_no_function_is_refused():
    with pytest.raises(ValueError, match="no bits to compare"):
        assert_replicated({"f": object()})
    with pytest.raises(ValueError, match="3 is no function: pass one, jitted or not"):
        assert_same_program(3, 1.0)


# -------------------------------------------------------------------- several processes


def test_equal_copies_and_programs_of_four_processes_pass(four):
    four.run("""
for spec in ("x", "y"), ("y",), (None, ("y", "x")), ():
    assert_replicated({"n": 3, "x": placed(table, *spec), "nan": np.nan})
assert_replicated(placed(table, "d", mesh=some))
assert_same_program(jnp.sum, x)
assert_same_program(jax.jit(lambda x: x * 2), x)
assert_same_program(jnp.sum, jnp.ones(3))  # on a device of each process
""")


WHO = "processes 0, 2, 3 | process 1"
COPIES = {
    "{'seed': np.random.default_rng(other).random(3)}": f"['seed']: {WHO}",
    "{'w': placed(table + other)}": f"['w']: {WHO}",
    "{'w': placed(column, None, 'y')}": f"['w'][0:16, 4:8]: {WHO}",
    "float(other)": f": {WHO}",
    "jnp.ones(3) + other": f": {WHO}",  # on one device of each process
    "one_bit_on_one_device": ": processes 0, 1, 2, 3 | process 1",
}
TREES = "[1.0] * (2 + other)", "np.zeros(3, 'd' if other else 'f')"
PROGRAMS = (
    "jnp.mean if other else jnp.sum, x",
    "lambda x: x * (2 if other else 3), x",
    "lambda x: x + np.full((16, 8), other), x",
    "jnp.sum, jax.ShapeDtypeStruct((16 + other, 8), 'f')",
    "jnp.sum, placed(table, 'y' if other else 'x')",
    "jnp.sum, placed(table, 'x', mesh=turned)",  # whose text is the same
)


def test_what_differs_in_one_process_is_found_in_all(four):
    error = "AssertionError: {}: {}".format
    for tree, where in COPIES.items():
        words = error("not the same everywhere", where)
        four.run(f"assert_replicated({tree})", raises=words)
    for tree in TREES:
        words = error("the processes hold different trees", WHO)
        four.run(f"assert_replicated({tree})", raises=words)
    for program in PROGRAMS:
        words = error("the processes would run different programs", WHO)
        four.run(f"assert_same_program({program})", raises=words)


@pytest.mark.parametrize(
    ("call", "own", "others"),
    [
        ("assert_same_program(reshaped, x)", "TypeError: cannot", "different programs"),
        (
            "assert_replicated([thing])",
            "ValueError: [0] has no bits",
            "different trees",
        ),
    ],
)
def test_an_error_in_one_process_leaves_no_other_waiting(four, call, own, others):
    errors = refused(four, call)
    assert own in errors.pop(1)
    assert all(f"{others}: processes 0, 2, 3 | process 1" in error for error in errors)
