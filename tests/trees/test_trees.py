import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from fft.test_fft import lies
from on_devices import AUTO, EXPLICIT, devices, on

from examples import trees
from examples.communication import measure
from examples.trees import fits, shard_tree, sharded_init, specs_by_path

P, KEY = jax.P, jax.random.key(0)
RULES = [
    (r"embed", P("x")),
    (r"layers/\d+/w", P("x", "y")),
    (r"b", P("y")),
    (r"step", P()),
]


@pytest.fixture(params=[((2, 4), EXPLICIT), ((4, 2), AUTO)], ids=str)
def mesh(request):
    """A mesh in context, of either type of axes."""
    with devices(*request.param):
        yield


def init(key):
    """Parameters of two layers and an embedding, and their momentum."""
    keys = jax.random.split(key, 3)
    layers = [{"w": jax.random.normal(k, (16, 8)), "b": jnp.ones(8)} for k in keys[:2]]
    params = {"embed": jax.random.normal(keys[2], (32, 8)), "layers": layers}
    momentum = jax.tree.map(jnp.zeros_like, params)
    return {"params": params, "momentum": momentum, "step": jnp.zeros((), int)}


def shapes():
    return jax.eval_shape(init, KEY)


def assert_laid_out(tree, specs, expected):
    """Fail unless a tree lies by these specs, and has these numbers."""

    def look(x, spec, wanted):
        assert lies(x, spec)
        np.testing.assert_allclose(x, wanted, rtol=1e-6)

    jax.tree.map(look, tree, specs, expected)


def test_a_batch_lies_along_its_first_axis_and_scalars_are_copied(mesh):
    batch = {"image": np.ones((16, 3, 2)), "rate": np.float32(2)}
    specs = trees.batch_specs(batch, "x")
    assert specs == {"image": P("x"), "rate": P()}
    assert trees.batch_specs(batch, ("x", "y"))["image"] == P(("x", "y"))
    assert_laid_out(shard_tree(batch, specs), specs, batch)


def test_the_rule_that_fits_decides_by_the_end_of_the_path(mesh):
    params = {"embed": P("x"), "layers": [{"w": P("x", "y"), "b": P("y")}] * 2}
    expected = {"params": params, "momentum": params, "step": P()}
    assert specs_by_path(shapes(), RULES) == expected
    again = specs_by_path(shapes(), [*RULES, ("params/.*/b", P("y"))])
    assert again == expected  # two rules that say the same


NAMES = "layers/0/w", "layers/10/w", "layers/0/w/scale", "layers/0/new", "layers/0/b"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("0/w", [0]),
        ("^0/w", []),
        ("^layers/0/w", [0]),
        ("w|b", [0, 1, 4]),
        (r"layers/\d+/w", [0, 1]),
    ],
)
def test_a_pattern_fits_whole_parts_at_the_end(pattern, found):
    assert [i for i, name in enumerate(NAMES) if fits(pattern, name)] == found


def test_one_spec_serves_a_whole_branch(mesh):
    tree = {"a": [np.ones((8, 2)), np.ones(16)], "b": np.ones(8)}
    specs = {"a": [P("x"), P("x")], "b": P()}
    assert_laid_out(shard_tree(tree, {"a": P("x"), "b": P()}), specs, tree)
    made = sharded_init(lambda: tree["a"], P("x"))()
    assert_laid_out(made, specs["a"], tree["a"])


def test_a_tree_laid_out_or_made_in_its_place_has_values_and_layout(mesh):
    specs, tree = specs_by_path(shapes(), RULES), jax.device_get(init(KEY))
    for found in shard_tree(tree, specs), sharded_init(init, specs)(KEY):
        assert_laid_out(found, specs, tree)


@pytest.mark.parametrize("kind", [EXPLICIT, AUTO])
def test_no_device_ever_holds_a_tree_made_in_its_place(kind):
    def big(key):
        w = jax.random.normal(key, (1024, 256))
        return {"w": w, "m": jnp.zeros_like(w), "v": jnp.zeros_like(w)}

    part = 1024 * 256 * 4 // 8
    with devices((8,), kind):
        program = measure(sharded_init(big, P("x")), KEY)
    assert program.counts == {}
    assert 3 * part <= program.outputs < 3.01 * part
    assert program.temporaries < 4 * part


