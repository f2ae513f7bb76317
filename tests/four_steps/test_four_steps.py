import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import combine
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType
from on_devices import devices

from examples import four_steps
from examples.communication import measure

PAIRS = {"fft": "ifft", "fft_transposed": "ifft_transposed"}
NAMES = [*PAIRS, *PAIRS.values()]
NORMS = [None, "backward", "ortho", "forward"]
EVEN = 2880  # 8 * 8 * 45

KINDS = [AxisType.Explicit, AxisType.Auto]
WEEKLY = pytest.mark.weekly


def one_mesh_each(*meshes):
    """Run a test of all names on all meshes, in the gate of each name on one."""
    cases = combine(NAMES, meshes, strength=1)
    return pytest.mark.parametrize(("name", "mesh"), cases)


def spec_of(name, mesh, after):
    """Return how a vector or its matrix lies; the matrix is what is transposed."""
    cut = ("x", "y")[: len(mesh)]
    matrix = "transposed" in name and after == (name in PAIRS)
    return jax.P(cut, None) if matrix else jax.P(cut)


def oracle(name, a, n, norm=None):
    """Return what NumPy says, without the zeros that fill up; a has them, or not."""
    if name == "ifft_transposed":
        r, c = four_steps.rows_and_columns(n)
        return np.fft.ifft(np.asarray(a)[:r, :c].T.ravel(), norm=norm)
    answer = getattr(np.fft, name.removesuffix("_transposed"))(
        np.asarray(a)[:n], norm=norm
    )
    if name == "fft_transposed":
        r, c = four_steps.rows_and_columns(n)
        return answer.reshape(c, r).T
    return answer


def given_to(name, n=EVEN, dtype=jnp.complex64, seed=0):
    """Return random numbers that `name` takes, as NumPy has them."""
    numbers = np.random.default_rng(seed).standard_normal((n, 2)) @ [1, 1j]
    if not jnp.issubdtype(dtype, jnp.complexfloating):
        numbers = numbers.real
    if name == "ifft_transposed":
        numbers = numbers.reshape(four_steps.rows_and_columns(n))
    return numbers.astype(dtype)


def call(name, a, n, norm=None, **options):
    return getattr(four_steps, name)(a, n, norm=norm, **options)


def number(array):
    return np.asarray(array).astype(np.complex128)


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


# --------------------------------------------- right answer, same sharding?


@one_mesh_each((8, 1), (2, 4), (3,))
def test_the_values_are_those_of_numpy_and_lie_where_the_docstring_says(name, mesh):
    with devices(mesh):
        a = given_to(name)
        placed = jax.device_put(a, spec_of(name, mesh, after=False))
        for one in a, placed:
            answer = call(name, one, EVEN)
            agree(answer, oracle(name, a, EVEN))
            assert lies(answer, spec_of(name, mesh, after=True))
            assert answer.dtype == jnp.complex64


@pytest.mark.parametrize(
    ("name", "place"),
    combine(NAMES, [((2, 4), 1000), ((7,), 2880), ((3, 2), 35)], strength=1),
)
def test_any_size_with_factors_is_right_and_zeros_follow(name, place):
    mesh, n = place
    with devices(mesh):
        a = given_to(name, n)
        answer = call(name, a, n)
        agree(answer, oracle(name, a, n))
        assert lies(answer, spec_of(name, mesh, after=True))


@pytest.mark.parametrize(
    ("place", "name"),
    combine([((2, 4), 1009), ((7,), 269), ((2, 4), 7)], ["fft", "ifft"], strength=1),
)
def test_a_prime_number_of_points_is_right_and_no_device_holds_them(place, name):
    """1009 and 269 by a convolution; 7 are so few that a device may."""
    mesh, n = place
    with devices(mesh):
        a = given_to(name, n)
        run = jax.jit(lambda a: call(name, a, n))
        agree(run(a), oracle(name, a, n))
        norm = "ortho" if name == "fft" else "forward"
        agree(call(name, a, n, norm), oracle(name, a, n, norm))
        program = measure(run, a)
    assert program.counts == {"all-to-all": 5 if n > 7 else 3}


