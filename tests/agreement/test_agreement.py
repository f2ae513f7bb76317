"""What differs between processes, programs or copies, is found in all of them."""

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from on_processes import Group, refused

from examples import agreement
from examples.agreement import assert_replicated, assert_same_program, group_equal

P = jax.P
SOURCE = Path(agreement.__file__).parents[1]
TABLE = np.arange(128, dtype=np.float32).reshape(16, 8)

# In each of four processes.
NAMES = """
import jax, jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from examples import agreement
from examples.agreement import assert_replicated, assert_same_program
P = jax.P
me = jax.process_index()
mesh = jax.make_mesh((4, 2), ("x", "y"))
table = np.arange(128, dtype=np.float32).reshape(16, 8)

def laid(*spec, mesh=mesh):
    return NamedSharding(mesh, P(*spec))

def placed(table, sharding):
    return jax.make_array_from_callback(
        table.shape, sharding, table.__getitem__, dtype=table.dtype
    )
"""


@pytest.fixture(scope="module")
def group():
    group = Group(4, 2, NAMES, env={"PYTHONPATH": str(SOURCE)})
    yield group
    group.close()


@pytest.fixture
def four(group):
    return group.alive()


@pytest.fixture(params=[((2, 4), AxisType.Auto), ((2, 2), AxisType.Explicit)], ids=str)
def mesh(request):
    shape, kind = request.param
    devices = jax.devices()[: math.prod(shape)]
    return jax.make_mesh(shape, ("x", "y"), (kind,) * 2, devices=devices)


def test_processes_with_equal_codes_are_one_group():
    assert group_equal(np.array([7, 5, 7])) == "processes 0, 2 | process 1"
    assert group_equal(np.array([3])) == "process 0"


# ------------------------------------------------------------------------- one process


def test_equal_copies_pass(mesh):
    for spec in P(None, "y"), P():
        assert_replicated(jax.device_put(TABLE, NamedSharding(mesh, spec)))
    for value in np.full((8, 8), np.nan, "f"), np.float32(3), np.zeros((0, 3), "f"):
        assert_replicated(jax.device_put(value, NamedSharding(mesh, P())))


def made(values, sharding, shape):
    """Put one value on each device, and call it one array."""
    arrays = [
        jax.device_put(np.full(sharding.shard_shape(shape), value, np.float32), device)
        for value, device in zip(values, sharding.mesh.devices.flat, strict=True)
    ]
    return jax.make_array_from_single_device_arrays(shape, sharding, arrays)


def test_replicas_that_differ_on_the_devices_of_one_process_are_found():
    mesh = jax.make_mesh((2, 4), ("x", "y"))
    sharding = NamedSharding(mesh, P("x"))
    assert_replicated(made([0] * 4 + [1] * 4, sharding, (4,)))
    corrupted = made([0] * 4 + [1, 1, 2, 1], sharding, (4,))
    with pytest.raises(AssertionError, match=r"\['w'\]\[2:4\]: process 0 \| process 0"):
        assert_replicated({"b": np.ones(3), "w": corrupted})
    whole = made([0] * 7 + [np.nan], NamedSharding(mesh, P()), (4,))
    with pytest.raises(AssertionError, match=r"everywhere: : process 0 \| process 0"):
        assert_replicated(whole)


def test_keys_numbers_and_empty_trees_can_be_compared():
    assert_replicated({"key": jax.random.key(0), "step": 3, "rate": 0.1, "no": None})
    assert_replicated([])
    with pytest.raises(ValueError, match="no bits to compare"):
        assert_replicated({"f": object()})


def test_one_process_runs_the_same_program_as_itself(mesh):
    x = jax.device_put(TABLE, NamedSharding(mesh, P("x")))
    assert_same_program(jnp.sum, x)
    assert_same_program(jnp.sum, np.ones(3))
    assert_same_program(jax.jit(lambda tree: tree["a"] * 2), {"a": x})
    with pytest.raises(TypeError, match="reshape"):
        assert_same_program(lambda x: x.reshape(3), x)
    with pytest.raises(ValueError, match="3 is no function: pass one, jitted or not"):
        assert_same_program(3, x)


# -------------------------------------------------------------------- several processes


@pytest.mark.processes
def test_equal_copies_of_four_processes_pass_also_on_some_devices(four):
    four.run("""
for spec in ("x", "y"), ("y",), (None, ("y", "x")), ():
    assert_replicated(placed(table, laid(*spec)))
some = jax.sharding.Mesh(np.array(jax.devices())[2:6], ("d",),
                         axis_types=mesh.axis_types[:1])
assert_replicated(placed(table, laid("d", mesh=some)))
""")


