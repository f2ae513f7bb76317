import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_week
from jax.sharding import AxisType
from on_devices import devices

from examples import fft
from examples.communication import measure

FIELD_MESHES = [(1, 1), (8, 1), (1, 8), (2, 4), (4, 2), (3, 2), (8,), (3,)]
PLANE_MESHES = [(8, 1), (2, 4), (3,)]
SHAPES = {3: (24, 48, 16), 2: (24, 48)}
ODD = {3: (7, 9, 11), 2: (9, 7)}  # nothing divides them
PAIRS = {
    "fftn": "ifftn",
    "fftn_transposed": "ifftn_transposed",
    "rfftn": "irfftn",
    "rfftn_transposed": "irfftn_transposed",
    "fft2": "ifft2",
    "rfft2": "irfft2",
}
NAMES = [*PAIRS, *PAIRS.values()]
THERE = {name: name for name in PAIRS} | {back: go for go, back in PAIRS.items()}

KINDS = [AxisType.Explicit, AxisType.Auto]
WEEKLY = pytest.mark.weekly


def names_in_the_gate(*names):
    """Run a test of each transform, in the gate of these alone."""
    cases = [pytest.param(n, marks=() if n in names else WEEKLY) for n in NAMES]
    return pytest.mark.parametrize("name", cases)


def rank_of(name):
    return 2 if name.endswith("2") else 3


def layouts(name, mesh):
    """Return the specs of what goes into a transform, and of what comes out."""
    if name not in PAIRS:
        return layouts(THERE[name], mesh)[::-1]
    cut = ("x", "y")[: len(mesh)]
    cut = cut if rank_of(name) == 3 else (cut,)
    return jax.P(*cut), jax.P(*(cut if "transposed" in name else (None, *cut)))


# ------------------------------------------------------- the same in NumPy


def spectrum(there, whole, norm=None):
    """Return what NumPy says of the transform there, its axes moved."""
    plain = np.fft.rfftn if there.startswith("r") else np.fft.fftn
    answer = plain(np.asarray(whole), norm=norm)
    return answer.transpose(1, 2, 0) if "transposed" in there else answer


def field(back, whole, shape, norm=None):
    """Return what NumPy says of the transform back to a field of this shape."""
    whole = np.asarray(whole)
    turned = whole.transpose(2, 0, 1) if "transposed" in back else whole
    if back.startswith("ir"):
        return np.fft.irfftn(turned, shape, range(len(shape)), norm)
    return np.fft.ifftn(turned, norm=norm)


def oracle(name, whole, shape, norm=None):
    there = spectrum if name in PAIRS else functools.partial(field, shape=shape)
    return there(name, whole, norm=norm)


def true_part(name, a, shape):
    """Return what NumPy would have of an array: without zeros that fill it up."""
    sizes = np.zeros(shape) if name in PAIRS else spectrum(THERE[name], np.zeros(shape))
    return np.asarray(a)[tuple(slice(size) for size in sizes.shape)]


def given_to(name, mesh, shape=None, dtype=jnp.complex64, seed=0):
    """Return a random array that `name` takes, in its place, and the field's shape."""
    shape = shape or SHAPES[rank_of(name)]
    parts = np.random.default_rng(seed).standard_normal((2, *shape))
    real = "rfft" in name or not jnp.issubdtype(dtype, jnp.complexfloating)
    whole = parts[0] if real else parts[0] + 1j * parts[1]
    whole = whole if name in PAIRS else spectrum(THERE[name], whole)
    if real and name in PAIRS:
        dtype = jnp.finfo(dtype).dtype
    spec = layouts(name, mesh)[0]
    cut = [math.prod(jax.sharding.get_mesh().shape[n] for n in e or ()) for e in spec]
    cut += [1] * (len(shape) - len(cut))
    extra = [(0, -n % count) for n, count in zip(whole.shape, cut, strict=True)]
    return jax.device_put(jnp.asarray(np.pad(whole, extra), dtype), spec), shape


def call(name, a, shape, norm=None, **options):
    return getattr(fft, name)(a, shape, norm=norm, **options)


def number(array):
    return np.asarray(array).astype(np.complex128)


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
    target = jax.NamedSharding(jax.sharding.get_mesh(), spec)
    return answer.sharding.is_equivalent_to(target, answer.ndim)


