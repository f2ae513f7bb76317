import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from on_devices import AUTO, EXPLICIT

from examples.meshes import arrange, boxes, bytes_held, bytes_missing, same_placement

WIDE = [[0, 1, 2, 3], [4, 5, 6, 7]]
TALL = [[0, 4], [1, 5], [2, 6], [3, 7]]
EVEN = [[0, 2], [4, 6]]
P = jax.P
SPECS = [P(), P("a"), P("a", "b"), P("b", "a"), P(None, "b"), P(("b", "a"))]
SHAPE = (16, 24)


@pytest.fixture(params=[(TALL, AUTO), (EVEN, EXPLICIT)], ids=["tall", "even"])
def mesh(request):
    """A mesh with axes a and b, of all devices or of some."""
    ids, kind = request.param
    return arrange(ids, ("a", "b"), kind)


def put(mesh, spec, shape=SHAPE):
    """Return numbers 0, 1, 2, ... as float32, placed from the host."""
    numbers = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    return jax.device_put(numbers, jax.NamedSharding(mesh, spec))


def promise(x):
    """Return the shape, dtype and sharding of an array without its data."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)


def cells_on(x):
    """Return, for each device, the numbers that its shard really stores."""
    return {s.device.id: set(np.ravel(s.data).tolist()) for s in x.addressable_shards}


def test_a_mesh_has_the_devices_where_the_ids_are_and_explicit_axes_unless_asked():
    for ids in TALL, EVEN:
        mesh = arrange(ids, ("a", "b"))
        np.testing.assert_array_equal(mesh.device_ids, ids)
        assert mesh.axis_names == ("a", "b")
    assert arrange(WIDE, ("a", "b")) == jax.make_mesh((2, 4), ("a", "b"))
    assert arrange([0, 1], "x").axis_types == (EXPLICIT,)
    assert arrange([0, 1], "x", AUTO).axis_types == (AUTO,)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_boxes_are_the_parts_that_devices_store(mesh, spec):
    x = put(mesh, spec)
    host, found = np.asarray(x), boxes(x.sharding, SHAPE)
    assert all(part.step == 1 for box in found.values() for part in box)
    assert {i: set(host[box].flat) for i, box in found.items()} == cells_on(x)
    assert bytes_held(promise(x)) == bytes_held(x)


def test_a_trailing_none_and_another_mesh_are_the_same_placement_another_order_not():
    wide, line = arrange(WIDE, ("a", "b")), arrange(range(8), "x")
    short, long = (jax.NamedSharding(wide, P("a", *end)) for end in [(), (None,)])
    assert short != long
    assert same_placement(short, long, SHAPE)
    flat = jax.NamedSharding(line, P("x"))
    assert same_placement(flat, jax.NamedSharding(wide, P(("a", "b"))), SHAPE)
    back = jax.NamedSharding(arrange(range(8)[::-1], "x"), P("x"))
    assert not same_placement(flat, back, SHAPE)


def test_bytes_held_adds_the_leaves_of_a_tree():
    halves, one = arrange([0, 1], "x"), jax.devices()[1]
    tree = {"w": put(halves, P("x"), (8,)), "b": [jax.device_put(np.int8(1), one)]}
    assert bytes_held(tree) == {0: 16, 1: 17}
    assert bytes_held({}) == {}


def test_bytes_missing_are_the_new_cells_that_a_device_does_not_store(mesh):
    """Two placements are the same where devices store the same cells."""
    wide = arrange(WIDE, ("a", "b"))
    starts, ends = ([put(m, spec) for spec in SPECS] for m in (mesh, wide))
    for x, y in itertools.product(starts, ends):
        before, after = cells_on(x), cells_on(y)
        expected = {i: 4 * len(after[i] - before.get(i, set())) for i in after}
        lies = x.sharding, y.sharding
        assert bytes_missing(x, y.sharding) == expected, lies
        assert bytes_missing(promise(x), y.sharding) == expected, lies
        assert same_placement(*lies, SHAPE) == (before == after), lies


ROWS = jax.NamedSharding(jax.make_mesh((8,), ("x",)), P("x"))
OF_NO_MACHINE = jax.NamedSharding(ROWS.mesh.abstract_mesh, P("x"))
PLANNED = jax.ShapeDtypeStruct((8,), np.float32, sharding=OF_NO_MACHINE)
GRID = "no ids of devices in a grid"
NOWHERE = "lies on no device"
NO_SHARDING = "is no sharding over devices"


@each_refusal(
    (lambda: arrange([[0, 1], [2, 3]], "a"), r"\(2, 2\) make no mesh .*\('a',\)"),
    (lambda: arrange([], "a"), "at least one id"),
    (lambda: arrange([0, 1, 1, 0], "a"), r"ids repeat \[0, 1\]"),
    (lambda: arrange([0, 8, 9], "a"), r"id of \[8, 9\]; ids are \[0, 1, .*7\]"),
    (lambda: arrange([[0, 1], [2]], ("a", "b")), GRID),
    (lambda: arrange(jax.devices()[:2], "x"), GRID),
    (lambda: arrange([0, 1], "x", "Auto"), "is no type of axes"),
    (lambda: boxes(P("x"), (8,)), NO_SHARDING),
    (lambda: boxes(ROWS, ()), r"is too long for the shape \(\)"),
    (lambda: same_placement(ROWS, None, (8,)), f"None {NO_SHARDING}"),
    (lambda: bytes_missing(np.ones(8), ROWS), NOWHERE),
    (lambda: bytes_missing(jnp.ones(9), ROWS), "cuts 9 of the shape"),
    (lambda: bytes_held([np.ones(8)]), NOWHERE),
    (lambda: bytes_held(PLANNED), NOWHERE),
    (lambda: jax.jit(bytes_held)(jnp.ones(8)), NOWHERE),
)
def test_what_makes_no_mesh_and_cannot_be_counted_is_refused_in_words(call, words):
    with pytest.raises(ValueError, match=words):
        call()
