"""Refinement, with factors that every device makes of the whole matrix."""

import jax
import numpy as np
from fuzzing import Target, make_tests
from hypothesis import strategies as st
from refinement.test_refinement import gathered

from examples import refinement

WIDE = "float64", "complex128"
KEYS = {"dtype": st.sampled_from([*WIDE, "float32", "int32"]), "n": st.integers(1, 17)}
KEYS |= {"k": st.integers(0, 3), "power": st.sampled_from([0, 0, 100])}
equations = st.fixed_dictionaries(KEYS)  # of no power less: differences want room


def both(p, random):
    """A matrix of any size of numbers, and right-hand sides."""
    n, sides = p["n"], (p["n"], p["k"]) if p["k"] else (p["n"],)
    power = p["power"] if p["dtype"] in WIDE else 0
    a = random.normal(size=(n, n, 2)) @ [1, 1j] + 2 * n * np.eye(n)
    return a * 10.0**power, random.normal(size=(*sides, 2)) @ [1, 1j]


def solved(p, a, b):
    """The solution, of numbers in floating point."""
    if p["dtype"] == "int32":
        raise ValueError("no factors")
    return np.linalg.solve(a, b)


def refined(function):
    """The solution alone, with a fallback."""
    return lambda p: jax.jit(lambda a, b: function(a, b, gathered, gathered).x)


HOW = {
    "arrays": both,
    "reference": solved,
    "specs": lambda p: (jax.P("x", "y"),),
    "kinds": ("Auto", "Explicit"),  # meshes of both are refused, as by every module
    "given": ("numpy", "jax", "sharded", "replicated"),
    "differentiate": (0, 1),
    "rounding": 1e4,
}
TARGETS = (
    Target(
        name="refinement.refine_blocks",
        parameters=equations.filter(lambda p: p["k"]),
        call=refined(refinement.refine_blocks),
        under=("nothing", "jit", "grad"),
        **HOW,
    ),
    Target(
        name="refinement.refine",
        parameters=equations,
        call=refined(refinement.refine),
        **HOW,
    ),
)

test_cases, test_draws = make_tests(TARGETS)