def test_memory_falls_with_the_devices_for_a_prime_number_of_points():
    """A prime near 2^16: a vector has 512 KiB, and two of 8 devices hold as much."""
    n, held = 65521, {}
    for count in 2, 8:
        with devices((count,)):
            a = jax.ShapeDtypeStruct((n,), jnp.complex64)
            held[count] = measure(four_steps.fft, a).temporaries
    assert held[8] < 0.45 * held[2]  # arguments lie whole: JAX cannot cut a prime


@pytest.mark.parametrize(
    ("case", "kind"),
    combine(
        [
            ("fft", 100, (104,)),
            ("fft", 1009, (1016,)),
            ("ifft_transposed", 100, (8, 20)),
        ],
        KINDS,
        strength=1,
    ),
)
def test_what_fills_up_is_not_read(case, kind):
    name, n, shape = case
    with devices((2, 4), kind):
        a = given_to(name, n)
        dirty = np.full(shape, np.nan, a.dtype)
        dirty[tuple(map(slice, a.shape))] = a
        placed = jax.device_put(dirty, spec_of(name, (2, 4), after=False))
        agree(call(name, placed, n), oracle(name, a, n))


@pytest.mark.parametrize(("norm", "name"), [*zip(NORMS[2:] * 2, NAMES, strict=True)])
def test_norms_mean_what_they_mean_in_numpy(name, norm):
    with devices((4, 2)):
        a = given_to(name)
        agree(call(name, a, EVEN, norm), oracle(name, a, EVEN, norm))


@pytest.mark.parametrize(
    ("n", "name"), combine([EVEN, 1009], ["ifft", "fft"], strength=1)
)
def test_double_precision_stays_double_under_strict_promotion(name, n):
    with jax.numpy_dtype_promotion("strict"), jax.enable_x64(True), devices((8,)):
        a = given_to(name, n, jnp.complex128)
        answer = call(name, a, n)
        assert answer.dtype == jnp.complex128
        agree(answer, oracle(name, a, n), eps=1e-13)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=WEEKLY if n in ("fft", "ifft_transposed") else ())
        for n in NAMES
    ],
)
def test_strict_promotion_is_enough(name):
    with devices((2, 4)), jax.numpy_dtype_promotion("strict"), jax.enable_x64(True):
        a = given_to(name, dtype=jnp.float32)
        agree(call(name, a, EVEN), oracle(name, a, EVEN))


def test_a_long_vector_is_as_exact_as_in_one_piece():
    with devices((8,)):
        a = given_to("fft", 2**18)
        exact = np.fft.fft(a.astype(np.complex128))
        ours, theirs = (
            np.linalg.norm(np.asarray(b) - exact) / np.linalg.norm(exact)
            for b in (four_steps.fft(a), jnp.fft.fft(a))
        )
        assert ours < 1.3 * theirs < 1e-6


def test_a_long_prime_vector_is_nearly_as_exact():
    """n^2 is beyond 32 bits, so that turns are counted by integers alone."""
    n = 65521
    with devices((8,)):
        a = given_to("fft", n)
        exact = np.fft.fft(a.astype(np.complex128))
        ours = np.asarray(four_steps.fft(a))[:n]
        assert np.linalg.norm(ours - exact) < 1e-6 * np.linalg.norm(exact)


def test_squares_modulo_a_number_do_not_overflow():
    numbers = np.array([0, 1, 46341, 2**30 - 1, 1_999_999_973, 2**31 - 2], np.int32)
    for size in 7, 2**31 - 1:
        found = four_steps.square_modulo(jnp.asarray(numbers), size)
        assert found.tolist() == [int(n) ** 2 % size for n in numbers]


@settings(deadline=None, derandomize=True, max_examples=5)
@given(st.data())
def test_any_size_is_right_on_any_mesh(data):
    mesh = data.draw(st.sampled_from([(2, 4), (3, 2), (8,), (7,), (1, 5)]))
    name = data.draw(st.sampled_from(["fft", "ifft"]))
    norm = data.draw(st.sampled_from(NORMS))
    n = data.draw(st.integers(1, 700))
    with devices(mesh, data.draw(st.sampled_from([AxisType.Explicit, AxisType.Auto]))):
        a = given_to(name, n)
        agree(call(name, a, n, norm), oracle(name, a, n, norm))