# --------------------------------------------- right answer, same sharding?


IN_THE_GATE = [
    ("fftn", (2, 4), "forward"),
    ("fftn_transposed", (1, 8), "ortho"),
    ("rfftn", (4, 2), "ortho"),  # whose nine frequencies two devices cannot share
    ("rfftn_transposed", (3, 2), "forward"),
    ("ifftn", (1, 8), "ortho"),
    ("ifftn_transposed", (8,), "forward"),
    ("irfftn", (2, 4), "forward"),
    ("irfftn_transposed", (2, 4), "ortho"),
    ("fft2", (2, 4), "ortho"),
    ("rfft2", (3,), "forward"),
    ("ifft2", (8,), "forward"),
    ("irfft2", (2, 4), "ortho"),
]


@pytest.mark.parametrize(
    ("name", "mesh", "norm"),
    IN_THE_GATE
    + [
        each_week(name, mesh, None)
        for name in NAMES
        for mesh in (PLANE_MESHES if rank_of(name) == 2 else FIELD_MESHES)
    ],
)
def test_values_are_those_of_numpy_and_messages_the_least(name, mesh, norm):
    """They lie where the docstring says, and nothing is gathered."""
    with devices(mesh):
        a, shape = given_to(name, mesh)
        run = jax.jit(lambda a: call(name, a, shape, norm)).lower(a).compile()
        answer, program = run(a), measure(run)
        agree(answer, oracle(name, true_part(name, a, shape), shape, norm))
        assert lies(answer, layouts(name, mesh)[1])
        assert answer.dtype == (jnp.float32 if "irfft" in name else jnp.complex64)
        expected = fft.cost(getattr(fft, name), a, shape)
    assert (program.sent, program.counts) == expected
    block = max(program.arguments, program.outputs)
    assert program.temporaries < 3.1 * block + 1024


@names_in_the_gate("fftn", "irfftn_transposed", "ifft2")
def test_any_size_is_right_and_zeros_follow_which_nobody_reads(name):
    """Neither 7, 9 nor 11 is divided by 2 or 4; what fills up may be NaN."""
    mesh = 2, 4
    with devices(mesh):
        a, shape = given_to(name, mesh, ODD[rank_of(name)])
        true = true_part(name, a, shape)
        dirty = np.full(a.shape, np.nan, a.dtype)
        dirty[tuple(map(slice, true.shape))] = true
        answer = call(name, jax.device_put(dirty, layouts(name, mesh)[0]), shape)
        agree(answer, oracle(name, true, shape))
        assert lies(answer, layouts(name, mesh)[1])


PLACES = [  # axes of the array, what they lie over, the spec, and types of axes
    (
        (1, 2, 4),
        ("data", "model"),
        jax.P("more", None, "data", None, "model"),
        KINDS[0],
    ),
    (
        (2, 0, 4),
        ("data", ("model", "more")),
        jax.P("data", None, None, None, ("model", "more")),
        KINDS[1],
    ),
    each_week((4, 3, 1), "data", jax.P("more", None, None, "data"), KINDS[0]),
    each_week(
        (0, 1, 2, 4),
        ("model", "more", "data"),
        jax.P(None, "model", "more", None, "data"),
        KINDS[0],
    ),
]


@pytest.mark.parametrize(("axes", "over", "spec", "kind"), PLACES)
def test_a_users_mesh_has_other_names_and_one_axis_more(axes, over, spec, kind):
    """And any axes of the array, in any order, over any of the mesh, beside a batch."""
    whole = np.random.default_rng(0).standard_normal((6, 4, 5, 3, 8), np.float32)
    sizes = [whole.shape[i] for i in axes]

    @jax.jit
    def transforms(a):
        answer = fft.fftn(a, axes=axes, over=over)
        half = fft.rfftn_transposed(a, axes=axes, over=over)
        home = fft.irfftn_transposed(half, sizes, axes, over=over)
        return answer, fft.ifftn(answer, sizes, axes, over=over), half, home

    with devices((2, 2, 2), kind, ("model", "more", "data")):
        a = jax.device_put(whole, jax.P("more") if spec[0] == "more" else jax.P())
        answer, again, half, home = transforms(a)
        agree(answer, np.fft.fftn(whole, axes=axes))
        expected = np.moveaxis(np.fft.rfftn(whole, axes=axes), axes[0], axes[-1])
        agree(half, expected)
        agree(again, whole)
        agree(home, whole)
        if kind == AxisType.Explicit:
            assert lies(answer, spec)


