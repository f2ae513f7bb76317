import functools
import itertools
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from cases import each_week
from jax.sharding import AxisType
from on_devices import assert_agreed, devices, noise

from examples import lu
from examples.communication import measure
from examples.lu import lu_factor, lu_slogdet, lu_solve, slogdet, solve

BLOCKS = jax.P("x", "y")
KINDS = [AxisType.Explicit, AxisType.Auto]


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def distribute(a):
    """Lay a matrix out in blocks, if the mesh divides it."""
    sizes = jax.sharding.get_abstract_mesh().shape
    divides = len(a) % math.lcm(sizes["x"], sizes["y"]) == 0
    return jax.device_put(a, BLOCKS if divides else jax.P())


def columns(n):
    return np.asarray(lu.elimination_order(n, "y")).ravel()


def triangles(factors):
    """Return the numbers of rows and columns, L and U, all in order of elimination."""
    steps, sizes = len(factors.permutation), jax.sharding.get_abstract_mesh().shape
    places = np.arange(factors.permutation.size)
    row, column = (
        places.reshape(sizes[axis], steps, -1).swapaxes(0, 1).ravel() for axis in "xy"
    )
    packed = np.asarray(factors.lu)[row][:, column]
    lower = np.tril(packed, -1) + np.eye(len(packed), dtype=packed.dtype)
    rows = np.asarray(factors.permutation).ravel()
    return rows, columns(factors.plan.n), lower, np.triu(packed)


def with_identity(a, size):
    """Return a, and an identity below and beside it."""
    return scipy.linalg.block_diag(a, np.eye(size - len(a)))


def scaled_residual(a, x, b):
    """Return the residual as HPL, the benchmark, states it; below 16 is a pass."""
    both = np.result_type(a, b, np.float64)
    a, x, b = (np.asarray(array, both) for array in (a, x, b))
    residual, *sizes = (np.linalg.norm(v, np.inf) for v in (a @ x - b, a, x, b))
    return residual / (len(a) * (sizes[0] * sizes[1] + sizes[2]))


def assert_solved(a, x, b):
    assert scaled_residual(a, x, b) < 16 * np.finfo(float).eps


# ------------------------------------------------------------------- the factors


@pytest.mark.parametrize(
    ("mesh", "kind", "n", "dtype"),
    [
        ((2, 4), KINDS[0], 24, np.complex128),
        ((3, 2), KINDS[1], 22, np.float64),  # which fills no blocks
        ((8, 1), KINDS[0], 24, np.float64),  # which fills no panels
    ],
)
def test_factors_multiply_to_a_and_solve_its_equations(mesh, kind, n, dtype):
    """In the order of elimination; with strict promotion, and sides of another type."""
    a, b = noise(n, n, dtype=dtype), noise(n, 8, dtype=np.complex128)
    with devices(mesh, kind), jax.numpy_dtype_promotion("strict"):
        factors = lu_factor(distribute(a))
        rows, cols, lower, upper = triangles(factors)
        assert sorted(rows) == sorted(cols) == list(range(factors.permutation.size))
        whole = with_identity(a, len(rows))
        np.testing.assert_allclose(lower @ upper, whole[rows][:, cols], atol=1e-12)
        assert np.abs(lower).max() < 8
        assert factors.lu.sharding.is_equivalent_to(distribute(whole).sharding, 2)
        assert factors.permutation.sharding.is_fully_replicated
        if mesh != (8, 1):
            x = solve(distribute(a), jax.device_put(b, BLOCKS if n == 24 else jax.P()))
            assert_solved(a, x, b)
            assert_agreed(factors.lu, factors.permutation, x)
            assert x.sharding.is_fully_replicated
        if mesh == (2, 4):
            for trans, matrix in enumerate([a, a.T, a.conj().T]):
                assert_solved(matrix, lu_solve(factors, b, trans), b)


def test_pivots_are_those_of_lapack_where_no_axis_splits_the_rows():
    with devices((1, 8)):
        a = noise(72, 72)  # two tiles
        rows, cols, lower, upper = triangles(lu_factor(distribute(a)))
        whole = with_identity(a, len(rows))[:, cols]
        packed, swaps = scipy.linalg.lu_factor(whole)
    expected = np.arange(len(rows))
    for i, j in enumerate(swaps):
        expected[[i, j]] = expected[[j, i]]
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_allclose(np.tril(lower, -1) + upper, packed, atol=1e-12)


