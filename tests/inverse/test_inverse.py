import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from cases import each_refusal, each_week
from on_devices import AUTO, EXPLICIT, assert_agreed, devices, mesh_of, noise, on

from examples.communication import measure
from examples.inverse import Factors, inv, lu_solve_blocks, stages, unpack
from examples.lu import lu_factor, plan

BLOCKS = jax.P("x", "y")
NAMES = "model", "data"
pytestmark = pytest.mark.usefixtures("double")


def assert_near(found, expected, dtype=np.float64):
    scale = np.abs(expected).max(initial=1)
    eps = 1e4 * np.finfo(dtype).eps
    np.testing.assert_allclose(found, expected, rtol=0, atol=eps * scale)


# ------------------------------------------------------------------- right answers


@pytest.mark.parametrize(
    ("mesh", "kind", "n", "dtype", "trans"),
    [
        ((2, 4), EXPLICIT, 24, np.complex64, 2),
        ((3, 2), AUTO, 13, np.float32, 0),
        each_week((1, 7), AUTO, 29, np.complex128, 1),
    ],
)
def test_solutions_inverse_and_triangles_are_right(mesh, kind, n, dtype, trans):
    """Sides of a type of their own, strict promotion; the same bits on each device."""
    a = noise(n, n, dtype=dtype) + 3 * np.eye(n, dtype=dtype)[::-1]
    b = noise(n, 8, dtype=np.result_type(dtype, np.complex64), seed=1)
    with devices(mesh, kind), jax.numpy_dtype_promotion("strict"):
        factors = lu_factor(a)
        x, inverse = lu_solve_blocks(factors, b, trans), inv(factors)
        parts = unpack(factors)
        assert_agreed(x, inverse, *parts)
    assert (x.shape, x.dtype) == (b.shape, b.dtype)
    assert_near(x, np.linalg.solve([a, a.T, a.conj().T][trans], b), dtype)
    assert_near(inverse, np.linalg.inv(a), dtype)
    rows, columns, lower, upper = map(np.asarray, parts)
    eye = np.eye(len(lower))
    np.testing.assert_array_equal(lower, np.tril(lower, -1) + eye)
    np.testing.assert_array_equal(upper, np.triu(upper))
    whole = scipy.linalg.block_diag(a, eye[n:, n:])
    assert_near(lower @ upper, whole[rows][:, columns], dtype)


def test_results_lie_in_blocks_as_far_as_the_mesh_divides():
    with devices((2, 4)):
        factors, b, mesh = lu_factor(noise(24, 24)), noise(24, 8), mesh_of(2, 4)
        x, odd = lu_solve_blocks(factors, b), lu_solve_blocks(factors, b[:, :3])
        for array, spec in (x, "xy"), (inv(factors), "xy"), (odd, "x"):
            assert array.sharding.is_equivalent_to(on(mesh, *spec), 2)
        assert lu_solve_blocks(factors, b[:, :0]).shape == (24, 0)


def test_a_singular_matrix_has_no_finite_inverse_and_nan_stays_nan():
    with devices((2, 4)):
        for a in noise(8, 8) * (np.arange(8) != 5), np.full((8, 8), np.nan):
            assert not np.isfinite(inv(lu_factor(a))).all()


# -------------------------------------------------------------------- derivatives


def ours(a, b, axes=("x", "y")):
    factors = lu_factor(a, axes)
    return lu_solve_blocks(factors, b, 1), inv(factors)


def theirs(a, b):
    return jnp.linalg.solve(a.T, b), jnp.linalg.inv(a)


def test_derivatives_of_both_modes_and_second_ones_are_those_of_jax():
    """Factors without a have one by the sides."""
    a, b, da = noise(7, 7) + 3 * np.eye(7), noise(7, 3), noise(7, 7, seed=1)

    def derivatives(f):
        def loss(a, b):
            return sum((part**2).sum() for part in f(a, b))

        return jax.jit(lambda: jax.jvp(jax.grad(loss, (0, 1)), (a, b), (da, b)))()

    with devices((2, 4)):
        answer = derivatives(ours)
        alone = lu_factor(a).alone()
        slope = jax.grad(lambda b: lu_solve_blocks(alone, b).sum())(b)
    jax.tree.map(assert_near, answer, derivatives(theirs))
    assert_near(slope, np.linalg.solve(a.T, np.ones_like(b)))


