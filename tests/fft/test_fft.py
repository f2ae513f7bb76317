from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from on_devices import AUTO, EXPLICIT, as_double, devices, noise, on

from examples import fft
from examples.communication import measure

ODD = 7, 9, 11  # which nothing divides
FIELD, SPECTRUM = jax.P("x", "y"), jax.P(None, "x", "y")
LINES, COLUMNS = jax.P(("x", "y")), jax.P(None, ("x", "y"))


def problem(name, norm=None, shape=(24, 48, 16)):
    """Return what NumPy gives to a transform, what comes out, and the field's shape."""
    shape, real = shape[:2] if name.endswith("2") else shape, "rfft" in name
    field = noise(*shape, dtype=float if real else complex)
    spectrum = (np.fft.rfftn if real else np.fft.fftn)(field, norm=norm)
    spectrum = spectrum.transpose(1, 2, 0) if "transposed" in name else spectrum
    back = name.startswith("i")
    return (spectrum, field, shape) if back else (field, spectrum, shape)


def agree(answer, expected, eps=2e-6):
    """Say whether the largest error is small, and only zeros stand beyond."""
    answer, inside = np.asarray(answer), tuple(map(slice, expected.shape))
    scale = np.abs(expected).max()
    assert np.abs(answer[inside] - expected).max() <= eps * scale
    assert np.count_nonzero(answer) == np.count_nonzero(answer[inside])


def lies(answer, spec):
    """Say whether an array lies like this on the mesh in context."""
    target = on(jax.sharding.get_mesh(), *spec)
    return answer.sharding.is_equivalent_to(target, answer.ndim)


# --------------------------------------------- right answer, same sharding?


@pytest.mark.parametrize(
    ("name", "mesh", "norm", "before", "after"),
    [
        ("fftn_transposed", (1, 8), "ortho", FIELD, FIELD),
        ("rfftn", (4, 2), "ortho", FIELD, SPECTRUM),  # nine frequencies, on two
        ("rfftn_transposed", (3, 2), "forward", FIELD, FIELD),
        ("ifftn_transposed", (8,), "forward", jax.P("x"), jax.P("x")),
        ("irfftn", (2, 3), "forward", SPECTRUM, FIELD),
        ("fft2", (2, 4), "ortho", LINES, COLUMNS),
        ("ifft2", (8,), "forward", jax.P(None, "x"), jax.P("x")),
    ],
)
def test_values_are_those_of_numpy_in_few_messages(name, mesh, norm, before, after):
    """They lie where the docstring says, and nothing is gathered.

    The gradient is the transpose: <a, vjp(conj(b))> is the square of b.
    """
    a, expected, shape = problem(name, norm)
    transform = getattr(fft, name)
    call = partial(transform, s=shape, norm=norm)
    with devices(mesh):
        a = jax.device_put(a, before)
        run = jax.jit(call).lower(a).compile()
        answer, program = run(a), measure(run)
        [back] = jax.jit(lambda a, b: jax.vjp(call, a)[1](b))(a, answer.conj())
        assert back.sharding.is_equivalent_to(a.sharding, a.ndim)
        square = (as_double(a) * as_double(back)).sum().real
        np.testing.assert_allclose(square, np.linalg.norm(answer) ** 2, rtol=1e-5)
        agree(answer, expected)
        assert lies(answer, after)
        assert answer.dtype == (jnp.float32 if "irfft" in name else jnp.complex64)
        assert (program.sent, program.counts) == fft.cost(transform, a, shape)
    block = max(program.arguments, program.outputs)
    assert program.temporaries < 3.1 * block + 1024


@pytest.mark.parametrize(
    ("name", "more"),
    [("fftn", (1, 3, 0)), ("irfftn_transposed", (1, 2, 0))],
)
def test_any_size_is_right_and_zeros_follow_which_nobody_reads(name, more):
    """Neither 7, 9 nor 11 is divided by 2 or 4; what fills up may be NaN."""
    a, expected, shape = problem(name, shape=ODD)
    a = np.pad(a, [(0, n) for n in more], constant_values=np.nan)
    with devices((2, 4)):
        agree(getattr(fft, name)(jax.device_put(a, FIELD), shape), expected)


