"""Stencils on a grid in blocks."""

from functools import partial

import jax
from fuzzing import GIVEN, NUMBERS, Target, dtypes, make_tests
from halo.test_halo import BLOCKS, WRAP, march, windows
from hypothesis import strategies as st

from examples import halo

HEAT = st.sampled_from([*NUMBERS, "float16", "bfloat16"])
blocks = {
    "dtype": dtypes,
    "n": st.integers(1, 4),
    "m": st.integers(1, 4),
    "odd": st.just(0),
    "width": st.sampled_from([1, 1, 2, 3, 0]),
    "value": st.sampled_from([0, 1.5]),
}
odd, steps = st.sampled_from([0, 0, 0, 1]), st.integers(-1, 3)
grids = blocks | {"dtype": HEAT, "odd": odd, "steps": steps}


def grid(p, random):
    """A grid of blocks [n, m], or one that cannot be cut."""
    shape = p["n"] * p["mesh"]["x"] + p["odd"], p["m"] * p["mesh"]["y"], 2
    return (random.normal(size=shape) @ [1, 1j],)


def surroundings(name, p):
    """What lies beyond the grid: the grid again, or a value."""
    return {"constant_values": p["value"]} if "open" in name else WRAP


def fits(p):
    """Return whether blocks can be cut, and their halos filled."""
    cut = not p["odd"] or p["mesh"]["x"] == 1
    return cut and 1 <= p["width"] <= min(p["n"], p["m"]) and p["steps"] >= 0


def heat(name):
    """Return the target of a function of a grid, whose reference is a plain loop."""
    last = "value" if "open" in name else "width"

    def reference(p, u):
        if p["steps"] < 0:
            raise ValueError("no steps")
        return march(u, p["steps"], 0.125, **surroundings(name, p))

    def call(p):
        return lambda u: getattr(halo, name)(u, p["steps"], 0.125, **{last: p[last]})

    return target(name, call, reference, grids, plain=fits)


def block_level(name, axes=(0, 1), **along):
    """Return the target of a function of a block: all with halos, side by side."""

    def reference(p, u):
        if not 1 <= p["width"] <= min((p["n"], p["m"])[axis] for axis in axes):
            raise ValueError("too narrow")
        widths = [p["width"] * (axis in axes) for axis in (0, 1)]
        mesh = p["mesh"]["x"], p["mesh"]["y"]
        return windows(u, mesh, widths, **surroundings(name, p))

    def call(p):
        options = {"value": p["value"]} if "open" in name else {}
        pad = partial(getattr(halo, name), width=p["width"], **along, **options)

        @jax.jit
        def run(array):
            halo.mesh_sizes("x", "y")  # or it refuses axes of two types
            padded = jax.shard_map(pad, in_specs=BLOCKS, out_specs=BLOCKS)
            return padded(halo.place(array, BLOCKS))

        return run

    given = tuple(given for given in GIVEN if given != "list")
    return target(name, call, reference, blocks, given=given)


def target(name, call, reference, choices, **options):
    """Return a target whose grid lies in blocks."""
    return Target(
        name=f"halo.{name}",
        parameters=st.fixed_dictionaries(choices),
        arrays=grid,
        call=call,
        reference=reference,
        specs=lambda p: (BLOCKS,),
        **options,
    )


REFUSALS = (
    "a block of {} cells cannot fill a halo of {}: take a width from 1 to {}, "
    "or cut the grid into fewer blocks",
    "{} = {} cannot be cut into {} parts: take a grid of {}",
    "{} is no grid of heat: pass two axes of floats, real or complex",
)

TARGETS = (
    block_level("exchange", (1,), axis_name="y", axis=1),
    block_level("exchange_open", (0,), axis_name="x", axis=-2),
    block_level("surround"),
    block_level("surround_open"),
    heat("diffuse"),
    heat("diffuse_open"),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
