import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from on_devices import as_double, devices, noise, on

from examples import fft
from examples.communication import measure

SHAPES = {3: (24, 48, 16), 2: (24, 48)}
ODD = {3: (7, 9, 11), 2: (9, 7)}  # nothing divides them
EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto


def rank_of(name):
    return 2 if name.endswith("2") else 3


def layouts(name, mesh):
    """Return the specs of what goes into a transform, and of what comes out."""
    cut = ("x", "y")[: len(mesh)]
    cut = cut if rank_of(name) == 3 else (cut,)
    specs = jax.P(*cut), jax.P(*(cut if "transposed" in name else (None, *cut)))
    return specs[::-1] if name.startswith("i") else specs


def problem(name, shape=None, norm=None, seed=0):
    """Return what NumPy gives to a transform, what comes out, and the field's shape."""
    shape, real = shape or SHAPES[rank_of(name)], "rfft" in name
    field = noise(*shape, dtype=float if real else complex, seed=seed)
    spectrum = (np.fft.rfftn if real else np.fft.fftn)(field, norm=norm)
    spectrum = spectrum.transpose(1, 2, 0) if "transposed" in name else spectrum
    back = name.startswith("i")
    return (spectrum, field, shape) if back else (field, spectrum, shape)


def lay(name, mesh, a, fill=0):
    """Lay an array out as a transform takes it; something fills its axes up."""
    spec = layouts(name, mesh)[0]
    cut = [math.prod(jax.sharding.get_mesh().shape[n] for n in e or ()) for e in spec]
    cut += [1] * (a.ndim - len(cut))
    extra = [(0, -n % count) for n, count in zip(a.shape, cut, strict=True)]
    return jax.device_put(np.pad(a, extra, constant_values=fill), spec)


def call(name, a, shape, norm=None):
    return getattr(fft, name)(a, shape, norm=norm)


def agree(answer, expected, eps=2e-6):
    """Say whether the largest error is small, and only zeros stand beyond."""
    answer, inside = np.asarray(answer), tuple(map(slice, expected.shape))
    scale = np.abs(expected).max()
    assert np.abs(answer[inside] - expected).max() <= eps * scale
    beyond = answer.copy()
    beyond[inside] = 0
    assert not beyond.any()


def lies(answer, spec):
    """Say whether an array lies like this on the mesh in context."""
    target = on(jax.sharding.get_mesh(), *spec)
    return answer.sharding.is_equivalent_to(target, answer.ndim)


# --------------------------------------------- right answer, same sharding?


@pytest.mark.parametrize(
    ("name", "mesh", "norm"),
    [
        ("fftn_transposed", (1, 8), "ortho"),
        ("rfftn", (4, 2), "ortho"),  # whose nine frequencies two devices cannot share
        ("rfftn_transposed", (3, 2), "forward"),
        ("ifftn_transposed", (8,), "forward"),
        ("irfftn", (2, 4), "forward"),
        ("fft2", (2, 4), "ortho"),
        ("ifft2", (8,), "forward"),
    ],
)
def test_values_are_those_of_numpy_and_messages_the_least(name, mesh, norm):
    """They lie where the docstring says, and nothing is gathered."""
    with devices(mesh):
        a, expected, shape = problem(name, norm=norm)
        a = lay(name, mesh, a)
        run = jax.jit(lambda a: call(name, a, shape, norm)).lower(a).compile()
        answer, program = run(a), measure(run)
        agree(answer, expected)
        assert lies(answer, layouts(name, mesh)[1])
        assert answer.dtype == (jnp.float32 if "irfft" in name else jnp.complex64)
        cost = fft.cost(getattr(fft, name), a, shape)
    assert (program.sent, program.counts) == cost
    block = max(program.arguments, program.outputs)
    assert program.temporaries < 3.1 * block + 1024


@pytest.mark.parametrize("name", ["fftn", "irfftn_transposed"])
def test_any_size_is_right_and_zeros_follow_which_nobody_reads(name):
    """Neither 7, 9 nor 11 is divided by 2 or 4; what fills up may be NaN."""
    a, expected, shape = problem(name, ODD[3])
    with devices((2, 4)):
        answer = call(name, lay(name, (2, 4), a, fill=np.nan), shape)
        agree(answer, expected)
        assert lies(answer, layouts(name, (2, 4))[1])


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
        answer = fft.fftn(a, axes=axes, over=over)
        half = fft.rfftn_transposed(a, axes=axes, over=over)
        home = fft.irfftn_transposed(half, sizes, axes, over=over)
        return answer, fft.ifftn(answer, sizes, axes, over=over), half, home

    with devices((2, 2, 2), kind, ("model", "more", "data")):
        answer, again, half, home = transforms(jax.device_put(whole, given))
        agree(answer, np.fft.fftn(whole, axes=axes))
        expected = np.moveaxis(np.fft.rfftn(whole, axes=axes), axes[0], axes[-1])
        agree(half, expected)
        agree(again, whole)
        agree(home, whole)
        if kind == EXPLICIT:
            assert lies(answer, jax.P("more", None, "data", None, "model"))


