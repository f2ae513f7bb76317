import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import on_devices
import pytest
from jax.sharding import AxisType
from on_devices import assert_close, noise

from examples.batched_solve import (
    conjugate_gradients,
    independently,
    pad_systems,
    residuals,
    solve_batch,
)
from examples.communication import measure

EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto
each_layout = pytest.mark.parametrize(
    ("shape", "axis", "kind"),
    [((2, 4), "y", EXPLICIT), ((4, 2), ("x", "y"), AUTO)],
)
LU, CG = independently(jnp.linalg.solve), independently(conjugate_gradients)


def systems(count=8, dtype=np.float32, n=16):
    """Return Hermitian positive definite matrices, ever further spread, and sides."""
    wild = noise(count, n, n, dtype=np.result_type(dtype, np.float64))
    q, _ = np.linalg.qr(wild)
    spread = np.linspace(1, 1 + 8 * np.arange(count), n, axis=1)
    a = (q * spread[:, None]) @ q.conj().mT
    return a.astype(dtype), wild[:, 0].astype(dtype)


def devices(shape=(8,), kind=AxisType.Explicit):
    """Put a mesh (batch) or (x, y) in context, on as many devices as it takes."""
    names = ("batch",) if len(shape) == 1 else ("x", "y")
    return on_devices.devices(shape, kind, names)


def put(arrays, axis="batch"):
    return [jax.device_put(array, jax.P(axis)) for array in arrays]


def exact(a, b):
    return np.linalg.solve(a.astype(complex), b[..., None])[..., 0]


def is_split(x, axis):
    wanted = jax.NamedSharding(jax.sharding.get_mesh(), jax.P(axis))
    return x.sharding.is_equivalent_to(wanted, x.ndim)


def run_silently(f, *arrays):
    """Return what a function returns; fail if its program sends messages."""
    program = jax.jit(f).lower(*arrays).compile()
    assert measure(program).counts == {}
    return program(*arrays)


def assert_solved(x, a, b):
    np.testing.assert_allclose(x, exact(a, b), rtol=1e-3, atol=1e-3)


@each_layout
def test_every_way_solves_as_numpy_does_and_sends_nothing(shape, axis, kind):
    """Also where b, of as many systems as unknowns, might be taken for a matrix."""
    a, b = systems(16)
    cg = independently(conjugate_gradients, axis)
    ways = solve_batch, independently(jnp.linalg.solve, axis), lambda a, b: cg(a, b)[0]
    with devices(shape, kind):
        for way in ways:
            x = run_silently(way, *put((a, b), axis))
            assert_solved(x, a, b)
            assert is_split(x, axis)
        far = run_silently(residuals, *put((a, b, b[::-1]), axis))
        assert is_split(far, axis)
    wanted = np.linalg.norm((a @ b[..., None])[..., 0] - b[::-1], axis=1)
    np.testing.assert_allclose(far, wanted, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "dtype"), [(EXPLICIT, np.complex64), (AUTO, np.float32)]
)
def test_the_gradients_are_those_of_the_solution_and_send_nothing(kind, dtype):
    """Of a loss that is |x|^2 weighted: with w = A^-T dx they are w and -w x^T."""
    a, b = systems(8, dtype)
    x, weights = exact(a, b), np.arange(1, 17)[None]
    w = exact(a.mT, 2 * weights * x.conj())
    ways = solve_batch, LU, lambda a, b: CG(a, b)[0]
    with devices(kind=kind):
        arrays = put((a, b))
        for way in ways:

            def loss(a, b, way=way):
                return (weights * jnp.abs(way(a, b)) ** 2).sum()

            da, db = run_silently(jax.grad(loss, (0, 1)), *arrays)
            assert_close(db, w, 1e-4)
            assert_close(da, -w[:, :, None] * x[:, None], 1e-4)
            assert is_split(da, "batch")


def test_iterations_follow_the_spread_and_end_before_the_limit():
    """In a loop in the global view, which asks all devices, they are the same."""
    with devices():
        arrays = put(systems())
        _, turns = CG(*arrays)
        assert is_split(turns, "batch")
        program = jax.jit(jax.vmap(conjugate_gradients)).lower(*arrays).compile()
        _, same = program(*arrays)
        [asked] = measure(program).collectives
    assert (asked.kind, asked.bytes, asked.times) == ("all-reduce", 1, None)
    assert len(asked.groups[0]) == 8
    turns = np.asarray(turns)
    assert turns.dtype == jnp.int32
    assert turns[0] == 1
    assert (np.diff(turns) >= 0).all()
    assert 10 < turns[-1] <= 40
    assert np.abs(turns - np.asarray(same)).max() <= 1


