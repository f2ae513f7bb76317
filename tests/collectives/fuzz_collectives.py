"""Collectives made of permutations, called inside `jax.shard_map`."""

import jax
import jax.numpy as jnp
import numpy as np
from fuzzing import GIVEN, Target, dtypes, make_tests
from hypothesis import strategies as st

from examples import collectives, halo

ROWS = jax.P("x")
parameters = st.fixed_dictionaries(
    {
        "dtype": dtypes,
        "n": st.integers(1, 3),
        "m": st.integers(1, 3),
        "odd": st.sampled_from([0, 0, 0, 1]),
        "axis": st.sampled_from([0, 1, -1, -2]),
        "ways": st.sampled_from([1, 1, 2, 2, 3]),
    }
)


def tame(p):
    """Ask for what is refused of fractions only: integers have no gradient."""
    inexact = jnp.issubdtype(p["dtype"], jnp.inexact)
    return p if inexact else p | {"odd": 0, "ways": min(p["ways"], 2)}


def numbers(p):
    """Booleans have no sum."""
    return tame(p | ({"dtype": "int8"} if p["dtype"] == "bool" else {}))


def rows(p, random):
    """Blocks one below the other, both of whose axes x divides, but for the odd."""
    x = p["mesh"]["x"]
    n, m = p["n"] * x, p["m"] * x
    return (random.normal(size=(x * (n + p["odd"]), m + p["odd"], 2)) @ [1, 1j],)


def total(blocks):
    """The sum, of the type of the blocks."""
    return np.sum(blocks, axis=0, dtype=blocks[0].dtype)


def exchanged(p, blocks):
    """What an all-to-all leaves on each device."""
    pieces = [np.split(block, len(blocks), axis=p["axis"]) for block in blocks]
    other = -1 - p["axis"] % 2
    return [np.concatenate(mine, axis=other) for mine in zip(*pieces, strict=True)]


def target(name, reference, options=lambda p: ()):
    """Return the target of one of the collectives, of the blocks of an array."""
    f, is_ring = getattr(collectives, name), name.startswith("ring")

    def by_block(p):
        def run(block):
            return f(block, "x", *options(p))

        each = jax.shard_map(run, in_specs=ROWS, out_specs=ROWS)
        return jax.jit(lambda array: each(halo.place(array, ROWS)))

    def stacked(p, array):
        if p["ways"] == 3 and is_ring:
            raise ValueError("a ring has two ways round")
        return np.concatenate(reference(p, np.split(array, p["mesh"]["x"])))

    def plain(p):
        x = p["mesh"]["x"]
        power = x & (x - 1) == 0 or name != "doubling_all_reduce"
        return power and not p["odd"] and (p["ways"] != 3 or not is_ring)

    return Target(
        name=f"collectives.{name}",
        parameters=parameters.map(numbers if "reduce" in name else tame),
        arrays=rows,
        call=by_block,
        reference=stacked,
        specs=lambda p: (ROWS,),
        plain=plain,
        axes=("x",),
        given=tuple(given for given in GIVEN if given != "list"),
    )


REFUSALS = (
    "{} devices cannot pair up again and again: take a power of two, or "
    "ring_all_reduce",
)

TARGETS = (
    target(
        "ring_all_gather",
        lambda p, blocks: [np.concatenate(blocks, axis=p["axis"])] * len(blocks),
        lambda p: (p["axis"], p["ways"]),
    ),
    target(
        "ring_reduce_scatter",
        lambda p, blocks: np.split(total(blocks), len(blocks), axis=p["axis"]),
        lambda p: (p["axis"], p["ways"]),
    ),
    target(
        "ring_all_reduce",
        lambda p, blocks: [total(blocks)] * len(blocks),
        lambda p: (p["ways"],),
    ),
    target("doubling_all_reduce", lambda p, blocks: [total(blocks)] * len(blocks)),
    target("direct_all_to_all", exchanged, lambda p: (p["axis"], -1 - p["axis"] % 2)),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
