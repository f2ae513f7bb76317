import functools
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from cases import each_refusal, each_week
from jax.sharding import AxisType
from on_devices import assert_agreed, devices, distribute, noise, scaled_residual

from examples.cholesky import cho_factor, cho_solve, cost, order
from examples.refinement import refine

BLOCKS = jax.P("x", "y")
AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
pytestmark = pytest.mark.usefixtures("double")


def definite(n, dtype=np.float64, condition=100.0):
    """Return a positive definite matrix, eigenvalues from 1 down to 1 / condition."""
    q, _ = np.linalg.qr(noise(n, n, dtype=dtype))
    values = np.geomspace(1, 1 / condition, n)
    a = (q * values) @ q.conj().T
    return ((a + a.conj().T) / 2).astype(dtype)


def rows_of_c(n):
    """Return which row of a each row of c is; n where there is none."""
    by_steps, x = np.asarray(order(n)), jax.sharding.get_abstract_mesh().shape["x"]
    return by_steps.reshape(len(by_steps), x, -1).swapaxes(0, 1).ravel()


def solve(a, b):
    return cho_solve(cho_factor(a), b)


# ------------------------------------------------------------------- right answers


@pytest.mark.parametrize(
    ("mesh", "kind", "n", "dtype"),
    [
        ((2, 4), EXPLICIT, 61, np.complex128),  # which no axis divides
        ((3, 2), AUTO, 48, np.float32),  # on a subset of the devices
    ],
    ids=str,
)
def test_factor_and_solution_are_right_in_blocks_and_bits(mesh, kind, n, dtype):
    """Devices with the same numbers have the same bits, which no type of JAX's says."""
    a, b = definite(n, dtype), noise(n, 3, dtype=np.result_type(dtype, np.complex64))
    eps = np.finfo(dtype).eps
    with devices(mesh, kind):
        factor = cho_factor(distribute(a))
        x = cho_solve(factor, b)
        assert_agreed(factor.c, factor.info, x)
        assert x.sharding.is_fully_replicated
        blocks = jax.NamedSharding(jax.sharding.get_mesh(), BLOCKS)
        assert factor.c.sharding.is_equivalent_to(blocks, 2)
        rows = rows_of_c(n)
    inside = rows < n
    assert sorted(rows[inside]) == [*range(n)]
    c, rows = np.asarray(factor.c, complex)[inside], rows[inside]
    np.testing.assert_allclose(c @ c.conj().T, a[rows][:, rows], atol=50 * eps)
    assert (factor.c.dtype, x.dtype) == (dtype, b.dtype)
    assert scaled_residual(a, x, b) < eps


def test_products_of_fewer_bits_cost_digits_that_refinement_brings_back():
    """They are sent as they are, though XLA:CPU widens their sums."""
    a, b = definite(48, np.float32, 10), noise(48, 2, dtype=np.float32)
    truth, eps = np.linalg.solve(a.astype(float), b), float(jnp.finfo("bfloat16").eps)

    def factor(a):
        return functools.partial(cho_solve, cho_factor(a, product_dtype="bfloat16"))

    with devices((2, 4)):
        a = distribute(a)
        lowered = jax.jit(lambda a, b: (factor(a)(b), refine(a, b, factor))).lower(a, b)
        rough, refined = lowered.compile()(a, b)
        less = cost(cho_factor, a, product_dtype="bfloat16").parts
        more = cost(cho_factor, a).parts
    error = [np.abs(x - truth).max() / np.abs(truth).max() for x in (rough, refined.x)]
    assert eps / 100 < error[0] < 10 * eps
    assert error[1] < 1e-5
    assert more == less | {"rows of columns": 2 * less["rows of columns"]}
    sums = r"all_reduce.*?\(tensor<\d+x\d+xbf16>\)"
    assert re.search(sums, lowered.as_text(), re.DOTALL)


