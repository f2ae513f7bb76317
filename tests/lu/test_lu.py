import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from cases import each_refusal, each_week
from fft.test_fft import lies
from on_devices import (
    AUTO,
    EXPLICIT,
    assert_agreed,
    devices,
    distribute,
    noise,
    scaled_residual,
)

from examples import lu
from examples.communication import measure
from examples.lu import lu_factor, lu_slogdet, lu_solve, slogdet, solve

BLOCKS = jax.P("x", "y")
EPS = np.finfo(float).eps
pytestmark = pytest.mark.usefixtures("double")


def columns(n):
    """Return the columns in the order of elimination, with those that fill up."""
    return np.asarray(lu.elimination_order(n, "y")).ravel()


def factor_in_order(a):
    """Return factors; and L, U and what they multiply to, in order of elimination."""
    factors = lu_factor(distribute(a))
    steps, sizes = len(factors.permutation), jax.sharding.get_abstract_mesh().shape
    places = np.arange(factors.permutation.size)
    row, column = (
        places.reshape(sizes[axis], steps, -1).swapaxes(0, 1).ravel() for axis in "xy"
    )
    packed = np.asarray(factors.lu)[row][:, column]
    whole = scipy.linalg.block_diag(a, np.eye(len(packed) - len(a)))
    expected = whole[np.ravel(factors.permutation)][:, columns(len(a))]
    lower = np.tril(packed, -1) + np.eye(len(packed), dtype=packed.dtype)
    return factors, lower, np.triu(packed), expected


def assert_same_leaves(found, expected, tolerance=1e-10):
    for mine, wanted in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(mine, wanted, rtol=0, atol=tolerance * scale)


# ------------------------------------------------------- the factors, the solutions


@pytest.mark.parametrize(
    ("mesh", "kind", "n", "dtype"),
    [
        ((2, 4), EXPLICIT, 24, np.complex128),
        ((3, 2), AUTO, 22, np.float64),  # which fills no blocks
        ((8, 1), EXPLICIT, 24, np.float64),  # which fills no panels
        ((1, 8), AUTO, 72, np.float64),  # two tiles
    ],
)
def test_factors_multiply_to_a_and_solve_its_equations(mesh, kind, n, dtype):
    """With strict promotion, and sides of another type.

    L has no number above 1, and pivots are those of LAPACK, if no axis splits the rows.
    """
    a, b = noise(n, n, dtype=dtype), noise(n, 8, dtype=np.complex128)
    with devices(mesh, kind), jax.numpy_dtype_promotion("strict"):
        factors, lower, upper, expected = factor_in_order(a)
        x = solve(distribute(a), b)
        assert_agreed(factors.lu, factors.permutation, x)
        assert lies(factors.lu, BLOCKS)
        assert factors.permutation.sharding.is_fully_replicated
        assert x.sharding.is_fully_replicated
        for trans, matrix in enumerate([a, a.T, a.conj().T] if n == 24 else [a]):
            y = lu_solve(factors, b, trans)
            assert scaled_residual(matrix, y, b) < 16 * EPS
        np.testing.assert_allclose(lu_slogdet(factors), np.linalg.slogdet(a))
    assert scaled_residual(a, x, b) < 16 * EPS
    assert sorted(np.ravel(factors.permutation)) == [*range(len(lower))]
    np.testing.assert_allclose(lower @ upper, expected, atol=1e-12)
    assert np.abs(lower).max() <= (1 if mesh[0] == 1 else 8)


