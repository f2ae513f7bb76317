import functools
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from cases import each_week
from jax.sharding import AxisType
from on_devices import assert_agreed, devices, distribute, noise, scaled_residual

from examples.cholesky import (
    Factor,
    cho_factor,
    cho_solve,
    cost,
    order,
    place,
    plan_elimination,
)
from examples.communication import measure
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


def order_in_c(n):
    """Return the order of elimination, and the rows and columns of c in this order."""
    (steps, width), sizes = order(n).shape, jax.sharding.get_abstract_mesh().shape
    row, column = (
        np.arange(steps * width).reshape(sizes[axis], steps, -1).swapaxes(0, 1).ravel()
        for axis in "xy"
    )
    return np.asarray(order(n)).ravel(), row, column


def in_order(factor):
    """Return the order of elimination, as one list, and L in this order."""
    indices, row, column = order_in_c(len(factor.a))
    return indices, np.asarray(factor.c)[row][:, column]


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
        indices, lower = in_order(factor)
    assert sorted(indices)[:n] == list(range(n))
    assert (np.triu(lower, 1) == 0).all()
    inside, expected = indices < n, np.eye(len(lower), dtype=complex)
    rows = indices[inside]
    wide = a.astype(complex)[rows][:, rows]
    expected[np.ix_(inside, inside)] = np.linalg.cholesky(wide)
    np.testing.assert_allclose(lower, expected, atol=500 * eps)
    assert (factor.c.dtype, x.dtype) == (dtype, b.dtype)
    assert scaled_residual(a, x, b) < eps


def test_products_of_fewer_bits_cost_digits_that_refinement_brings_back():
    a, b = definite(48, np.float32, 10), noise(48, 2, dtype=np.float32)
    truth = np.linalg.solve(a.astype(float), b)

    def factor(a):
        return functools.partial(cho_solve, cho_factor(a, product_dtype="bfloat16"))

    @jax.jit
    def run(a, b):
        return factor(a)(b), refine(a, b, factor)

    with devices((2, 4)):
        rough, refined = run(distribute(a), b)
    assert rough.dtype == refined.x.dtype == np.float32
    error = [np.abs(x - truth).max() / np.abs(truth).max() for x in (rough, refined.x)]
    eps = float(jnp.finfo("bfloat16").eps)
    assert eps / 100 < error[0] < 10 * eps
    assert error[1] < 1e-5
    assert refined.converged.all()
    assert 1 < refined.steps < 8


def test_fewer_bits_are_sent_as_they_are_where_a_machine_has_them():
    """XLA:CPU widens their sums, so its bytes are those of float32."""
    with devices((2, 4)):
        a = large(768)
        costs = [cost(cho_factor, a, product_dtype=t) for t in (None, "bfloat16")]
        few = functools.partial(cho_factor, product_dtype="bfloat16")
        lowered = jax.jit(few).lower(a)
        programs = measured(768), measure(lowered.compile())
    columns = [each.parts["rows of columns"] for each in costs]
    assert columns[0] == 2 * columns[1]
    assert costs[0].sent - costs[1].sent == columns[1]
    assert programs[0].sent == programs[1].sent == costs[0].sent
    assert programs[1].temporaries < programs[0].temporaries
    assert re.search(
        r"all_reduce.*?\(tensor<\d+x\d+xbf16>\)", lowered.as_text(), re.DOTALL
    )


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
            factor = cho_factor(distribute(a))
            x = cho_solve(factor, b)
            indices, lower = in_order(factor)
        assert scaled_residual(a, x, b) < 16 * eps, name
        error = np.abs(lower @ lower.T - a[indices][:, indices])
        bound = 50 * eps * np.abs(lower) @ np.abs(lower.T)
        assert (error <= bound).all(), name


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
    a = definite(48)
    a[i, i] = value
    return a


INDEFINITE = {
    "negative last": with_pivot(47, -1e-3),
    "negative between": with_pivot(23, -1.0),
    "zero": np.zeros((48, 48)),
    "NaN": with_pivot(5, np.nan),
    "one eigenvalue below zero": definite(48) - 0.0101 * np.eye(48),
}


def test_what_is_not_positive_definite_gives_nan_as_in_jax():
    for name, a in INDEFINITE.items():
        assert np.isnan(jnp.linalg.cholesky(a)).any()
        with devices((3, 2)):
            factor = cho_factor(distribute(a))
            assert np.isnan(factor.c).all(), name
            assert np.isnan(cho_solve(factor, noise(48))).all(), name
            indices = np.asarray(order(48)).ravel()
        first = indices[: factor.info]
        minor = a[first][:, first]
        minor = np.nan_to_num(minor, nan=-1e9)  # which LAPACK may take for a number
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


def test_a_matrix_of_nothing_has_a_factor():
    with devices((2, 4)):
        factor = cho_factor(np.zeros((0, 0)))
        assert factor.info == 0
        assert cho_solve(factor, np.zeros((0, 3))).shape == (0, 3)
        assert cho_solve(cho_factor(np.eye(3)), np.zeros((3, 0))).shape == (3, 0)


# ----------------------------------------------------------------------- gradients


def both_modes(f, weights, primals, tangents):
    """Return the gradient of a weighted sum of the changes of f, and the changes."""
    _, push = jax.linearize(f, *primals)

    def weigh(*tangents):
        changes = push(*tangents)
        terms = jax.tree.map(lambda u, v: (u * v).real.sum(), changes, weights)
        return sum(terms), changes

    return jax.grad(weigh, (0, 1), has_aux=True)(*tangents)


