"""Conjugate gradients and Lanczos, with diagonal matrices; inside `shard_map`."""

import jax
import jax.numpy as jnp
import numpy as np
from fuzzing import FLOATS, NUMBERS, Target, dtypes, make_tests
from halo.fuzz_halo import REFUSALS
from hypothesis import strategies as st

from examples import cg, halo

HALVES = "float16", "bfloat16"
INNER = "check_powers", "check_problem", "check_products", "dots", "powers_of"

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
    whole = jax.P(("x", "y"))
    kinds = jax.sharding.AxisType

    def call(*arrays):
        halo.mesh_sizes("x", "y")  # what lays the vectors out refuses axes of two types
        mesh = jax.sharding.get_abstract_mesh()
        names = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
        explicit = names["x"] == kinds.Explicit
        arrays = [jnp.asarray(array) for array in arrays]
        arrays = [jax.reshard(a, whole) if explicit else a for a in arrays]
        specs = (whole,) * len(arrays)
        return jax.jit(jax.shard_map(f, in_specs=specs, out_specs=outs))(*arrays)

    return call


def tolerance(dtype):
    """A tolerance that this type can reach."""
    return cg.Stop(max(1e-6, 30 * float(jnp.finfo(dtype).eps)), 60)


def solve(p):
    """The solution by `cg`, one step at a time."""

    def run(d, b):
        d = d.real.astype(b.dtype)
        inexact = jnp.issubdtype(b.dtype, jnp.inexact)
        stop = tolerance(b.dtype) if inexact else cg.STOP
        return cg.cg(lambda v: d * v, b, ("x", "y"), stop=stop).x

    return by_blocks(run, jax.P(("x", "y")))


def solve_by_steps(p):
    """The solution by `s_step_cg`."""

    def run(d, b):
        powers = cg.powers_of(lambda v: d / 3 * v)
        return cg.s_step_cg(
            powers,
            b / 3 if jnp.issubdtype(b.dtype, jnp.inexact) else b,
            ("x", "y"),
            p["s"],
            tolerance(b.dtype) if jnp.issubdtype(b.dtype, jnp.inexact) else cg.STOP,
        ).x

    return by_blocks(run, jax.P(("x", "y")))


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
    assert error <= 30 * tolerance(dtype).tol * np.linalg.norm(expected)


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


WHOLE = jax.P(("x", "y"))
ARRAYS = "numpy", "jax", "sharded", "replicated"  # blocks are no lists

TARGETS = (
    Target(
        name="cg.cg",
        parameters=anything,
        arrays=system,
        call=solve,
        reference=solved((*NUMBERS, *HALVES)),
        specs=lambda p: (WHOLE, WHOLE),
        check=near,
        given=ARRAYS,
        under=("nothing", "jit", "scan"),
    ),
    Target(
        name="cg.s_step_cg",
        parameters=anything,
        arrays=system,
        call=solve_by_steps,
        reference=solved((*FLOATS, *HALVES)),
        specs=lambda p: (WHOLE, WHOLE),
        check=near,
        given=ARRAYS,
        under=("nothing", "jit", "scan"),
    ),
    Target(
        name="cg.lanczos",
        parameters=anything,
        arrays=system,
        call=first,
        reference=quotient,
        specs=lambda p: (WHOLE, WHOLE),
        given=ARRAYS,
        under=("nothing", "jit"),
        rounding=1e3,
    ),
)

test_case, test_lists, test_draws = make_tests(cg, TARGETS, INNER, REFUSALS)