scales = np.logspace(-9, 9, 48)
HARD = {
    "Hilbert": np.kron(np.eye(6), scipy.linalg.hilbert(8)),
    "graded": scales[:, None] * definite(48) * scales,
    "condition 1e14": definite(48, condition=1e14),
    "second differences": scipy.linalg.toeplitz([2, -1] + [0] * 46).astype(float),
    "diagonal": np.diag(scales),
}


def test_hard_matrices_are_factored_to_rounding():
    """The residual of every element of a: Higham's bound for Cholesky."""
    b, eps = noise(48), np.finfo(float).eps
    for name, a in HARD.items():
        with devices((3, 2)):
            factor, rows = cho_factor(distribute(a)), rows_of_c(48)
            x = cho_solve(factor, b)
        assert scaled_residual(a, x, b) < 16 * eps, name
        c = np.asarray(factor.c)
        error = np.abs(c @ c.T - a[rows][:, rows])
        assert (error <= 50 * eps * abs(c) @ abs(c.T)).all(), name


def test_one_element_of_each_pair_is_read():
    """Which one: that below the diagonal in the order of elimination."""
    a, b = definite(48), noise(48)
    with devices((2, 4)):
        turn = np.argsort(np.asarray(order(48)).ravel())
        unread = turn[:, None] < turn
        factor = cho_factor(distribute(np.where(unread, np.nan, a)))
        x = cho_solve(replace(factor, a=distribute(a)), b)
    np.testing.assert_allclose(x, np.linalg.solve(a, b), atol=1e-12)


def with_pivot(i, value):
    return np.where(np.diag(np.arange(48) == i), value, definite(48))


INDEFINITE = {
    "negative last": with_pivot(47, -1e-3),
    "negative between": with_pivot(23, -1.0),
    "zero": np.zeros((48, 48)),
    "NaN": with_pivot(5, np.nan),
    "one eigenvalue below zero": definite(48) - 0.0101 * np.eye(48),
}


def test_what_is_not_positive_definite_gives_nan_as_in_jax():
    for name, a in INDEFINITE.items():
        with devices((3, 2)):
            factor = cho_factor(distribute(a))
            assert np.isnan(factor.c).all(), name
            assert np.isnan(cho_solve(factor, noise(48))).all(), name
            first = np.asarray(order(48)).ravel()[: factor.info]
        minor = np.nan_to_num(a[first][:, first], nan=-1e9)  # LAPACK may take it
        failed = scipy.linalg.lapack.dpotrf(minor, lower=1)[1]
        assert failed == factor.info > 0, name


# --------------------------------------------------------- other axes and other names


@pytest.mark.parametrize(
    ("kind", "axes"), [(AUTO, ("x", "y")), each_week(EXPLICIT, ("z", "y"))]
)
def test_a_batch_lies_on_an_axis_of_its_own(kind, axes):
    """With gradients; the axes of a have other names than x and y, and are turned."""
    [batch] = {"x", "y", "z"} - {*axes}
    a = np.stack([definite(13) + i * np.eye(13) for i in range(2)])
    b = noise(2, 13)

    def slope(solve):
        return jax.grad(lambda a, b: (solve(a, b) ** 2).sum())

    def ours(a, b):
        return cho_solve(cho_factor(a, axes=axes), b)

    expected = jax.vmap(slope(jnp.linalg.solve))(a, b)
    with devices((2, 2, 2), kind):
        a, b = (jax.device_put(each, jax.P(batch)) for each in (a, b))
        found = jax.jit(jax.vmap(slope(ours), spmd_axis_name=batch))(a, b)
        assert {shard.data.shape[0] for shard in found.addressable_shards} == {1}
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_a_system_of_nothing_is_solved(shape):
    with devices((2, 4)):
        assert solve(np.eye(shape[0]), np.zeros(shape)).shape == shape


# ----------------------------------------------------------------------- gradients