def test_bytes_of_an_uneven_load_are_the_largest(mesh):
    """They need no array."""
    first, second = jax.devices()[:2]
    tree = [jax.device_put(np.ones(4, np.float32), d) for d in (first, second, second)]
    assert trees.bytes_per_device(tree) == 32
    assert trees.bytes_per_device([]) == 0
    split = on(jax.sharding.get_mesh(), "x")
    planned = [jax.ShapeDtypeStruct((16, 4), jnp.bfloat16, sharding=split)]
    assert trees.bytes_per_device(planned) == 2 * 16 * 4 // split.mesh.shape["x"]


@pytest.mark.parametrize(
    ("kinds", "spec"), [((AUTO, EXPLICIT), P("x", "y")), ((EXPLICIT, AUTO), P("y"))]
)
def test_axes_of_two_types_serve_as_well(kinds, spec):
    rows = np.arange(16) * np.ones((8, 16))
    with jax.set_mesh(jax.make_mesh((2, 4), ("x", "y"), kinds)):
        make = sharded_init(lambda n: n[None] * jnp.ones((8, 16)), spec)
        made, laid = make(n=jnp.arange(16.0)), shard_tree(rows, spec)
        assert_laid_out([made, laid], [spec, spec], [rows, rows])
        with pytest.raises(ValueError, match="cuts an axis by axes of two types"):
            sharded_init(init, P(("x", "y")))


# ------------------------------------------------------------------- what is refused

W, TREE = {"w": np.ones(8)}, {"a": [np.ones(8), np.ones(13)]}


def rules(*pairs):
    return lambda: specs_by_path(shapes(), pairs)


def laid_out(tree, specs):
    return lambda: shard_tree(tree, specs)


def made(specs):
    def call():
        return sharded_init(lambda: {"a": jnp.ones(13)}, specs)()

    return call


@each_refusal(
    (rules(("w|embed|step", P())), "no rule fits momentum/layers/0/b: add one"),
    (rules((".*", P()), ("b", P("x"))), "for momentum/layers/0/b contradict each"),
    (rules((".*", P()), ("bias", P())), "'bias' fits the end of no path"),
    (rules((".*", "x")), r"\('.\*', 'x'\) is no rule"),
    (rules("xy"), "'xy' is no rule"),
    (rules(("(", P())), r"'\(' is no regular expression"),
    (laid_out(TREE, P("x", None)), r"a/0 has rank 1: P\('x', None\) is too long"),
    (laid_out(TREE, P("z")), r"a/0: P\('z',\) names \['z'\], not in \['x'\]"),
    (laid_out(TREE, P("x")), r"a/1 has shape \(13,\): P\('x',\) cuts 13 in 8"),
    (laid_out(TREE, P(("x", "x"))), r"P\(\('x', 'x'\),\) names \['x'\] twice"),
    (laid_out(TREE, P(P.UNCONSTRAINED)), "does not say where each element belongs"),
    (laid_out(W, {"b": P()}), "the specs are no prefix of the tree"),
    (laid_out({"a": ["word"]}, P()), "a/0 is no number: 'word'"),
    (
        lambda: jax.jit(lambda a: shard_tree(a, P("x")))(np.ones(8)),
        "is traced: call shard_tree outside jit",
    ),
    (made(P("x")), r"a has shape \(13,\): P\('x',\) cuts 13 in 8"),
    (made({"a": "x"}), "a: 'x' is no spec"),
    (lambda: trees.bytes_per_device(W), "w lies on no device"),
)
def test_what_cannot_be_meant_is_refused_by_name(call, words):
    with devices((8,)), pytest.raises(ValueError, match=words):
        call()


def test_without_a_mesh_nothing_is_laid_out():
    for call in laid_out(W, P()), made(P()), lambda: specs_by_path(W, [("w", P())]):
        with pytest.raises(ValueError, match="no mesh in context"):
            call()
