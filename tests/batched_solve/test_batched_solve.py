import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import on_devices
import pytest
from jax.sharding import AxisType
from on_devices import noise

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


def run_and_count(f, *arrays):
    """Return what a function returns, and its messages: of one program."""
    program = jax.jit(f).lower(*arrays).compile()
    return program(*arrays), measure(program).counts


@each_layout
def test_every_way_solves_as_numpy_does_and_sends_nothing(shape, axis, kind):
    """Also where b, of as many systems as unknowns, might be taken for a matrix."""
    a, b = systems(16)
    cg = independently(conjugate_gradients, axis)
    ways = solve_batch, independently(jnp.linalg.solve, axis), lambda a, b: cg(a, b)[0]
    with devices(shape, kind):
        for way in ways:
            x, messages = run_and_count(way, *put((a, b), axis))
            np.testing.assert_allclose(x, exact(a, b), rtol=1e-3, atol=1e-3)
            assert is_split(x, axis)
            assert messages == {}


def test_the_residual_is_that_of_numpy_and_stays_where_it_is():
    a, b = systems(8, np.complex64)
    x = b[::-1].copy()
    wanted = np.linalg.norm((a @ x[..., None])[..., 0] - b, axis=1)
    with devices():
        found, messages = run_and_count(residuals, *put((a, x, b)))
        np.testing.assert_allclose(found, wanted, rtol=1e-4)
        assert is_split(found, "batch")
        assert messages == {}


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

            (da, db), messages = run_and_count(jax.grad(loss, (0, 1)), *arrays)
            assert messages == {}
            scale = np.abs(w).max()
            np.testing.assert_allclose(db / scale, w / scale, atol=1e-3)
            outer = -w[:, :, None] * x[:, None]
            scale = np.abs(outer).max()
            np.testing.assert_allclose(da / scale, outer / scale, atol=1e-3)
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
        plain, small = (CG(*put((a, scale * b)))[1] for scale in (1, 2.0**-10))
        np.testing.assert_array_equal(plain, small)
        taken = []
        for tolerance in (1e-1, 1e-3):
            solve = partial(conjugate_gradients, tolerance=tolerance)
            x, turns = independently(solve)(*arrays)
            far = np.asarray(residuals(arrays[0], x, arrays[1]))
            assert (far <= 1.1 * tolerance * np.linalg.norm(b, axis=1)).all()
            assert (far[1:] > 1e-3 * tolerance * np.linalg.norm(b[1:], axis=1)).all()
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
    np.testing.assert_allclose(
        np.asarray(x) / scale, exact(a, b / scale), rtol=1e-3, atol=1e-3
    )
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
        one = independently(jnp.linalg.solve, shared=1)
        x = one(a[0], b)
        np.testing.assert_allclose(x, exact(a[:1], b), rtol=1e-3, atol=1e-3)
        assert is_split(x, "batch")


@pytest.mark.parametrize(
    ("a", "b", "tolerance", "complaint"),
    [
        (np.eye(3), np.ones(4), 1e-5, r"a \(3, 3\) and b \(4,\) are no system"),
        (np.eye(3), [1.0] * 3, 1e-5, "and b list are no system"),
        (np.eye(3), np.ones(3), -1.0, "a tolerance of -1.0: take a number"),
        (np.eye(3), np.ones(3), math.nan, "a tolerance of nan: take a number"),
    ],
)
def test_one_system_and_its_tolerance_are_checked(a, b, tolerance, complaint):
    with pytest.raises(ValueError, match=complaint):
        conjugate_gradients(a, b, tolerance)


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
        sizes = dict(zip("xy", shape, strict=True))
        count = math.prod(sizes[name] for name in axis)
        assert len(c) == -(-13 // count) * count
        assert is_split(c, axis)
        assert is_split(d, axis)
        np.testing.assert_array_equal(np.asarray(c)[:13], a)
        np.testing.assert_array_equal(np.asarray(d)[:13], b)
        x, turns = cg(c, d)
        assert (np.asarray(turns)[13:] == 0).all()
        for solved in map(np.asarray, (x, solve_batch(c, d))):
            np.testing.assert_allclose(solved[:13], exact(a, b), rtol=1e-3, atol=1e-3)
            assert (solved[13:] == 0).all()


def test_trees_of_arrays_are_served():
    with devices():
        [x] = put([np.arange(16, dtype=np.float32)])
        out = independently(lambda pair: {"sum": pair["a"] + pair["b"]})(
            {"a": x, "b": 2 * x}
        )
        np.testing.assert_array_equal(out["sum"], 3 * np.arange(16))


def test_every_array_must_divide_and_have_a_batch():
    a, b = systems(8)
    with devices():
        with pytest.raises(ValueError, match=r"of 7, shape \(7, 16\), .* pad it to 8"):
            LU(a, b[:7])
        with pytest.raises(ValueError, match=r"of 13, .* into 8 parts: pad it to 16"):
            LU(*systems(13))
        with pytest.raises(ValueError, match=r"shape \(\), cannot"):
            LU(a, np.float32(1))


def test_a_mesh_without_the_axis_is_refused():
    with pytest.raises(ValueError, match=r"no mesh axis \['batch'\] in context"):
        LU(*systems())
    with devices((4, 2)), pytest.raises(ValueError, match=r"no mesh axis \['z'\]"):
        pad_systems(*systems(), axis=("x", "z"))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((8, 16, 15), (8, 16)),
        ((8, 16, 16), (7, 16)),
        ((16, 16), (16,)),
        ((16, 16, 16), (16, 16, 1)),
    ],
)
def test_what_is_no_batch_of_systems_is_refused(a, b):
    a, b = np.zeros(a, np.float32), np.zeros(b, np.float32)
    with devices():
        for refused in (solve_batch, pad_systems, lambda a, b: residuals(a, b, b)):
            with pytest.raises(ValueError, match="are no batch of systems"):
                refused(a, b)
