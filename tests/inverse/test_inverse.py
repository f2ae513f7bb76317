import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from cases import combine, each_week
from jax.sharding import AxisType
from on_devices import devices, noise

from examples.communication import measure
from examples.inverse import STAGES, Factors, inv, lu_solve_blocks, stages, unpack
from examples.lu import lu_factor, lu_slogdet, lu_solve, plan

BLOCKS = jax.P("x", "y")
EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto
NAMES = "model", "data"


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def of(a, trans):
    return [a, a.T, a.conj().T][trans]


def assert_near(found, expected, dtype=np.float64):
    scale = np.abs(expected).max(initial=1)
    eps = 1e4 * np.finfo(dtype).eps
    np.testing.assert_allclose(found, expected, rtol=0, atol=eps * scale)


# ------------------------------------------------------------------- the solutions


@pytest.mark.parametrize(
    ("mesh", "kind", "a", "sides", "trans"),
    [
        each_week((2, 4), EXPLICIT, noise(24, 24, dtype=np.complex128), 8, 0),
        ((2, 4), AUTO, noise(24, 24, dtype=np.complex64), 8, 2),
        ((3, 2), AUTO, noise(13, 13), 5, 1),
        ((1, 7), AUTO, noise(29, 29, dtype=np.float32), 1, 0),
        each_week((5, 1), EXPLICIT, noise(1, 1), 3, 2),
        each_week((1, 1), AUTO, noise(6, 6, dtype=np.float32), 2, 1),
    ],
    ids=[0, 1, 2, 3, 4, 5],
)
def test_sides_in_blocks_are_solved_for(mesh, kind, a, sides, trans):
    dtype, b = a.dtype, noise(len(a), sides, dtype=a.dtype, seed=1)
    with devices(mesh, kind):
        x = lu_solve_blocks(lu_factor(a), b, trans)
    wide = np.result_type(dtype, np.float64)
    expected = np.linalg.solve(of(a, trans).astype(wide), b)
    condition = np.linalg.cond(a)
    assert x.shape == b.shape
    assert x.dtype == dtype
    assert_near(x / condition, expected / condition, dtype)


def test_they_come_back_in_blocks_as_far_as_the_mesh_divides():
    a = noise(24, 24)
    with devices((2, 4)):
        factors = lu_factor(a)
        for sides, spec in (8, BLOCKS), (3, jax.P("x")):
            x = lu_solve_blocks(factors, noise(24, sides))
            lies = jax.NamedSharding(jax.sharding.get_mesh(), spec)
            assert x.sharding.is_equivalent_to(lies, 2)
        assert lu_solve_blocks(factors, noise(24, 0)).shape == (24, 0)


@pytest.mark.parametrize(
    ("mesh", "n"),
    combine([((2, 4), EXPLICIT), ((3, 2), AUTO)], [24, 13], strength=1),
)
def test_the_inverse_is_that_of_numpy(mesh, n):
    a = noise(n, n)
    with devices(*mesh):
        inverse = inv(lu_factor(a))
        if n == 24:
            lies = jax.NamedSharding(jax.sharding.get_mesh(), BLOCKS)
            assert inverse.sharding.is_equivalent_to(lies, 2)
    assert_near(inverse, np.linalg.inv(a))


def test_a_singular_matrix_has_no_finite_inverse_and_nan_stays_nan():
    with devices((2, 4)):
        for a in noise(24, 24) * (np.arange(24) != 5), np.full((24, 24), np.nan):
            assert not np.isfinite(inv(lu_factor(a))).all()


@pytest.mark.parametrize(
    ("mesh", "n"),
    combine([((2, 4), AUTO), ((3, 2), EXPLICIT)], [24, 13], strength=1),
)
def test_the_triangles_multiply_to_the_matrix(mesh, n):
    a = noise(n, n, dtype=np.complex128)
    with devices(*mesh):
        rows, columns, *pair = map(np.asarray, unpack(lu_factor(a)))
    lower, upper = pair
    np.testing.assert_array_equal(lower, np.tril(lower))
    np.testing.assert_array_equal(np.diagonal(lower), 1)
    np.testing.assert_array_equal(upper, np.triu(upper))
    whole = scipy.linalg.block_diag(a, np.eye(len(rows) - n))
    assert_near(lower @ upper, whole[rows][:, columns])


