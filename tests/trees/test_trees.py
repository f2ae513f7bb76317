from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_week
from jax.sharding import AxisType
from on_devices import devices

from examples.communication import measure
from examples.trees import (
    batch_specs,
    bytes_per_device,
    fits,
    shard_tree,
    sharded_init,
    specs_by_path,
)

P = jax.P
RULES = [
    (r"embed", P("x")),
    (r"layers/\d+/w", P("x", "y")),
    (r"b", P("y")),
    (r"step", P()),
]


@pytest.fixture(
    params=[
        ((2, 4), AxisType.Explicit),
        ((4, 2), AxisType.Auto),
        each_week(((1, 1), AxisType.Explicit)),
    ],
    ids=str,
)
def mesh(request):
    """A mesh in context, of either type of axes."""
    with devices(*request.param):
        yield


@pytest.fixture
def ring():
    """Eight devices in a row, in context."""
    with devices((8,)):
        yield


def init(key):
    """Parameters of two layers and an embedding, and their momentum."""
    keys = jax.random.split(key, 3)
    layers = [{"w": jax.random.normal(k, (16, 8)), "b": jnp.ones(8)} for k in keys[:2]]
    params = {"embed": jax.random.normal(keys[2], (32, 8)), "layers": layers}
    momentum = jax.tree.map(jnp.zeros_like, params)
    return {"params": params, "momentum": momentum, "step": jnp.zeros((), int)}


def shapes():
    return jax.eval_shape(init, jax.random.key(0))


@pytest.fixture(scope="module")
def tree():
    """The tree, made with no mesh in sight."""
    return jax.tree.map(np.asarray, init(jax.random.key(0)))


def check_layout(tree, specs):
    mesh = jax.sharding.get_mesh()

    def look(x, spec):
        assert x.sharding.is_equivalent_to(jax.NamedSharding(mesh, spec), x.ndim)

    jax.tree.map(look, tree, specs)


def test_a_batch_lies_along_its_first_axis_and_scalars_are_copied(mesh):
    batch = {"image": np.ones((16, 3, 2)), "rate": np.float32(2)}
    specs = batch_specs(batch, "x")
    assert specs == {"image": P("x"), "rate": P()}
    assert batch_specs(batch, ("x", "y"))["image"] == P(("x", "y"))
    placed = shard_tree(batch, specs)
    check_layout(placed, specs)
    jax.tree.map(np.testing.assert_array_equal, placed, batch)


def test_the_rule_that_fits_decides_by_the_end_of_the_path(mesh):
    params = {"embed": P("x"), "layers": [{"w": P("x", "y"), "b": P("y")}] * 2}
    expected = {"params": params, "momentum": params, "step": P()}
    assert specs_by_path(shapes(), RULES) == expected
    again = specs_by_path(shapes(), [*RULES, ("params/.*/b", P("y"))])
    assert again == expected  # two rules that say the same


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("0/w", "layers/0/w", True),
        ("0/w", "layers/10/w", False),
        ("0/w", "layers/0/w/scale", False),
        ("w", "layers/0/new", False),
        ("^0/w", "layers/0/w", False),
        ("^layers/0/w", "layers/0/w", True),
        ("w|b", "layers/0/b", True),
        (r"layers/\d+/w", "layers/10/w", True),
    ],
)
def test_a_pattern_fits_whole_parts_at_the_end(pattern, name, expected):
    assert fits(pattern, name) is expected


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([("w|embed|step", P())], "no rule fits momentum/layers/0/b: add one"),
        ([(".*", P()), ("b", P("x"))], "for momentum/layers/0/b contradict each"),
        ([(".*", P()), ("bias", P())], "'bias' fits the end of no path"),
        ([(".*", "x")], r"\('.\*', 'x'\) is no rule"),
        (["xy"], "'xy' is no rule"),
        ([("(", P())], r"'\(' is no regular expression"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(ring, rules, message):
    with pytest.raises(ValueError, match=message):
        specs_by_path(shapes(), rules)


def test_a_tree_laid_out_or_made_in_its_place_has_values_and_layout(mesh, tree):
    specs = specs_by_path(shapes(), RULES)
    placed = shard_tree(tree, specs)
    check_layout(placed, specs)
    jax.tree.map(np.testing.assert_array_equal, placed, tree)
    made = sharded_init(init, specs)(jax.random.key(0))
    check_layout(made, specs)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), made, tree)


def test_one_spec_serves_a_whole_branch(mesh):
    tree = {"a": [np.ones((8, 2)), np.ones(16)], "b": np.ones(8)}
    placed = shard_tree(tree, {"a": P("x"), "b": P()})
    check_layout(placed, {"a": [P("x"), P("x")], "b": P()})
    made = sharded_init(lambda: [jnp.ones(8), jnp.ones((16, 2))], P("x"))()
    check_layout(made, [P("x"), P("x")])


