"""Collectives made of permutations, called inside `jax.shard_map`."""

import jax
import numpy as np
from fuzzing import DTYPES, GIVEN, Target, dtypes, make_tests
from hypothesis import strategies as st

from examples import collectives, halo

ROWS = jax.P("x")
choices = {
    "n": st.integers(1, 3),
    "m": st.integers(1, 3),
    "odd": st.sampled_from([0, 0, 0, 1]),
    "axis": st.sampled_from([0, 1, -1, -2]),
    "ways": st.sampled_from([1, 2]),
}
numbers = st.sampled_from([dtype for dtype in DTYPES if dtype != "bool"])  # have sums


def rows(p, random):
    """Blocks one below the other, both of whose axes x divides, but for the odd."""
    x = p["mesh"]["x"]
    n, m = p["n"] * x, p["m"] * x
    return (random.normal(size=(x * (n + p["odd"]), m + p["odd"], 2)) @ [1, 1j],)


def options(p, keys):
    """Arguments of these names; an exchange joins along the other axis."""
    p = p | {"other": -1 - p["axis"] % 2}
    return [p[key] for key in keys]


def gathered(p, blocks):
    return [np.concatenate(blocks, axis=p["axis"])] * len(blocks)


def summed(p, blocks):
    return [np.sum(blocks, axis=0, dtype=blocks[0].dtype)] * len(blocks)


def scattered(p, blocks):
    return np.split(summed(p, blocks)[0], len(blocks), axis=p["axis"])


def exchanged(p, blocks):
    split, join = options(p, ["axis", "other"])
    pieces = zip(
        *(np.split(block, len(blocks), split) for block in blocks), strict=True
    )
    return [np.concatenate(mine, axis=join) for mine in pieces]


def target(name, reference, *keys):
    """Return the target of one of the collectives, of the blocks of an array."""
    f = getattr(collectives, name)

    def by_block(p):
        def run(block):
            return f(block, "x", *options(p, keys))

        each = jax.shard_map(run, in_specs=ROWS, out_specs=ROWS)
        return jax.jit(lambda array: each(halo.place(array, ROWS)))

    def stacked(p, array):
        return np.concatenate(reference(p, np.split(array, p["mesh"]["x"])))

    dtype = {"dtype": numbers if "reduce" in name else dtypes}
    return Target(
        name=f"collectives.{name}",
        parameters=st.fixed_dictionaries(choices | dtype),
        arrays=rows,
        call=by_block,
        reference=stacked,
        specs=lambda p: (ROWS,),
        plain=lambda p: name != "doubling_all_reduce" or p["mesh"]["x"] in (1, 2, 4, 8),
        axes=("x",),
        given=tuple(given for given in GIVEN if given != "list"),
    )


REFUSALS = (
    "{} devices cannot pair up again and again: take a power of two, or "
    "ring_all_reduce",
)

TARGETS = (
    target("ring_all_gather", gathered, "axis", "ways"),
    target("ring_reduce_scatter", scattered, "axis", "ways"),
    target("ring_all_reduce", summed, "ways"),
    target("doubling_all_reduce", summed),
    target("direct_all_to_all", exchanged, "axis", "other"),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
