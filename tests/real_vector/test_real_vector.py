import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from on_devices import devices

from examples import four_steps, real_vector
from examples.communication import measure

EVEN, ODD = 960, 1155  # 24 x 40 and 33 x 35, or alike
NAMES = ["rfft", "irfft", "rfft_transposed", "irfft_transposed"]


def given_to(name, n, dtype=np.float32, seed=0):
    """Return what `name` takes, as NumPy has it: real numbers, or half a spectrum."""
    a = np.random.default_rng(seed).standard_normal(n).astype(dtype)
    if name.startswith("r"):
        return a
    spectrum = np.fft.rfft(a)
    noise = 1j * np.random.default_rng(1).standard_normal(len(spectrum))
    spectrum = (spectrum + noise).astype(np.result_type(dtype, np.complex64))
    return as_rows(spectrum, n) if "transposed" in name else spectrum


def as_rows(half, n):
    """Return half a spectrum as the half of a matrix of all frequencies."""
    plan = real_vector.half_of(n)
    whole = np.fft.fft(np.fft.irfft(half, n))
    rows = whole.reshape(plan.c, plan.r).T[: plan.h]
    return rows.astype(half.dtype)


def oracle(name, a, n, norm=None):
    """Return what NumPy says, without zeros."""
    if name == "irfft_transposed":
        plan = real_vector.half_of(n)
        k = np.add.outer(np.arange(plan.h), plan.r * np.arange(plan.c))
        half = np.zeros(n // 2 + 1, complex)
        half[np.where(k <= n // 2, k, n - k)] = np.where(k <= n // 2, a, a.conj())
        return np.fft.irfft(half, n, norm=norm)
    if name == "rfft_transposed":
        return as_rows(np.fft.rfft(a, norm=norm).astype(complex), n)
    options = {"n": n} if name == "irfft" else {}
    return getattr(np.fft, name)(a, norm=norm, **options)


def agree(answer, expected, eps=2e-6):
    """Say whether the largest error is small, and only zeros stand beyond."""
    answer, inside = np.asarray(answer), tuple(map(slice, expected.shape))
    assert np.abs(answer[inside] - expected).max() <= eps * np.abs(expected).max()
    beyond = answer.copy()
    beyond[inside] = 0
    assert not beyond.any()


def lies(answer, spec):
    target = jax.NamedSharding(jax.sharding.get_mesh(), spec)
    return answer.sharding.is_equivalent_to(target, answer.ndim)


def spec_of(name, mesh, after):
    """Return how a vector or its matrix lies."""
    cut = ("x", "y")[: len(mesh)]
    matrix = "transposed" in name and after == name.startswith("r")
    return jax.P(cut, None) if matrix else jax.P(cut)


# ------------------------------------- right answer, same sharding, any size?


@pytest.mark.parametrize(("mesh", "n"), [((2, 4), ODD), ((3,), EVEN)], ids=str)
def test_the_values_are_those_of_numpy_and_lie_where_the_docstring_says(mesh, n):
    with devices(mesh):
        for name in NAMES:
            a = given_to(name, n)
            answer = getattr(real_vector, name)(a, n)
            agree(answer, oracle(name, a, n))
            assert lies(answer, spec_of(name, mesh, after=True))
            dtype = jnp.complex64 if name.startswith("r") else jnp.float32
            assert answer.dtype == dtype


def all_four(n, norms=(None,) * 4, dtype=np.float32, **options):
    """Return what each transform makes of its numbers, in one program, and NumPy."""
    given = [given_to(name, n, dtype) for name in NAMES]

    @jax.jit
    def run(given):
        return [
            getattr(real_vector, name)(a, n, norm, **options)
            for name, a, norm in zip(NAMES, given, norms, strict=True)
        ]

    each = zip(NAMES, given, norms, strict=True)
    return run(given), [oracle(name, a, n, norm) for name, a, norm in each]


@pytest.mark.parametrize("n", [1, 7, 46])
def test_small_sizes_and_sizes_with_few_factors_are_right(n):
    with devices((2, 4)):
        for answer, expected in zip(*all_four(n), strict=True):
            agree(answer, expected, 5e-6)


def test_double_precision_stays_double_under_strict_promotion():
    norms = "ortho", "forward", "forward", "ortho"
    with jax.numpy_dtype_promotion("strict"), jax.enable_x64(True), devices((8,)):
        for answer, expected in zip(*all_four(ODD, norms, np.float64), strict=True):
            assert answer.dtype in (jnp.float64, jnp.complex128)
            agree(answer, expected, 1e-13)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_padding_is_not_read_and_a_batch_stays(kind):
    n, whole = 90, np.random.default_rng(0).standard_normal((2, 90), np.float32)
    with devices((2, 4), kind, ("more", "x")):
        plan = real_vector.half_of(n, "x")
        assert plan.padded(plan.r) != plan.r
        spectra = real_vector.rfft(jax.device_put(whole, jax.P("more")), over="x")
        agree(spectra, np.fft.rfft(whole))
        dirty = np.asarray(spectra).copy()
        dirty[:, n // 2 + 1 :] = np.nan
        again = real_vector.irfft(
            jax.device_put(dirty, jax.P("more", "x")), n, over="x"
        )
        agree(again, whole)
        if kind == AxisType.Explicit:
            assert lies(spectra, jax.P("more", "x"))
            assert lies(again, jax.P("more", "x"))


def test_nan_goes_into_every_number():
    with devices((2, 4)):
        a = given_to("rfft", ODD)
        a[500] = np.nan
        assert np.isnan(np.asarray(real_vector.rfft(a))[: ODD // 2 + 1]).all()


def test_every_device_of_a_further_axis_holds_the_same_bits():
    """A vector that is cut over x alone is computed by all along y, alike."""
    with devices((4, 2)):
        for answer in all_four(ODD, over="x")[0]:
            held = {}
            for shard in answer.addressable_shards:
                held.setdefault(str(shard.index), []).append(np.asarray(shard.data))
            assert [len(each) for each in held.values()] == [2] * 4
            assert all(a.tobytes() == b.tobytes() for a, b in held.values())


# -------------------------------------------------------- right gradient?


def test_the_gradient_is_that_of_jax_numpy():
    n, a = ODD, given_to("rfft", ODD)
    weights = np.random.default_rng(2).standard_normal(n // 2 + 1, np.float32)

    def loss(there, home, a):
        spectrum = there(a)
        by = jnp.zeros(spectrum.shape, np.float32).at[: n // 2 + 1].set(weights)
        return (home(spectrum * by)[:n] ** 3).sum()

    theirs = functools.partial(loss, jnp.fft.rfft, lambda b: jnp.fft.irfft(b, n))
    expected = jax.jit(jax.grad(theirs))(a)
    with devices((3,), AxisType.Auto):
        ours = functools.partial(
            loss, real_vector.rfft, lambda b: real_vector.irfft(b, n)
        )
        agree(jax.jit(jax.grad(ours))(a), np.asarray(expected), 2e-5)


# -------------------------------------------------------- which messages?


@pytest.mark.parametrize("name", NAMES)
def test_half_is_sent_and_nothing_is_gathered(name):
    """Half, and the zeros: of 5 rows for 8 devices."""
    mesh, n = (2, 4), 1024
    with devices(mesh):
        plan = real_vector.half_of(n)
        a = jax.ShapeDtypeStruct((n,), np.float32)
        if name.startswith("i"):  # with its zeros: so it lies after a transform
            a = jax.eval_shape(getattr(real_vector, name[1:]), a)
        spec = spec_of(name, mesh, after=False)
        a = jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=spec)
        program = measure(functools.partial(getattr(real_vector, name), n=n), a)
        expected = real_vector.cost(getattr(real_vector, name), n)
        whole = four_steps.fft_transposed if "transposed" in name else four_steps.fft
        twice = four_steps.cost(whole, jax.ShapeDtypeStruct((n,), np.complex64)).sent
        assert plan.padded(plan.r) == plan.r
    assert (program.sent, program.counts) == expected
    assert twice / 2 < program.sent < 0.74 * twice


# ------------------------------------------------- in the spectrum, and refusals


@pytest.mark.parametrize(
    ("n", "kind"), [(EVEN, AxisType.Explicit), (35, AxisType.Auto)]
)
def test_frequencies_are_numpys_and_lie_as_spectra_do(n, kind):
    vector = jax.ShapeDtypeStruct((n,), np.float32)
    with devices((2, 4), kind):
        found = real_vector.rfftfreq(n, 0.5)
        agree(found, np.fft.rfftfreq(n, 0.5))
        assert found.shape == jax.eval_shape(real_vector.rfft, vector).shape
        assert lies(found, jax.P(("x", "y")))
        found = real_vector.fftfreq(n, 0.5)
        agree(found, np.fft.fftfreq(n, 0.5))
        assert found.shape == jax.eval_shape(four_steps.fft, vector).shape
        plan = real_vector.half_of(n)
        whole = np.fft.fftfreq(n, 0.5)
        whole[n // 2] *= -1 if n % 2 == 0 else 1  # rfftfreq has n / 2 above 0
        rows = whole.reshape(plan.c, plan.r).T[: plan.h]
        agree(real_vector.rfftfreq_transposed(n, 0.5), rows)
        r, c = four_steps.rows_and_columns(n)
        found = real_vector.fftfreq(n, 0.5, (r, c))
        agree(found, np.fft.fftfreq(n, 0.5).reshape(c, r).T)
        assert lies(found, jax.P(("x", "y"), None))
        turned = jax.eval_shape(four_steps.fft_transposed, vector)
        assert found.shape == turned.shape


LINE = jnp.zeros(24)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
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
    ],
)
def test_what_has_no_answer_is_refused_in_words(call, complaint):
    with devices((2, 4)), pytest.raises(ValueError, match=complaint):
        call(real_vector)


def test_inside_a_shard_map_it_is_refused():
    with devices((2, 4)):
        within = jax.shard_map(real_vector.rfft, in_specs=jax.P(), out_specs=jax.P())
        with pytest.raises(ValueError, match="are Manual: call this outside"):
            jax.jit(within)(LINE)
