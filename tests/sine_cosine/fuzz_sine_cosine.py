"""Sine and cosine transforms of lines along any axis."""

import scipy.fft
from fuzzing import NUMBERS, Target, make_tests, sizes
from hypothesis import strategies as st

from examples import sine_cosine

NAMES = "dst1", "dst2", "dct1", "dct2", "idst1", "idst2", "idct1", "idct2"
KEYS = {
    "dtype": st.sampled_from(NUMBERS[:3]),
    "n": sizes,
    "m": sizes,
    "axis": st.integers(-2, 1),
}


def in_scipy(name, p, a):
    """The transform of SciPy, or its inverse."""
    if "dct1" in name and a.shape[p["axis"]] == 1:
        raise ValueError("SciPy fails at a line of one point, which has no two walls")
    return getattr(scipy.fft, name[:-1])(a, int(name[-1]), axis=p["axis"])


def one(name):
    """The target of a transform."""
    return Target(
        name=f"sine_cosine.{name}",
        parameters=st.fixed_dictionaries(KEYS),
        arrays=lambda p, r: (r.normal(size=(p["n"], p["m"], 2)) @ [1, 1j],),
        call=lambda p: lambda a: getattr(sine_cosine, name)(a, p["axis"]),
        reference=lambda p, a: in_scipy(name, p, a),
        given=("jax", "replicated"),
    )


test_cases, test_draws = make_tests(map(one, NAMES))