@pytest.mark.parametrize(
    ("mesh", "kind", "dtype", "n"),
    [((2, 4), AUTO, np.complex128, 8), ((2, 1), EXPLICIT, np.float64, 33)],
    ids=str,
)
def test_gradients_and_tangents_are_those_of_a_dense_factor(mesh, kind, dtype, n):
    """Those of a sum over the cubes of c, which has no order, and of a solution."""
    a, b = definite(n, dtype), noise(n, 2, dtype=dtype)
    tangents = noise(n, n, dtype=dtype, seed=3), noise(n, 2, dtype=dtype, seed=1)

    @jax.jit(static_argnums=0)
    def both_modes(f, a, b):
        def loss(a, b):
            return sum((((1 - 2j) * v).real ** 3).sum() for v in f(a, b))

        return jax.grad(loss, (0, 1))(a, b), jax.jvp(loss, (a, b), tangents)[1]

    def ours(a, b):
        factor = cho_factor(a)
        return factor.c, cho_solve(factor, b)

    def dense(a, b):
        rows = by_steps[by_steps < n]
        return jnp.linalg.cholesky(a[rows][:, rows]), jnp.linalg.solve(a, b)

    with devices(mesh, kind):
        by_steps, given = np.asarray(order(n)), distribute(a)
        found = both_modes(ours, given, b)
        assert found[0][0].sharding.is_equivalent_to(given.sharding, 2)
    expected = both_modes(dense, a, b)
    for answer, truth in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(answer, truth, atol=1e-11 * np.abs(truth).max())


# --------------------------------------------------------------------------- costs


def test_the_program_does_not_grow_with_n():
    def length(n):
        a = jax.ShapeDtypeStruct((n, n), np.float32, sharding=BLOCKS)
        return jax.jit(solve).lower(a, np.ones(n)).as_text().count("\n")

    with devices((2, 4)):
        assert length(512) == length(8192)


# -------------------------------------------------------------------------- errors


ONE, EYE = np.ones(8), np.eye(8)
OTHERS = {"in_specs": jax.P(), "out_specs": jax.P(), "axis_names": {"x"}}


def slope_by_c_alone():
    """Differentiate by c: it would be 0, as cho_solve differentiates by a."""
    factor = cho_factor(EYE)
    return jax.grad(lambda c: cho_solve(replace(factor, c=c), ONE).sum())(factor.c)


@each_refusal(
    (lambda: cho_factor(EYE[:4]), r"a \(4, 8\) is no square matrix: pass"),
    (lambda: cho_factor([[1.0]]), "a is a list: pass an array of numbers"),
    (lambda: cho_factor(EYE.astype(object)), "a is of object: pass an array of"),
    (lambda: cho_factor(EYE.astype(int)), "int64 has no factor here: pass one"),
    (lambda: cho_factor(EYE, axes=("x", "x")), "pass the names of two axes"),
    (lambda: cho_factor(EYE * 1j, product_dtype="bfloat16"), "round real a to bf"),
    (lambda: cho_factor(EYE, product_dtype="float64"), "float64 and .*: round"),
    (lambda: solve(EYE, ONE[:7]), r"b \(7,\) does not fit a \(8, 8\): pass \[8\]"),
    (lambda: solve(EYE, [1.0] * 8), "b is a list: pass an array of numbers"),
    (lambda: cho_solve((EYE, EYE), ONE), "tuple'>: pass what cho_fac"),
    (lambda: jax.shard_map(solve, **OTHERS)(EYE, ONE), "inside .* take it out"),
    (slope_by_c_alone, "no derivative by c alone: diff"),
)
def test_what_has_no_factor_solution_or_derivative_is_refused(call, words):
    with devices((2, 4)), pytest.raises(ValueError, match=words):
        call()


def test_a_factor_of_another_mesh_or_none_is_refused():
    with pytest.raises(ValueError, match=r"no mesh axis \['x', 'y'\] in context"):
        cho_factor(EYE)
    with devices((2, 4)):
        factor = cho_factor(EYE)
    another = r"a mesh of \(2, 4\), not of \(4, 2\): use that"
    with devices((4, 2)), pytest.raises(ValueError, match=another):
        cho_solve(factor, ONE)
