import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from examples.communication import measure
from examples.padding import (
    blocks,
    neutral,
    pad_to_mesh,
    padded_shape,
    unpad,
    valid_mask,
)

P = jax.P
MESHES = {
    "one": (1, 1),
    "column": (8, 1),
    "wide": (2, 4),
    "tall": (4, 2),
    "half": (2, 2),
}
SPECS = [P("x"), P("y", "x"), P(None, ("y", "x"))]


@pytest.fixture(params=[AxisType.Explicit, AxisType.Auto], ids=lambda kind: kind.name)
def kind(request):
    return request.param


@pytest.fixture(params=MESHES.values(), ids=MESHES.keys())
def mesh(request, kind):
    """A mesh in context, of every shape and either type of axes."""
    rows, cols = request.param
    mesh = jax.make_mesh(
        (rows, cols), ("x", "y"), (kind,) * 2, devices=jax.devices()[: rows * cols]
    )
    with jax.set_mesh(mesh):
        yield mesh


@pytest.fixture
def ring(kind):
    """Eight devices in a row, in context."""
    with jax.set_mesh(jax.make_mesh((8,), ("x",), (kind,))) as mesh:
        yield mesh


def data(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-2, -1, shape).astype(np.float32)


def has_sharding(array, spec):
    mesh = jax.sharding.get_mesh()
    return array.sharding.is_equivalent_to(jax.NamedSharding(mesh, spec), array.ndim)


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("shape", [(13, 5), (16, 8)], ids=str)
def test_the_data_comes_first_and_the_fill_after_it(mesh, shape, spec):
    x = data(*shape)
    padded = np.asarray(pad_to_mesh(x, spec, fill=7))
    n, m = shape
    np.testing.assert_array_equal(padded[:n, :m], x)
    assert (padded[n:] == 7).all()
    assert (padded[:, m:] == 7).all()


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_an_array_without_rows_stays_without(mesh, spec):
    assert pad_to_mesh(data(0, 1), spec).shape == padded_shape((0, 1), spec)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_padded_array_and_its_mask_lie_as_the_spec_says(mesh, spec):
    padded, mask = pad_to_mesh(data(13, 5), spec), valid_mask((13, 5), spec)
    assert has_sharding(padded, spec)
    assert has_sharding(mask, spec)
    assert padded.shape == mask.shape == padded_shape((13, 5), spec)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_an_array_on_devices_is_padded_as_one_on_the_host(mesh, spec):
    x = data(13, 5)
    on_devices = pad_to_mesh(jnp.asarray(x), spec, fill=3)
    np.testing.assert_array_equal(on_devices, pad_to_mesh(x, spec, fill=3))
    assert has_sharding(on_devices, spec)


def test_an_array_on_the_host_reaches_the_devices_in_blocks(ring, monkeypatch):
    def extend(x, larger, spec, fill):
        assert isinstance(x, jax.Array)
        assert {shard.data.shape for shard in x.addressable_shards} == {(2, 5)}
        return "blocks"

    monkeypatch.setattr("examples.padding.extend", extend)
    assert pad_to_mesh(data(13, 5), P("x")) == "blocks"


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_inside_jit_the_layout_is_the_same(mesh, spec):
    padded, mask = jax.jit(lambda x: (pad_to_mesh(x, spec), valid_mask(x.shape, spec)))(
        data(13, 5)
    )
    assert has_sharding(padded, spec)
    assert has_sharding(mask, spec)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_each_axis_grows_by_less_than_its_number_of_blocks(mesh, spec):
    for n in range(1, 18):
        counts = blocks(spec, 2)
        for larger, count in zip(padded_shape((n, n), spec), counts, strict=True):
            assert larger % count == 0
            assert 0 <= larger - n < count


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_mask_says_where_the_data_is(mesh, spec):
    mask = np.asarray(valid_mask((13, 5), spec))
    expected = np.zeros(padded_shape((13, 5), spec), bool)
    expected[:13, :5] = True
    np.testing.assert_array_equal(mask, expected)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_unpad_undoes_pad_to_mesh(mesh, spec):
    x = data(13, 5)
    np.testing.assert_array_equal(unpad(pad_to_mesh(x, spec), x.shape), x)


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_masked_reductions_are_those_of_the_data(mesh, spec, axis):
    x = data(13, 5)
    padded, mask = pad_to_mesh(x, spec, fill=100), valid_mask(x.shape, spec)
    lowest = neutral("max", x.dtype)
    total, mean, largest = jax.jit(
        lambda padded, mask: (
            padded.sum(axis, where=mask),
            padded.mean(axis, where=mask),
            padded.max(axis, where=mask, initial=lowest),
        )
    )(padded, mask)
    cut = () if axis is None else np.s_[:5]
    np.testing.assert_allclose(np.asarray(total)[cut], x.sum(axis), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(mean)[cut], x.mean(axis), rtol=1e-5)
    np.testing.assert_array_equal(np.asarray(largest)[cut], x.max(axis))


