"""Draws that do not depend on the mesh."""

from dataclasses import replace
from functools import partial, reduce

import jax
import numpy as np
from fuzzing import FLOATS, Target, make_tests
from hypothesis import strategies as st
from jax import random as jax_random

from examples import random_numbers

ROWS = jax.P("x")
uniform = partial(jax_random.uniform, dtype=np.float32)  # whatever is the default
SPECS = {
    "blocks": jax.P("x", "y"),
    "turned": jax.P("y", "x"),
    "rows": jax.P(("x", "y")),
    "one axis": jax.P(None, "x"),
    "whole": jax.P(),
}
parameters = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*FLOATS, "bfloat16", "complex64", "int32"]),
        "shape": st.lists(st.integers(0, 2), min_size=0, max_size=3),
        "tile": st.integers(1, 2),
        "spec": st.sampled_from([*SPECS]),
        "odd": st.sampled_from([0, 0, 0, 1]),
    }
)


def shape_of(p):
    """Return a shape in whole tiles that the mesh can cut, or not."""
    cut = p["mesh"]["x"] * p["mesh"]["y"] * p["tile"]
    return tuple(n * cut + p["odd"] for n in p["shape"])


def draw(p):
    """Return a function that draws by tiles."""
    shape, spec = shape_of(p), SPECS[p["spec"]]
    tile, key = (p["tile"],) * len(shape), jax_random.key(3)
    return lambda x: random_numbers.sample(uniform, key, shape, spec, tile)


def tile_by_tile(p, x):
    """Draw all tiles in a loop, each with the key of its place."""
    shape, t = shape_of(p), p["tile"]
    if len(SPECS[p["spec"]]) > len(shape) or any(n % t for n in shape):
        raise ValueError("a spec, or tiles, that do not fit")
    answer = np.zeros(shape)
    for place in np.ndindex(*(n // t for n in shape)):
        where = tuple(slice(i * t, i * t + t) for i in place)
        key = reduce(jax_random.fold_in, place, jax_random.key(3))
        answer[where] = uniform(key, (t,) * len(shape))
    return answer


def block(p, random):
    """An array that the mesh can cut."""
    cut = p["mesh"]["x"] * p["mesh"]["y"]
    return (random.normal(size=(2 * cut, cut, 2)) @ [1, 1j],)


def drop(p):
    """Return dropout under `jax.shard_map`."""
    spec = SPECS[p["spec"]]

    def body(block):
        return random_numbers.dropout(block, jax_random.key(5), 0.25, spec)

    return jax.jit(jax.shard_map(body, in_specs=spec, out_specs=spec))


def mask(p, x):
    """Keep what `bernoulli` keeps, of numbers that can be scaled."""
    if not np.issubdtype(x.dtype, np.inexact):
        raise ValueError("integers")
    keep = jax_random.bernoulli(jax_random.key(5), np.float32(0.75), x.shape)
    return np.where(np.asarray(keep), x / 0.75, 0)


def own_words(block):
    """Add the first word of the key of each device along x."""
    key = random_numbers.per_device_key(jax_random.key(1), "x")
    varied = random_numbers.like_key(0.0, key)
    return block + (jax_random.bits(key) >> 16).astype("f4") + varied


def words(p, x):
    """The same one after another."""
    keys = [jax_random.fold_in(jax_random.key(1), i) for i in range(len(x))]
    return x + np.array([int(jax_random.bits(key)) >> 16 for key in keys])


REFUSALS = (
    "axis {}: {} cells are no whole tiles of {} on each of {} devices: pass "
    "another tile, or a shape of {}",
)

SAMPLE = Target(
    name="random_numbers.sample",
    parameters=parameters,
    arrays=lambda p, random: (np.zeros(1),),
    call=draw,
    reference=tile_by_tile,
    given=("numpy",),
    under=("nothing", "jit"),
    plain=lambda p: not p["odd"],
)
DROPOUT = Target(
    name="random_numbers.dropout",
    parameters=parameters,
    arrays=block,
    call=drop,
    reference=mask,
    specs=lambda p: (SPECS[p["spec"]],),
    given=("sharded",),
    kinds=("Auto", "Explicit"),  # mixed, JAX has no gradient of any `shard_map`
    under=("nothing", "jit", "grad", "scan"),
)
KEYS = replace(
    DROPOUT,
    name="random_numbers.per_device_key",
    parameters=st.fixed_dictionaries({"dtype": st.just("float32")}),
    arrays=lambda p, random: (np.zeros(p["mesh"]["x"]),),
    call=lambda p: jax.jit(jax.shard_map(own_words, in_specs=ROWS, out_specs=ROWS)),
    reference=words,
    specs=lambda p: (ROWS,),
    kinds=SAMPLE.kinds,
    under=("nothing", "jit", "scan"),
)
LIKE_KEY = replace(KEYS, name="random_numbers.like_key")

test_cases, test_draws = make_tests((SAMPLE, DROPOUT, KEYS, LIKE_KEY), REFUSALS)