def test_a_tolerance_holds_and_a_tighter_one_takes_more_iterations():
    """It is relative to the right-hand side."""
    a, b = systems()
    with devices():
        arrays = put((a, b))
        taken = []
        for tolerance in (1e-1, 1e-3):
            solve = partial(conjugate_gradients, tolerance=tolerance)
            x, turns = independently(solve)(*arrays)
            far = np.asarray(residuals(arrays[0], x, arrays[1]))
            far = far / np.linalg.norm(b, axis=1) / tolerance
            assert (far <= 1.1).all()
            assert (far[1:] > 1e-3).all()
            taken.append(np.asarray(turns))
    assert (taken[0][1:] < taken[1][1:]).all()


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_numbers_whose_squares_do_not_fit_are_solved_and_judged(scale):
    """The squares of 1e-25 are 0 in float32, and those of 1e25 infinite."""
    a, b = systems()
    b = (scale * b).astype(np.float32)
    with devices():
        x, turns = CG(*put((a, b)))
        far = np.asarray(residuals(*put((a, 0 * b, b))))
    assert (np.asarray(turns) > 0).all()
    assert_solved(np.asarray(x) / scale, a, b / scale)
    np.testing.assert_allclose(far / scale, np.linalg.norm(b / scale, axis=1), 1e-5)


def test_no_number_is_not_taken_for_a_solution():
    a, b = systems()
    b[3, 5] = np.nan
    with devices():
        x = np.asarray(CG(*put((a, b)))[0])
    assert np.isnan(x).any(axis=1).tolist() == [i == 3 for i in range(8)]


def test_arguments_can_be_shared_by_all_problems():
    a, b = systems(24)
    with devices(kind=AUTO):
        x = independently(jnp.linalg.solve, shared=1)(a[0], b)
        assert_solved(x, a[:1], b)
        assert is_split(x, "batch")


def test_a_system_without_a_solution_ends_at_the_limit():
    a = np.diag(np.float32([1, 0, 0, 0]))
    turned = np.float32([[0, 1], [-1, 1e-3]])  # neither definite nor symmetric
    _, turns = conjugate_gradients(turned, np.ones(2, np.float32))
    assert turns <= 20
    _, turns = conjugate_gradients(a, np.float32([1, 1, 0, 0]), tolerance=0.0)
    assert turns <= 40


@each_layout
def test_padding_appends_systems_that_are_solved_at_once(shape, axis, kind):
    a, b = systems(13)
    cg = independently(conjugate_gradients, axis)
    with devices(shape, kind):
        c, d = pad_systems(a, b, axis)
        assert len(c) == 16
        assert is_split(c, axis)
        assert is_split(d, axis)
        x, turns = cg(c, d)
        assert (np.asarray(turns)[13:] == 0).all()
        for each in map(np.asarray, (x, solve_batch(c, d))):
            assert_solved(each[:13], a, b)
            assert (each[13:] == 0).all()


A, B = systems(8)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: LU(A, B[:7]), r"of 7, shape \(7, 16\), .* pad it to 8"),
        (lambda: LU(*systems(13)), r"of 13, .* into 8 parts: pad it to 16"),
        (lambda: LU(A, np.float32(1)), r"shape \(\), cannot"),
        (lambda: pad_systems(A, B, axis=("batch", "z")), r"no mesh axis \['z'\]"),
        (lambda: conjugate_gradients(A[0], B[0, 1:]), r"b \(15,\) are no system"),
        (lambda: conjugate_gradients(A[0], [1.0]), "and b list are no system"),
        (lambda: conjugate_gradients(A[0], B[0], -1.0), "a tolerance of -1.0: take a"),
        (lambda: conjugate_gradients(A[0], B[0], math.nan), "a tolerance of nan: take"),
    ],
)
def test_one_system_or_a_batch_that_does_not_fit_is_refused(call, words):
    with devices(), pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    ("a", "b"), [(A[..., 1:], B), (A, B[1:]), (A[0], B[0]), (A, B[..., None])]
)
def test_what_is_no_batch_of_systems_is_refused(a, b):
    with devices():
        for refused in (solve_batch, pad_systems, lambda a, b: residuals(a, b, b)):
            with pytest.raises(ValueError, match="are no batch of systems"):
                refused(a, b)
