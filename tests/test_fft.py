import functools
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType
from numpy.fft.tests import test_pocketfft
from on_devices import devices

from examples import fft
from examples.communication import measure

PENCILS = [(1, 1), (8, 1), (1, 8), (2, 4), (4, 2), (3, 2)]  # the last: a subset
SLABS = [(8,), (3,)]
SHAPES = {3: (24, 48, 16), 2: (24, 48), 1: (2880,)}
NORMS = [None, "backward", "ortho", "forward"]
PAIRS = {
    "fftn": "ifftn",
    "fftn_transposed": "ifftn_transposed",
    "rfftn": "irfftn",
    "fft2": "ifft2",
    "fft": "ifft",
    "fft_transposed": "ifft_transposed",
}
NAMES = [*PAIRS, *PAIRS.values()]


def is_field(name):
    return name.removesuffix("_transposed").endswith("n")


each_name = pytest.mark.parametrize("name", NAMES)
each_pair = pytest.mark.parametrize(("there", "back"), PAIRS.items())


def places(field_meshes, other_meshes):
    """Return the pairs of a transform and a mesh; planes and vectors ask x alone."""
    return pytest.mark.parametrize(
        ("name", "mesh"),
        [
            (name, mesh)
            for name in NAMES
            for mesh in (field_meshes if is_field(name) else other_meshes)
        ],
    )


def layouts(name, mesh):
    """Return the specs of what goes into a transform, and of what comes out."""
    if name not in PAIRS:
        there = next(there for there, back in PAIRS.items() if back == name)
        return layouts(there, mesh)[::-1]
    cut = ("x", "y")[: len(mesh)] if is_field(name) else ("x",)
    moved = name in ("fftn", "rfftn", "fft2")
    return jax.P(*cut), jax.P(*((None, *cut) if moved else cut))


# ------------------------------------------------------- the same in NumPy