@pytest.mark.parametrize(
    ("own", "others"),
    [
        (AxisType.Auto, AxisType.Explicit),
        (AxisType.Explicit, AxisType.Auto),
        each_week(AxisType.Explicit, AxisType.Explicit),
        each_week(AxisType.Auto, AxisType.Auto),
    ],
)
def test_a_batch_along_an_axis_of_another_type_stays(own, others):
    mesh = jax.make_mesh((2, 2, 2), ("x", "y", "z"), (own, own, others))
    batch = np.random.default_rng(0).standard_normal((4, 4, 8, 6), np.float32)
    with jax.set_mesh(mesh):
        a = jax.device_put(batch, jax.P("z", "x", "y"))
        transform = functools.partial(fft.fftn, axes=(1, 2, 3))
        if others == AxisType.Auto:  # which has no type: `vmap` has to say it
            transform = jax.vmap(fft.fftn, spmd_axis_name="z")
        run = jax.jit(transform).lower(a).compile()
        answer, program = run(a), measure(run)
        agree(answer, np.fft.fftn(batch, axes=(1, 2, 3)))
        assert lies(answer, jax.P("z", None, "x", "y"))
    block = batch.size * 8 // 8
    assert (program.sent, program.counts) == (block, {"all-to-all": 2})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fft2", KINDS[0]),
        ("irfftn_transposed", KINDS[1]),
        *(each_week(name, KINDS[1]) for name in PAIRS),
    ],
)
def test_what_lies_otherwise_is_laid_out_first(name, kind):
    mesh = 2, 4
    with devices(mesh, kind):
        a, shape = given_to(name, mesh)
        answer = call(name, jax.device_put(np.asarray(a), jax.P("y")), shape)
        agree(answer, oracle(name, true_part(name, a, shape), shape))
        assert lies(answer, layouts(name, mesh)[1])


@names_in_the_gate("rfftn_transposed", "ifft2")
def test_double_precision_stays_double_under_strict_promotion(name):
    mesh = (2, 4) if rank_of(name) == 3 else (8,)
    strict = jax.numpy_dtype_promotion("strict")
    with strict, jax.enable_x64(True), devices(mesh):
        a, shape = given_to(name, mesh, dtype=jnp.complex128)
        answer = call(name, a, shape)
        assert answer.dtype == (jnp.float64 if "irfft" in name else jnp.complex128)
        agree(answer, oracle(name, true_part(name, a, shape), shape), eps=1e-14)


def test_other_numbers_become_single_precision():
    a = np.random.default_rng(0).integers(0, 2, SHAPES[3])
    with devices((2, 4)):
        for dtype in jnp.float32, jnp.bfloat16, jnp.int8, bool:
            for transform in fft.fftn, fft.rfftn:
                found = jax.eval_shape(transform, jnp.asarray(a, dtype))
                assert found.dtype == jnp.complex64
        placed = jax.device_put(a.astype(np.int8), jax.P("x", "y"))
        agree(fft.rfftn(placed), np.fft.rfftn(a))


# -------------------------------------------------------- right gradient?


@names_in_the_gate("fftn", "rfftn_transposed", "irfft2")
def test_the_derivative_is_the_transform_and_its_transpose_comes_home(name):
    """A transform F is linear: jvp applies it, and <F u, v> is <u, vjp(v)>."""
    odd = "transposed" in name  # sizes that nothing divides for half of them
    sizes = (ODD if odd else SHAPES)[rank_of(name)]
    with devices((2, 4)):
        a, shape = given_to(name, (2, 4), sizes)
        tangent, _ = given_to(name, (2, 4), sizes, seed=1)

        @jax.jit
        def both(a, tangent):
            b, pull = jax.vjp(lambda a: call(name, a, shape), a)
            slope = jax.jvp(lambda a: call(name, a, shape), (a,), (tangent,))[1]
            return slope, b, pull(b)[0]

        slope, b, back = both(a, tangent)
        agree(slope, oracle(name, true_part(name, tangent, shape), shape))
        left = (number(slope) * number(b)).sum()
        right = (number(tangent) * number(back)).sum()
        lengths = np.linalg.norm(number(slope)) * np.linalg.norm(number(b))
        assert abs((left - right).real) < 1e-6 * lengths
        assert back.sharding.is_equivalent_to(a.sharding, a.ndim)


