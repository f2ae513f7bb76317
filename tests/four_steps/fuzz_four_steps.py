"""The Fourier transform of a long vector, there and back."""

import jax
import numpy as np
from fft.fuzz_fft import inside
from fuzzing import Target, dtypes, make_tests
from hypothesis import strategies as st

from examples import four_steps

parameters = st.fixed_dictionaries(
    {
        "dtype": dtypes,
        "norm": st.sampled_from([None, "backward", "ortho", "forward"]),
        "n": st.integers(1, 300),
        "over": st.sampled_from([None, "x", "y", ("y", "x")]),
    }
)


def target(name, call, reference):
    """The target of a transform of a vector."""
    return Target(
        name=f"four_steps.{name}",
        parameters=parameters,
        arrays=lambda p, random: (random.normal(size=(p["n"], 2)) @ [1, 1j],),
        call=call,
        reference=reference,
        specs=lambda p: (jax.P(("x", "y")),),
    )


def one(name):
    """The target of a transform that NumPy has; zeros may follow."""

    def call(p):
        transform = getattr(four_steps, name)
        return lambda a: inside(transform(a, norm=p["norm"], over=p["over"]), p["n"])

    def reference(p, a):
        return getattr(np.fft, name)(a.astype(complex), norm=p["norm"])

    return target(name, call, reference)


def there_and_back(p):
    """Both transposed transforms, one after the other."""
    options = {"norm": p["norm"], "over": p["over"]}

    def call(a):
        turned = four_steps.fft_transposed(a, **options)
        return inside(four_steps.ifft_transposed(turned, p["n"], **options), p["n"])

    return call


def unchanged(p, a):
    """What they leave; a prime size has no matrix."""
    count = np.prod([p["mesh"][name] for name in p["over"] or ("x", "y")])
    if np.prod(four_steps.best_matrix(p["n"], int(count))) > p["n"]:
        raise ValueError("no matrix")
    return a * 1.0


TARGETS = one("fft"), one("ifft"), target("fft_transposed", there_and_back, unchanged)

test_cases, test_draws = make_tests(TARGETS)
