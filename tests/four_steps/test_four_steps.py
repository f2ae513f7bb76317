import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_week
from jax.sharding import AxisType
from on_devices import devices

from examples import four_steps
from examples.communication import measure

PAIRS = {"fft": "ifft", "fft_transposed": "ifft_transposed"}
NAMES = [*PAIRS, *PAIRS.values()]
EVEN = 2880  # 8 * 8 * 45

KINDS = [AxisType.Explicit, AxisType.Auto]


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


@pytest.mark.parametrize(
    ("name", "mesh", "norm"),
    [
        ("fft", (2, 4), "ortho"),
        ("fft_transposed", (8,), "forward"),
        ("ifft", (8,), "forward"),
        ("ifft_transposed", (2, 4), "ortho"),
        *(each_week(name, mesh, None) for name in NAMES for mesh in ((3,), (1, 1))),
    ],
)
def test_values_are_those_of_numpy_and_messages_the_least(name, mesh, norm):
    """They lie where the docstring says; what is the least: see test_costs.py."""
    with devices(mesh):
        a = given_to(name)
        placed = jax.device_put(a, spec_of(name, mesh, after=False))
        run = jax.jit(lambda a: call(name, a, EVEN, norm)).lower(placed).compile()
        answer, program = run(placed), measure(run)
        agree(answer, oracle(name, a, EVEN, norm))
        assert lies(answer, spec_of(name, mesh, after=True))
        assert answer.dtype == jnp.complex64
        expected = four_steps.cost(getattr(four_steps, name), placed)
        count = jax.sharding.get_mesh().size
    assert (program.sent, program.counts) == expected
    times = 2 if "transposed" in name else 3
    assert program.sent == times * 8 * EVEN // count * (count - 1) // count
    block = max(program.arguments, program.outputs)
    assert program.temporaries < 3.1 * block + 1024


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("fft", ((2, 4), 1000)),
        ("fft_transposed", ((7,), 2880)),
        ("ifft", ((3, 2), 35)),
        each_week("ifft_transposed", ((2, 4), 1000)),
    ],
)
def test_any_size_with_factors_is_right_and_zeros_follow(name, place):
    mesh, n = place
    with devices(mesh):
        a = given_to(name, n)
        answer = call(name, a, n)
        agree(answer, oracle(name, a, n))
        assert lies(answer, spec_of(name, mesh, after=True))


