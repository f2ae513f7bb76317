import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal, each_week
from gradients.test_gradients import examples, network, squares

from examples.gradient_check import check_gradient


def total(p):
    return sum(leaf.sum() for leaf in jax.tree.leaves(p))


ONES = {"w": jnp.ones(3), "b": jnp.ones(2)}
SAYS = "but the gradient says"
REAL, NAN = "must be floating-point or complex", "the gradient says nan"
OUTSIDE = r"outside `jax\.jit`"
HALVES = jnp.ones(1000, "f2"), jnp.full(1000, 9000, "f2")  # whose sum overflows


def wide(p):
    return 300 * p.astype("f4").sum()


@each_refusal(
    (lambda: check_gradient(lambda p: 0 * total(p), ONES, ONES), "by -?0, " + SAYS),
    (lambda: check_gradient(total, ONES, {"w": 1.0}), "but their gradient is"),
    (lambda: check_gradient(lambda p: p["w"], ONES, ONES), "must be one real number"),
    (lambda: jax.jit(lambda p: check_gradient(total, p, p))(ONES), OUTSIDE),
    (lambda: check_gradient(total, ONES, {**ONES, "b": jnp.zeros(2)}), SAYS),
    (lambda: check_gradient(total, jnp.ones(3, int), jnp.ones(3, int)), REAL),
    (lambda: check_gradient(total, jnp.ones(3), jnp.full(3, jnp.nan)), NAN),
    (lambda: check_gradient(total, jnp.ones(3), jnp.full(3, jnp.inf)), "says inf"),
    (lambda: check_gradient(wide, *HALVES), ": 30 times as much"),
)
def test_what_is_no_gradient_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("dtype", [each_week(jnp.float32), jnp.bfloat16, jnp.complex64])
def test_a_factor_in_a_gradient_is_found(dtype):
    params, batch = network(dtype), examples(24)
    eps = {"tolerance": 0.1} if dtype == jnp.bfloat16 else {}

    @jax.jit
    def mean(params):
        return squares(params, batch).mean()

    gradient = jax.grad(mean)(params)
    check_gradient(mean, params, gradient, **eps)
    for factor in 8, 0, -1:
        part = {**gradient, "v": factor * gradient["v"]}
        with pytest.raises(ValueError, match="but the gradient says"):
            check_gradient(mean, params, part, **eps)
        wrong = jax.tree.map(lambda g, factor=factor: g * factor, gradient)
        with pytest.raises(ValueError, match=r": (\S+) times as much") as error:
            check_gradient(mean, params, wrong, **eps)
        factor_found = float(str(error.value).split()[-4])
        np.testing.assert_allclose(factor_found, factor, rtol=0.1)


@pytest.mark.parametrize("phase", [each_week(1), 1j, 1 + 1j])
def test_no_phase_of_a_complex_gradient_hides_a_factor(phase):
    params = jnp.ones(3, jnp.complex64)

    def f(p):
        return (phase * p).real.sum()

    check_gradient(f, params, jax.grad(f)(params))
    with pytest.raises(ValueError, match=": 2 times as much"):
        check_gradient(f, params, 2 * jax.grad(f)(params))
