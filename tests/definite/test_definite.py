from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cholesky.test_cholesky import definite
from jax.sharding import AxisType
from on_devices import assert_agreed, devices, noise

from examples.cholesky import cho_factor, cost
from examples.communication import measure
from examples.definite import cho_inv, cho_logdet, cho_solve_blocks

BLOCKS = jax.P("x", "y")
AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@jax.jit
def all_three(a, b):
    factor = cho_factor(a)
    return cho_solve_blocks(factor, b), cho_inv(factor), cho_logdet(factor)


@pytest.mark.parametrize(
    ("mesh", "kind", "n", "k", "dtype"),
    [
        ((2, 4), EXPLICIT, 48, 8, np.complex128),
        ((3, 2), AUTO, 31, 5, np.float32),  # which no axis divides
    ],
    ids=str,
)
def test_solutions_inverse_and_determinant_are_those_of_numpy(mesh, kind, n, k, dtype):
    """With strict promotion, and sides of a type of their own, in the same bits."""
    a, b = definite(n, dtype), noise(n, k, dtype=np.complex64)
    with devices(mesh, kind), jax.numpy_dtype_promotion("strict"):
        placed = jax.device_put(a, BLOCKS if n == 48 else jax.P())
        x, inverse, logarithm = all_three(placed, b)
        assert_agreed(x, inverse, logarithm)
        if n == 48:
            assert inverse.sharding.is_equivalent_to(placed.sharding, 2)
            assert x.sharding.is_equivalent_to(placed.sharding, 2)
    assert (x.dtype, inverse.dtype) == (np.result_type(dtype, np.complex64), dtype)
    assert logarithm.dtype == inverse.real.dtype
    exact, truth = np.linalg.solve(a, b), np.linalg.inv(a)
    near = 1e4 * np.finfo(dtype).eps
    np.testing.assert_allclose(x, exact, atol=2e-4 * np.abs(exact).max())
    np.testing.assert_allclose(inverse, truth, atol=near * np.abs(truth).max(), rtol=0)
    np.testing.assert_allclose(logarithm, np.linalg.slogdet(a)[1], rtol=near)


# ----------------------------------------------------------------------- gradients


def likelihood(solve, logdet, a, b):
    """Return something that takes both derivatives, of every number."""
    x = solve(a, b)
    return (jnp.abs(x) ** 2).sum() + (x.real**3).sum() + logdet(a) ** 2


def ours(a, b):
    factor = cho_factor(a)
    return likelihood(
        lambda a, b: cho_solve_blocks(factor, b), lambda a: cho_logdet(factor), a, b
    )


def dense(a, b):
    """Return the same of the Hermitian part, which is what a factor sees."""
    a = (a + a.conj().T) / 2
    return likelihood(jnp.linalg.solve, lambda a: jnp.linalg.slogdet(a)[1], a, b)


def test_first_and_second_derivatives_are_those_of_one_device():
    """Of complex numbers."""
    a, b = definite(16, complex), noise(16, 4, dtype=complex)
    steps = a @ a, noise(16, 4, dtype=complex, seed=3)

    def derivatives(f):
        both = jax.value_and_grad(f, (0, 1))
        return jax.jit(lambda *given: jax.jvp(both, given[:2], given[2:]))

    truth = derivatives(dense)(a, b, *steps)
    with devices((2, 4), AUTO):
        put = [jax.device_put(x, BLOCKS) for x in (a, steps[0])]
        found = derivatives(ours)(put[0], b, put[1], steps[1])
        (_, slopes), _ = found
        assert slopes[0].sharding.is_equivalent_to(put[0].sharding, 2)

    def hermitian(x):
        x = np.asarray(x)
        return (x + x.conj().T) / 2 if x.shape == a.shape else x

    for mine, theirs in zip(*map(jax.tree.leaves, (found, truth)), strict=True):
        near = 1e-10 * np.abs(theirs).max()
        np.testing.assert_allclose(hermitian(mine), hermitian(theirs), atol=near)


@pytest.mark.weekly
def test_a_gradient_in_reverse_has_a_gradient_in_reverse():
    a, weights = definite(12), noise(12, 12, seed=2)
    weights = weights + weights.T

    def twice(logdet, a):
        return jax.grad(lambda a: (jax.grad(logdet)(a) * weights).sum())(a)

    truth = jax.jit(lambda a: twice(lambda a: jnp.linalg.slogdet(a)[1], a))(a)
    with devices((4, 2)):
        found = jax.jit(lambda a: twice(lambda a: cho_logdet(cho_factor(a)), a))(a)
    found = np.asarray(found)
    found = (found + found.T) / 2
    np.testing.assert_allclose(found, truth, atol=1e-10 * np.abs(truth).max())


def test_a_derivative_by_c_alone_is_refused():
    with devices((2, 4)):
        factor, b = cho_factor(definite(8)), noise(8, 8)
        for f in lambda factor: cho_solve_blocks(factor, b), cho_logdet:
            with pytest.raises(ValueError, match="no derivative by c alone"):
                jax.jvp(lambda c, f=f: f(replace(factor, c=c)), [factor.c], [factor.c])


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
    """Sweeps send L twice, b forwards, and x backwards twice, as a sum does."""
    n = 384
    with devices((2, 4)):
        spec = jax.NamedSharding(jax.sharding.get_mesh(), BLOCKS)
        a = jax.ShapeDtypeStruct((n, n), np.float32, sharding=spec)
        block = 4 * n * n // 8
        program = measure(jax.grad(lambda a: cho_logdet(cho_factor(a))), a)
        assert program.temporaries < 4 * block
        assert max(step.bytes for step in program.collectives) < block / 4
        words = 2 * (5 / 8) * (3 / 4) / 2 + (1 / 4 + 2 / 4) * 1 / 2
        sent = program.sent - cost(cho_factor, a).sent
        assert abs(sent / 4 / n**2 - words) < 0.2


# -------------------------------------------------------------------------- errors


def test_what_is_not_positive_definite_gives_nan():
    a = definite(16)
    a[9, 9] = -1
    with devices((2, 4)):
        assert all(np.isnan(each).all() for each in all_three(a, noise(16, 8)))


def test_a_matrix_of_nothing_and_no_sides_are_solved():
    with devices((2, 4)):
        nothing = all_three(np.zeros((0, 0)), np.zeros((0, 3)))
        assert [each.shape for each in nothing] == [(0, 3), (0, 0), ()]
        assert nothing[2] == 0
        assert cho_solve_blocks(cho_factor(np.eye(4)), np.zeros((4, 0))).shape == (4, 0)


def test_what_does_not_fit_is_refused():
    with devices((2, 4)):
        factor = cho_factor(definite(8))
        for b, complaint in [
            (noise(8), r"does not fit: pass \[8, K\]"),
            (noise(7, 8), r"does not fit: pass \[8, K\]"),
            ([[1.0]] * 8, "b is a list"),
            (np.full((8, 1), None), "b is of obj"),
        ]:
            with pytest.raises(ValueError, match=complaint):
                cho_solve_blocks(factor, b)
        with pytest.raises(ValueError, match=r"tuple'>: pass what cho_factor returns"):
            cho_logdet((factor.a, factor.c))
        inside = jax.shard_map(
            lambda b: cho_solve_blocks(factor, b),
            in_specs=jax.P(),
            out_specs=jax.P(),
            axis_names={"x"},
        )
        with pytest.raises(ValueError, match="it has its own"):
            inside(np.eye(8))
    with devices((4, 2)), pytest.raises(ValueError, match="use that one"):
        cho_inv(factor)
