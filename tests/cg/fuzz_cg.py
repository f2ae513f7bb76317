"""Conjugate gradients and Lanczos, with diagonal matrices; inside `shard_map`."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from fuzzing import FLOATS, NUMBERS, Target, dtypes, make_tests
from halo.fuzz_halo import REFUSALS
from hypothesis import strategies as st

from examples import cg, halo

HALVES = "float16", "bfloat16"
WHOLE = jax.P(("x", "y"))

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


def by_blocks(f, outs):
    """Return the program that runs f on blocks of vectors, laid out first."""

    def run(*arrays):
        halo.mesh_sizes("x", "y")  # what lays the vectors out refuses axes of two types
        mapped = jax.shard_map(f, in_specs=(WHOLE,) * len(arrays), out_specs=outs)
        return mapped(*(halo.place(array, WHOLE) for array in arrays))

    return jax.jit(run)


def stop(dtype):
    """Stop at a tolerance that this type can reach."""
    if not jnp.issubdtype(dtype, jnp.inexact):
        return cg.STOP
    return cg.Stop(max(1e-6, 30 * float(jnp.finfo(dtype).eps)), 60)


def solve(p):
    """The solution by `cg`, one step at a time."""

    def run(d, b):
        d = d.real.astype(b.dtype)
        return cg.cg(lambda v: d * v, b, ("x", "y"), stop=stop(b.dtype)).x

    return by_blocks(run, WHOLE)


def solve_by_steps(p):
    """The solution by `s_step_cg`, of a matrix with eigenvalues up to 1."""

    def run(d, b):
        powers = cg.powers_of(lambda v: d / 3 * v)
        scaled = b / 3 if jnp.issubdtype(b.dtype, jnp.inexact) else b
        return cg.s_step_cg(powers, scaled, ("x", "y"), p["s"], stop(b.dtype)).x

    return by_blocks(run, WHOLE)


def solved(allowed):
    """The solution, where the type has one."""

    def reference(p, d, b):
        if p["dtype"] not in allowed:
            raise ValueError("no numbers for it")
        return b / d.real

    return reference


def near(p, arrays, result, expected):
    """Compare up to what the tolerance leaves."""
    dtype = np.asarray(result).dtype
    error = np.linalg.norm(np.asarray(result) / 1.0 - expected)
    assert error <= 30 * stop(dtype).tol * np.linalg.norm(expected)


def first(p):
    """The first number on the diagonal of the matrix of Lanczos."""

    def run(d, v):
        return cg.lanczos(lambda u: d * u, v, ("x", "y"), 1)[0]

    return by_blocks(run, jax.P())


def quotient(p, d, v):
    """The quotient of Rayleigh."""
    if p["dtype"] not in (*NUMBERS, *HALVES):
        raise ValueError("no numbers for it")
    v = v / np.abs(v).max()
    return np.array([np.vdot(v, d * v).real / np.vdot(v, v).real])


SOLVER = Target(
    name="cg.cg",
    parameters=anything,
    arrays=system,
    call=solve,
    reference=solved((*NUMBERS, *HALVES)),
    specs=lambda p: (WHOLE, WHOLE),
    check=near,
    given=("numpy", "jax", "sharded", "replicated"),  # blocks are no lists
    under=("nothing", "jit", "scan"),
)

TARGETS = (
    SOLVER,
    replace(
        SOLVER,
        name="cg.s_step_cg",
        call=solve_by_steps,
        reference=solved((*FLOATS, *HALVES)),
    ),
    replace(
        SOLVER,
        name="cg.lanczos",
        call=first,
        reference=quotient,
        check=None,
        under=("nothing", "jit"),
        rounding=1e3,
    ),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
