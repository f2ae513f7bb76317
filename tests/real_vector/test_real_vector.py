import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from fft.test_fft import agree, lies
from on_devices import AUTO, EXPLICIT, as_double, assert_agreed, devices, noise

from examples import four_steps, real_vector
from examples.communication import measure

EVEN, ODD = 960, 1155  # 24 x 40 and 33 x 35, or alike
NORMS = {
    "rfft": None,
    "irfft": "forward",
    "rfft_transposed": "ortho",
    "irfft_transposed": "backward",
}


def transform(name):
    return getattr(real_vector, name)


def as_rows(half, n):
    """Return half a spectrum as the half of a matrix of all frequencies."""
    plan, whole = real_vector.half_of(n), np.fft.fft(np.fft.irfft(half, n))
    return whole.reshape(plan.c, plan.r).T[: plan.h]


def example(name, n, norm):
    """Return what a transform takes, and what it returns, by NumPy."""
    vector, is_inverse = noise(n, dtype=np.float32), name.startswith("i")
    half = np.fft.rfft(vector, norm=None if is_inverse else norm)
    if is_inverse:
        half += 1j * noise(half.size, seed=1)
        vector = np.fft.irfft(half, n, norm=norm)
    spectrum = as_rows(half, n) if "transposed" in name else half
    spectrum = spectrum.astype(np.complex64)
    return (spectrum, vector) if is_inverse else (vector, spectrum)


def spec_of(name, axes, after):
    """Return how a vector or its matrix lies."""
    matrix = "transposed" in name and after == name.startswith("r")
    return jax.P(axes, None) if matrix else jax.P(axes)


# ------------------------------------- right answer, same sharding, any size?


@pytest.mark.parametrize(
    ("mesh", "n", "axes"),
    [
        ((2, 4), ODD, ("x", "y")),
        ((3,), EVEN, ("x",)),
        ((2, 4), 7, ("x", "y")),
        ((4, 2), 46, ("x",)),
    ],
)
def test_the_values_are_those_of_numpy_and_lie_where_the_docstring_says(mesh, n, axes):
    """In the same bits along an axis that does not cut.

    The gradient is the transpose: <a, vjp(conj(b))> is the square of b.
    """

    @functools.partial(jax.jit, static_argnums=0)
    def run(name, a):
        options = {"n": n, "norm": NORMS[name], "over": axes}
        b, pull = jax.vjp(functools.partial(transform(name), **options), a)
        return b, *pull(b.conj())

    with devices(mesh), jax.numpy_dtype_promotion("strict"):
        for name, norm in NORMS.items():
            a, truth = example(name, n, norm)
            answer, back = run(name, a)
            agree(answer, truth, 5e-6)
            square = (a * as_double(back)).sum().real
            np.testing.assert_allclose(square, np.linalg.norm(answer) ** 2, rtol=1e-5)
            assert lies(answer, spec_of(name, axes, after=True))
            assert_agreed(answer)
            assert answer.dtype == (jnp.complex64 if name[0] == "r" else jnp.float32)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