@pytest.mark.parametrize(
    ("mesh", "kind", "dtype", "n"),
    [((2, 4), AUTO, np.complex128, 8), ((2, 1), EXPLICIT, np.float64, 33)],
    ids=str,
)
def test_gradients_and_tangents_are_those_of_a_dense_factor(mesh, kind, dtype, n):
    """Those of every number of c, and of a solution."""
    primals, tangents = (
        (a, noise(n, 2, dtype=dtype, seed=seed))
        for seed, a in enumerate([definite(n, dtype), noise(n, n, dtype=dtype, seed=3)])
    )
    weights = noise(n, n, dtype=dtype, seed=4), noise(n, 2, dtype=dtype, seed=5)

    with devices(mesh, kind):
        indices, row, column = order_in_c(n)
        inside = indices < n

        def ours(a, b):
            factor = cho_factor(a)
            c = place(factor.c, jax.P())[row[inside]][:, column[inside]]
            return c, cho_solve(factor, b)

        given = [(distribute(a), jnp.asarray(b)) for a, b in (primals, tangents)]
        found = jax.jit(both_modes, static_argnums=0)(ours, weights, *given)
        assert found[0][0].sharding.is_equivalent_to(given[0][0].sharding, 2)
    indices = indices[inside]

    def dense(a, b):
        return jnp.linalg.cholesky(a[indices][:, indices]), jnp.linalg.solve(a, b)

    expected = both_modes(dense, weights, primals, tangents)
    for answer, truth in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(answer, truth, atol=1e-11 * np.abs(truth).max())


def test_a_derivative_by_c_alone_is_refused():
    """It would be 0, as cho_solve differentiates by a."""
    with devices((2, 4)):
        factor, b = cho_factor(distribute(definite(8))), noise(8)
        alone = jax.grad(lambda c: cho_solve(replace(factor, c=c), b).sum())
        with pytest.raises(ValueError, match="no derivative by c alone: diff"):
            alone(factor.c)


def test_a_gradient_factors_once_and_sweeps_twice():
    with devices((2, 4)):
        a, b = distribute(definite(8)), jax.device_put(noise(8), jax.P())
        factor = cho_factor(a)
        parts = measure(cho_factor, a), measure(cho_solve, factor, b)
        both = measure(jax.grad(lambda a: (solve(a, b) ** 2).sum()), a)
    sums = [program.counts["all-reduce"] for program in (*parts, both)]
    assert sums[0] + 2 * sums[1] <= sums[2] <= sums[0] + 2 * sums[1] + 2
    assert both.sent < parts[0].sent + 2.2 * parts[1].sent


# --------------------------------------------------------------------------- costs


def large(n):
    sharding = jax.NamedSharding(jax.sharding.get_mesh(), BLOCKS)
    return jax.ShapeDtypeStruct((n, n), np.float32, sharding=sharding)


@functools.cache
def measured(n):
    """Measure a factor of float32 on 2 x 4, once for all tests."""
    return measure(cho_factor, large(n))


def test_the_program_does_not_grow_with_n():
    lengths = []
    with devices((2, 4)):
        for n in (512, 8192):
            a, b = large(n), jax.ShapeDtypeStruct((n,), np.float32)
            info = jax.ShapeDtypeStruct((), np.int32)
            factor = Factor(a, a, info, plan_elimination(n))
            programs = jax.jit(cho_factor).lower(a), jax.jit(cho_solve).lower(factor, b)
            lengths.append([each.as_text().count("\n") for each in programs])
    assert lengths[0] == lengths[1]


# -------------------------------------------------------------------------- errors


def take_c(a):
    return cho_factor(a).c


ONE, EYE = np.ones(8), np.eye(8)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (
            lambda: cho_factor(np.ones((8, 16))),
            r"a \(8, 16\) is no square matrix: pass",
        ),
        (lambda: cho_factor([[1.0]]), "a is a list: pass an array of numbers"),
        (
            lambda: cho_factor(EYE.astype(object)),
            "a is of object: pass an array of num",
        ),
        (
            lambda: cho_factor(np.eye(8, dtype=int)),
            "int64 has no factor here: pass one",
        ),
        (lambda: cho_factor(EYE, axes=("x", "x")), "pass the names of two axes"),
        (
            lambda: cho_factor(EYE * 1j, product_dtype="bfloat16"),
            "round real a to bfloa",
        ),
        (
            lambda: cho_factor(EYE, product_dtype="float64"),
            "float64 and .*: round real",
        ),
        (
            lambda: cho_solve(cho_factor(EYE), ONE[:7]),
            r"b \(7,\) does not fit a \(8, 8",
        ),
        (
            lambda: cho_solve(cho_factor(EYE), [1.0] * 8),
            "b is a list: pass an array of",
        ),
        (lambda: cho_solve((EYE, EYE), ONE), "tuple'>: pass what cho_fac"),
    ],
)
def test_what_has_no_factor_or_solution_is_refused(call, complaint):
    with devices((2, 4)), pytest.raises(ValueError, match=complaint):
        call()


def test_a_factor_of_another_mesh_or_none_is_refused():
    with pytest.raises(ValueError, match=r"no mesh axis \['x', 'y'\] in context"):
        cho_factor(EYE)
    with devices((2, 4)):
        factor = cho_factor(distribute(definite(8)))
        specs = {"in_specs": jax.P(), "out_specs": jax.P(), "axis_names": {"x"}}
        with pytest.raises(ValueError, match=r"inside .* take it out"):
            jax.jit(jax.shard_map(take_c, **specs))(EYE)
    another = r"a mesh of \(2, 4\), not of \(4, 2\): use that"
    with devices((4, 2)), pytest.raises(ValueError, match=another):
        cho_solve(factor, ONE)
