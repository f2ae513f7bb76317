import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from fft.test_fft import lies
from on_devices import AUTO, EXPLICIT, devices

from examples.communication import measure
from examples.padding import neutral, pad_to_mesh, padded_shape, unpad, valid_mask

P = jax.P


def data(*shape):
    return np.random.default_rng(0).uniform(-2, -1, shape).astype(np.float32)


@pytest.mark.parametrize(
    ("mesh", "kind", "spec", "shape"),
    [
        ((2, 4), EXPLICIT, P("x"), (14, 5)),
        ((4, 2), AUTO, P("y", "x"), (14, 8)),
        ((2, 4), EXPLICIT, P(None, ("y", "x")), (13, 8)),
    ],
)
def test_the_data_comes_first_and_the_fill_after_it(mesh, kind, spec, shape):
    """On the host and on devices; the mask is where it lies, `unpad` undoes it."""
    x = data(13, 5)

    def pad(x):
        return pad_to_mesh(x, spec, fill=7), valid_mask(x.shape, spec)

    with devices(mesh, kind):
        assert padded_shape((13, 5), spec) == shape
        inside = np.zeros(shape, bool)
        inside[:13, :5] = True
        wanted = np.full(shape, 7, x.dtype)
        wanted[:13, :5] = x
        for pair in pad(x), jax.jit(pad)(jnp.asarray(x)):
            for found, truth in zip(pair, (wanted, inside), strict=True):
                assert lies(found, spec)
                np.testing.assert_array_equal(found, truth, strict=True)
        np.testing.assert_array_equal(unpad(pair[0], x.shape), x)
        whole, empty = data(16, 8), pad_to_mesh(data(0, 1), spec)
        np.testing.assert_array_equal(pad_to_mesh(whole, spec), whole)
        assert empty.shape == padded_shape((0, 1), spec)


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8_e4m3fn", "int8", "uint8", "bool"]
)
def test_the_neutral_element_changes_no_reduction(dtype):
    dtype = jnp.dtype(dtype)
    names = "sum", "prod", "max", "min", "any", "all"
    elements = {name: neutral(name, dtype) for name in names}
    assert {element.dtype for element in elements.values()} == {dtype}

    @jax.jit
    def reduced(cells):
        return [
            (getattr(jnp, name)(jnp.append(cells, one)), getattr(jnp, name)(cells))
            for name, one in elements.items()
        ]

    signed = jnp.issubdtype(dtype, jnp.signedinteger)
    for value in 0, 1, 100 % 7, *([-3] if signed else []):
        for more, alone in reduced(jnp.array([value, value]).astype(dtype)):
            np.testing.assert_array_equal(more, alone)


@pytest.mark.parametrize("kind", [EXPLICIT, AUTO])
def test_padding_and_mask_send_nothing_and_hold_their_blocks(kind):
    x = jax.ShapeDtypeStruct((13, 4), jnp.float32)
    with devices((8,), kind):
        assert measure(lambda x: pad_to_mesh(x, P("x")), x).counts == {}
        program = measure(jax.jit(lambda: valid_mask((8001, 4), P("x"))))
    assert program.counts == {}
    assert program.temporaries < 100
    assert program.outputs == 1001 * 4


@pytest.mark.parametrize(("kind", "place"), [(EXPLICIT, "@y"), (AUTO, "")])
def test_unpad_gathers_the_axis_that_it_cuts_and_the_other_keeps_its_place(kind, place):
    with devices((2, 4), kind):
        padded = pad_to_mesh(data(13, 8), P("x", "y"))
        whole = measure(lambda padded: unpad(padded, (13, 8)), padded)
        nothing = measure(lambda padded: unpad(padded, (14, 8)), padded)
        assert str(jax.typeof(unpad(padded, (13, 8)))) == f"float32[13,8{place}]"
    assert nothing.counts == {}
    assert set(whole.counts) == {"all-gather"}


@each_refusal(
    (lambda x: pad_to_mesh(x, P("x", None, None)), "3 entries for an array of ra"),
    (lambda x: valid_mask((13, 5), P("z")), r"names \['z'\], the mesh has \['x'\]"),
    (lambda x: pad_to_mesh(x, P(("x", "z"))), r"names \['z'\], the mesh has \['x'"),
    (lambda x: unpad(x, (17, 5)), r"cannot cut .*\(17, 5\)"),
    (lambda x: unpad(x, (13, 5, 1)), r"cannot cut .*\(13, 5, 1\)"),
    (lambda x: neutral("max", np.complex64), "element .* 'max' over complex"),
    (lambda x: neutral("median", np.float32), "neutral element .* 'median'"),
)
def test_what_does_not_fit_is_refused(call, words):
    with devices((8,)), pytest.raises(ValueError, match=words):
        call(pad_to_mesh(data(13, 5), P("x")))