def test_every_block_takes_part_in_every_step():
    """Column c of block y comes in step c // (width / Y), on a mesh that divides."""
    with devices((2, 4)):
        assert lu.plan(64)[:2] == (16, 4)
        order = np.asarray(lu.elimination_order(64, "y"))
        assert [sorted(strip // 16) for strip in order] == [[0, 1, 2, 3]] * 16
        np.testing.assert_array_equal(order % 16, np.indices((16, 4))[0])


# ------------------------------------------------------------------ the solutions


N = 72  # with several windows


def wilkinson(n):
    a = np.eye(n) - np.tril(np.ones((n, n)), -1)
    a[:, -1] = 1
    return a


SCALES = 10 ** np.random.default_rng(3).uniform(-20, 20, N)
ZOO = {
    "rows scaled badly": SCALES[:, None] * noise(N, N),
    "columns scaled badly": SCALES * noise(N, N),
    "Hilbert": scipy.linalg.hilbert(N),
    "Vandermonde": np.vander(np.linspace(0.1, 1, N)),
    "Wilkinson": wilkinson(N),
    "Wilkinson transposed": wilkinson(N).T.copy(),
    "half the rank": noise(N, N // 2) @ noise(N // 2, N, seed=1),
    "permuted identity": np.eye(N)[np.random.default_rng(4).permutation(N)],
    "two blocks": np.kron([[0, 1], [1, 0]], noise(N // 2, N // 2)),
    "tridiagonal": np.eye(N, k=1) - 2 * np.eye(N) + np.eye(N, k=-1),
    "tiny numbers": 1e-290 * noise(N, N),
    "huge numbers": 1e290 * noise(N, N),
}


def test_every_kind_of_matrix_is_factored_and_solved_as_by_lapack():
    """Element by element, in units of rounding: Higham's bound for any LU."""
    b = noise(N, seed=5)
    for name, a in ZOO.items():
        with devices((4, 2)):
            rows, cols, lower, upper = triangles(lu_factor(distribute(a)))
            x = solve(distribute(a), b)
        assert scaled_residual(a, x, b) < 1e-15, name  # far below 16 eps
        whole = with_identity(a, len(rows))[:, cols]
        error = np.abs(lower @ upper - whole[rows])
        sizes = np.abs(lower) @ np.abs(upper)
        assert (error <= N * np.finfo(float).eps * sizes).all(), name
        lapack = np.triu(scipy.linalg.lu_factor(whole)[0])
        assert np.abs(upper).max() <= 3 * np.abs(lapack).max(), name


# ------------------------------------------------------- what is hard to solve well


SIZE = 130  # whose blocks and panels have to be filled up on most of the meshes


@functools.cache
def order_on(mesh):
    """Return the columns as they are eliminated, without those that fill up."""
    order = columns(SIZE)
    return order[order < SIZE]


def nearly_equal(a, random, eps):
    """Make each odd column that before it, but for noise that rounding could be."""
    a[:, 1::2] = a[:, ::2] + np.sqrt(eps) * random(SIZE, SIZE // 2)
    return a


def one_pair(a, random, eps):
    """Put two nearly equal columns where a panel has its second step."""
    first, second = columns(SIZE)[:2]
    a[:, second] = a[:, first] + np.sqrt(eps) * random(SIZE)
    return a


def hard(seed, dtype):
    """Yield names and matrices of which rounding can leave nothing."""
    numbers, eps = itertools.count(100 * seed), np.finfo(dtype).eps
    permutation = np.random.default_rng(seed).permutation(SIZE)

    def random(*shape):
        return noise(*shape, dtype=np.result_type(dtype, float), seed=next(numbers))

    a, scales = random(SIZE, SIZE), 10 ** np.random.default_rng(3).uniform(-1, 1, SIZE)
    yield "adjacent", nearly_equal(a.copy(), random, eps)
    yield "shuffled", nearly_equal(a.copy(), random, eps)[:, permutation]
    yield "far apart", nearly_equal(a.copy(), random, 1e-6 if eps < 1e-9 else 1e-4)
    yield "one pair", one_pair(a.copy(), random, eps)
    pairs = np.kron(random(SIZE // 2, SIZE // 2), np.ones((2, 2)))
    yield "twice", pairs + np.sqrt(eps) * random(SIZE, SIZE)
    yield "rows", scales[:, None] * a
    yield "columns", scales * a
    for size in 5, SIZE // 2:
        late = np.arange(SIZE) >= size
        zeros = late[:, None] | late
        yield f"{size} zeros", zeros * a
        yield f"{size} zeros last", zeros[::-1, ::-1] * a
    growing = scipy.linalg.block_diag(wilkinson(24), a[24:, 24:])
    ours = order_on(jax.sharding.get_abstract_mesh())
    yield "Wilkinson", growing[:, np.argsort(ours)]


def lapack(a, b):
    """Solve by partial pivoting in the precision of a, with its columns in six orders.

    Between orders of one matrix the error differs by more than 10: one may be lucky.
    """
    found, shuffle = [], np.random.default_rng(0).permutation
    ours = order_on(jax.sharding.get_abstract_mesh())
    orders = [np.arange(SIZE), ours, np.arange(SIZE)[::-1]]
    for order in [*orders, *(shuffle(SIZE) for _ in range(3))]:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            factors = scipy.linalg.lu_factor(a[:, order])
            x = scipy.linalg.lu_solve(factors, b, check_finite=False)
        found.append(x[np.argsort(order)])
    return found


def by_kind(dtype):
    """Yield each kind of matrix with its matrices, one for each of three seeds."""
    zoos = [dict(hard(seed, dtype)) for seed in range(3)]
    for kind in zoos[0]:
        yield kind, [zoo[kind].astype(dtype) for zoo in zoos]


def known(a, seed):
    """Return a x, of the type of a, and the x that was known before."""
    x = noise(SIZE, dtype=a.dtype, seed=77 + seed)
    return (a.astype(np.result_type(a, np.longdouble)) @ x).astype(a.dtype), x


@pytest.mark.parametrize(
    ("mesh", "dtype"),
    [
        ((2, 4), np.complex64),
        each_week((3, 2), np.float64),
        each_week((8, 1), np.complex128),
    ],
)
def test_hard_systems_are_solved_as_well_as_by_lapack(mesh, dtype):
    """The residual in HPL's scale and the error: the worst of three, for each kind."""
    eps, wrong = np.finfo(dtype).eps, []
    with devices(mesh):
        for kind, matrices in by_kind(dtype):
            residuals, errors = [], []
            for seed, a in enumerate(matrices):
                b, x = known(a, seed)
                both = np.asarray(solve(a, b)), *lapack(a, b)
                residuals.append([scaled_residual(a, y, b) / eps for y in both])
                if np.linalg.cond(a.astype(np.result_type(a, 1.0))) * eps < 0.01:
                    errors.append([np.abs(y - x).max() for y in both])
            ours, *theirs = np.nan_to_num(np.max(residuals, axis=0), nan=np.inf)
            theirs = max(theirs)
            if not (ours <= max(4 * theirs, 0.5) and (ours < 16 or theirs >= 16)):
                wrong.append(f"{kind}: residual {ours:.2g}, LAPACK's {theirs:.2g}")
            ours, *theirs = np.max(errors or [[0, 0]], axis=0)
            theirs = max(theirs)
            if not ours <= 10 * theirs + SIZE * eps * np.abs(x).max():
                wrong.append(f"{kind}: error {ours:.2g}, LAPACK's {theirs:.2g}")
    assert not wrong


def test_a_larger_one_in_single_precision_is_refined():
    n = 640
    a, b = noise(n, n, dtype=np.float32), noise(n, 3, dtype=np.float32, seed=5)
    with devices((2, 4)):
        assert lu.plan(n)[1] > lu.STRIP
        once, twice = (solve(distribute(a), b, refine=refine) for refine in (0, 1))
    theirs = scaled_residual(a, scipy.linalg.solve(a, b), b)
    assert scaled_residual(a, once, b) < 4 * theirs
    assert scaled_residual(a, twice, b) < scaled_residual(a, once, b) / 2


@pytest.mark.parametrize("n", [7, 64])
def test_parity_is_the_determinant_of_a_permutation(n):
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(n)
        assert lu.parity(jnp.asarray(order)) == round(np.linalg.det(np.eye(n)[order]))


# --------------------------------------------------------------- what is singular


def test_a_singular_matrix_has_finite_factors_and_no_solution():
    matrices = [
        np.zeros((24, 24)),
        np.ones((24, 24)),
        noise(24, 24) * (np.arange(24) != 12),
        noise(24, 24) * (np.arange(24) != 5),  # not in the last step
        np.full((24, 24), np.nan),
    ]
    with devices((4, 2)):
        for a in matrices:
            assert not np.isfinite(solve(distribute(a), np.ones(24))).all()
            wanted = [np.nan, np.nan] if np.isnan(a).any() else [0, -np.inf]
            found = slogdet(distribute(a))
            np.testing.assert_array_equal(found, wanted)
            assert_agreed(*found)
            if np.isfinite(a).all():
                rows, cols, lower, upper = triangles(lu_factor(distribute(a)))
                whole = with_identity(a, len(rows))[rows][:, cols]
                np.testing.assert_allclose(lower @ upper, whole, atol=1e-13)


# -------------------------------------------------------------------- derivatives


def test_derivatives_of_both_modes_are_those_of_numpy():
    a, da = (noise(24, 24, dtype=np.complex128, seed=seed) for seed in (0, 1))
    b, db = (noise(24, dtype=np.complex128, seed=seed) for seed in (0, 2))
    x = np.linalg.solve(a, b)
    with devices((3, 2), KINDS[1]):
        mine = distribute(a)

        @jax.jit
        def both_modes(a, b, *ways):
            y, push = jax.linearize(solve, a, b)

            def half(*ways):  # whose gradient is that of half the sum of y^2
                dx = push(*ways)
                return (dx * y).sum().real, dx

            back, dx = jax.grad(half, (0, 1), has_aux=True)(*ways)
            return y, dx, back

        y, dx, back = both_modes(mine, jnp.asarray(b), distribute(da), db)
        np.testing.assert_allclose(y, x, rtol=1e-10)
        np.testing.assert_allclose(dx, np.linalg.solve(a, db - da @ x), rtol=1e-9)
        to_a, to_b = back
        w = np.linalg.solve(a.T, x)
        np.testing.assert_allclose(to_b, w, rtol=1e-9)
        np.testing.assert_allclose(to_a, -np.outer(w, x), rtol=1e-9)
        assert to_a.sharding.is_equivalent_to(mine.sharding, 2)


def test_the_derivative_of_a_determinant_is_the_inverse():
    """A complex one, of odd size; a real one is in the fuzz target."""
    a, da = (noise(13, 13, dtype=np.complex128, seed=seed) for seed in (0, 1))
    expected = np.trace(np.linalg.solve(a, da))

    @jax.jit
    def both_modes(a, da):
        to_a = jax.grad(lu.det, holomorphic=True)(a)
        return *jax.jvp(slogdet, (a,), (da,)), to_a

    with devices((3, 2), KINDS[1]):
        (sign, _), (turn, rise), to_a = both_modes(distribute(a), distribute(da))
    np.testing.assert_allclose(rise, expected.real, rtol=1e-9)
    np.testing.assert_allclose(turn / sign, 1j * expected.imag, atol=1e-9)
    slopes = np.linalg.det(a) * np.linalg.inv(a).T
    np.testing.assert_allclose(to_a, slopes, atol=1e-10 * np.abs(slopes).max())


def test_a_derivative_that_is_not_there_is_refused():
    a, b = noise(8, 8), noise(8)

    def of_a_factor(a):
        return lu_factor(a).lu.sum()

    def of_factors_without_a(a):
        return lu_solve(lu_factor(a).alone(), b).sum()

    with devices((2, 4)):
        for loss in of_a_factor, of_factors_without_a:
            with pytest.raises(ValueError, match="LU factors have no derivative"):
                jax.jit(jax.grad(loss))(a)
            with pytest.raises(ValueError, match=r"lax\.stop_gradient"):
                jax.jvp(loss, (a,), (a,))
        factors = lu_factor(a)
        for loss in lambda f: lu_solve(f, b).sum(), lambda f: lu_slogdet(f)[1]:
            with pytest.raises(ValueError, match="LU factors have no derivative"):
                jax.grad(loss, allow_int=True)(factors)


def test_one_set_of_factors_has_derivatives_of_both_modes_and_second_ones():
    """A likelihood takes its solutions and its determinant from the same factors."""
    a, b, da = noise(9, 9) + 3 * np.eye(9), noise(9, 2), noise(9, 9, seed=1)

    def ours(a, b):
        factors = lu_factor(a)
        x, y = lu_solve(factors, b), lu_solve(factors, b, 1)
        return (x * jnp.cos(y)).sum() + lu_slogdet(factors)[1]

    def theirs(a, b):
        x, y = jnp.linalg.solve(a, b), jnp.linalg.solve(a.T, b)
        return (x * jnp.cos(y)).sum() + jnp.linalg.slogdet(a)[1]

    def derivatives(f):
        slopes = jax.grad(f, (0, 1))
        return jax.jit(lambda a, b: jax.jvp(slopes, (a, b), (da, b)))(a, b)

    expected = derivatives(theirs)
    with devices((2, 4)):
        answer = derivatives(ours)
    for mine, wanted in zip(*map(jax.tree.leaves, (answer, expected)), strict=True):
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(mine, wanted, atol=1e-10 * scale)


def test_what_the_factors_serve_is_one_factorisation():
    """Eager too: a factor is not made again for a derivative."""
    a = jax.ShapeDtypeStruct((64, 64), np.float64, sharding=BLOCKS)
    b = jax.ShapeDtypeStruct((64,), np.float64)

    def ours(a, b):
        factors = lu_factor(a)
        return (lu_solve(factors, b) ** 2).sum() + lu_solve(factors, b, 1).sum()

    with devices((4, 2)):
        steps, *_ = lu.plan(64)
        program = measure(jax.grad(ours), a, b)
    assert 3 * steps <= program.counts["all-gather"] <= 3 * steps + 4


# ------------------------------------------------------------- meshes of a user


NAMES = "model", "data"


def users_mesh(kind, other):
    """A mesh of 2 x 2 with other names, between which lies an axis of another use."""
    kinds = kind, other, kind
    return jax.set_mesh(jax.make_mesh((2, 2, 2), ("model", "batch", "data"), kinds))


def loss(a, b):
    """Return a number for a gradient, and what it is made of."""
    factors = lu_factor(a, NAMES)
    x, logarithm = lu_solve(factors, b), lu_slogdet(factors)[1]
    return (x**2).sum() + logarithm, (x, logarithm)


@pytest.mark.parametrize(("kind", "other"), [KINDS, KINDS[::-1]])
def test_a_batch_lies_along_an_axis_of_its_own(kind, other):
    """An Auto one sends nothing along it, an Explicit one panels, but no matrix."""
    a, b = noise(2, 16, 16), noise(2, 16)
    turned = np.linalg.inv(a).swapaxes(1, 2)
    x = np.linalg.solve(a, b[..., None])[..., 0]
    slopes = turned - turned @ (2 * x[..., None]) * x[:, None]
    with users_mesh(kind, other):
        mine = jax.device_put(a, jax.P("batch", *NAMES))
        side = jax.device_put(b, jax.P("batch"))
        one = jax.value_and_grad(loss, has_aux=True)
        each = jax.jit(jax.vmap(one, spmd_axis_name="batch"))
        program = each.lower(mine, side).compile()
        (_, values), found = program(mine, side)
        assert found.sharding.is_equivalent_to(mine.sharding, 3)
        assert values[0].sharding.spec[0] == "batch"  # Auto axes may split it, too
        sent = measure(program).collectives
    along = [step.bytes for step in sent if "batch" in step.axes]
    assert max(along, default=0) <= (0 if other is AxisType.Auto else 8 * 16 * 5)
    np.testing.assert_allclose(values[0], x, rtol=1e-10)
    np.testing.assert_allclose(values[1], np.linalg.slogdet(a)[1], rtol=1e-10)
    np.testing.assert_allclose(found, slopes, atol=1e-10 * np.abs(slopes).max())


@pytest.mark.parametrize(
    ("axes", "kinds"), [((None, 0), KINDS), ((0, None), KINDS[::-1])]
)
def test_a_batch_may_be_of_sides_or_of_matrices_alone(axes, kinds):
    a, b = noise(2, 8, 8), noise(2, 8)
    matrices, sides = a if axes[0] == 0 else a[0], b if axes[1] == 0 else b[0]
    with users_mesh(*kinds):
        one = functools.partial(solve, axes=NAMES)
        each = jax.vmap(one, axes, spmd_axis_name="batch")
        x = jax.jit(each)(matrices, sides)
        assert lu.cost(lu_factor, jnp.asarray(a[0]), axes=NAMES).parts["panels"]
    expected = np.linalg.solve(matrices, sides[..., None])[..., 0]
    np.testing.assert_allclose(x, expected, rtol=1e-9)


def test_axes_that_are_not_two_or_not_free_are_refused():
    a = jnp.eye(8)
    for f in lu_factor, slogdet, lambda a: solve(a, a[0]):
        with pytest.raises(ValueError, match=r"no mesh axis \['x', 'y'\] in context"):
            f(a)
        with devices((8,)), pytest.raises(ValueError, match=r"axis \['y'\] in context"):
            f(a)
    for kind in KINDS:  # on Auto axes they would be taken for factors of this mesh
        with devices((2, 4), kind):
            factors = lu_factor(a)
        for shape in (4, 2), (2, 2):
            with devices(shape, kind), pytest.raises(ValueError, match="on a mesh of"):
                lu_solve(factors, a[0])
    with devices((2, 4)):
        for axes in ("x",), ("x", "x"), ("x", "y", "z"):
            with pytest.raises(ValueError, match="pass the names of two axes"):
                lu_factor(a, axes)
        with pytest.raises(ValueError, match=r"no mesh axis \['model', 'data'\]"):
            solve(a, a[0], axes=NAMES)
        inside = jax.shard_map(lu.det, in_specs=jax.P(), out_specs=jax.P())
        with pytest.raises(ValueError, match="call this outside of it"):
            inside(a)


def test_a_shard_map_over_other_axes_may_be_around_it():
    a = noise(2, 8, 8)
    with users_mesh(KINDS[1], KINDS[1]):
        around = jax.shard_map(
            lambda a: slogdet(a[0], NAMES)[1][None],
            in_specs=jax.P("batch"),
            out_specs=jax.P("batch"),
            axis_names={"batch"},
            check_vma=False,
        )
        found = jax.jit(around)(a)
    np.testing.assert_allclose(found, np.linalg.slogdet(a)[1], rtol=1e-10)


# ------------------------------------------------------------- what factors tell


def test_the_first_zero_pivot_has_the_number_of_its_column():
    with devices((2, 4)):
        order = [column for column in columns(13) if column < 13]
        for bad in ([], [order[4]], [order[9], order[2]]):
            a = noise(13, 13)
            a[:, bad] = 0
            first = min(bad, key=order.index, default=-1)
            assert lu.first_zero_pivot(lu_factor(a)) == first
        assert lu.first_zero_pivot(lu_factor(np.full((13, 13), np.nan))) == order[0]


@pytest.mark.parametrize(
    ("mesh", "n"), [(((2, 4), KINDS[0]), 13), (((3, 2), KINDS[1]), 32)]
)
def test_nan_reaches_no_column_before_its_own(mesh, n):
    """In the order of elimination, and by panels; those before are as without it."""
    with devices(*mesh):
        plan = lu.plan(n)
        order = lu.order_of(plan, 1).ravel().tolist()
        diagonal = jax.jit(lambda held: lu.diagonal(held, plan))
        for row, column in (3, 7), (n - 1, order[2 * plan.width % n]):
            a = noise(n, n)
            before = order.index(column) // plan.width * plan.width
            finite = diagonal(lu_factor(a).held)[:before]
            a[row, column] = np.nan
            factors = lu_factor(a)
            np.testing.assert_array_equal(diagonal(factors.held)[:before], finite)
            found = int(lu.first_zero_pivot(factors))
            assert found < 0 or order.index(found) >= before


def test_a_may_be_donated():
    """The factors take its place, and solve without it."""
    a, b = noise(64, 64), noise(64)
    with devices((2, 4)):
        mine = jax.device_put(a, BLOCKS)
        alone = jax.jit(lambda a: lu_factor(a).alone(), donate_argnums=0)
        factors = alone(mine)
        assert mine.is_deleted()
        np.testing.assert_allclose(lu_solve(factors, b), np.linalg.solve(a, b))
        slope = jax.jit(jax.grad(lambda b: lu_solve(factors, b).sum()))(b)
        np.testing.assert_allclose(slope, np.linalg.solve(a.T, np.ones(64)))


# ---------------------------------------------------------------- what it costs


@pytest.mark.parametrize(
    ("mesh", "n", "loops"),
    [((2, 4), 256, 4), ((16, 32), 2**20, 8)],
)
def test_the_cost_is_near_its_leading_terms(mesh, n, loops):
    """Eight windows where there are steps enough; test_costs.py has the bytes."""
    (x, y), more = mesh, 1 + 1 / loops
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh(mesh, ("x", "y"))):
        parts = lu.cost(lu_factor, jax.ShapeDtypeStruct((n, n), np.float64)).parts
        width, stages = lu.plan(n).width, lu.windows(lu.plan(n))
        assert len(stages) == loops
    panels = more * (1 - 1 / y) * n**2 / (2 * x)
    assert abs(parts["panels"] / (8 * panels) - 1) < 0.05
    rows = parts["pivot rows"] + parts["displaced rows"]
    assert rows == 8 * 3 * (1 - 1 / x) * n**2 / y
    assert parts["tournaments"] == 8 * n * (width + 1) * (x - 1)


def test_the_matrix_stays_where_it_is():
    n = 1024
    with devices((2, 4)):
        a = jax.ShapeDtypeStruct((n, n), np.float64, sharding=BLOCKS)
        program = measure(solve, a, jax.ShapeDtypeStruct((n,), np.float64))
    blocks = 3.0 if jax.__version_info__ >= (0, 12) else 3.5  # XLA copied more
    assert program.temporaries < blocks * 8 * n * n / 8
    assert all(step.bytes <= 8 * n * n / 32 for step in program.collectives)


def test_the_program_does_not_grow_with_n():
    def text(n):
        a = jax.ShapeDtypeStruct((n, n), np.float32, sharding=BLOCKS)
        b = jax.ShapeDtypeStruct((n,), np.float32)
        return jax.jit(solve).lower(a, b).as_text()

    with devices((2, 4)):
        small, large = text(2048), text(32768)
    assert len(large) < 1.04 * len(small)  # longer numbers, no more lines


def test_a_matrix_of_nothing_is_solved():
    with devices((2, 4)):
        assert solve(distribute(np.zeros((0, 0))), np.zeros(0)).shape == (0,)


# -------------------------------------------------------------- what is refused


A, B = np.eye(4), np.ones(4)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: lu_factor([[1.0]]), "a is a list: pass an array of JAX or NumPy"),
        (lambda: solve(A[:3], B), r"a \(3, 4\) is no square matrix: pass \[N, N\]"),
        (lambda: slogdet(A[None]), r"a \(1, 4, 4\) is no square matrix"),
        (lambda: lu.det(A.astype(int)), "int64 has no LU here: pass one of float32"),
        (lambda: lu_factor(jnp.asarray(A, "bfloat16")), "bfloat16 has no LU here"),
        (lambda: solve(A.astype(object), B), "object has no LU here"),
        (lambda: solve(A, [1.0]), "b is a list: pass an array of JAX or NumPy"),
        (lambda: solve(A, np.ones(5)), r"\(5,\) does not fit 4 equations: pass \[4\]"),
        (lambda: solve(A, np.ones((4, 1, 1))), r"does not fit 4 equations"),
        (lambda: solve(A, np.array(1.0)), r"b \(\) does not fit 4 equations"),
        (lambda: solve(A, B.astype(str)), r"b is <U\d+: pass one of float32"),
        (lambda: solve(A, B, refine=2), "refine is 2: pass 0 or 1"),
        (lambda: lu_solve(A, B), "ndarray given: pass what lu_factor returns"),
        (lambda: lu_solve(lu_factor(A), np.ones(5)), r"b \(5,\) does not fit"),
        (lambda: lu_solve(lu_factor(A), B, trans=3), "trans is 3: pass 0, 1 or 2"),
    ],
    ids=itertools.count(),
)
def test_what_is_no_system_of_equations_is_refused(call, complaint):
    with devices((2, 4)), pytest.raises(ValueError, match=complaint):
        call()
