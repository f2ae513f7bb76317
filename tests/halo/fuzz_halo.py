"""Stencils on a grid in blocks."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from fuzzing import GIVEN, NUMBERS, Target, dtypes, make_tests
from halo.test_halo import BLOCKS, WRAP, march, windows
from hypothesis import strategies as st

from examples import halo

HEAT = *NUMBERS, "float16", "bfloat16"
parameters = st.fixed_dictionaries(
    {
        "dtype": dtypes,
        "n": st.integers(1, 4),
        "m": st.integers(1, 4),
        "odd": st.sampled_from([0, 0, 0, 1]),
        "steps": st.sampled_from([0, 1, 2, 3, -1]),
        "width": st.sampled_from([1, 1, 2, 3, 0]),
        "value": st.sampled_from([0, 1.5]),
    }
)


def fractions(p):
    """Heat is of fractions, and integers have no gradient to refuse."""
    return p | ({} if p["dtype"] in HEAT else {"dtype": "float32"})


def exact(p):
    """Ask for halos of no width of fractions only."""
    width = (
        p["width"] if p["dtype"] in HEAT else min(max(p["width"], 1), p["n"], p["m"])
    )
    return p | {"odd": 0, "width": width}


def grid(p, random):
    """A grid of blocks [n, m], or one that cannot be cut."""
    shape = p["n"] * p["mesh"]["x"] + p["odd"], p["m"] * p["mesh"]["y"], 2
    return (random.normal(size=shape) @ [1, 1j],)


def walls(p):
    """What lies beyond the grid, of its type."""
    value = np.asarray(p["value"]).astype(jnp.dtype(p["dtype"])).item()
    return {"constant_values": value}


def heat(p, u, **padding):
    """The heat equation, with the plain loop."""
    if p["steps"] < 0:
        raise ValueError("no steps")
    return march(u, p["steps"], 0.125, **padding)


def extended(p, u, axes=(0, 1), **padding):
    """Every block with its halo, put side by side."""
    mesh, width = (p["mesh"]["x"], p["mesh"]["y"]), p["width"]
    if not 1 <= width <= min(u.shape[axis] // mesh[axis] for axis in axes):
        raise ValueError("too narrow")
    widths = [width * (axis in axes) for axis in (0, 1)]
    return windows(u, mesh, widths, **padding)


def fits(p):
    """Return whether blocks can be cut, and their halos filled."""
    cut = not p["odd"] or p["mesh"]["x"] == 1
    return cut and 1 <= p["width"] <= min(p["n"], p["m"]) and p["steps"] >= 0


def target(name, call, reference, adapt=fractions, **options):
    """Return the target of a function of a grid."""
    return Target(
        name=f"halo.{name}",
        parameters=parameters.map(adapt),
        arrays=grid,
        call=call,
        reference=reference,
        specs=lambda p: (BLOCKS,),
        plain=fits,
        **options,
    )


def block_level(name, f, reference):
    """Return the target of a function of a block."""

    def call(p):
        @jax.jit
        def run(array):
            halo.mesh_sizes("x", "y")  # or it refuses axes of two types
            padded = jax.shard_map(partial(f, p), in_specs=BLOCKS, out_specs=BLOCKS)
            return padded(halo.place(array, BLOCKS))

        return run

    given = tuple(given for given in GIVEN if given != "list")
    return target(name, call, reference, exact, given=given)


REFUSALS = (
    "a block of {} cells cannot fill a halo of {}: take a width from 1 to {}, "
    "or cut the grid into fewer blocks",
    "axes {} of two types: make all Auto or all Explicit",
    "{} = {} cannot be cut into {} parts: take a grid of {}",
    "{} is no grid of heat: pass two axes of floats, real or complex",
)

TARGETS = (
    block_level(
        "exchange",
        lambda p, block: halo.exchange(block, "y", 1, p["width"]),
        lambda p, u: extended(p, u, (1,), **WRAP),
    ),
    block_level(
        "exchange_open",
        lambda p, block: halo.exchange_open(block, "x", -2, p["width"], p["value"]),
        lambda p, u: extended(p, u, (0,), **walls(p)),
    ),
    block_level(
        "surround",
        lambda p, block: halo.surround(block, p["width"]),
        lambda p, u: extended(p, u, **WRAP),
    ),
    block_level(
        "surround_open",
        lambda p, block: halo.surround_open(block, p["width"], p["value"]),
        lambda p, u: extended(p, u, **walls(p)),
    ),
    target(
        "diffuse",
        lambda p: lambda u: halo.diffuse(u, p["steps"], 0.125, p["width"]),
        lambda p, u: heat(p, u, **WRAP),
    ),
    target(
        "diffuse_open",
        lambda p: lambda u: halo.diffuse_open(u, p["steps"], 0.125, p["value"]),
        lambda p, u: heat(p, u, **walls(p)),
    ),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
