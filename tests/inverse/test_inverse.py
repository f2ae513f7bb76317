import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.sharding import AxisType
from on_devices import assert_agreed, devices, noise

from examples.communication import measure
from examples.inverse import STAGES, Factors, inv, lu_solve_blocks, stages, unpack
from examples.lu import lu_factor, plan

BLOCKS = jax.P("x", "y")
EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto
NAMES = "model", "data"


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def assert_near(found, expected, dtype=np.float64):
    scale = np.abs(expected).max(initial=1)
    eps = 1e4 * np.finfo(dtype).eps
    np.testing.assert_allclose(found, expected, rtol=0, atol=eps * scale)


# ------------------------------------------------------------------- the solutions


@pytest.mark.parametrize(
    ("mesh", "kind", "a", "sides", "trans"),
    [
        ((2, 4), EXPLICIT, noise(24, 24, dtype=np.complex64), 8, 2),
        ((1, 7), AUTO, noise(29, 29, dtype=np.float32), 1, 0),
    ],
)
def test_sides_in_blocks_are_solved_for(mesh, kind, a, sides, trans):
    """Sides of a type of their own, under strict promotion."""
    b = noise(len(a), sides, dtype=np.result_type(a, np.complex64), seed=1)
    with devices(mesh, kind), jax.numpy_dtype_promotion("strict"):
        x = lu_solve_blocks(lu_factor(a), b, trans)
        assert_agreed(x)
        if mesh == (2, 4):
            lies = jax.NamedSharding(jax.sharding.get_mesh(), BLOCKS)
            assert x.sharding.is_equivalent_to(lies, 2)
    wide = np.result_type(a, np.float64)
    turned = [a, a.T, a.conj().T][trans]
    expected = np.linalg.solve(turned.astype(wide), b)
    condition = np.linalg.cond(a)
    assert (x.shape, x.dtype) == (b.shape, b.dtype)
    assert_near(x / condition, expected / condition, a.dtype)


def test_they_come_back_in_blocks_as_far_as_the_mesh_divides():
    with devices((2, 4)):
        factors = lu_factor(noise(24, 24))
        x = lu_solve_blocks(factors, noise(24, 3))
        lies = jax.NamedSharding(jax.sharding.get_mesh(), jax.P("x"))
        assert x.sharding.is_equivalent_to(lies, 2)
        assert lu_solve_blocks(factors, noise(24, 0)).shape == (24, 0)


@pytest.mark.parametrize(
    ("mesh", "kind", "n", "dtype"),
    [((2, 4), EXPLICIT, 24, np.float64), ((3, 2), AUTO, 13, np.complex128)],
)
def test_inverse_and_triangles_are_those_of_the_matrix(mesh, kind, n, dtype):
    """On each device with the same bits, which JAX does not check."""
    a = noise(n, n, dtype=dtype)
    with devices(mesh, kind):
        factors = lu_factor(a)
        inverse, parts = inv(factors), unpack(factors)
        assert_agreed(inverse, *parts)
        if n == 24:
            lies = jax.NamedSharding(jax.sharding.get_mesh(), BLOCKS)
            assert inverse.sharding.is_equivalent_to(lies, 2)
    assert_near(inverse, np.linalg.inv(a))
    rows, columns, lower, upper = map(np.asarray, parts)
    np.testing.assert_array_equal(lower, np.tril(lower))
    np.testing.assert_array_equal(np.diagonal(lower), 1)
    np.testing.assert_array_equal(upper, np.triu(upper))
    whole = scipy.linalg.block_diag(a, np.eye(len(rows) - n))
    assert_near(lower @ upper, whole[rows][:, columns])


def test_a_singular_matrix_has_no_finite_inverse_and_nan_stays_nan():
    with devices((2, 4)):
        for a in noise(24, 24) * (np.arange(24) != 5), np.full((24, 24), np.nan):
            assert not np.isfinite(inv(lu_factor(a))).all()


# -------------------------------------------------------------------- derivatives


def test_derivatives_of_both_modes_and_second_ones_are_those_of_jax():
    a, b, da = noise(7, 7) + 3 * np.eye(7), noise(7, 3), noise(7, 7, seed=1)

    def ours(a, b):
        factors = lu_factor(a)
        return (lu_solve_blocks(factors, b, 1) ** 2).sum() + inv(factors)[0, 1]

    def theirs(a, b):
        x = jnp.linalg.solve(a.T, b)
        return (x**2).sum() + jnp.linalg.inv(a)[0, 1]

    def derivatives(f):
        slopes = jax.grad(f, (0, 1))
        return jax.jit(lambda a, b: jax.jvp(slopes, (a, b), (da, b)))

    expected = derivatives(theirs)(a, b)
    with devices((2, 4)):
        answer = derivatives(ours)(a, b)
    for mine, wanted in zip(*map(jax.tree.leaves, (answer, expected)), strict=True):
        assert_near(mine, wanted)


