from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal, each_week
from cholesky.test_cholesky import definite
from on_devices import AUTO, EXPLICIT, assert_agreed, devices, distribute, noise

from examples.cholesky import cho_factor
from examples.communication import measure
from examples.definite import cho_inv, cho_logdet, cho_solve_blocks

BLOCKS = jax.P("x", "y")
pytestmark = pytest.mark.usefixtures("double")


@jax.jit
def all_three(a, b):
    factor = cho_factor(a)
    return cho_solve_blocks(factor, b), cho_inv(factor), cho_logdet(factor)


@pytest.mark.parametrize(
    ("mesh", "kind", "n", "dtype"),
    [
        ((2, 4), EXPLICIT, 24, np.complex128),
        ((3, 2), AUTO, 13, np.float32),  # which no axis divides
    ],
    ids=str,
)
def test_solutions_inverse_and_determinant_are_those_of_numpy(mesh, kind, n, dtype):
    """With strict promotion, and sides of a type of their own, in the same bits.

    Where `a` is not positive definite, they are NaN.
    """
    a, b = definite(n, dtype), noise(n, 8, dtype=np.complex64)
    with devices(mesh, kind), jax.numpy_dtype_promotion("strict"):
        placed = distribute(a)
        x, inverse, logarithm = all_three(placed, b)
        assert_agreed(x, inverse, logarithm)
        if mesh == (2, 4):
            assert inverse.sharding.is_equivalent_to(placed.sharding, 2)
            assert x.sharding.is_equivalent_to(placed.sharding, 2)
        nowhere = all_three(distribute(a - 2 * np.eye(n, dtype=dtype)), b)
        assert all(np.isnan(each).all() for each in nowhere)
    assert (x.dtype, inverse.dtype) == (np.result_type(dtype, np.complex64), dtype)
    assert logarithm.dtype == inverse.real.dtype
    exact, truth = np.linalg.solve(a, b), np.linalg.inv(a)
    near = 1e4 * np.finfo(dtype).eps
    np.testing.assert_allclose(x, exact, atol=2e-4 * np.abs(exact).max())
    np.testing.assert_allclose(inverse, truth, atol=near * np.abs(truth).max(), rtol=0)
    np.testing.assert_allclose(logarithm, np.linalg.slogdet(a)[1], rtol=near)


# ----------------------------------------------------------------------- gradients


def likelihood(x, logarithm):
    """Return something that takes both derivatives, of every number."""
    return (jnp.abs(x) ** 2).sum() + (x.real**3).sum() + logarithm**2


def ours(a, b):
    factor = cho_factor(a)
    return likelihood(cho_solve_blocks(factor, b), cho_logdet(factor))


def dense(a, b):
    """Return the same of the Hermitian part, which is what a factor sees."""
    a = (a + a.conj().T) / 2
    return likelihood(jnp.linalg.solve(a, b), jnp.linalg.slogdet(a)[1])


def reverse(f, point, way):
    """Return results and their derivative in reverse."""
    results, pull = jax.vjp(f, *point)
    return results, pull((results[0], way))


@pytest.mark.parametrize("mode", [jax.jvp, each_week(reverse)])
def test_first_and_second_derivatives_are_those_of_one_device(mode):
    """Of complex numbers; second ones forwards, and in reverse."""
    a, b = definite(16, complex), noise(16, 4, dtype=complex)
    way = a @ a, noise(16, 4, dtype=complex, seed=3)

    def derivatives(f):
        both = jax.value_and_grad(f, (0, 1))
        return jax.jit(lambda *point: mode(both, point, way))

    truth = derivatives(dense)(a, b)
    with devices((2, 4), AUTO):
        placed = distribute(a)
        found = derivatives(ours)(placed, b)
        assert found[0][1][0].sharding.is_equivalent_to(placed.sharding, 2)

    def hermitian(x):
        x = np.asarray(x)
        return (x + x.conj().T) / 2 if x.shape == a.shape else x

    for mine, theirs in zip(*map(jax.tree.leaves, (found, truth)), strict=True):
        near = 1e-10 * np.abs(theirs).max()
        np.testing.assert_allclose(hermitian(mine), hermitian(theirs), atol=near)


def test_a_batch_and_its_gradients_lie_on_an_axis_of_its_own():
    a, axes = np.stack([definite(12), definite(12) + np.eye(12)]), ("z", "y")

    def both(a):
        return jax.value_and_grad(lambda a: cho_logdet(cho_factor(a, axes=axes)))(a)

    kinds = EXPLICIT, AUTO, AUTO
    with jax.set_mesh(jax.make_mesh((2, 2, 2), ("x", "y", "z"), kinds)):
        placed = jax.device_put(a, jax.P("x"))
        values, slopes = jax.jit(jax.vmap(both, spmd_axis_name="x"))(placed)
        assert {shard.data.shape[0] for shard in slopes.addressable_shards} == {1}
    np.testing.assert_allclose(values, np.linalg.slogdet(a)[1], rtol=1e-10)
    np.testing.assert_allclose(slopes, np.linalg.inv(a), atol=1e-10)


# --------------------------------------------------------------------------- costs


def test_no_device_holds_a_matrix_whole():
    """Not for a gradient either."""
    n = 384
    with devices((2, 4)):
        spec = jax.NamedSharding(jax.sharding.get_mesh(), BLOCKS)
        a = jax.ShapeDtypeStruct((n, n), np.float32, sharding=spec)
        block = 4 * n * n // 8
        program = measure(jax.grad(lambda a: cho_logdet(cho_factor(a))), a)
        assert program.temporaries < 4 * block
        assert max(step.bytes for step in program.collectives) < block / 4


# -------------------------------------------------------------------------- errors


def test_a_matrix_of_nothing_and_no_sides_are_solved():
    with devices((2, 4)):
        nothing = all_three(np.zeros((0, 0)), np.zeros((0, 3)))
        assert [each.shape for each in nothing] == [(0, 3), (0, 0), ()]
        assert nothing[2] == 0
        assert cho_solve_blocks(cho_factor(np.eye(4)), np.zeros((4, 0))).shape == (4, 0)


B = np.ones((8, 4))


def slope_by_c(factor):
    def solve(c):
        return cho_solve_blocks(replace(factor, c=c), B)

    return jax.jvp(solve, [factor.c], [factor.c])


def inside_shard_map(factor):
    specs = {"in_specs": (), "out_specs": jax.P()}
    return jax.shard_map(lambda: cho_inv(factor), axis_names={"x"}, **specs)()


def on_another_mesh(factor):
    with devices((4, 2)):
        return cho_logdet(factor)


@each_refusal(
    (lambda f: cho_solve_blocks(f, B[0]), r"does not fit: pass \[8, K\]"),
    (lambda f: cho_solve_blocks(f, B[:7]), r"\(7, 4\) does not fit"),
    (lambda f: cho_solve_blocks(f, [[1.0]] * 8), "b is a list"),
    (lambda f: cho_solve_blocks(f, B.astype("O")), "b is of obj"),
    (lambda f: cho_logdet((f.a, f.c)), "tuple'>: pass what cho_factor returns"),
    (slope_by_c, "no derivative by c alone"),
    (inside_shard_map, "it has its own"),
    (on_another_mesh, "use that one"),
)
def test_what_does_not_fit_is_refused(call, words):
    with devices((2, 4)):
        factor = cho_factor(definite(8))
        with pytest.raises(ValueError, match=words):
            call(factor)