def held(mesh, size):
    """Return how many of the frequencies of a real axis are held: an even share."""
    y = (*mesh, 1)[1]
    return -(-(size // 2 + 1) // y) * y


def rows(mesh, size):
    """Return R, the largest one with R C = size, R <= C, X | R and X | C."""
    x = mesh[0]
    return max(
        r for r in range(x, size + 1, x) if r * r <= size and size % (r * x) == 0
    )


def transposed(name, mesh, whole, norm):
    """Return the transposed transforms: those of NumPy, with axes and rows moved."""
    if name == "ifftn_transposed":
        return np.fft.ifftn(whole.transpose(2, 0, 1), norm=norm)
    if name == "ifft_transposed":
        return np.fft.ifft(whole.T.ravel(), norm=norm)
    if name == "fftn_transposed":
        return np.fft.fftn(whole, norm=norm).transpose(1, 2, 0)
    return np.fft.fft(whole, norm=norm).reshape(-1, rows(mesh, whole.size)).T


def oracle(name, mesh, a, size=None, norm=None):
    """Return what NumPy says; `size` is that of the real axis."""
    whole = np.asarray(a)
    if name == "rfftn":
        extra = held(mesh, a.shape[2]) - (a.shape[2] // 2 + 1)
        return np.pad(np.fft.rfftn(whole, norm=norm), [(0, 0), (0, 0), (0, extra)])
    if name == "irfftn":
        shape = (*a.shape[:2], size)
        return np.fft.irfftn(whole[..., : size // 2 + 1], shape, (0, 1, 2), norm)
    if "transposed" in name:
        return transposed(name, mesh, whole, norm)
    return getattr(np.fft, name)(whole, norm=norm)


def given_to(name, mesh, shape=None, dtype=jnp.complex64, seed=0):
    """Return a random array that `name` takes, in its place, and its real size."""
    if name not in PAIRS:
        there = next(there for there, back in PAIRS.items() if back == name)
        before, size = given_to(there, mesh, shape)
        shape = oracle(there, mesh, before).shape
    else:
        rank = 3 if is_field(name) else 1 + ("2" in name)
        shape = shape or SHAPES[rank]
        size = shape[-1]
    re, im = np.random.default_rng(seed).standard_normal((2, *shape))
    array = re if name == "rfftn" else re + 1j * im
    if name == "rfftn" or not jnp.issubdtype(dtype, jnp.complexfloating):
        array, dtype = re, jnp.finfo(dtype).dtype
    array = jnp.asarray(array, dtype)
    return jax.device_put(array, layouts(name, mesh)[0]), size


def call(name, a, size, norm=None):
    if name == "irfftn":
        return fft.irfftn(a, (*a.shape[:2], size), norm=norm)
    return getattr(fft, name)(a, norm=norm)


def number(array):
    return np.asarray(array).astype(np.complex128)


def agree(answer, expected, eps=2e-6):
    """Say whether the largest error is small against the largest number."""
    assert answer.shape == expected.shape
    scale = np.abs(expected).max()
    assert np.abs(np.asarray(answer) - expected).max() <= eps * scale


# --------------------------------------------- right answer, same sharding?


@places(PENCILS + SLABS, [(1, 1), (8, 1), (2, 4), (3,)])
def test_the_values_are_those_of_numpy_and_lie_where_the_docstring_says(name, mesh):
    with devices(mesh):
        a, size = given_to(name, mesh)
        answer = call(name, a, size)
        agree(answer, oracle(name, mesh, a, size))
        target = jax.NamedSharding(a.sharding.mesh, layouts(name, mesh)[1])
        assert answer.sharding.is_equivalent_to(target, answer.ndim)
        assert answer.dtype == (jnp.float32 if name == "irfftn" else jnp.complex64)


@places([(2, 4)], [(2, 4)])
def test_auto_axes_make_no_difference(name, mesh):
    with devices(mesh, AxisType.Auto):
        a, size = given_to(name, mesh)
        answer = call(name, a, size)
        agree(answer, oracle(name, mesh, a, size))
        target = jax.NamedSharding(a.sharding.mesh, layouts(name, mesh)[1])
        assert answer.sharding.is_equivalent_to(target, answer.ndim)


@pytest.mark.parametrize("norm", NORMS[2:])
@each_name
def test_norms_mean_what_they_mean_in_numpy(name, norm):
    with devices((4, 2)):
        a, size = given_to(name, (4, 2))
        agree(call(name, a, size, norm), oracle(name, (4, 2), a, size, norm))


@places([(2, 4)], [(8,)])
def test_double_precision_stays_double(name, mesh):
    with jax.enable_x64(True), devices(mesh):
        a, size = given_to(name, mesh, dtype=jnp.complex128)
        answer = call(name, a, size)
        assert answer.dtype == (jnp.float64 if name == "irfftn" else jnp.complex128)
        agree(answer, oracle(name, mesh, a, size), eps=1e-14)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.int8, bool])
def test_other_numbers_become_single_precision(dtype):
    with devices((2, 4)):
        a = np.random.default_rng(0).integers(0, 2, SHAPES[3])
        a = jax.device_put(jnp.asarray(a, dtype), jax.P("x", "y"))
        for name in "fftn", "rfftn":
            answer = call(name, a, None)
            assert answer.dtype == jnp.complex64
            agree(answer, oracle(name, (2, 4), np.asarray(a, np.float32)))


@each_pair
def test_back_undoes_there(there, back):
    with devices((4, 2)):
        a, size = given_to(there, (4, 2))
        again = call(back, call(there, a, size, "ortho"), size, "ortho")
        agree(again, np.asarray(a))
        assert again.sharding.is_equivalent_to(a.sharding, a.ndim)


@pytest.mark.parametrize("name", ["fftn", "fftn_transposed", "fft2", "fft"])
def test_the_power_of_a_spectrum_is_that_of_the_array(name):
    """Parseval's theorem, in the norm that keeps lengths."""
    with devices((4, 2)):
        a, size = given_to(name, (4, 2))
        spectrum = call(name, a, size, "ortho")
        np.testing.assert_allclose(
            (jnp.abs(spectrum) ** 2).sum(), (jnp.abs(a) ** 2).sum(), rtol=1e-5
        )


def test_a_long_vector_is_as_exact_as_in_one_piece():
    with devices((8,)):
        a, _ = given_to("fft", (8,), (2**18,))
        exact = oracle("fft", (8,), np.asarray(a, np.complex128))
        ours, theirs = (
            np.linalg.norm(np.asarray(b) - exact) / np.linalg.norm(exact)
            for b in (fft.fft(a), jnp.fft.fft(np.asarray(a)))
        )
        assert ours < 1.3 * theirs < 1e-6


@settings(deadline=None, derandomize=True, max_examples=20)
@given(st.data())
def test_any_size_that_can_be_cut_is_right(data):
    mesh = data.draw(st.sampled_from([(2, 4), (4, 2), (3, 2), (8,)]))
    name = data.draw(st.sampled_from(NAMES))
    norm = data.draw(st.sampled_from(NORMS))
    kind = data.draw(st.sampled_from([AxisType.Explicit, AxisType.Auto]))
    x, y = (*mesh, 1)[:2]
    factor = st.integers(1, 5)
    if name in ("fft", "ifft", "fft_transposed", "ifft_transposed"):
        shape = (x * x * data.draw(st.integers(1, 40)),)
    elif name in ("fft2", "ifft2"):
        shape = x * data.draw(factor), x * data.draw(factor)
    else:
        last = st.integers(1, 20) if "rfft" in name else factor.map(lambda n: n * y)
        shape = (x * data.draw(factor), math.lcm(x, y) * data.draw(factor))
        shape += (data.draw(last),)
    with devices(mesh, kind):
        a, size = given_to(name, mesh, shape)
        expected = oracle(name, mesh, a, size, norm)
        agree(call(name, a, size, norm), expected)


NUMPY_CASES = "fft2", "ifft2", "fftn", "ifftn", "irfftn"


@pytest.mark.parametrize("case", NUMPY_CASES)
def test_the_cases_of_numpys_own_tests_pass(case, monkeypatch):
    mesh = (2, 2)

    def transform(name, a, norm=None):
        a = jax.device_put(a, layouts(name, mesh)[0])
        return np.asarray(call(name, a, 10, norm))

    ours = {
        name: functools.partial(transform, name) for name in (*NUMPY_CASES, "rfftn")
    }
    ours |= {"fft": np.fft.fft, "ifft": np.fft.ifft}  # what theirs compares with
    patched = types.SimpleNamespace(**vars(np) | {"fft": types.SimpleNamespace(**ours)})
    monkeypatch.setattr(test_pocketfft, "np", patched)
    with jax.enable_x64(True), devices(mesh):
        getattr(test_pocketfft.TestFFT1D(), f"test_{case}")()


# -------------------------------------------------------- right gradient?


@each_name
def test_the_derivative_is_the_transform_and_its_transpose_comes_home(name):
    """A transform F is linear: jvp applies it, and <F u, v> is <u, vjp(v)>."""
    with devices((2, 4)):
        a, size = given_to(name, (2, 4))
        tangent, _ = given_to(name, (2, 4), seed=1)

        @jax.jit
        def both(a, tangent):
            b, pull = jax.vjp(lambda a: call(name, a, size), a)
            slope = jax.jvp(lambda a: call(name, a, size), (a,), (tangent,))[1]
            return slope, b, pull(b)[0]

        slope, b, back = both(a, tangent)
        agree(slope, oracle(name, (2, 4), tangent, size))
        left = (number(slope) * number(b)).sum()
        right = (number(tangent) * number(back)).sum()
        lengths = np.linalg.norm(number(slope)) * np.linalg.norm(number(b))
        assert abs((left - right).real) < 1e-6 * lengths
        assert back.sharding.is_equivalent_to(a.sharding, a.ndim)


@pytest.mark.parametrize("mesh", [(2, 4), (8,)], ids=str)
def test_a_gradient_through_a_filter_is_that_of_jax_numpy(mesh):
    """There, a product, back again, and a loss that is not linear at the end."""

    def loss(there, back, a):
        b = there(a)
        band = (jnp.arange(b.size).reshape(b.shape) % 7 < 3).astype(b.dtype)
        return (back(b * band, a.shape) ** 3).sum()

    ours = functools.partial(loss, fft.rfftn, fft.irfftn)
    plain = functools.partial(loss, jnp.fft.rfftn, jnp.fft.irfftn)
    with devices(mesh):
        a, _ = given_to("rfftn", mesh, (16, 16, 14))  # 8 frequencies, none in excess
        gradient = jax.jit(jax.grad(ours))(a)
        assert gradient.sharding.is_equivalent_to(a.sharding, 3)
    agree(gradient, np.asarray(jax.grad(plain)(np.asarray(a))), 1e-5)


# -------------------------------------------------------- which messages?


@places([(1, 1), (1, 8), (2, 4), (8,)], [(2, 4), (8,)])
def test_a_device_sends_the_least_that_it_can_and_gathers_nothing(name, mesh):
    """What is the least: see also test_costs.py."""
    with devices(mesh):
        a, size = given_to(name, mesh)
        program = measure(lambda a: call(name, a, size), a)
        expected = fft.cost(getattr(fft, name), a)
    assert (program.sent, program.counts) == expected
    assert program.sent <= 3 * max(program.arguments, program.outputs)
    block = max(program.arguments, program.outputs)
    assert program.temporaries < 3.1 * block + 1024


@pytest.mark.parametrize("mesh", [(2, 4), (8,)], ids=str)
def test_real_numbers_send_little_more_than_half(mesh):
    with devices(mesh):
        a, size = given_to("rfftn", mesh)
        whole, kept = measure(fft.fftn, a), measure(fft.rfftn, a)
    assert kept.sent * size == whole.sent * held(mesh, size)


@pytest.mark.parametrize("there", ["fftn", "fft"])
def test_a_gradient_sends_as_much_as_the_transform(there):
    with devices((2, 4)):
        a, _ = given_to(there, (2, 4))
        program = measure(jax.grad(lambda a: call(there, a, None).real.sum()), a.real)
        assert program.sent <= measure(lambda a: call(there, a, None), a).sent


# ----------------------------------------------- batches, and what is refused


@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
@pytest.mark.parametrize("name", ["fftn", "irfftn", "fft2", "fft_transposed"])
def test_vmap_transforms_a_batch(name, kind):
    with devices((2, 4), kind):
        one, size = given_to(name, (2, 4))
        batch = np.stack([one, given_to(name, (2, 4), seed=1)[0]])
        batch = jax.device_put(batch, jax.P(None, *layouts(name, (2, 4))[0]))
        answer = jax.jit(jax.vmap(lambda a: call(name, a, size)))(batch)
        for a, b in zip(batch, answer, strict=True):
            agree(b, oracle(name, (2, 4), a, size))


CUT = "cannot be cut into"


@pytest.mark.parametrize(
    ("name", "shape", "complaint"),
    [
        ("fftn", (3, 8, 8), f"N0 = 3 {CUT} 2 equal parts: take 2 or 4"),
        ("fftn", (4, 10, 8), f"N1 = 10 {CUT} 4 equal parts: take 8 or 12"),
        ("ifftn", (4, 8, 2), f"N2 = 2 {CUT} 4 equal parts: take 4$"),
        ("fftn_transposed", (4, 8, 9), f"N2 = 9 {CUT} 4 equal parts: take 8 or 12"),
        ("ifftn_transposed", (8, 8, 5), f"N0 = 5 {CUT} 2 equal parts: take 4 or 6"),
        ("fftn", (4, 8, 0), f"N2 = 0 {CUT} 4 equal parts: take 4$"),
        ("fftn", (4, 8), r"complex64\[4, 8\] has not the axes N0, N1, N2: for a batch"),
        ("rfftn", (5, 8, 7), f"N0 = 5 {CUT} 2 equal parts: take 4 or 6"),
        ("rfftn", (4, 8, 8), "complex64 is not real: pass the real part, or call fftn"),
        ("fft2", (4, 7), f"N1 = 7 {CUT} 2 equal parts: take 6 or 8"),
        ("ifft2", (7, 4), f"N0 = 7 {CUT} 2 equal parts: take 6 or 8"),
        ("fft", (10,), f"N = 10 {CUT} 4 equal parts: take 8 or 12"),
        ("ifft", (2,), f"N = 2 {CUT} 4 equal parts: take 4$"),
        ("fft_transposed", (0,), f"N = 0 {CUT} 4 equal parts: take 4$"),
        ("ifft_transposed", (4, 5), f"C = 5 {CUT} 2 equal parts: take 4 or 6"),
        ("ifft_transposed", (16,), "has not the axes R, C"),
    ],
)
def test_sizes_that_the_mesh_cannot_cut_are_refused(name, shape, complaint):
    dtype = jnp.float32 if name == "rfftn" and shape[0] == 5 else jnp.complex64
    with devices((2, 4)), pytest.raises(ValueError, match=complaint):
        call(name, jnp.zeros(shape, dtype), None)


def test_both_axes_of_the_mesh_have_to_cut_the_middle():
    for mesh, n, fits in ((4, 2), 6, "4 or 8"), ((3, 2), 9, "6 or 12"):
        with devices(mesh), pytest.raises(ValueError, match=f"N1 = {n} .* take {fits}"):
            fft.fftn(jnp.zeros((12, n, 12)))


def test_a_spectrum_of_another_field_is_refused():
    with devices((2, 4)):
        spectrum = jnp.ones((4, 8, 8), jnp.complex64)
        for shape in (4, 8, 16), (4, 8, 6), (8, 8, 8), [8, 8, 8], np.array([4, 8, 3]):
            with pytest.raises(ValueError, match="pass what rfftn returns, and the"):
                fft.irfftn(spectrum, shape)
        for shape in (4, 8), 8, None, (4.0, 8, 14), [[4, 8, 14]]:
            with pytest.raises(ValueError, match="pass the three sizes of the field"):
                fft.irfftn(spectrum, shape)
        with pytest.raises(ValueError, match="N2 = 0 cannot be cut into 1 equal parts"):
            fft.irfftn(spectrum[..., :4], (4, 8, 0))


@each_name
def test_a_mesh_without_x_and_an_unknown_norm_are_refused(name):
    with devices((2, 4)):
        a, size = given_to(name, (2, 4))
    with pytest.raises(ValueError, match=r"no mesh axis \['x'\] in context"):
        call(name, np.asarray(a), size)
    with devices((2, 4)), pytest.raises(ValueError, match="norm = 'loud': pass one of"):
        call(name, a, size, "loud")


@pytest.mark.parametrize(
    ("mesh", "kind"),
    [
        ((1, 1), AxisType.Explicit),
        ((2, 4), AxisType.Explicit),
        ((2, 4), AxisType.Auto),
    ],
    ids=str,
)
@each_name
def test_numpy_and_any_sharding_are_laid_out_first(name, mesh, kind):
    with devices(mesh, kind):
        a, size = given_to(name, mesh)
        expected = oracle(name, mesh, a, size)
        target = jax.NamedSharding(a.sharding.mesh, layouts(name, mesh)[1])
        turned = jax.device_put(np.asarray(a), jax.P("y"))
        for given in np.asarray(a), jax.device_put(np.asarray(a), jax.P()), turned:
            answer = call(name, given, size)
            agree(answer, expected)
            assert answer.sharding.is_equivalent_to(target, answer.ndim)


@each_name
def test_strict_promotion_is_enough(name):
    with devices((2, 4)), jax.numpy_dtype_promotion("strict"), jax.enable_x64(True):
        a, size = given_to(name, (2, 4))
        agree(call(name, a, size), oracle(name, (2, 4), a, size))


def test_the_shape_of_a_field_may_be_a_list_or_an_array():
    with devices((2, 4)):
        a, size = given_to("irfftn", (2, 4))
        expected = oracle("irfftn", (2, 4), a, size)
        for shape in [*a.shape[:2], size], np.array([*a.shape[:2], size]):
            agree(fft.irfftn(a, shape), expected)


@each_name
def test_what_is_no_array_of_numbers_is_refused(name):
    with devices((2, 4)):
        for a, complaint in (
            ([1.0], "a is a list"),
            (np.array([None]), "a is of object"),
        ):
            with pytest.raises(ValueError, match=complaint + ": pass an array of"):
                fft.irfftn(a, (4, 4, 4)) if name == "irfftn" else call(name, a, 4)


def test_a_batch_may_lie_along_an_axis_of_its_own():
    with devices((2, 2, 2)):
        shape = 4, 8, 6
        batch = np.random.default_rng(0).standard_normal((4, *shape), np.float32)
        batch = jax.device_put(batch, jax.P("z", "x", "y"))
        answer = jax.jit(jax.vmap(fft.fftn, spmd_axis_name="z"))(batch)
        assert str(jax.typeof(answer)) == "complex64[4@z,4,8@x,6@y]"
        agree(answer, np.fft.fftn(batch, axes=(1, 2, 3)))
