"""Stencils on a grid in blocks."""

import jax
import jax.numpy as jnp
import numpy as np
from fuzzing import GIVEN, NUMBERS, Target, dtypes, make_tests
from hypothesis import strategies as st

from examples import halo

BLOCKS = jax.P("x", "y")
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
    heat = (*NUMBERS, "float16", "bfloat16")
    return p | ({} if p["dtype"] in heat else {"dtype": "float32"})


def exact(p):
    """Ask for halos of no width of fractions only."""
    inexact = jnp.issubdtype(p["dtype"], jnp.inexact)
    width = p["width"] if inexact else min(max(p["width"], 1), p["n"], p["m"])
    return p | {"odd": 0, "width": width}


def grid(p, random):
    """A grid of blocks [n, m], or one that cannot be cut."""
    x, y = p["mesh"]["x"], p["mesh"]["y"]
    shape = p["n"] * x + p["odd"], p["m"] * y, 2
    return (random.normal(size=shape) @ [1, 1j],)


def beyond(value):
    """How to pad a grid: periodic, or with a value."""
    return {"mode": "wrap"} if value is None else {"constant_values": value}


def heat(u, p, value=None):
    """The heat equation, with the plain loop."""
    if not jnp.issubdtype(p["dtype"], jnp.inexact) or p["steps"] < 0:
        raise ValueError("no heat, or no steps")
    for _ in range(p["steps"]):
        v = np.pad(u, 1, **beyond(value))
        sides = v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:]
        u = u + 0.125 * (sides - 4 * u)
    return u


def fits(p):
    """Say whether blocks can be cut, and their halos filled."""
    x, width = p["mesh"]["x"], p["width"]
    cut = not p["odd"] or x == 1
    n = p["n"] + p["odd"]
    return cut and 1 <= width <= min(n, p["m"]) and p["steps"] >= 0


def extended(p, u, axes=(0, 1), value=None):
    """Every block with its halo, put side by side."""
    counts = p["mesh"]["x"], p["mesh"]["y"]
    width = p["width"]
    sizes = [size // count for size, count in zip(u.shape, counts, strict=True)]
    thinnest = min(sizes[axis] for axis in axes)
    if (p["odd"] and counts[0] > 1) or not 1 <= width <= thinnest:
        raise ValueError("too narrow")
    more = [width * (axis in axes) for axis in (0, 1)]
    whole = np.pad(u, [(each, each) for each in more], **beyond(value))
    rows, columns = (
        [slice(i * size, (i + 1) * size + 2 * each) for i in range(count)]
        for size, count, each in zip(sizes, counts, more, strict=True)
    )
    return np.block([[whole[i, j] for j in columns] for i in rows])


def block_level(name, f, reference):
    """Return the target of a function of a block."""

    def by_block(p):
        def run(array):
            halo.mesh_sizes("x", "y")  # or it refuses axes of two types
            padded = jax.shard_map(
                lambda block: f(block, p), in_specs=BLOCKS, out_specs=BLOCKS
            )
            return padded(halo.place(array, BLOCKS))

        return jax.jit(run)

    return Target(
        name=f"halo.{name}",
        parameters=parameters.map(exact),
        arrays=grid,
        call=by_block,
        reference=reference,
        specs=lambda p: (BLOCKS,),
        plain=fits,
        given=tuple(given for given in GIVEN if given != "list"),
    )


def stepping(name, call, reference):
    """Return the target of a function of a grid."""
    return Target(
        name=f"halo.{name}",
        parameters=parameters.map(fractions),
        arrays=grid,
        call=call,
        reference=reference,
        specs=lambda p: (BLOCKS,),
        plain=fits,
    )


def value(p):
    """What lies beyond the grid, of its type."""
    return np.asarray(p["value"]).astype(jnp.dtype(p["dtype"])).item()


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
        lambda b, p: halo.exchange(b, "y", 1, p["width"]),
        lambda p, u: extended(p, u, (1,)),
    ),
    block_level(
        "exchange_open",
        lambda b, p: halo.exchange_open(b, "x", -2, p["width"], p["value"]),
        lambda p, u: extended(p, u, (0,), value(p)),
    ),
    block_level("surround", lambda b, p: halo.surround(b, p["width"]), extended),
    block_level(
        "surround_open",
        lambda b, p: halo.surround_open(b, p["width"], p["value"]),
        lambda p, u: extended(p, u, (0, 1), value(p)),
    ),
    stepping(
        "diffuse",
        lambda p: lambda u: halo.diffuse(u, p["steps"], 0.125, p["width"]),
        lambda p, u: heat(u, p),
    ),
    stepping(
        "diffuse_open",
        lambda p: lambda u: halo.diffuse_open(u, p["steps"], 0.125, p["value"]),
        lambda p, u: heat(u, p, p["value"]),
    ),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
