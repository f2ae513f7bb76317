"""Sine and cosine transforms of lines along any axis."""

import scipy.fft
from fuzzing import Target, dtypes, make_tests, sizes
from hypothesis import strategies as st

from examples import sine_cosine

floats = dtypes.filter(lambda name: name in ("float32", "float64", "complex64"))
KEYS = {"dtype": floats, "n": sizes, "m": sizes, "axis": st.integers(-2, 1)}
anything = st.fixed_dictionaries(KEYS)


def lines(p, random):
    """Lines of one number or more along an axis."""
    return (random.normal(size=(p["n"], p["m"], 2)) @ [1, 1j],)


def in_scipy(name, p, a):
    """The transform of SciPy, or its inverse."""
    if "dct1" in name and p[("n", "m")[p["axis"]]] == 1:
        raise ValueError("SciPy fails at a line of one point, which has no two walls")
    scipys = getattr(scipy.fft, name.rstrip("12"))
    return scipys(a, int(name[-1]), axis=p["axis"])


def one(name):
    """The target of a transform."""
    return Target(
        name=f"sine_cosine.{name}",
        parameters=anything,
        arrays=lines,
        call=lambda p: lambda a: getattr(sine_cosine, name)(a, p["axis"]),
        reference=lambda p, a: in_scipy(name, p, a),
        given=("jax", "replicated"),
    )


TARGETS = tuple(
    one(f"{inverse}{name}")
    for name in ("dst1", "dst2", "dct1", "dct2")
    for inverse in ("", "i")
)

test_cases, test_draws = make_tests(TARGETS)