def test_padding_is_not_read_and_a_batch_stays(kind):
    n, whole = 90, noise(2, 90, dtype=np.float32)
    with devices((2, 4), kind, ("more", "x")):
        plan = real_vector.half_of(n, "x")
        assert plan.padded(plan.r) != plan.r
        spectra = real_vector.rfft(jax.device_put(whole, jax.P("more")), over="x")
        agree(spectra, np.fft.rfft(whole))
        dirty = np.asarray(spectra).copy()
        dirty[:, n // 2 + 1 :] = np.nan
        dirty = jax.device_put(dirty, jax.P("more", "x"))
        again = real_vector.irfft(dirty, n, over="x")
        agree(again, whole)
        if kind == EXPLICIT:
            assert lies(spectra, jax.P("more", "x"))
            assert lies(again, jax.P("more", "x"))


# -------------------------------------------------------- which messages?


@pytest.mark.parametrize("name", NORMS)
def test_half_is_sent_and_nothing_is_gathered(name):
    """Half, and the zeros: of 5 rows for 8 devices."""
    n = 1024
    with devices((2, 4)):
        a = jax.ShapeDtypeStruct((n,), np.float32)
        if name.startswith("i"):  # with its zeros: so it lies after a transform
            a = jax.eval_shape(transform(name[1:]), a)
        spec = spec_of(name, ("x", "y"), after=False)
        a = jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=spec)
        program = measure(functools.partial(transform(name), n=n), a)
        expected = real_vector.cost(transform(name), n)
        whole = four_steps.fft_transposed if "transposed" in name else four_steps.fft
        twice = four_steps.cost(whole, jax.ShapeDtypeStruct((n,), np.complex64)).sent
    assert (program.sent, program.counts) == expected
    assert twice / 2 < program.sent < 0.74 * twice


# ------------------------------------------------- in the spectrum, and refusals


@pytest.mark.parametrize(("n", "kind"), [(EVEN, EXPLICIT), (35, AUTO)])
def test_frequencies_are_numpys_and_lie_as_spectra_do(n, kind):
    whole, positive = np.fft.fftfreq(n, 0.5), np.fft.fftfreq(n, 0.5)
    if n % 2 == 0:
        positive[n // 2] *= -1  # rfftfreq has n / 2 above 0
    with devices((2, 4), kind):
        plan, matrix = real_vector.half_of(n), four_steps.rows_and_columns(n)
        rows = positive.reshape(plan.c, plan.r).T[: plan.h]
        columns = whole.reshape(matrix[::-1]).T
        turned = real_vector.rfft_transposed
        for found, expected, spectrum in [
            (real_vector.rfftfreq(n, 0.5), np.fft.rfftfreq(n, 0.5), real_vector.rfft),
            (real_vector.rfftfreq_transposed(n, 0.5), rows, turned),
            (real_vector.fftfreq(n, 0.5), whole, four_steps.fft),
            (real_vector.fftfreq(n, 0.5, matrix), columns, four_steps.fft_transposed),
        ]:
            agree(found, expected)
            vector = jax.ShapeDtypeStruct((n,), np.float32)
            assert lies(found, jax.P(("x", "y")))
            assert found.shape == jax.eval_shape(spectrum, vector).shape


LINE = jnp.zeros(24)


@each_refusal(
    (lambda r: r.rfft(LINE + 1j), "complex64 is not real: pass the real part"),
    (lambda r: r.rfft([1.0]), "a is list: pass an array of numbers"),
    (lambda r: r.rfft(LINE[0]), "a is one number: pass a vector"),
    (lambda r: r.rfft(LINE[:0]), "n = 0: pass an integer from 1"),
    (lambda r: r.rfft(LINE, norm="loud"), "norm = 'loud': pass one of"),
    (lambda r: r.rfft(LINE, over="z"), r"no mesh axis \['z'\] in context"),
    (lambda r: r.rfft(LINE, over=("x", "x")), "pass one mesh axis or more"),
    (lambda r: r.rfft(LINE, n=25), r"\[24\] is not for n = 25: pass \[25\], or"),
    (lambda r: r.irfft(LINE[:20], 24), r"is not for n = 24: pass \[13\], or"),
    (lambda r: r.irfft_transposed(LINE, 24), "pass a matrix, or call irfft"),
    (lambda r: r.rfft(jnp.zeros(1009)), "transform it as complex numbers, or pass"),
    (lambda r: r.fftfreq(24, matrix=(5, 5)), "does not hold n = 24: pass R C = n"),
    (lambda r: jax.shard_map(r.rfft, out_specs=jax.P())(LINE), "are Manual: call"),
)
def test_what_has_no_answer_is_refused_in_words(call, words):
    with devices((2, 4)), pytest.raises(ValueError, match=words):
        call(real_vector)
