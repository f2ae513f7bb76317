"""Whether a gradient is right."""

import jax.numpy as jnp
import numpy as np
from fuzzing import FLOATS, Target, make_tests
from gradients.fuzz_gradients import loss, mean, one, sizes
from hypothesis import strategies as st

from examples import gradient_check

doubles = st.fixed_dictionaries({"dtype": st.sampled_from(FLOATS), **sizes})


def claim(p, v, x, weights):
    """No error, for the right gradient."""
    return np.zeros(())


def checked(p):
    """Ask `check_gradient` for the right gradient, and for one twice as large."""

    def call(v, x, weights):
        slope = mean(p, *(np.asarray(a, np.float64) for a in (v, x, weights)))[1]
        slope = jnp.asarray(slope, v.dtype)

        def f(v):
            weighted = weights * loss(v, jnp.asarray(x))
            return weighted.sum() / weights.sum()

        gradient_check.check_gradient(f, v, slope)
        try:
            gradient_check.check_gradient(f, v, 2 * slope)
        except ValueError:
            return jnp.zeros(())
        raise AssertionError("a factor of 2 is not found")

    return call


TARGETS = (
    Target(
        name="gradient_check.check_gradient",
        parameters=doubles,
        arrays=one,
        call=checked,
        reference=claim,
        axes=("batch",),
        given=("numpy", "jax"),
        under=("nothing",),
    ),
)

test_cases, test_draws = make_tests(TARGETS)