@pytest.mark.processes
def test_copies_that_differ_are_found_with_their_processes(four):
    four.run("copies = laid()\nassert_replicated({'n': 3, 'x': placed(table, copies)})")
    found = "AssertionError: processes 0, 1, 3 | process 2"
    for call in (
        "assert_replicated({'seed': np.random.default_rng(me == 2).random(3)})",
        "assert_replicated({'w': placed(table + (me == 2), copies)})",
        "assert_replicated(float(me == 2))",
    ):
        four.run(call, raises=found)
    four.run("assert_replicated(np.nan)")
    four.run("mine = table + (me == 1) * (np.arange(8) == 4).astype('f')")
    call = "assert_replicated({'b': 1, 'w': placed(mine, laid(None, 'y'))})"
    words = "AssertionError: ['w'][0:16, 4:8]: processes 0, 2, 3 | process 1"
    four.run(call, raises=words)


@pytest.mark.processes
def test_one_bit_on_one_device_is_found(four):
    four.run("""
blocks = [np.zeros(3, np.float32) for _ in range(2)]
blocks[1].view(np.uint32)[2] ^= me == 3
arrays = [jax.device_put(b, d) for b, d in zip(blocks, jax.local_devices())]
x = jax.make_array_from_single_device_arrays((3,), laid(), arrays)
""")
    words = "not the same everywhere: : processes 0, 1, 2, 3 | process 3"
    four.run("assert_replicated(x)", raises=f"AssertionError: {words}")


@pytest.mark.processes
def test_trees_of_other_shapes_are_found(four):
    words = "AssertionError: the processes hold different trees: process 0 | processes"
    four.run("assert_replicated([1.0] * (2 + (me == 0)))", raises=words)
    four.run("assert_replicated(np.zeros(3, 'f' if me else 'd'))", raises=words)


@pytest.mark.processes
def test_other_programs_are_found_and_the_same_pass(four):
    four.run("""
x = placed(table, laid("x"))
assert_same_program(jnp.sum, x)
assert_same_program(jax.jit(lambda x: x * 2), x)
assert_same_program(jnp.sum, jnp.ones(3))  # on a device of each process
""")
    words = "AssertionError: different programs: processes 0, 2, 3 | process 1"
    for other in (
        "assert_same_program(jnp.mean if me == 1 else jnp.sum, x)",
        "assert_same_program(lambda x: x * (2 if me == 1 else 3), x)",
        "assert_same_program(lambda x: x + np.full((16, 8), me == 1), x)",
        "assert_same_program(jnp.sum, jax.ShapeDtypeStruct((16 + (me == 1), 8), 'f'))",
        "assert_same_program(jnp.sum, jax.ShapeDtypeStruct((16, 8), 'f', sharding="
        "laid(('x', 'y')[me == 1])))",
    ):
        four.run(other, raises=words)


@pytest.mark.processes
def test_another_order_of_the_devices_is_another_program(four):
    """The text of the two programs is the same."""
    four.run("""
order = mesh.devices[::-1] if me == 0 else mesh.devices
mine = jax.sharding.Mesh(order, ("x", "y"), axis_types=mesh.axis_types)
x = jax.ShapeDtypeStruct((16, 8), "f", sharding=laid("x", mesh=mine))
""")
    words = "AssertionError: different programs: process 0 | processes 1, 2, 3"
    four.run("assert_same_program(jnp.sum, x)", raises=words)


@pytest.mark.processes
def test_an_error_of_lowering_in_one_process_leaves_no_other_waiting(four):
    four.run("x = placed(table, laid('x'))")
    call = "assert_same_program(lambda x: x.reshape(3) if me == 3 else x, x)"
    errors = refused(four, call)
    assert "TypeError: cannot reshape" in errors[3]
    different = "different programs: processes 0, 1, 2 | process 3"
    assert all(different in error for error in errors[:3])


@pytest.mark.processes
def test_a_leaf_without_bits_in_one_process_leaves_no_other_waiting(four):
    errors = refused(four, "assert_replicated([object() if me == 1 else 1.0])")
    assert "ValueError: [0] has no bits to compare" in errors[1]
    different = "different trees: processes 0, 2, 3 | process 1"
    assert all(different in errors[process] for process in (0, 2, 3))