@pytest.mark.parametrize(
    ("shape", "mesh"),
    [
        ((3, 1, 5), (2, 3)),
        ((1, 2, 1), (4, 1)),
        each_week((5, 1, 4), (1, 2)),
        each_week((2, 3, 2), (2, 3)),
    ],
)
def test_devices_with_zeros_alone_go_there_and_back(shape, mesh):
    a = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    pairs = [
        (getattr(fft, there), getattr(fft, back))
        for there, back in PAIRS.items()
        if rank_of(there) == 3
    ]
    with devices(mesh):
        found = jax.jit(lambda a: [back(there(a), shape) for there, back in pairs])(a)
        for home in found:
            agree(np.asarray(home)[tuple(map(slice, shape))], a, 1e-5)


@pytest.mark.parametrize("mesh", [(2, 4), each_week((8,))], ids=str)
def test_two_derivatives_through_a_filter_are_those_of_jax_numpy(mesh):
    """There, a product, back again, and a loss that is not linear at the end."""

    def loss(there, back, a):
        b = there(a)
        band = (jnp.arange(b.size).reshape(b.shape) % 7 < 3).astype(b.dtype)
        return (back(b * band, a.shape) ** 3).sum()

    def along(there, back):
        gradient = jax.grad(functools.partial(loss, there, back))
        return jax.jit(lambda a: (gradient(a), jax.jvp(gradient, (a,), (a + 1,))[1]))

    with devices(mesh):
        a, _ = given_to("rfftn", mesh, (16, 16, 14))  # 8 frequencies, none in excess
        found = along(fft.rfftn, fft.irfftn)(a)
        assert found[0].sharding.is_equivalent_to(a.sharding, 3)
    plain = along(jnp.fft.rfftn, jnp.fft.irfftn)(jnp.asarray(np.asarray(a)))
    for mine, theirs in zip(found, plain, strict=True):
        agree(mine, np.asarray(theirs), 1e-5)


# -------------------------------------------------------- which messages?


@pytest.mark.parametrize(
    ("mesh", "sizes", "sent"),
    [
        each_week((2, 4), (24, 48, 16), 12 * 12 * 4 * 3 + 24 * 48 * 4 // 4),
        ((2, 4), (7, 9, 11), 4 * 3 * 3 * 3 + 4 * 5 * 3),  # of 8 x 12 x 12, 8 x 10 x 12
        each_week((7,), (7, 9, 11), 2 * 11 * 6),  # 7 x 14 x 11
    ],
)
def test_sizes_that_nothing_divides_send_the_zeros_that_fill_them_up(mesh, sizes, sent):
    """Counted by hand: the share of each axis, once for each of the others."""
    with devices(mesh):
        a = np.zeros(sizes, np.complex64)
        assert measure(fft.fftn, a).sent == fft.cost(fft.fftn, a).sent == 8 * sent


@pytest.mark.parametrize("mesh", [(2, 4), (8,)], ids=str)
def test_real_numbers_send_little_more_than_half(mesh):
    with devices(mesh):
        a, (*_, size) = given_to("rfftn", mesh)
        whole, half = (fft.cost(f, a).sent for f in (fft.fftn, fft.rfftn))
        held = jax.eval_shape(fft.rfftn, a).shape[2]
    assert half * size == whole * held < 0.8 * whole * size


def test_a_gradient_sends_as_much_as_the_transform():
    with devices((2, 4)):
        a, _ = given_to("fftn", (2, 4))
        program = measure(jax.grad(lambda a: fft.fftn(a).real.sum()), a.real)
        assert program.sent <= fft.cost(fft.fftn, a).sent


# ----------------------------------------------- batches, and what is refused


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fftn", KINDS[0]),
        ("irfftn_transposed", KINDS[1]),
        *(each_week("fft2", kind) for kind in KINDS),
    ],
)
def test_vmap_transforms_a_batch_in_the_messages_of_one(name, kind):
    with devices((2, 4), kind):
        one, shape = given_to(name, (2, 4))
        batch = np.stack([one, given_to(name, (2, 4), seed=1)[0]])
        batch = jax.device_put(batch, jax.P(None, *layouts(name, (2, 4))[0]))
        each = jax.jit(jax.vmap(lambda a: call(name, a, shape)))
        run = each.lower(batch).compile()
        for a, b in zip(np.asarray(batch), np.asarray(run(batch)), strict=True):
            agree(b, oracle(name, true_part(name, a, shape), shape))
        cost, program = fft.cost(getattr(fft, name), one, shape), measure(run)
        assert (program.sent, program.counts) == (2 * cost.sent, cost.counts)