@pytest.mark.parametrize(
    ("axes", "over", "given", "kind"),
    [
        ((1, 2, 4), ("data", "model"), jax.P("more"), EXPLICIT),
        ((2, 0, 4), ("data", ("model", "more")), jax.P(), AUTO),
    ],
)
def test_a_users_mesh_has_other_names_and_one_axis_more(axes, over, given, kind):
    """And any axes of the array, in any order, over any of the mesh, beside a batch."""
    whole = noise(6, 4, 5, 3, 8, dtype=np.float32)
    sizes = [whole.shape[i] for i in axes]

    @jax.jit
    def transforms(a):
        there = fft.fftn(a, axes=axes, over=over)
        half = fft.rfftn_transposed(a, axes=axes, over=over)
        home = fft.irfftn_transposed(half, sizes, axes, over=over)
        return there, half, home

    half = np.moveaxis(np.fft.rfftn(whole, axes=axes), axes[0], axes[-1])
    with devices((2, 2, 2), kind, ("model", "more", "data")):
        found = transforms(jax.device_put(whole, given))
        wanted = np.fft.fftn(whole, axes=axes), half, whole
        for answer, expected in zip(found, wanted, strict=True):
            agree(answer, expected)
        if kind == EXPLICIT:
            assert lies(found[0], jax.P("more", None, "data", None, "model"))


def test_a_batch_along_an_auto_axis_stays_under_vmap():
    """Such an axis has no type, so `vmap` has to say how the batch lies."""
    batch, kinds = noise(4, 4, 8, 6, dtype=np.float32), (EXPLICIT, EXPLICIT, AUTO)
    with jax.set_mesh(jax.make_mesh((2, 2, 2), ("x", "y", "z"), kinds)):
        a = jax.device_put(batch, jax.P("z", "x", "y"))
        run = jax.jit(jax.vmap(fft.fftn, spmd_axis_name="z")).lower(a).compile()
        answer, program = run(a), measure(run)
        agree(answer, np.fft.fftn(batch, axes=(1, 2, 3)))
        assert lies(answer, jax.P("z", None, "x", "y"))
    assert (program.sent, program.counts) == (batch.size, {"all-to-all": 2})


# ------------------------------------------------------------- what is refused


@each_refusal(
    (lambda a: fft.fftn([1.0]), "a is a list: pass an array of"),
    (lambda a: fft.ifft2(a, norm="loud"), "norm = 'loud': pass one of"),
    (lambda a: fft.fftn(a[..., :0]), r"sizes \(4, 8, 0\): an array without numbers"),
    (lambda a: fft.fftn(a, axes=(0, 3)), r"axes = \(0, 3\) of 3: pass two or more"),
    (lambda a: fft.fftn(a, (4, 8, 7)), r"\[4, 8, 6\] is not for s = \(4, 8, 7\): pass"),
    (lambda a: fft.ifftn(a, (4, 6, 6)), r"pass \[4, 6, 6\], or \[4, 6, 8\] with zeros"),
    (lambda a: fft.irfftn(a, (4, 8, 16)), r"is not for s = \(4, 8, 16\)"),
    (lambda a: fft.irfftn(a, [[4, 8, 6]]), "pass 3 integers"),
    (fft.rfftn, "complex64 is not real: pass the real part, or call fftn"),
    (lambda a: fft.fftn(a, over=("x", "z")), r"no mesh axis \['z'\] in context"),
    (lambda a: fft.fftn(a, over=("x", "x")), "pass one mesh axis or more, each once"),
    (jax.shard_map(fft.fftn, out_specs=jax.P()), "are Manual: call this outside"),
)
def test_what_has_no_answer_is_refused_in_words(call, words):
    with devices((2, 4)), pytest.raises(ValueError, match=words):
        call(jnp.zeros((4, 8, 6), jnp.complex64))


# ----------------------------------------------------------- in the spectrum


@pytest.mark.parametrize(
    ("name", "kind", "spec"),
    [("fftn_transposed", EXPLICIT, FIELD), ("rfft2", AUTO, COLUMNS)],
)
def test_wave_numbers_and_the_mask_lie_as_the_spectrum_does(name, kind, spec):
    """A point's spectrum is 1; of one moved by a cell, it turns with the waves."""
    transform, shape = getattr(fft, name), ODD[: 2 if name.endswith("2") else 3]
    point = np.eye(1, np.prod(shape), dtype=np.float32).reshape(shape)
    with devices((2, 4), kind):
        waves, mask = fft.wave_numbers(shape, transform), fft.mask(shape, transform)
        assert lies(mask, spec)
        moved = [np.asarray(transform(np.roll(point, 1, i))) for i in range(len(shape))]
        np.testing.assert_array_equal(mask, np.abs(moved[0]) > 0.5)
    for n, wave, spectrum in zip(shape, waves, moved, strict=True):
        turn = np.exp(-2j * np.pi * np.asarray(wave) / n)
        np.testing.assert_allclose(spectrum, np.where(mask, turn, 0), atol=1e-5)
        assert (2 * np.abs(wave) * np.asarray(mask) < n).all()
    cut = [wave.sharding.shard_shape(wave.shape) for wave in waves]
    assert sum(map(max, cut)) < sum(max(wave.shape) for wave in waves)