# ------------------------------------------------------------- meshes of a user


@pytest.mark.parametrize(("kind", "other"), [(EXPLICIT, AUTO), (AUTO, EXPLICIT)])
def test_a_batch_has_an_axis_of_its_own_under_other_names(kind, other):
    a, b = noise(2, 8, 8), noise(2, 8, 4)
    batched = jax.vmap(functools.partial(ours, axes=NAMES), spmd_axis_name="z")
    with jax.set_mesh(jax.make_mesh((2, 2, 2), ("z", *NAMES), (other, kind, kind))):
        given = jax.device_put((a, b), (jax.P("z", *NAMES), jax.P("z")))
        found = jax.jit(batched)(*given)
        assert found[1].sharding.is_equivalent_to(given[0].sharding, 3)
    jax.tree.map(assert_near, found, jax.vmap(theirs)(a, b))


# ---------------------------------------------------------------- what it costs


def test_a_step_sends_a_panel_and_its_rows():
    """In solutions for N sides, of factors that are given."""
    n, (x, y) = 128, (2, 4)
    with devices((x, y)):
        steps, width, *_ = way = plan(n)
        a = jax.ShapeDtypeStruct((n, n), np.float32, sharding=BLOCKS)
        order = jax.ShapeDtypeStruct((steps, width), np.int32)

        def solution(held, order, b):
            return lu_solve_blocks(Factors(None, held, order, way), b)

        solve = measure(solution, a, order, a)
    windows = sum((last - i) * (steps - i) for i, last in stages(steps))
    panels = 2 * windows * width * width // x * (y - 1) // y
    rows = 2 * steps * 2 * width * (width + n // y) * (x - 1) // x
    assert solve.sent == 4 * (panels + rows)
    assert solve.counts == {"all-gather": 2 * steps, "all-reduce": 2 * steps}
    assert solve.temporaries < 4.5 * 4 * n * n / 8
    assert panels < 1.3 * (1 - 1 / y) * n * n / x


def test_a_gradient_holds_a_few_blocks_too():
    """And sends no more at a time than a panel, or its rows."""
    n = 128
    with devices((2, 4)):
        a = jax.ShapeDtypeStruct((n, n), np.float32, sharding=BLOCKS)
        slope = measure(jax.grad(lambda a: inv(lu_factor(a)).sum()), a)
        largest = 4 * 2 * plan(n).width * n
    assert slope.temporaries < 10 * 4 * n * n / 8
    assert max(step.bytes for step in slope.collectives) <= largest


# -------------------------------------------------------------- what is refused

B = np.ones((8, 8))
slope = functools.partial(jax.grad, allow_int=True)


def invert_on_another_mesh(factors):
    with devices((4, 2)):
        return inv(factors)


@each_refusal(
    (lambda f: lu_solve_blocks(B, B), "a ndarray has no factors: pass lu_factor"),
    (lambda f: inv(None), "a NoneType has no factors"),
    (lambda f: unpack(B), "a ndarray has no factors"),
    (lambda f: lu_solve_blocks(f, B[0]), r"b \(8,\) does not fit 8 equat"),
    (lambda f: lu_solve_blocks(f, B[:5]), r"pass \[8, K\]"),
    (lambda f: lu_solve_blocks(f, [[1.0]]), "b list does not fit"),
    (lambda f: lu_solve_blocks(f, B, 3), "trans is 3: pass 0, 1 or 2"),
    (lambda f: lu_solve_blocks(f, B.astype("O")), "b is object: pass"),
    (slope(lambda f: unpack(lu_factor(f.a)).upper.sum()), "no derivative"),
    (slope(lambda f: inv(lu_factor(f.a).alone()).sum()), "have no derivative"),
    (slope(lambda f: lu_solve_blocks(f, B).sum()), "LU factors have no derivative"),
    (invert_on_another_mesh, "set the mesh of the fac"),
)
def test_what_is_no_system_is_refused(call, words):
    with devices((2, 4)):
        factors = lu_factor(noise(8, 8))
        with pytest.raises(ValueError, match=words):
            call(factors)