N = 70  # with several windows, and a panel that has to be filled up
SCALES = 10 ** np.random.default_rng(3).uniform(-20, 20, N)
WILKINSON = np.eye(N) - np.tril(np.ones((N, N)), -1)
WILKINSON[:, -1] = 1
LATE = np.arange(N) >= 5
ZEROS = (LATE[:, None] | LATE) * noise(N, N)
ZOO = {
    "rows scaled badly": SCALES[:, None] * noise(N, N),
    "columns scaled badly": SCALES * noise(N, N),
    "columns nearly equal": noise(N, N // 2).repeat(2, 1) + 1e-8 * noise(N, N, seed=1),
    "zeros first": ZEROS,
    "zeros last": ZEROS[::-1, ::-1],
    "Hilbert": scipy.linalg.hilbert(N),
    "Vandermonde": np.vander(np.linspace(0.1, 1, N)),
    "Wilkinson": WILKINSON,
    "Wilkinson transposed": WILKINSON.T.copy(),
    "half the rank": noise(N, N // 2) @ noise(N // 2, N, seed=1),
    "permuted identity": np.eye(N)[np.random.default_rng(4).permutation(N)],
    "two blocks": np.kron([[0, 1], [1, 0]], noise(N // 2, N // 2)),
    "tridiagonal": np.eye(N, k=1) - 2 * np.eye(N) + np.eye(N, k=-1),
    "tiny numbers": 1e-290 * noise(N, N),
    "huge numbers": 1e290 * noise(N, N),
}


@pytest.mark.parametrize("mesh", [(4, 2), each_week((3, 2))])
def test_every_kind_of_matrix_is_factored_and_solved_as_by_lapack(mesh):
    """Element by element, in units of rounding: Higham's bound for any LU."""
    b = noise(N, seed=5)
    with devices(mesh):
        for name, a in ZOO.items():
            _, lower, upper, expected = factor_in_order(a)
            x = solve(distribute(a), b)
            assert scaled_residual(a, x, b) < 1e-15, name  # far below 16 eps
            error, sizes = np.abs(lower @ upper - expected), abs(lower) @ abs(upper)
            assert (error <= N * EPS * sizes).all(), name
            largest = abs(scipy.linalg.lu(expected)[2]).max()
            assert abs(upper).max() <= 3 * largest, name


def test_a_larger_one_in_single_precision_is_refined():
    n = 640  # a panel of several strips
    a, b = noise(n, n, dtype=np.float32), noise(n, 3, dtype=np.float32, seed=5)
    with devices((2, 4)):
        once, twice = (solve(distribute(a), b, refine=refine) for refine in (0, 1))
    theirs = scaled_residual(a, scipy.linalg.solve(a, b), b)
    assert scaled_residual(a, once, b) < 4 * theirs
    assert scaled_residual(a, twice, b) < scaled_residual(a, once, b) / 2


def test_parity_is_the_determinant_of_a_permutation():
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(64)
        assert lu.parity(jnp.asarray(order)) == round(np.linalg.det(np.eye(64)[order]))


def test_a_matrix_of_nothing_is_solved():
    with devices((2, 4)):
        assert solve(distribute(np.zeros((0, 0))), np.zeros(0)).shape == (0,)


# ------------------------------------------------------------- singular and not finite


def test_a_singular_matrix_has_finite_factors_and_no_solution():
    a, nan = noise(24, 24), np.full((24, 24), np.nan)
    singular = 0 * a, np.ones_like(a), *(a * (np.arange(24) != i) for i in (5, 12))
    with devices((4, 2)):
        for matrix in *singular, nan:
            assert not np.isfinite(solve(distribute(matrix), np.ones(24))).all()
            found = slogdet(distribute(matrix))
            wanted = [0, -np.inf] if matrix is not nan else [np.nan] * 2
            np.testing.assert_array_equal(found, wanted)
            assert_agreed(*found)
        for matrix in singular:
            _, lower, upper, expected = factor_in_order(matrix)
            np.testing.assert_allclose(lower @ upper, expected, atol=1e-13)


def test_the_first_zero_pivot_has_the_number_of_its_column():
    with devices((2, 4)):
        order = [column for column in columns(13) if column < 13]
        for bad in ([], [order[4]], [order[9], order[2]]):
            a = noise(13, 13)
            a[:, bad] = 0
            first = min(bad, key=order.index, default=-1)
            assert lu.first_zero_pivot(lu_factor(a)) == first
        assert lu.first_zero_pivot(lu_factor(np.full((13, 13), np.nan))) == order[0]


@pytest.mark.parametrize(("mesh", "n"), [((2, 4), 13), ((3, 2), 32)])
def test_nan_reaches_no_column_before_its_own(mesh, n):
    """In the order of elimination, and by panels; those before are as without it."""
    with devices(mesh):
        order, width = [*columns(n)], lu.plan(n).width
        for row, column in (3, 7), (n - 1, order[2 * width % n]):
            before, a = order.index(column) // width * width, noise(n, n)
            finite = factor_in_order(a)[2].diagonal()
            a[row, column] = np.nan
            factors, _, upper, _ = factor_in_order(a)
            np.testing.assert_array_equal(upper.diagonal()[:before], finite[:before])
            found = int(lu.first_zero_pivot(factors))
            assert found < 0 or order.index(found) >= before


# ------------------------------------------------------------------------ derivatives


def ours(a, b, axes=lu.AXES):
    """Return solutions and a determinant, from the same factors."""
    factors = lu_factor(a, axes)
    return lu_solve(factors, b), lu_solve(factors, b, 1), *lu_slogdet(factors)


def theirs(a, b):
    return jnp.linalg.solve(a, b), jnp.linalg.solve(a.T, b), *jnp.linalg.slogdet(a)


@pytest.mark.parametrize(
    ("mesh", "kind", "n", "dtype"),
    [((2, 4), EXPLICIT, 9, np.float64), ((3, 2), AUTO, 12, np.complex128)],
)
def test_first_and_second_derivatives_are_those_of_jax(mesh, kind, n, dtype):
    """In both modes."""
    a, da = noise(n, n, dtype=dtype) + 3 * np.eye(n), noise(n, n, dtype=dtype, seed=1)
    b = noise(n, 2, dtype=dtype)

    @jax.jit(static_argnums=0)
    def derivatives(f, a, b):
        def loss(a, b):
            x, y, sign, logarithm = f(a, b)
            return (x * jnp.cos(y)).sum().real + (sign * (1 + 2j)).real + logarithm

        return jax.jvp(jax.grad(loss, (0, 1)), (a, b), (da, b))

    expected = derivatives(theirs, a, b)
    with devices(mesh, kind):
        a = distribute(a)
        found = derivatives(ours, a, b)
        assert found[0][0].sharding.is_equivalent_to(a.sharding, 2)
    assert_same_leaves(found, expected)


def test_what_the_factors_serve_is_one_factorisation():
    """Eager too: a factor is not made again for a derivative."""
    a = jax.ShapeDtypeStruct((64, 64), np.float64, sharding=BLOCKS)
    b = jax.ShapeDtypeStruct((64,), np.float64)

    def loss(a, b):
        x, y, *_ = ours(a, b)
        return (x**2).sum() + y.sum()

    with devices((4, 2)):
        steps, *_ = lu.plan(64)
        program = measure(jax.grad(loss), a, b)
    assert 3 * steps <= program.counts["all-gather"] <= 3 * steps + 4


def test_a_may_be_donated():
    """The factors take its place, and solve without it."""
    a, b = noise(64, 64), noise(64)
    with devices((2, 4)):
        mine = jax.device_put(a, BLOCKS)
        factors = jax.jit(lambda a: lu_factor(a).alone(), donate_argnums=0)(mine)
        assert mine.is_deleted()
        np.testing.assert_allclose(lu_solve(factors, b), np.linalg.solve(a, b))
        slope = jax.jit(jax.grad(lambda b: lu_solve(factors, b).sum()))(b)
        np.testing.assert_allclose(slope, np.linalg.solve(a.T, np.ones(64)))


# ------------------------------------------------------------------ meshes of a user


NAMES = "model", "data"


def users_mesh(kind, other):
    """Put a mesh with other names in context, and an axis of another use between."""
    names, kinds = ("model", "batch", "data"), (kind, other, kind)
    return jax.set_mesh(jax.make_mesh((2, 2, 2), names, kinds))


def each_with_slope(f, mapped, **options):
    """Return the program of a loss, its solutions, and its slope in a, of a batch."""

    def loss(a, b):
        x, _, _, logarithm = f(a, b)
        return (x**2).sum() + logarithm, x

    run = jax.value_and_grad(loss, has_aux=True)
    return jax.jit(jax.vmap(run, mapped, **options))


@pytest.mark.parametrize(
    ("kind", "other", "mapped"),
    [
        (EXPLICIT, AUTO, (0, 0)),
        (AUTO, EXPLICIT, (0, 0)),
        (EXPLICIT, AUTO, (None, 0)),
        (AUTO, EXPLICIT, (0, None)),
    ],
)
def test_a_batch_lies_along_an_axis_of_its_own(kind, other, mapped):
    """An Auto one sends nothing along it, an Explicit one panels, but no matrix."""
    first = [slice(None) if axis == 0 else 0 for axis in mapped]
    a, b = noise(2, 16, 16)[first[0]], noise(2, 16)[first[1]]
    expected = each_with_slope(theirs, mapped)(a, b)
    with users_mesh(kind, other):
        a = jax.device_put(a, jax.P(*["batch"] * (a.ndim - 2), *NAMES))
        b = jax.device_put(b, jax.P(*["batch"] * (b.ndim - 1)))
        f = functools.partial(ours, axes=NAMES)
        run = each_with_slope(f, mapped, spmd_axis_name="batch").lower(a, b).compile()
        found, sent = run(a, b), measure(run).collectives
        assert found[0][1].sharding.spec[0] == "batch"  # Auto axes may split it, too
    assert_same_leaves(found, expected)
    if mapped == (0, 0):
        assert found[1].sharding.is_equivalent_to(a.sharding, 3)
        along = [step.bytes for step in sent if "batch" in step.axes]
        assert max(along, default=0) <= (0 if other is AUTO else 8 * 16 * 5)


def test_a_shard_map_over_other_axes_may_be_around_it():
    a = noise(2, 8, 8)
    specs = {"in_specs": jax.P("batch"), "out_specs": jax.P("batch")}

    @jax.jit
    @jax.shard_map(axis_names={"batch"}, check_vma=False, **specs)
    def around(a):
        return slogdet(a[0], NAMES)[1][None]

    with users_mesh(AUTO, AUTO):
        found = around(a)
    np.testing.assert_allclose(found, np.linalg.slogdet(a)[1], rtol=1e-10)


# ---------------------------------------------------------------------- what it costs


@pytest.mark.parametrize(
    ("mesh", "n", "loops"),
    [((2, 4), 256, 4), ((16, 32), 2**20, 8)],
)
def test_the_cost_is_near_its_leading_terms(mesh, n, loops):
    """Eight windows where there are steps enough; test_costs.py has the bytes."""
    x, y = mesh
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh(mesh, ("x", "y"))):
        parts = lu.cost(lu_factor, jax.ShapeDtypeStruct((n, n), np.float64)).parts
        width, stages = lu.plan(n).width, lu.windows(lu.plan(n))
    assert len(stages) == loops
    panels = 8 * (1 + 1 / loops) * (1 - 1 / y) * n**2 / (2 * x)
    assert abs(parts["panels"] / panels - 1) < 0.05
    rows = parts["pivot rows"] + parts["displaced rows"]
    assert rows == 8 * 3 * (1 - 1 / x) * n**2 / y
    assert parts["tournaments"] == 8 * n * (width + 1) * (x - 1)


# --------------------------------------------------------------------- what is refused


A, B = np.eye(4), np.ones(4)


def slope_of_factors(f):
    return jax.grad(f, allow_int=True)(lu_factor(A))


def push_without_a():
    return jax.jvp(lambda a: lu_solve(lu_factor(a).alone(), B), (A,), (A,))


@each_refusal(
    (lambda: lu_factor([[1.0]]), "a is a list: pass an array of JAX or NumPy"),
    (lambda: solve(A[:3], B), r"a \(3, 4\) is no square matrix: pass \[N, N\]"),
    (lambda: lu.det(A.astype(int)), "int64 has no LU here: pass one of float32"),
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
    (lambda: lu_factor(A, ("x",)), "pass the names of two axes"),
    (lambda: lu_factor(A, ("x", "x")), "pass the names of two axes"),
    (lambda: solve(A, B, axes=NAMES), r"no mesh axis \['model', 'data'\]"),
    (
        jax.shard_map(lambda: lu.det(A), out_specs=jax.P()),
        "call this outside of it",
    ),
    (lambda: jax.grad(lambda a: lu_factor(a).lu.sum())(A), "have no derivative"),
    (
        lambda: slope_of_factors(lambda f: lu_solve(f, B).sum()),
        "have no derivative",
    ),
    (lambda: slope_of_factors(lambda f: lu_slogdet(f)[1]), "have no derivative"),
    (push_without_a, r"lax\.stop_gradient"),
)
def test_what_has_no_answer_is_refused(call, words):
    with devices((2, 4)), pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("kind", [EXPLICIT, AUTO])
def test_factors_of_another_mesh_are_refused(kind):
    """On Auto axes they would be taken for factors of this one."""
    with devices((2, 4), kind):
        factors = lu_factor(A)
    for shape in (4, 2), (2, 2):
        with devices(shape, kind), pytest.raises(ValueError, match="on a mesh of"):
            lu_solve(factors, B)