@pytest.mark.parametrize(
    ("mesh", "n", "name", "norm"),
    [
        ((2, 4), 1009, "fft", None),
        ((7,), 269, "ifft", "forward"),
        ((2, 4), 7, "fft", "ortho"),
    ],
)
def test_a_prime_number_of_points_is_right_and_no_device_holds_them(
    mesh, n, name, norm
):
    """1009 and 269 by a convolution; 7 are so few that a device may.

    What fills up is not read.
    """
    with devices(mesh):
        a, count = given_to(name, n), jax.sharding.get_mesh().size
        dirty = np.full(-(-n // count) * count, np.nan, a.dtype)
        dirty[:n] = a
        placed = jax.device_put(dirty, spec_of(name, mesh, after=False))
        run = jax.jit(lambda a: call(name, a, n, norm)).lower(placed).compile()
        agree(run(placed), oracle(name, a, n, norm))
    assert measure(run).counts == {"all-to-all": 5 if n > 7 else 3}


def test_a_long_prime_vector_is_shared_and_nearly_as_exact():
    """A prime near 2^16: a vector has 512 KiB, and two of 8 devices hold as much.

    n^2 is beyond 32 bits, so that turns are counted by integers alone. It takes two
    exchanges of N numbers and three of twice as many.
    """
    n, held = 65521, {}
    a = given_to("fft", n)
    for count in 2, 8:
        with devices((count,)):
            run = jax.jit(four_steps.fft).lower(a).compile()
            program = measure(run)
            held[count] = program.temporaries
            assert (program.sent, program.counts) == four_steps.cost(four_steps.fft, a)
            ours = np.asarray(run(a))[:n]
    assert held[8] < 0.45 * held[2]  # arguments lie whole: JAX cannot cut a prime
    assert abs(program.sent * 8 / a.nbytes - 7.15) < 0.01
    exact = np.fft.fft(a.astype(np.complex128))
    assert np.linalg.norm(ours - exact) < 1e-6 * np.linalg.norm(exact)


@pytest.mark.parametrize(
    ("name", "shape", "kind"),
    [("fft", (104,), KINDS[1]), ("ifft_transposed", (8, 20), KINDS[0])],
)
def test_what_fills_up_is_not_read(name, shape, kind):
    with devices((2, 4), kind):
        a = given_to(name, 100)
        dirty = np.full(shape, np.nan, a.dtype)
        dirty[tuple(map(slice, a.shape))] = a
        placed = jax.device_put(dirty, spec_of(name, (2, 4), after=False))
        agree(call(name, placed, 100), oracle(name, a, 100))


@pytest.mark.parametrize(("n", "name"), [(EVEN, "ifft"), (1009, "fft")])
def test_double_precision_stays_double_under_strict_promotion(name, n):
    with jax.numpy_dtype_promotion("strict"), jax.enable_x64(True), devices((8,)):
        a = given_to(name, n, jnp.complex128)
        answer = call(name, a, n)
        assert answer.dtype == jnp.complex128
        agree(answer, oracle(name, a, n), eps=1e-13)


def test_a_long_vector_is_as_exact_as_in_one_piece():
    with devices((8,)):
        a = given_to("fft", 2**18)
        exact = np.fft.fft(a.astype(np.complex128))
        ours, theirs = (
            np.linalg.norm(np.asarray(b) - exact) / np.linalg.norm(exact)
            for b in (four_steps.fft(a), jnp.fft.fft(a))
        )
        assert ours < 1.3 * theirs < 1e-6


def test_squares_modulo_a_number_do_not_overflow():
    numbers = np.array([0, 1, 46341, 2**30 - 1, 1_999_999_973, 2**31 - 2], np.int32)
    for size in 7, 2**31 - 1:
        found = four_steps.square_modulo(jnp.asarray(numbers), size)
        assert found.tolist() == [int(n) ** 2 % size for n in numbers]


@pytest.mark.parametrize(
    ("over", "kind"), [(("model", "data"), KINDS[0]), ("data", KINDS[1])]
)
def test_a_users_mesh_has_other_names_and_one_axis_more(over, kind):
    whole = np.random.default_rng(0).standard_normal((4, 100, 3), np.float32)
    with devices((2, 2, 2), kind, ("model", "more", "data")):
        a = jax.device_put(whole, jax.P("more"))
        there = jax.jit(lambda a: four_steps.fft(a, axis=1, over=over))
        run = there.lower(a).compile()
        b = run(a)
        agree(b, np.fft.fft(whole, axis=1))
        agree(four_steps.ifft(b, 100, axis=-2, over=over), whole)
        if kind == AxisType.Explicit:
            assert lies(b, jax.P("more", over))
            cost = four_steps.cost(four_steps.fft, a, axis=1, over=over)
            assert measure(run).sent == cost.sent


# -------------------------------------------------------- right gradient?


@pytest.mark.parametrize(
    ("there", "n"),
    [
        ("fft", 1009),
        ("fft_transposed", 100),
        each_week("fft", EVEN),
        each_week("fft_transposed", EVEN),
    ],
)
def test_the_derivative_is_the_transform_and_its_transpose_comes_home(there, n):
    """A transform F is linear: jvp applies it, and <F u, v> is <u, vjp(v)>."""

    @jax.jit
    def both(a, tangent):
        b, pull = jax.vjp(lambda a: call(there, a, n), a)
        slope = jax.jvp(lambda a: call(there, a, n), (a,), (tangent,))[1]
        return slope, b, pull(b)[0]

    with devices((2, 4)):
        a, tangent = (jnp.asarray(given_to(there, n, seed=seed)) for seed in (0, 1))
        slope, b, back = both(a, tangent)
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


@pytest.mark.parametrize(
    ("n", "blocks"), [(2**12, 2.62), (4097, 4.28), (4100, 3.40), (65521, 7.15)]
)
def test_other_sizes_send_more(n, blocks):
    """3 (1 - 1/P) blocks where P^2 divides N; 17 x 241, 50 x 82, and a prime."""
    with devices((8,)):
        a = np.zeros(n, np.complex64)
        cost = four_steps.cost(four_steps.fft, a)
    assert abs(cost.sent * 8 / a.nbytes - blocks) < 0.01


# ----------------------------------------------- batches, and what is refused


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fft", KINDS[1]),
        ("ifft_transposed", KINDS[0]),
        *(each_week(name, KINDS[0]) for name in ("fft", "fft_transposed", "ifft")),
    ],
)
def test_vmap_transforms_a_batch_in_the_messages_of_one(name, kind):
    with devices((2, 4), kind):
        batch = np.stack([given_to(name, 100, seed=seed) for seed in (0, 1)])
        each = jax.jit(jax.vmap(lambda a: call(name, a, 100)))
        run = each.lower(batch).compile()
        for a, b in zip(batch, np.asarray(run(batch)), strict=True):
            agree(b, oracle(name, a, 100))
        if kind == AxisType.Explicit:  # where it is laid out without a message
            cost = four_steps.cost(getattr(four_steps, name), batch[0], 100)
            program = measure(run)
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
