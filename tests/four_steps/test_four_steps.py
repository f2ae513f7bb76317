import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from fft.test_fft import agree, lies
from on_devices import AUTO, EXPLICIT, as_double, devices, noise

from examples import four_steps
from examples.communication import measure

EVEN = 2880  # 8 * 8 * 45


def spec_of(name, mesh, after):
    """Return how a vector or its matrix lies; the matrix is what is transposed."""
    cut = ("x", "y")[: len(mesh)]
    matrix = name == ("fft_transposed" if after else "ifft_transposed")
    return jax.P(cut, None) if matrix else jax.P(cut)


def oracle(name, a, norm=None):
    vector = np.asarray(a).T.ravel() if name == "ifft_transposed" else np.asarray(a)
    answer = getattr(np.fft, name.removesuffix("_transposed"))(vector, norm=norm)
    if name == "fft_transposed":
        return answer.reshape(four_steps.rows_and_columns(a.size)[::-1]).T
    return answer


def given_to(name, n=EVEN):
    """Return random numbers that `name` takes, as NumPy has them."""
    numbers = noise(n, dtype=np.complex64)
    if name == "ifft_transposed":
        return numbers.reshape(four_steps.rows_and_columns(n))
    return numbers


def call(name, a, n, norm=None):
    return getattr(four_steps, name)(a, n, norm=norm)


# --------------------------------------------- right answer, same sharding?


@pytest.mark.parametrize(
    ("name", "mesh", "norm"),
    [
        ("fft", (2, 4), "ortho"),
        ("fft_transposed", (8,), "forward"),
        ("ifft", (8,), "forward"),
        ("ifft_transposed", (2, 4), "ortho"),
    ],
)
def test_values_are_those_of_numpy_and_messages_the_least(name, mesh, norm):
    """They lie where the docstring says; what is the least: see test_costs.py.

    The gradient is the transpose: <a, vjp(conj(b))> is the square of b.
    """

    def transform(a):
        return call(name, a, EVEN, norm)

    with devices(mesh):
        a = given_to(name)
        placed = jax.device_put(a, spec_of(name, mesh, after=False))
        run = jax.jit(transform).lower(placed).compile()
        answer, program = run(placed), measure(run)
        pull = jax.jit(lambda a, b: jax.vjp(transform, a)[1](b))
        [back] = pull(placed, answer.conj())
        square = (a * as_double(back)).sum()
        np.testing.assert_allclose(square, np.linalg.norm(answer) ** 2, rtol=1e-5)
        agree(answer, oracle(name, a, norm))
        assert lies(answer, spec_of(name, mesh, after=True))
        assert answer.dtype == jnp.complex64
        expected = four_steps.cost(getattr(four_steps, name), placed)
    assert (program.sent, program.counts) == expected
    times = 2 if "transposed" in name else 3
    assert program.sent == times * 8 * EVEN // 8 * 7 // 8
    block = max(program.arguments, program.outputs)
    assert program.temporaries < 3.1 * block + 1024


@pytest.mark.parametrize(
    ("name", "mesh", "n", "shape", "exchanges"),
    [
        ("fft", (2, 4), 100, (104,), 3),
        ("fft_transposed", (7,), 2880, (2884,), 2),
        ("ifft_transposed", (2, 4), 100, (8, 20), 2),
        ("fft", (2, 4), 1009, (1016,), 5),  # a prime, by a convolution
        ("ifft", (7,), 269, (273,), 5),
    ],
)
def test_any_size_is_right_and_zeros_follow(name, mesh, n, shape, exchanges):
    """What fills up is not read."""
    norm = "forward" if name.startswith("i") else None
    with devices(mesh, AUTO if n == 100 else EXPLICIT):
        a = given_to(name, n)
        dirty = np.full(shape, np.nan, a.dtype)
        dirty[tuple(map(slice, a.shape))] = a
        placed = jax.device_put(dirty, spec_of(name, mesh, after=False))
        run = jax.jit(lambda a: call(name, a, n, norm)).lower(placed).compile()
        answer = run(placed)
        agree(answer, oracle(name, a, norm))
        assert lies(answer, spec_of(name, mesh, after=True))
    assert measure(run).counts == {"all-to-all": exchanges}


def test_a_long_prime_vector_is_nearly_as_exact():
    """A prime near 2^16: its square is beyond 32 bits, and integers count the turns."""
    a = given_to("fft", 65521)
    with devices((8,)):
        found = np.asarray(jax.jit(four_steps.fft)(a))[:65521]
    exact = np.fft.fft(a.astype(complex))
    assert np.linalg.norm(found - exact) < 1e-6 * np.linalg.norm(exact)


def test_squares_modulo_a_number_do_not_overflow():
    numbers = np.array([0, 1, 46341, 2**30 - 1, 1_999_999_973, 2**31 - 2], np.int32)
    for size in 7, 2**31 - 1:
        found = four_steps.square_modulo(jnp.asarray(numbers), size)
        assert found.tolist() == [int(n) ** 2 % size for n in numbers]


@pytest.mark.parametrize(
    ("over", "kind"), [(("model", "data"), EXPLICIT), ("data", AUTO)]
)
def test_a_users_mesh_has_other_names_and_one_axis_more(over, kind):
    whole = noise(4, 100, 3, dtype=np.float32)
    with devices((2, 2, 2), kind, ("model", "more", "data")):
        a = jax.device_put(whole, jax.P("more"))
        there = jax.jit(lambda a: four_steps.fft(a, axis=1, over=over))
        run = there.lower(a).compile()
        b = run(a)
        agree(b, np.fft.fft(whole, axis=1))
        agree(four_steps.ifft(b, 100, axis=-2, over=over), whole)
        if kind == EXPLICIT:
            assert lies(b, jax.P("more", over))
            cost = four_steps.cost(four_steps.fft, a, axis=1, over=over)
            assert measure(run).sent == cost.sent


# ----------------------------------------------- batches, and what is refused


LINE, MATRIX = jnp.zeros(24), jnp.zeros((4, 6))
fft, back = four_steps.fft, four_steps.ifft_transposed


@each_refusal(
    (lambda: fft(LINE[:0]), "n = 0: pass an integer from 1"),
    (lambda: fft(LINE, 2.0), "n = 2.0: pass an integer"),
    (lambda: fft(LINE, 23, axis=1), "axis = 1: pass an integer from -1 to 0"),
    (lambda: fft(LINE, 25), "24 numbers are not n = 25: pass as many, or 32 with"),
    (lambda: fft(LINE, norm="loud"), "norm = 'loud': pass one of"),
    (lambda: fft(LINE, over=("x", "x")), "pass one mesh axis or more, each once"),
    (lambda: fft(LINE, over="z"), r"no mesh axis \['z'\] in context"),
    (lambda: fft([1.0]), "a is a list: pass an array of numbers"),
    (lambda: jax.shard_map(fft, out_specs=jax.P())(LINE), "are Manual: call this outs"),
    (lambda: four_steps.fft_transposed(jnp.zeros(1009)), "8 devices can share: call f"),
    (lambda: back(LINE), r"float32\[24\]: pass a matrix, or call ifft"),
    (lambda: back(MATRIX, 100), "4 x 6 is not for n = 100: pass 5 x 20"),
    (lambda: back(MATRIX[:, :0]), "n = 0: pass an integer from 1"),
)
def test_what_has_no_answer_is_refused(call, words):
    with devices((2, 4)), pytest.raises(ValueError, match=words):
        call()