def test_what_has_no_derivative_says_so():
    a, b = noise(8, 8), noise(8, 8)
    with devices((2, 4)):
        factors = lu_factor(a)
        alone = factors.alone()
        for call, x in [
            (lambda a: unpack(lu_factor(a)).upper.sum(), a),
            (lambda a: inv(lu_factor(a).alone()).sum(), a),
            (lambda f: lu_solve_blocks(f, b).sum(), factors),
        ]:
            with pytest.raises(ValueError, match="LU factors have no derivative"):
                jax.grad(call, allow_int=True)(x)
        slope = jax.grad(lambda b: lu_solve_blocks(alone, b).sum())(b)
    assert_near(slope, np.linalg.solve(a.T, np.ones_like(b)))


# ------------------------------------------------------------- meshes of a user


@pytest.mark.parametrize(("kind", "other"), [(EXPLICIT, AUTO), (AUTO, EXPLICIT)])
def test_a_batch_has_an_axis_of_its_own_under_other_names(kind, other):
    a, b = noise(2, 8, 8), noise(2, 8, 4)

    def both(a, b):
        factors = lu_factor(a, NAMES)
        return lu_solve_blocks(factors, b, 1), inv(factors)

    with jax.set_mesh(jax.make_mesh((2, 2, 2), ("z", *NAMES), (other, kind, kind))):
        mine = jax.device_put(a, jax.P("z", *NAMES))
        sides = jax.device_put(b, jax.P("z"))
        x, inverse = jax.jit(jax.vmap(both, spmd_axis_name="z"))(mine, sides)
        assert inverse.sharding.is_equivalent_to(mine.sharding, 3)
    assert_near(x, np.linalg.solve(a.swapaxes(1, 2), b))
    assert_near(inverse, np.linalg.inv(a))


# ---------------------------------------------------------------- what it costs


def test_a_step_sends_a_panel_and_its_rows():
    """In solutions for N sides, of factors that are given."""
    n, (x, y) = 128, (2, 4)
    with devices((x, y)):
        way = plan(n)
        a = jax.ShapeDtypeStruct((n, n), np.float32, sharding=BLOCKS)
        order = jax.ShapeDtypeStruct(way[:2], np.int32)

        def solution(held, order, b):
            return lu_solve_blocks(Factors(None, held, order, way), b)

        solve = measure(solution, a, order, a)
    assert solve.temporaries < 4.5 * 4 * n * n / 8
    steps, width, *_ = way
    windows = sum((last - i) * (steps - i) for i, last in stages(steps))
    panels = 2 * windows * width * width // x * (y - 1) // y
    rows = 2 * steps * 2 * width * (width + n // y) * (x - 1) // x
    assert solve.sent == 4 * (panels + rows)
    assert solve.counts == {"all-gather": 2 * steps, "all-reduce": 2 * steps}
    assert len(stages(steps)) == STAGES
    assert panels < 1.3 * (1 - 1 / y) * n * n / x


def test_a_gradient_holds_a_few_blocks_too():
    """And sends no more at a time than a panel, or its rows."""
    n = 128
    with devices((2, 4)):
        a = jax.ShapeDtypeStruct((n, n), np.float32, sharding=BLOCKS)
        slope = measure(jax.grad(lambda a: inv(lu_factor(a)).sum()), a)
        width = plan(n).width
    assert slope.temporaries < 10 * 4 * n * n / 8
    assert all(step.bytes <= 4 * 2 * width * n for step in slope.collectives)


# -------------------------------------------------------------- what is refused


def test_what_is_no_system_is_refused():
    with devices((2, 4)):
        factors, b = lu_factor(noise(8, 8)), noise(8, 8)
        for call, complaint in [
            (lambda: lu_solve_blocks(b, b), "a ndarray has no factors: pass lu_factor"),
            (lambda: inv(None), "a NoneType has no factors"),
            (lambda: unpack(b), "a ndarray has no factors"),
            (lambda: lu_solve_blocks(factors, b[0]), r"b \(8,\) does not fit 8 equat"),
            (lambda: lu_solve_blocks(factors, b[:5]), r"pass \[8, K\]"),
            (lambda: lu_solve_blocks(factors, [[1.0]]), "b list does not fit"),
            (lambda: lu_solve_blocks(factors, b, 3), "trans is 3: pass 0, 1 or 2"),
            (lambda: lu_solve_blocks(factors, b.astype("O")), "b is object: pass"),
        ]:
            with pytest.raises(ValueError, match=complaint):
                call()
    for other in (4, 2), (1, 1):
        with devices(other), pytest.raises(ValueError, match="set the mesh of the fac"):
            inv(factors)