@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
def test_no_device_ever_holds_a_tree_made_in_its_place(kind):
    def big(key):
        w = jax.random.normal(key, (1024, 256))
        return {"w": w, "m": jnp.zeros_like(w), "v": jnp.zeros_like(w)}

    part = 1024 * 256 * 4 // 8
    with devices((8,), kind):
        program = measure(sharded_init(big, P("x")), jax.random.key(0))
    assert program.counts == {}
    assert 3 * part <= program.outputs < 3.01 * part
    assert program.temporaries < 4 * part


def test_bytes_of_an_uneven_load_are_the_largest():
    first, second = jax.devices()[:2]
    tree = [jax.device_put(np.ones(4, np.float32), d) for d in (first, second, second)]
    assert bytes_per_device(tree) == 32
    assert bytes_per_device([]) == 0


def test_bytes_need_no_array(ring):
    split = jax.NamedSharding(jax.sharding.get_mesh(), P("x"))
    planned = [jax.ShapeDtypeStruct((16, 4), jnp.bfloat16, sharding=split)]
    assert bytes_per_device(planned) == 2 * 4 * 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (P("x", None), r"a/1 has rank 1: P\('x', None\) is too long for it"),
        (P("z"), r"a/1: P\('z',\) names \['z'\], not in \['x'\]"),
        (P("x"), r"a/1 has shape \(13,\): P\('x',\) cuts 13 in 8"),
        (P(("x", "x")), r"a/1: P\(\('x', 'x'\),\) names \['x'\] twice"),
        (P(P.UNCONSTRAINED), r"a/1: .* does not say where each element belongs"),
    ],
    ids=["long", "unknown", "indivisible", "twice", "unconstrained"],
)
def test_a_spec_that_does_not_fit_is_refused_by_name(ring, spec, message):
    tree = {"a": [np.ones(8), np.ones(13)]}
    with pytest.raises(ValueError, match=message):
        shard_tree(tree, {"a": [P(), spec]})
    with pytest.raises(ValueError, match=message):
        specs_by_path(tree, [("a/1", spec), ("a/0", P())])


@pytest.mark.parametrize(
    ("kinds", "spec"),
    [(("Auto", "Explicit"), P("x", "y")), (("Explicit", "Auto"), P("y"))],
)
def test_axes_of_two_types_serve_as_well(kinds, spec):
    types = tuple(AxisType[kind] for kind in kinds)
    with jax.set_mesh(jax.make_mesh((2, 4), ("x", "y"), types)):
        make = sharded_init(lambda n: {"w": n[None] * jnp.ones((8, 16))}, spec)
        made, laid = make(n=jnp.arange(16.0)), shard_tree(np.ones((8, 16)), spec)
        check_layout([made["w"], laid], [spec, spec])
        np.testing.assert_array_equal(made["w"], np.arange(16) * np.ones((8, 16)))
        with pytest.raises(ValueError, match="cuts an axis by axes of two types"):
            sharded_init(init, P(("x", "y")))


def test_what_cannot_be_made_is_refused_by_name(ring):
    for specs, message in (
        (P("z"), r"the array: P\('z',\) names \['z'\]"),
        ({"b": P()}, "the specs are no prefix of the tree"),
        ({"a": "x"}, "a: 'x' is no spec"),
        ({"a": P("x")}, r"a has shape \(13,\): P\('x',\) cuts 13 in 8"),
    ):
        with pytest.raises(ValueError, match=message):
            sharded_init(lambda: {"a": jnp.ones(13)}, specs)()
    with pytest.raises(ValueError, match="the specs are no prefix of the tree"):
        shard_tree({"a": np.ones(8)}, {"b": P()})
    with pytest.raises(ValueError, match="a/0 is no number: 'word'"):
        shard_tree({"a": ["word"]}, P())
    with pytest.raises(ValueError, match="is traced: call shard_tree outside jit"):
        jax.jit(lambda a: shard_tree(a, P("x")))(np.ones(8))


def test_without_a_mesh_or_a_device_it_says_so():
    for call in (
        lambda: shard_tree(np.ones(8), P()),
        lambda: sharded_init(lambda: jnp.ones(8), P()),
        lambda: specs_by_path({"w": np.ones(8)}, [("w", P())]),
    ):
        with pytest.raises(ValueError, match="no mesh in context"):
            call()
    with pytest.raises(ValueError, match="w lies on no device"):
        bytes_per_device({"w": np.ones(8)})


def test_small_floats_of_numpy_are_numbers(ring):
    half = np.ones(16, jnp.bfloat16)
    assert bytes_per_device(shard_tree({"w": half}, P("x"))) == 4