FIELD = jnp.zeros((4, 8, 6), jnp.complex64)


@pytest.mark.parametrize(
    ("name", "a", "options", "complaint"),
    [
        ("fftn", FIELD[..., :0], {}, r"sizes \(4, 8, 0\): an array without numbers"),
        ("fftn", FIELD[0, 0], {}, r"axes = \(0,\) of 1: pass two or more"),
        (
            "fftn",
            FIELD,
            {"axes": (0, -3)},
            r"axes = \(0, -3\) of 3: pass two or more, ea",
        ),
        ("fftn", FIELD, {"axes": (0, 3)}, r"axes = \(0, 3\) of 3: pass two or more"),
        ("fftn", FIELD, {"axes": (0, 1.5)}, "pass 2 integers"),
        ("fftn", FIELD, {"s": (4, 8)}, r"s = \(4, 8\): pass 3 integers"),
        (
            "fftn",
            FIELD,
            {"s": (4, 8, 7)},
            r"\[4, 8, 6\] is not for s = \(4, 8, 7\): pa",
        ),
        (
            "ifftn",
            FIELD,
            {"s": (4, 6, 6)},
            r"pass \[4, 6, 6\], or \[4, 6, 8\] with zer",
        ),
        ("rfftn", FIELD, {}, "complex64 is not real: pass the real part, or call fftn"),
        ("fftn", FIELD, {"over": ("x", "z")}, r"no mesh axis \['z'\] in context"),
        ("fftn", FIELD, {"over": ("x", "x")}, "pass one mesh axis or more, each once"),
        ("fftn", FIELD, {"over": ()}, "pass one mesh axis or more, each once"),
        ("irfftn", FIELD, {"s": (4, 8, 16)}, "is not for s"),
        ("irfftn", FIELD, {"s": (4, 8, 6.0)}, "pass 3 integers"),
        ("irfftn", FIELD, {"s": [[4, 8, 6]]}, "pass 3 integers"),
        ("irfftn", FIELD, {"s": None}, "is not for s"),
    ],
)
def test_what_has_no_answer_is_refused_in_words(name, a, options, complaint):
    with devices((2, 4)), pytest.raises(ValueError, match=complaint):
        getattr(fft, name)(a, **options)


def test_inside_a_shard_map_over_its_axes_it_is_refused():
    with devices((2, 4)):
        within = jax.shard_map(fft.fftn, in_specs=jax.P(), out_specs=jax.P())
        with pytest.raises(ValueError, match="are Manual: call this outside"):
            jax.jit(within)(FIELD)


def test_no_numbers_an_unknown_norm_and_a_mesh_without_x_are_refused():
    lists = [1.0], np.array([None])
    complaints = "a is a list: pass an array of", "a is of object: pass an array of"
    for name in NAMES:
        with devices((2, 4)):
            a, shape = given_to(name, (2, 4))
            for given, complaint in zip(lists, complaints, strict=True):
                with pytest.raises(ValueError, match=complaint):
                    call(name, given, (4, 4, 4))
            with pytest.raises(ValueError, match="norm = 'loud': pass one of"):
                call(name, a, shape, "loud")
        with pytest.raises(ValueError, match=r"no mesh axis \['x'\] in context"):
            call(name, np.asarray(a), shape)