@pytest.mark.parametrize(
    ("over", "kind"), combine([("model", "data"), "data"], KINDS, strength=1)
)
def test_a_users_mesh_has_other_names_and_one_axis_more(over, kind):
    whole = np.random.default_rng(0).standard_normal((4, 100, 3), np.float32)
    with devices((2, 2, 2), kind, ("model", "more", "data")):
        a = jax.device_put(whole, jax.P("more"))
        run = jax.jit(lambda a: four_steps.fft(a, axis=1, over=over))
        b = run(a)
        agree(b, np.fft.fft(whole, axis=1))
        agree(four_steps.ifft(b, 100, axis=-2, over=over), whole)
        if kind == AxisType.Explicit:
            assert lies(b, jax.P("more", over))
            cost = four_steps.cost(four_steps.fft, a, axis=1, over=over)
            assert measure(run, a).sent == cost.sent


# -------------------------------------------------------- right gradient?


@pytest.mark.parametrize(
    ("there", "n"),
    [
        pytest.param("fft", EVEN, marks=WEEKLY),
        ("fft", 1009),
        pytest.param("fft_transposed", EVEN, marks=WEEKLY),
        ("fft_transposed", 100),
    ],
)
def test_the_derivative_is_the_transform_and_its_transpose_comes_home(there, n):
    """A transform F is linear: jvp applies it, and <F u, v> is <u, vjp(v)>."""
    with devices((2, 4)):
        a, tangent = (jnp.asarray(given_to(there, n, seed=seed)) for seed in (0, 1))
        b, pull = jax.vjp(lambda a: call(there, a, n), a)
        slope = jax.jvp(lambda a: call(there, a, n), (a,), (tangent,))[1]
        back = pull(b)[0]
        agree(slope, oracle(there, tangent, n))
        left = (number(slope) * number(b)).sum()
        right = (number(tangent) * number(back)).sum()
        lengths = np.linalg.norm(number(slope)) * np.linalg.norm(number(b))
        assert abs(left - right) < 2e-6 * lengths


def test_the_second_derivative_of_a_power_is_that_of_jax_numpy():
    def loss(transform, a):
        return (jnp.abs(transform(a)) ** 4).sum()

    a = jnp.asarray(given_to("fft", 24, jnp.float32))
    expected = jax.jit(jax.hessian(functools.partial(loss, jnp.fft.fft)))(a)
    with devices((3, 2)):
        # `vmap` wants one type for all: the gradient of the loss lies whole
        f = functools.partial(loss, four_steps.fft)
        second = jax.jit(lambda e: jax.jvp(jax.grad(f), (a,), (e,))[1])
        columns = [second(e) for e in np.eye(24, dtype="f")[:3]]
    agree(np.stack(columns), np.asarray(expected)[:3], 1e-5)


# -------------------------------------------------------- which messages?


@one_mesh_each((2, 4), (8,), (1, 1))
def test_a_device_sends_the_least_that_it_can_and_gathers_nothing(name, mesh):
    """What is the least: see also test_costs.py."""
    with devices(mesh):
        a = jax.device_put(given_to(name), spec_of(name, mesh, after=False))
        program = measure(getattr(four_steps, name), a)
        expected = four_steps.cost(getattr(four_steps, name), a)
        count = jax.sharding.get_mesh().size
    assert (program.sent, program.counts) == expected
    times = 2 if "transposed" in name else 3
    assert program.sent == times * 8 * EVEN // count * (count - 1) // count
    block = max(program.arguments, program.outputs)
    assert program.temporaries < 3.1 * block + 1024


