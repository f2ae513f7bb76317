import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import on_devices
import pytest
from cases import each_refusal
from fft.test_fft import lies
from on_devices import AUTO, EXPLICIT, assert_close, noise

from examples.batched_solve import (
    conjugate_gradients,
    independently,
    pad_systems,
    residuals,
    solve_batch,
)
from examples.communication import measure

BATCH = jax.P("batch")
devices = partial(on_devices.devices, names=("batch", "y"))
LU, CG = independently(jnp.linalg.solve), independently(conjugate_gradients)


def systems(count=8, dtype=np.float32, n=16):
    """Return Hermitian positive definite matrices, ever further spread, and sides."""
    wild = noise(count, n, n, dtype=np.result_type(dtype, np.float64))
    q, _ = np.linalg.qr(wild)
    spread = np.linspace(1, 1 + 8 * np.arange(count), n, axis=1)
    a = (q * spread[:, None]) @ q.conj().mT
    return a.astype(dtype), wild[:, 0].astype(dtype)


def put(arrays):
    return jax.device_put(arrays, BATCH)


def run_silently(f, *arrays):
    """Return what a function returns; fail if its program sends messages."""
    program = jax.jit(f).lower(*arrays).compile()
    assert measure(program).counts == {}
    return program(*arrays)


def assert_solved(x, a, b):
    expected = np.linalg.solve(a.astype(float), b[..., None])[..., 0]
    np.testing.assert_allclose(x, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("shape", "axis", "kind"),
    [((2, 4), "y", EXPLICIT), ((4, 2), ("batch", "y"), AUTO)],
)
def test_every_way_solves_as_numpy_does_and_sends_nothing(shape, axis, kind):
    """Also what fills a batch up, at once.

    Of as many systems as unknowns: b might be taken for a matrix.
    """
    a, b = systems(13)
    cg = independently(conjugate_gradients, axis)
    with devices(shape, kind):
        c, d = pad_systems(a, b, axis)
        x, turns = run_silently(cg, c, d)
        far = run_silently(residuals, c, 0 * x, d)
        ways = solve_batch, independently(jnp.linalg.solve, axis)
        answers = x, *(run_silently(way, c, d) for way in ways)
        assert len(c) == 16
        assert all(lies(each, jax.P(axis)) for each in (c, d, turns, far, *answers))
    assert (np.asarray(turns)[13:] == 0).all()
    for each in map(np.asarray, answers):
        assert_solved(each[:13], a, b)
        assert (each[13:] == 0).all()
    np.testing.assert_allclose(np.asarray(far)[:13], np.linalg.norm(b, axis=1), 1e-5)


@pytest.mark.parametrize(
    ("kind", "dtype"), [(EXPLICIT, np.complex64), (AUTO, np.float32)]
)
def test_the_gradients_are_those_of_the_solution_and_send_nothing(kind, dtype):
    def slopes(way):
        def loss(a, b):
            return (jnp.arange(1.0, 17)[None] * jnp.abs(way(a, b)) ** 2).sum()

        return jax.grad(loss, (0, 1))

    def by_jax(a, b):
        return jnp.linalg.solve(a, b[..., None])[..., 0]

    a, b = systems(8, dtype)
    expected = slopes(by_jax)(a, b)
    with devices((8,), kind):
        for way in solve_batch, LU, lambda a, b: CG(a, b)[0]:
            found = run_silently(slopes(way), *put((a, b)))
            assert lies(found[0], BATCH)
            for mine, theirs in zip(found, expected, strict=True):
                assert_close(mine, theirs, 1e-4)


def test_iterations_follow_the_spread_and_the_tolerance():
    """A tolerance is relative to the right-hand side; the limit is 10 n."""
    taken = []
    with devices((8,)):
        a, b = put(systems())
        for tolerance in 1e-1, 1e-3, 1e-5:
            solve = partial(conjugate_gradients, tolerance=tolerance)
            x, turns = independently(solve)(a, b)
            far = np.asarray(residuals(a, x, b)) / np.linalg.norm(b, axis=1)
            assert (far <= 1.1 * tolerance).all()
            assert (far[1:] > 1e-3 * tolerance).all()
            taken.append(np.asarray(turns))
    assert turns.dtype == jnp.int32
    assert {turns[0] for turns in taken} == {1}
    assert (np.diff(taken, axis=0)[:, 1:] > 0).all()
    assert (np.diff(taken[-1]) >= 0).all()
    assert 10 < taken[-1][-1] <= 40


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_numbers_whose_squares_do_not_fit_are_solved_and_judged(scale):
    """The squares of 1e-25 are 0 in float32, and those of 1e25 infinite."""
    a, b = systems()
    b = (scale * b).astype(np.float32)
    with devices((8,)):
        x, turns = CG(*put((a, b)))
        far = np.asarray(residuals(*put((a, 0 * b, b))))
    assert (np.asarray(turns) > 0).all()
    assert_solved(np.asarray(x) / scale, a, b / scale)
    np.testing.assert_allclose(far / scale, np.linalg.norm(b / scale, axis=1), 1e-5)


def test_no_number_is_not_taken_for_a_solution():
    a, b = systems()
    b[3, 5] = np.nan
    with devices((8,)):
        x = np.asarray(CG(*put((a, b)))[0])
    assert np.isnan(x).any(axis=1).tolist() == [i == 3 for i in range(8)]


def test_arguments_can_be_shared_by_all_problems():
    a, b = systems(24)
    with devices((8,), AUTO):
        x = independently(jnp.linalg.solve, shared=1)(a[0], b)
        assert_solved(x, a[:1], b)
        assert lies(x, BATCH)


def test_a_system_without_a_solution_ends_at_the_limit():
    turned = np.float32([[0, 1], [-1, 1e-3]])  # neither definite nor symmetric
    singular = np.diag(np.float32([1, 0, 0, 0]))
    for a, b in (turned, [1, 1]), (singular, [1, 1, 0, 0]):
        _, turns = conjugate_gradients(a, np.float32(b), tolerance=0.0)
        assert turns <= 10 * len(b)


A, B = systems(8)


@each_refusal(
    (lambda: LU(A, B[:7]), r"of 7, shape \(7, 16\), .* pad it to 8"),
    (lambda: LU(*systems(13)), r"of 13, .* into 8 parts: pad it to 16"),
    (lambda: LU(A, np.float32(1)), r"shape \(\), cannot"),
    (lambda: pad_systems(A, B, axis=("batch", "z")), r"no mesh axis \['z'\]"),
    (lambda: jax.jit(pad_systems)(A, B), "pad them before `jax.jit`"),
    (lambda: conjugate_gradients(A[0], B[0, 1:]), r"b \(15,\) are no system"),
    (lambda: conjugate_gradients(A[0], [1.0]), "and b list are no system"),
    (lambda: conjugate_gradients(A[0], B[0], -1.0), "a tolerance of -1.0: take a"),
    (lambda: conjugate_gradients(A[0], B[0], math.nan), "a tolerance of nan: take"),
)
def test_one_system_or_a_batch_that_does_not_fit_is_refused(call, words):
    with devices((8,)), pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    "f", [solve_batch, pad_systems, lambda a, b: residuals(a, b, b)]
)
def test_what_is_no_batch_of_systems_is_refused(f):
    for a, b in (A[..., 1:], B), (A, B[1:]), (A[0], B[0]), (A, B[..., None]):
        with devices((8,)), pytest.raises(ValueError, match="are no batch of systems"):
            f(a, b)