@pytest.mark.parametrize("over", [("x", "y"), each_week(("y", "x"))], ids=str)
def test_a_padded_spectrum_has_the_shape_of_many_sizes(over):
    """So `s` alone tells which, and what no field of that size has is refused."""
    parts = {"x": 2, "y": 4}[over[1]]
    with devices((2, 4)):
        wanted = np.random.default_rng(0).standard_normal((16, 16, 18))
        spectrum = fft.rfftn(wanted, over=over)
        first = spectrum.shape[-1] - parts + 1  # numbers, of which the rest are zeros
        for last in range(12, 28):
            sizes = np.array([16, 16, last])
            back = functools.partial(fft.irfftn, s=sizes, over=over)
            if first <= last // 2 + 1 <= spectrum.shape[-1]:
                assert jax.eval_shape(back, spectrum).shape[2] >= last
            else:
                with pytest.raises(ValueError, match="is not for s"):
                    back(spectrum)
        found = fft.irfftn(spectrum, [16, 16, 18], over=over)
        np.testing.assert_allclose(found[..., :18], wanted, atol=1e-4)


def test_nan_goes_into_every_number():
    with devices((2, 4)):
        a = np.ones((7, 9, 11), np.float32)
        a[3, 4, 5] = np.nan
        assert np.isnan(np.asarray(fft.fftn(a))[:, :9, :11]).all()


# ----------------------------------------------------------- in the spectrum


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fftn_transposed", KINDS[0]),
        ("rfft2", KINDS[0]),
        ("rfftn", KINDS[1]),
        each_week("rfftn_transposed", KINDS[0]),
        each_week("fft2", KINDS[0]),
    ],
)
def test_wave_numbers_and_the_mask_lie_as_the_spectrum_does(name, kind):
    shape = ODD[rank_of(name)]
    transform = getattr(fft, name)
    with devices((2, 4), kind):
        answer = jax.eval_shape(transform, np.ones(shape, np.float32))
        waves = fft.wave_numbers(shape, transform)
        mask = fft.mask(shape, transform)
        assert mask.shape == answer.shape
        assert lies(mask, layouts(name, (2, 4))[1])
        numbers = [np.fft.fftfreq(n, 1 / n).round() for n in shape]
        if "rfft" in name:
            numbers[-1] = np.arange(shape[-1] // 2 + 1)
        expected = np.meshgrid(*numbers, indexing="ij")
        if "transposed" in name:
            expected = [each.transpose(1, 2, 0) for each in expected]
        found = [np.broadcast_to(wave, answer.shape) for wave in waves]
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine[tuple(map(slice, theirs.shape))], theirs)
        np.testing.assert_array_equal(np.asarray(mask).sum(), expected[0].size)
        assert np.asarray(mask)[tuple(map(slice, expected[0].shape))].all()
        cut = [wave.sharding.shard_shape(wave.shape) for wave in waves]
        assert sum(map(max, cut)) < sum(max(wave.shape) for wave in waves)


@pytest.mark.parametrize(
    ("mesh", "dtype"),
    [((2, 4), np.float32), ((7,), np.complex64)],
)
def test_an_equation_is_solved_in_two_transforms(mesh, dtype):
    shape = (7, 9, 11)
    f = np.random.default_rng(0).standard_normal((2, *shape))
    f = (f[0] + (1j * f[1] if dtype == np.complex64 else 0)).astype(dtype)
    f -= f.mean()

    def symbol(k0, k1, k2):
        return k0**2 + 2 * k1**2 + k2**2

    waves = np.meshgrid(*(np.fft.fftfreq(n, 1 / n) for n in shape), indexing="ij")
    by = symbol(*waves)
    by[0, 0, 0] = np.inf
    with devices(mesh):
        run = jax.jit(lambda f: fft.solve_in_spectrum(f, symbol)).lower(f).compile()
        u = run(f)
        expected = np.fft.ifftn(np.fft.fftn(f) / by)
        agree(u, expected if dtype == np.complex64 else expected.real, 1e-5)
        assert u.dtype == dtype
        again = fft.solve_in_spectrum(u, lambda *k: 2 + 0 * k[0], s=shape)
        agree(again, np.asarray(u)[:7, :9] / 2)  # zeros may be there or not
        there = fft.rfftn_transposed if dtype == np.float32 else fft.fftn_transposed
        assert measure(run).sent == 2 * fft.cost(there, f).sent