@pytest.mark.parametrize(("own", "others"), [(AUTO, EXPLICIT), (EXPLICIT, AUTO)])
def test_a_batch_along_an_axis_of_another_type_stays(own, others):
    mesh = jax.make_mesh((2, 2, 2), ("x", "y", "z"), (own, own, others))
    batch = noise(4, 4, 8, 6, dtype=np.float32)
    with jax.set_mesh(mesh):
        a = jax.device_put(batch, jax.P("z", "x", "y"))
        transform = functools.partial(fft.fftn, axes=(1, 2, 3))
        if others == AUTO:  # which has no type: `vmap` has to say it
            transform = jax.vmap(fft.fftn, spmd_axis_name="z")
        run = jax.jit(transform).lower(a).compile()
        answer, program = run(a), measure(run)
        agree(answer, np.fft.fftn(batch, axes=(1, 2, 3)))
        assert lies(answer, jax.P("z", None, "x", "y"))
    block = batch.size * 8 // 8
    assert (program.sent, program.counts) == (block, {"all-to-all": 2})


# -------------------------------------------------------- right gradient?


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("rfftn_transposed", ODD[3]), ("irfft2", SHAPES[2])],
)
def test_the_derivative_is_the_transform_and_its_transpose_comes_home(name, sizes):
    """A transform F is linear: jvp applies it, and <F u, v> is <u, vjp(v)>."""
    with devices((2, 4)):
        a, _, shape = problem(name, sizes)
        tangent, pushed, _ = problem(name, sizes, seed=1)
        a, tangent = (lay(name, (2, 4), each) for each in (a, tangent))

        @jax.jit
        def both(a, tangent):
            b, pull = jax.vjp(lambda a: call(name, a, shape), a)
            slope = jax.jvp(lambda a: call(name, a, shape), (a,), (tangent,))[1]
            return slope, b, pull(b)[0]

        slope, b, back = both(a, tangent)
        agree(slope, pushed)
        assert back.sharding.is_equivalent_to(a.sharding, a.ndim)
        slope, b, tangent, back = map(as_double, (slope, b, tangent, back))
        left, right = (slope * b).sum(), (tangent * back).sum()
        lengths = np.linalg.norm(slope) * np.linalg.norm(b)
        assert abs((left - right).real) < 1e-6 * lengths


# -------------------------------------------------------- which messages?


def test_sizes_that_nothing_divides_send_the_zeros_that_fill_them_up():
    """Counted by hand: the share of each axis, once for each of the others."""
    sent = 4 * 3 * 3 * 3 + 4 * 5 * 3  # of 8 x 12 x 12, 8 x 10 x 12
    with devices((2, 4)):
        a = np.zeros((7, 9, 11), np.complex64)
        assert measure(fft.fftn, a).sent == fft.cost(fft.fftn, a).sent == 8 * sent


def test_a_gradient_sends_no_more_than_its_transform():
    with devices((2, 4)):
        a = lay("rfftn", (2, 4), np.zeros(SHAPES[3]))
        program = measure(jax.grad(lambda a: fft.fftn(a).real.sum()), a)
        assert program.sent <= fft.cost(fft.fftn, a).sent


# ------------------------------------------------------------- what is refused

FIELD = jnp.zeros((4, 8, 6), jnp.complex64)


@pytest.mark.parametrize(
    ("name", "a", "options", "complaint"),
    [
        ("fftn", [1.0], {}, "a is a list: pass an array of"),
        ("ifft2", FIELD, {"norm": "loud"}, "norm = 'loud': pass one of"),
        ("fftn", FIELD[..., :0], {}, r"sizes \(4, 8, 0\): an array without numbers"),
        ("fftn", FIELD, {"axes": (0, 3)}, r"axes = \(0, 3\) of 3: pass two or more"),
        ("fftn", FIELD, {"s": (4, 8, 7)}, r"\[4, 8, 6\] is not for s = \(4, 8, 7\): p"),
        ("ifftn", FIELD, {"s": (4, 6, 6)}, r"pass \[4, 6, 6\], or \[4, 6, 8\] with ze"),
        ("rfftn", FIELD, {}, "complex64 is not real: pass the real part, or call fftn"),
        ("fftn", FIELD, {"over": ("x", "z")}, r"no mesh axis \['z'\] in context"),
        ("fftn", FIELD, {"over": ("x", "x")}, "pass one mesh axis or more, each once"),
        ("irfftn", FIELD, {"s": [[4, 8, 6]]}, "pass 3 integers"),
    ],
)
def test_what_has_no_answer_is_refused_in_words(name, a, options, complaint):
    with devices((2, 4)), pytest.raises(ValueError, match=complaint):
        getattr(fft, name)(a, **options)


