"""Conjugate gradients and Lanczos, with diagonal matrices; inside `shard_map`."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from fuzzing import FLOATS, NUMBERS, Target, dtypes, is_inexact, make_tests
from halo.fuzz_halo import REFUSALS
from hypothesis import strategies as st

from examples import cg, halo

HALVES = "float16", "bfloat16"
AXES = "x", "y"
WHOLE = jax.P(AXES)

anything = st.fixed_dictionaries(
    {
        "dtype": dtypes,
        "n": st.integers(1, 9),
        "power": st.sampled_from([0, 0, 25, -25]),
        "s": st.integers(1, 2),
    }
)


def system(p, random):
    """A diagonal of numbers from 1 to 3, and a right-hand side of any size."""
    n = p["n"] * p["mesh"]["x"] * p["mesh"]["y"]
    power = p["power"] if p["dtype"] in NUMBERS else 0
    b = (random.normal(size=(n, 2)) @ [1, 1j]) * 10.0**power
    return 1 + 2 * random.random(n) + 0j, b


def by_blocks(f, outs=WHOLE):
    """Return what makes the program of f(p, d, b) on blocks, laid out first."""

    def run(p, *arrays):
        halo.mesh_sizes(*AXES)  # what lays the vectors out refuses axes of two types
        mapped = jax.shard_map(partial(f, p), in_specs=(WHOLE, WHOLE), out_specs=outs)
        return mapped(*(halo.place(array, WHOLE) for array in arrays))

    return lambda p: jax.jit(partial(run, p))


def answer(function, allowed):
    """Return the reference of a function of a diagonal and a vector, of these types."""

    def reference(p, d, b):
        if p["dtype"] not in allowed:
            raise ValueError("no numbers for it")
        return function(d.real, b)

    return reference


def stop(dtype):
    """Stop at a tolerance that this type can reach."""
    if not jnp.issubdtype(dtype, jnp.inexact):
        return cg.STOP
    return cg.Stop(max(1e-6, 30 * float(jnp.finfo(dtype).eps)), 60)


def solve(p, d, b):
    """The solution by `cg`, one step at a time."""
    d = d.real.astype(b.dtype)
    return cg.cg(lambda v: d * v, b, AXES, stop=stop(b.dtype)).x


def solve_by_steps(p, d, b):
    """The solution by `s_step_cg`, of a matrix with eigenvalues up to 1."""
    powers, b = cg.powers_of(lambda v: d / 3 * v), b / 3 if is_inexact(b) else b
    return cg.s_step_cg(powers, b, AXES, p["s"], stop(b.dtype)).x


def near(p, arrays, result, expected):
    """Compare up to what the tolerance leaves."""
    dtype = np.asarray(result).dtype
    error = np.linalg.norm(np.asarray(result) / 1.0 - expected)
    assert error <= 30 * stop(dtype).tol * np.linalg.norm(expected)


def first(p, d, v):
    """The first number on the diagonal of the matrix of Lanczos."""
    return cg.lanczos(lambda u: d * u, v, AXES, 1)[0]


def quotient(d, v):
    """The quotient of Rayleigh, which is this number."""
    v = v / np.abs(v).max()
    return np.array([np.vdot(v, d * v).real / np.vdot(v, v).real])


SOLVER = Target(
    name="cg.cg",
    parameters=anything,
    arrays=system,
    call=by_blocks(solve),
    reference=answer(lambda d, b: b / d, (*NUMBERS, *HALVES)),
    specs=lambda p: (WHOLE, WHOLE),
    check=near,
    given=("numpy", "jax", "sharded", "replicated"),  # blocks are no lists
    under=("nothing", "jit", "scan"),
)
BY_STEPS = replace(
    SOLVER,
    name="cg.s_step_cg",
    call=by_blocks(solve_by_steps),
    reference=answer(lambda d, b: b / d, (*FLOATS, *HALVES)),
)
LANCZOS = replace(
    SOLVER,
    name="cg.lanczos",
    call=by_blocks(first, jax.P()),
    reference=answer(quotient, (*NUMBERS, *HALVES)),
    check=None,
    under=("nothing", "jit"),
    rounding=1e3,
)

test_cases, test_draws = make_tests((SOLVER, BY_STEPS, LANCZOS), REFUSALS)
