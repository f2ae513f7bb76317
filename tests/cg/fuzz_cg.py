"""Conjugate gradients and Lanczos, with diagonal matrices; inside `shard_map`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from fuzzing import FLOATS, NUMBERS, Target, double, dtypes, is_inexact, make_tests
from halo.fuzz_halo import REFUSALS
from hypothesis import strategies as st

from examples import cg, halo

HALVES = "float16", "bfloat16"
AXES = "x", "y"
WHOLE = jax.P(AXES)
KEYS = {"dtype": dtypes, "n": st.integers(1, 9), "s": st.integers(1, 2)}
KEYS |= {"power": st.sampled_from([0, 0, 25, -25])}


def system(p, random):
    """A diagonal of numbers from 1 to 3, and a right-hand side of any size."""
    n = p["n"] * p["mesh"]["x"] * p["mesh"]["y"]
    power = p["power"] if p["dtype"] in NUMBERS else 0
    b = (random.normal(size=(n, 2)) @ [1, 1j]) * 10.0**power
    return 1 + 2 * random.random(n) + 0j, b


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


def quotient(p, d, v):
    """The quotient of Rayleigh: the first number on the diagonal of Lanczos."""
    return cg.lanczos(lambda u: d * u, v, AXES, 1)[0]


def near(p, arrays, result, expected):
    """Compare up to what the tolerance leaves."""
    error = np.linalg.norm(double(result) - expected)
    assert error <= 30 * stop(result.dtype).tol * np.linalg.norm(expected)


def target(function, answer, allowed=NUMBERS, outs=WHOLE, **more):
    """The target of a function of blocks, for the types of numbers that it allows."""

    def run(p, *arrays):
        halo.mesh_sizes(*AXES)  # what lays the vectors out refuses axes of two types
        mapped = jax.shard_map(
            partial(function, p), in_specs=(WHOLE, WHOLE), out_specs=outs
        )
        return mapped(*(halo.place(array, WHOLE) for array in arrays))

    def reference(p, d, b):
        if p["dtype"] not in (*allowed, *HALVES):
            raise ValueError("no numbers for it")
        return answer(d.real, b)

    return Target(
        parameters=st.fixed_dictionaries(KEYS),
        arrays=system,
        call=lambda p: jax.jit(partial(run, p)),
        reference=reference,
        specs=lambda p: (WHOLE, WHOLE),
        given=("numpy", "jax", "sharded", "replicated"),  # blocks are no lists
        **more,
    )


def rayleigh(d, v):
    v = v / np.abs(v).max()
    return np.array([np.vdot(v, d * v).real / np.vdot(v, v).real])


SOLVES = {
    "answer": lambda d, b: b / d,
    "check": near,
    "under": ("nothing", "jit", "scan"),
}
TARGETS = (
    target(solve, name="cg.cg", **SOLVES),
    target(solve_by_steps, name="cg.s_step_cg", allowed=FLOATS, **SOLVES),
    target(
        quotient,
        rayleigh,
        outs=jax.P(),
        name="cg.lanczos",
        under=("nothing", "jit"),
        rounding=1e3,
    ),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