# -------------------------------------------------------------------- derivatives


@pytest.mark.parametrize(
    ("mesh", "kind", "trans"), [((2, 4), EXPLICIT, 0), ((3, 2), AUTO, 1)]
)
def test_derivatives_of_both_modes_and_second_ones_are_those_of_jax(mesh, kind, trans):
    a, b, da = noise(7, 7) + 3 * np.eye(7), noise(7, 3), noise(7, 7, seed=1)

    def ours(a, b):
        factors = lu_factor(a)
        return (lu_solve_blocks(factors, b, trans) ** 2).sum() + inv(factors)[0, 1]

    def theirs(a, b):
        x = jnp.linalg.solve(a.T if trans else a, b)
        return (x**2).sum() + jnp.linalg.inv(a)[0, 1]

    def derivatives(f):
        slopes = jax.grad(f, (0, 1))
        return jax.jit(lambda a, b: jax.jvp(slopes, (a, b), (da, b)))

    expected = derivatives(theirs)(a, b)
    with devices(mesh, kind):
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


# ------------------------------------------------------------------- the same bits


@pytest.mark.parametrize(("mesh", "kind"), [((2, 4), EXPLICIT), ((3, 2), AUTO)])
def test_devices_that_hold_the_same_part_hold_the_same_bits(mesh, kind):
    """JAX does not check it of what `shard_map` returns: `check_vma` is off."""

    def everything(a, b):
        factors = lu_factor(a)
        return factors, lu_solve(factors, b), lu_slogdet(factors), inv(factors)

    with devices(mesh, kind):
        found = jax.jit(everything)(noise(29, 29), noise(29, 2))
        copies = 0
        for array in jax.tree.leaves(found):
            parts = {}
            for shard in array.addressable_shards:
                bits = np.asarray(shard.data).tobytes()
                copies += str(shard.index) in parts
                assert parts.setdefault(str(shard.index), bits) == bits
        # the order, the solution, sign, logarithm and what no mesh divides
        assert copies >= 5 * (mesh[0] * mesh[1] - 1)


# ---------------------------------------------------------------- what it costs


@functools.cache
def measured(mesh, n):
    """Measure solutions for N sides, of factors that are given."""
    with devices(mesh):
        way = plan(n)
        a = jax.ShapeDtypeStruct((n, n), np.float32, sharding=BLOCKS)
        order = jax.ShapeDtypeStruct(way[:2], np.int32)

        def solution(held, order, b):
            return lu_solve_blocks(Factors(None, held, order, way), b)

        return measure(solution, a, order, a), way


@pytest.mark.parametrize(
    ("mesh", "n"), [((2, 4), 128), each_week((2, 4), 512), ((4, 2), 128)]
)
def test_a_step_sends_a_panel_and_its_rows(mesh, n):
    (x, y), (solve, (steps, width, *_)) = mesh, measured(mesh, n)
    assert solve.temporaries < 4.5 * 4 * n * n / 8
    windows = sum((last - i) * (steps - i) for i, last in stages(steps))
    panels = 2 * windows * width * width // x * (y - 1) // y
    rows = 2 * steps * 2 * width * (width + n // y) * (x - 1) // x
    assert solve.sent == 4 * (panels + rows)
    assert solve.counts == {"all-gather": 2 * steps, "all-reduce": 2 * steps}
    assert len(stages(steps)) == STAGES
    assert panels < 1.3 * (1 - 1 / y) * n * n / x


@pytest.mark.parametrize("n", [128, each_week(256)])
def test_a_gradient_holds_a_few_blocks_too(n):
    """And sends no more at a time than a panel, or its rows."""
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


def test_strict_promotion_and_arrays_of_numpy_are_served():
    a, b = noise(13, 13, dtype=np.float32), noise(13, 2, dtype=np.complex64)
    with jax.numpy_dtype_promotion("strict"), devices((2, 4)):
        x = lu_solve_blocks(lu_factor(a), b)
    assert x.dtype == np.complex64
    assert_near(x, np.linalg.solve(a, b), np.float32)