@pytest.mark.parametrize(
    ("mesh", "n", "blocks"),
    [
        ((8,), 2**12, 2.62),
        ((8,), 4097, 4.28),
        pytest.param((8,), 4100, 3.40, marks=WEEKLY),
        ((8,), 65521, 7.15),
    ],
    ids=str,
)
def test_other_sizes_send_more(mesh, n, blocks):
    """3 (1 - 1/P) blocks where P^2 divides N; 17 x 241, 50 x 82, and a prime.

    The prime takes two exchanges of N numbers and three of twice as many.
    """
    with devices(mesh):
        a = np.zeros(n, np.complex64)
        cost = four_steps.cost(four_steps.fft, a)
        program = measure(four_steps.fft, a)
    assert (program.sent, program.counts) == cost
    assert abs(cost.sent * mesh[0] / a.nbytes - blocks) < 0.01


# ----------------------------------------------- batches, and what is refused


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fft", AxisType.Explicit),
        ("ifft_transposed", AxisType.Explicit),
        ("fft", AxisType.Auto),
        pytest.param("fft_transposed", AxisType.Explicit, marks=WEEKLY),
        pytest.param("ifft", AxisType.Explicit, marks=WEEKLY),
    ],
)
def test_vmap_transforms_a_batch_in_the_messages_of_one(name, kind):
    with devices((2, 4), kind):
        batch = np.stack([given_to(name, 100, seed=seed) for seed in (0, 1)])
        each = jax.jit(jax.vmap(lambda a: call(name, a, 100)))
        for a, b in zip(batch, each(batch), strict=True):
            agree(b, oracle(name, a, 100))
        if kind == AxisType.Explicit:  # where it is laid out without a message
            cost = four_steps.cost(getattr(four_steps, name), batch[0], 100)
            program = measure(each, batch)
            assert (program.sent, program.counts) == (2 * cost.sent, cost.counts)


LINE, MATRIX = jnp.zeros(24), jnp.zeros((4, 6))


@pytest.mark.parametrize(
    ("name", "a", "options", "complaint"),
    [
        ("fft", LINE[:0], {}, "n = 0: pass an integer from 1"),
        ("fft", LINE, {"n": 2.0}, "n = 2.0: pass an integer"),
        ("fft", LINE, {"n": 23, "axis": 1}, "axis = 1: pass an integer from -1 to 0"),
        ("fft", LINE, {"n": 25}, "24 numbers are not n = 25: pass as many, or 32 with"),
        ("fft", LINE, {"norm": "loud"}, "norm = 'loud': pass one of"),
        ("fft", LINE, {"over": ("x", "x")}, "pass one mesh axis or more, each once"),
        ("fft", LINE, {"over": "z"}, r"no mesh axis \['z'\] in context"),
        ("fft", [1.0], {}, "a is a list: pass an array of numbers"),
        (
            "fft_transposed",
            jnp.zeros(1009),
            {},
            "8 devices can share: call fft, or pass",
        ),
        ("ifft_transposed", LINE, {}, r"float32\[24\]: pass a matrix, or call ifft"),
        (
            "ifft_transposed",
            MATRIX,
            {"n": 100},
            "4 x 6 is not for n = 100: pass 5 x 20",
        ),
        ("ifft_transposed", MATRIX[:, :0], {}, "n = 0: pass an integer from 1"),
    ],
)
def test_what_has_no_answer_is_refused_in_words(name, a, options, complaint):
    with devices((2, 4)), pytest.raises(ValueError, match=complaint):
        getattr(four_steps, name)(a, **options)


def test_a_mesh_without_x_and_a_shard_map_over_it_are_refused():
    with pytest.raises(ValueError, match=r"no mesh axis \['x'\] in context"):
        four_steps.fft(np.zeros(8))
    with devices((2, 4)):
        within = jax.shard_map(four_steps.fft, in_specs=jax.P(), out_specs=jax.P())
        with pytest.raises(ValueError, match="are Manual: call this outside"):
            jax.jit(within)(LINE)


def test_nan_goes_into_every_number():
    with devices((2, 4)):
        for n in 100, 1009:
            a = np.ones(n, np.float32)
            a[n // 2] = np.nan
            assert np.isnan(np.asarray(four_steps.fft(a))[:n]).all()
