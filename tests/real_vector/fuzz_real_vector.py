"""The Fourier transform of a long real vector, there and back."""

from dataclasses import replace

import jax
import numpy as np
from four_steps.fuzz_four_steps import inside, parameters
from fuzzing import Target, make_tests

from examples import real_vector


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
    parameters=parameters,
    arrays=lambda p, random: (random.normal(size=p["n"]),),
    call=one,
    reference=half,
    specs=lambda p: (jax.P(("x", "y")),),
    kinds=("Auto", "Explicit"),
    given=("numpy", "jax", "sharded", "replicated"),
)
ROWS = {"name": "real_vector.rfft_transposed", "call": both, "reference": filtered}

test_cases, test_draws = make_tests((SPECTRUM, replace(SPECTRUM, **ROWS)))