def test_a_mesh_without_x_and_a_shard_map_over_it_are_refused():
    with pytest.raises(ValueError, match=r"no mesh axis \['x'\] in context"):
        fft.fftn(np.ones((4, 4, 4)))
    with devices((2, 4)):
        within = jax.shard_map(fft.fftn, in_specs=jax.P(), out_specs=jax.P())
        with pytest.raises(ValueError, match="are Manual: call this outside"):
            jax.jit(within)(FIELD)


def test_a_padded_spectrum_has_the_shape_of_many_sizes():
    """So `s` alone tells which, and what no field of that size has is refused."""
    with devices((2, 4)):
        wanted = noise(16, 16, 18)
        spectrum = fft.rfftn(wanted)  # [16, 16, 12], with two zeros
        for last in 15, 16, 23, 24:
            back = functools.partial(fft.irfftn, s=np.array([16, 16, last]))
            if 16 <= last < 24:
                assert jax.eval_shape(back, spectrum).shape == (16, 16, last)
            else:
                with pytest.raises(ValueError, match="is not for s"):
                    back(spectrum)
        found = fft.irfftn(spectrum, [16, 16, 18])
        np.testing.assert_allclose(found, wanted, atol=1e-4)


# ----------------------------------------------------------- in the spectrum


@pytest.mark.parametrize(
    ("name", "kind"),
    [("fftn_transposed", EXPLICIT), ("rfft2", AUTO)],
)
def test_wave_numbers_and_the_mask_lie_as_the_spectrum_does(name, kind):
    shape = ODD[rank_of(name)]
    transform = getattr(fft, name)
    with devices((2, 4), kind):
        answer = jax.eval_shape(transform, np.ones(shape, np.float32))
        waves, mask = fft.wave_numbers(shape, transform), fft.mask(shape, transform)
        assert mask.shape == answer.shape
        assert lies(mask, layouts(name, (2, 4))[1])
        numbers = [np.fft.fftfreq(n, 1 / n).round() for n in shape]
        if "rfft" in name:
            numbers[-1] = np.arange(shape[-1] // 2 + 1)
        expected = np.meshgrid(*numbers, indexing="ij")
        if "transposed" in name:
            expected = [each.transpose(1, 2, 0) for each in expected]
        inside = tuple(map(slice, expected[0].shape))
        for mine, theirs in zip(waves, expected, strict=True):
            each = np.broadcast_to(mine, answer.shape)[inside]
            np.testing.assert_array_equal(each, theirs)
        assert np.asarray(mask).sum() == expected[0].size
        assert np.asarray(mask)[inside].all()
        cut = [wave.sharding.shard_shape(wave.shape) for wave in waves]
        assert sum(map(max, cut)) < sum(max(wave.shape) for wave in waves)


@pytest.mark.parametrize(
    ("mesh", "dtype"), [((2, 4), np.float32), ((7,), np.complex64)]
)
def test_an_equation_is_solved_in_two_transforms(mesh, dtype):
    f = noise(*ODD[3], dtype=dtype)
    f -= f.mean()

    def symbol(k0, k1, k2):
        return k0**2 + 2 * k1**2 + k2**2

    by = symbol(
        *np.meshgrid(*(np.fft.fftfreq(n, 1 / n) for n in ODD[3]), indexing="ij")
    )
    by[0, 0, 0] = np.inf
    with devices(mesh):
        run = jax.jit(lambda f: fft.solve_in_spectrum(f, symbol)).lower(f).compile()
        u = run(f)
        expected = np.fft.ifftn(np.fft.fftn(f) / by)
        agree(u, expected if dtype == np.complex64 else expected.real, 1e-5)
        assert u.dtype == dtype
        again = fft.solve_in_spectrum(u, lambda *k: 2 + 0 * k[0], s=ODD[3])
        agree(again, np.asarray(u)[:7, :9] / 2)  # zeros may be there or not
        there = fft.rfftn_transposed if dtype == np.float32 else fft.fftn_transposed
        assert measure(run).sent == 2 * fft.cost(there, f).sent
