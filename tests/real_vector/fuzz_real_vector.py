"""The Fourier transform of a long real vector, there and back."""

from dataclasses import replace

import jax
import numpy as np
from fuzzing import Target, dtypes, make_tests
from hypothesis import strategies as st

from examples import real_vector

KEYS = {
    "dtype": dtypes,
    "norm": st.sampled_from([None, "backward", "ortho", "forward"]),
    "n": st.integers(1, 300),
    "over": st.sampled_from([None, "x", "y", ("y", "x")]),
}


def numbers(p, random):
    """The vector of a case."""
    return (random.normal(size=p["n"]),)


def one(p):
    """A spectrum, each number times its frequency and one."""

    def call(a):
        half = real_vector.rfft(a, norm=p["norm"], over=p["over"])
        by = 1 + real_vector.rfftfreq(p["n"], over=p["over"])
        return inside(half * by.astype(half.dtype), p["n"] // 2 + 1)

    return call


def both(p):
    """A filter in rows, there and back, and one in order; then a ramp."""
    options = {"norm": p["norm"], "over": p["over"]}

    def call(a):
        turned = real_vector.rfft_transposed(a, **options)
        waves = real_vector.rfftfreq_transposed(p["n"], over=p["over"])
        turned = turned * (1 + waves**2).astype(turned.dtype)
        home = real_vector.irfft_transposed(turned, p["n"], **options)
        half = real_vector.rfft(inside(home, p["n"]), **options)
        home = inside(real_vector.irfft(half, p["n"], **options), p["n"])
        ramp = inside(real_vector.fftfreq(p["n"], over=p["over"]), p["n"])
        return home * (1 + ramp).astype(home.dtype)

    return call


def inside(answer, n):
    """What a vector has without the zeros that fill it up."""
    if jax.sharding.get_abstract_mesh().explicit_axes:
        answer = jax.reshard(answer, jax.P())  # JAX slices what is cut, evenly only
    return answer[:n]


def refuse(p):
    """Raise ValueError for a size that devices cannot share."""
    n = p["n"]
    count = int(np.prod([p["mesh"][name] for name in p["over"] or ("x", "y")]))
    r, c = (-(-size // count) * count for size in real_vector.best_half(n, count))
    if r * c > 4 * n > 4 * count**2:
        raise ValueError("no matrix")


def half(p, a):
    """What NumPy says."""
    refuse(p)
    return np.fft.rfft(a, norm=p["norm"]) * (1 + np.fft.rfftfreq(p["n"]))


def filtered(p, a):
    """What is left of a vector there and back."""
    refuse(p)
    n = p["n"]
    there = np.fft.rfft(a) * (1 + np.fft.rfftfreq(n) ** 2)
    return np.fft.irfft(there, n) * (1 + np.fft.fftfreq(n))


SPECTRUM = Target(
    name="real_vector.rfft",
    parameters=st.fixed_dictionaries(KEYS),
    arrays=numbers,
    call=one,
    reference=half,
    specs=lambda p: (jax.P(("x", "y")),),
    kinds=("Auto", "Explicit"),
    given=("numpy", "jax", "sharded", "replicated"),
)
TARGETS = (
    SPECTRUM,
    replace(
        SPECTRUM, name="real_vector.rfft_transposed", call=both, reference=filtered
    ),
)

test_cases, test_draws = make_tests(TARGETS)
