"""Refinement, with factors that every device makes of the whole matrix."""

import functools

import jax
import numpy as np
from fuzzing import Target, make_tests
from hypothesis import strategies as st

from examples import refinement

INNER = (
    "add_strip",
    "select_columns",
    "result_type",
    "correct",
    "exponent_of",
    "unpad_rows",
    "solve_pair",
    "place",
    "check_equations",
    "refine_matrix",
    "solve_half",
    "solve_refined",
    "solve_unpadded",
    "strip_width",
    "column_max",
    "ldexp",
    "iterate_corrections",
)
PROGRAM = "dense", "in_lines"  # its words: see tests/refinement/test_refinement.py
WIDE = "float64", "complex128"
equations = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*WIDE, "float32", "int32"]),
        "n": st.integers(1, 17),
        "k": st.integers(0, 3),
        "power": st.sampled_from([0, 0, 100, -100]),
    }
)


def both(p, random):
    """A matrix of any size of numbers, and right-hand sides."""
    n, sides = p["n"], (p["n"], p["k"]) if p["k"] else (p["n"],)
    power = p["power"] if p["dtype"] in WIDE else 0
    a = random.normal(size=(n, n, 2)) @ [1, 1j] + 2 * n * np.eye(n)
    return a * 10.0**power, random.normal(size=(*sides, 2)) @ [1, 1j]


def factor(a):
    """Make a solver of a matrix, on all devices."""
    factors = jax.scipy.linalg.lu_factor(refinement.place(a, jax.P()))
    solve = jax.scipy.linalg.lu_solve
    return functools.partial(solve, factors), functools.partial(solve, factors, trans=2)


def solved(p, a, b):
    """The solution, of numbers in floating point."""
    if p["dtype"] == "int32":
        raise ValueError("no factors")
    return np.linalg.solve(a, b)


def refined(p):
    """The solution alone."""
    return jax.jit(lambda a, b: refinement.refine(a, b, factor, factor).x)


def factor_for_blocks(a):
    """Make a solver of a matrix, on all devices, of sides that lie in blocks."""

    def through(solve):
        return lambda b: solve(refinement.place(b, jax.P()))

    return tuple(map(through, factor(a)))


def refined_blocks(p):
    """The solution alone, for sides in blocks."""
    how = factor_for_blocks, factor_for_blocks
    return jax.jit(lambda a, b: refinement.refine_blocks(a, b, *how).x)


TARGETS = (
    Target(
        name="refinement.refine_blocks",
        parameters=equations.filter(lambda p: p["k"]),
        arrays=both,
        call=refined_blocks,
        reference=solved,
        specs=lambda p: (jax.P("x", "y"),),
        kinds=("Auto", "Explicit"),
        given=("numpy", "jax", "sharded", "replicated"),
        differentiate=(0, 1),
        under=("nothing", "jit", "grad"),
        rounding=1e4,
    ),
    Target(
        name="refinement.refine",
        parameters=equations,
        arrays=both,
        call=refined,
        reference=solved,
        specs=lambda p: (jax.P("x", "y"),),
        kinds=("Auto", "Explicit"),  # meshes of both are refused, as by every module
        given=("numpy", "jax", "sharded", "replicated"),
        differentiate=(0, 1),
        rounding=1e4,
    ),
)

test_case, test_lists, test_draws = make_tests(
    refinement, TARGETS, INNER, program=PROGRAM
)