def test_a_masked_softmax_is_that_of_the_data(mesh):
    x = data(13, 5)
    spec = P("y", "x")
    padded, mask = pad_to_mesh(x, spec), valid_mask(x.shape, spec)
    expected = np.exp(x) / np.exp(x).sum(0)
    result = np.asarray(jax.nn.softmax(padded, axis=0, where=mask))
    np.testing.assert_allclose(result[:13, :5], expected, rtol=1e-5)
    assert (result[13:] == 0).all()


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all"])
@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float8_e4m3fn", "int8", "int32", "uint8", "bool"]
)
def test_the_neutral_element_changes_no_reduction(name, dtype):
    dtype = jnp.dtype(dtype)
    element = neutral(name, dtype)
    assert element.dtype == dtype
    for value in (
        0,
        1,
        100 % 7,
        *([-3] if jnp.issubdtype(dtype, jnp.signedinteger) else []),
    ):
        cells = jnp.array([value, value]).astype(dtype)
        reduce = getattr(jnp, name)
        np.testing.assert_array_equal(reduce(jnp.append(cells, element)), reduce(cells))


def test_complex_sums_have_a_neutral_element_and_maxima_none():
    assert neutral("sum", np.complex64) == 0
    with pytest.raises(ValueError, match=r"neutral element .* 'max' over complex64"):
        neutral("max", np.complex64)
    with pytest.raises(ValueError, match=r"neutral element .* 'median'"):
        neutral("median", np.float32)


def test_the_neutral_fill_needs_no_mask(mesh):
    x = data(13, 5)
    for name in ("prod", "max", "min"):
        padded = pad_to_mesh(x, P("x", "y"), fill=neutral(name, x.dtype))
        np.testing.assert_allclose(
            getattr(jnp, name)(padded), getattr(x, name)(), rtol=1e-5
        )


@pytest.mark.parametrize("under", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_the_gradient_is_that_of_the_data(mesh, under):
    x, spec = data(13, 5), P(("x", "y"))

    def loss(x):
        padded, mask = pad_to_mesh(x, spec, fill=9), valid_mask(x.shape, spec)
        return jnp.mean(jnp.exp(padded), where=mask)

    gradient = under(jax.grad(loss))(x)
    assert gradient.shape == x.shape
    np.testing.assert_allclose(gradient, np.exp(x) / x.size, rtol=1e-5)


@pytest.mark.parametrize("under", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_the_gradient_of_unpad_is_zero_in_the_padding(mesh, under):
    padded = pad_to_mesh(data(13, 5), P("x", "y"))
    gradient = under(jax.grad(lambda p: (unpad(p, (13, 5)) ** 2).sum()))(padded)
    mask = np.asarray(valid_mask((13, 5), P("x", "y")))
    np.testing.assert_allclose(gradient, np.where(mask, 2 * np.asarray(padded), 0))


def test_padding_and_mask_send_nothing(ring):
    x = jax.ShapeDtypeStruct((13, 4), jnp.float32)
    assert measure(lambda x: pad_to_mesh(x, P("x")), x).counts == {}
    program = measure(jax.jit(lambda: valid_mask((8001, 4), P("x"))))
    assert program.counts == {}
    assert program.temporaries < 100
    assert program.outputs == 1001 * 4


def test_a_masked_mean_is_one_reduction(ring):
    padded, mask = pad_to_mesh(data(13, 4), P("x")), valid_mask((13, 4), P("x"))
    program = measure(lambda padded, mask: padded.mean(where=mask), padded, mask)
    assert program.counts == {"all-reduce": 1}


def test_unpad_is_one_gather_for_each_axis_that_it_cuts(kind):
    with jax.set_mesh(jax.make_mesh((2, 4), ("x", "y"), (kind,) * 2)):
        padded = pad_to_mesh(data(13, 8), P("x", "y"))
        whole = measure(lambda padded: unpad(padded, (13, 8)), padded)
        nothing = measure(lambda padded: unpad(padded, (14, 8)), padded)
    assert nothing.counts == {}
    assert set(whole.counts) == {"all-gather"}


def test_an_axis_that_is_not_cut_keeps_its_place():
    with jax.set_mesh(jax.make_mesh((2, 4), ("x", "y"))):
        padded = pad_to_mesh(data(13, 8), P("x", "y"))
        assert str(jax.typeof(unpad(padded, (13, 8)))) == "float32[13,8@y]"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (P("x", None, None), "3 entries for an array of rank 2"),
        (P("z"), r"names \['z'\], the mesh has \['x'\]"),
        (P(("x", "z")), r"names \['z'\], the mesh has \['x'\]"),
    ],
    ids=["long", "unknown", "unknown in a tuple"],
)
def test_a_spec_that_does_not_fit_is_refused(ring, spec, message):
    with pytest.raises(ValueError, match=message):
        pad_to_mesh(data(13, 5), spec)
    with pytest.raises(ValueError, match=message):
        valid_mask((13, 5), spec)


def test_without_a_mesh_nothing_is_padded():
    with pytest.raises(ValueError, match="no mesh in context"):
        pad_to_mesh(data(13, 5), P("x"))


@pytest.mark.parametrize("shape", [(17, 5), (13,), (13, 5, 1)], ids=str)
def test_more_than_there_is_cannot_be_cut_out(ring, shape):
    padded = pad_to_mesh(data(13, 5), P("x"))
    with pytest.raises(ValueError, match="cannot cut"):
        unpad(padded, shape)
