"""What devices hold, counted from the arrays that they hold."""

import math

import jax
import numpy as np
from fuzzing import Target, dtypes, make_tests
from hypothesis import strategies as st

from examples import meshes

SPECS = jax.P(), jax.P("x"), jax.P(None, "y"), jax.P(("y", "x")), jax.P("y", "x")
ways = st.sampled_from(range(len(SPECS)))
KEYS = {"dtype": dtypes, "n": st.integers(0, 2), "m": st.integers(1, 2)}
anything = st.fixed_dictionaries(KEYS | {"lies": ways, "goes": ways})


def blocks(p, random):
    """A matrix that every spec can cut; and one without elements."""
    parts = math.prod(p["mesh"].values())
    return (random.normal(size=(p["n"] * parts, p["m"] * parts, 2)) @ [1, 1j],)


def stored(a):
    """Count on every device what is there, and what `bytes_held` says."""
    there = np.zeros(64, int)
    for shard in a.addressable_shards:
        there[shard.device.id] += shard.data.nbytes
    sizes = meshes.bytes_held({"one": a, "two": [a]})
    return there, np.array([sizes.get(i, 0) for i in range(64)])


def missing(p):
    """Compare with sets of elements, for a way to lie that is drawn."""

    def counts(a):
        target = jax.NamedSharding(jax.sharding.get_mesh(), SPECS[p["goes"]])
        numbers = np.arange(a.size).reshape(a.shape)
        before, after = (
            {d.id: {*numbers[part].ravel()} for d, part in each.items()}
            for each in (s.devices_indices_map(a.shape) for s in (a.sharding, target))
        )
        lacks = {i: len(after[i] - before.get(i, set())) for i in sorted(after)}
        sizes = meshes.bytes_missing(a, target)
        assert [*sizes] == [*lacks]
        size = a.dtype.itemsize
        return np.array([*lacks.values()]) * size, np.array([*sizes.values()])

    return counts


def alike(p, arrays, result, expected):
    """Both counts are the same; that of two arrays is twice that of one."""
    there, found = result
    np.testing.assert_array_equal(found, there * expected)


def target(name, call, **others):
    """Return the target of a function of a matrix that lies as it may."""
    options = {
        "parameters": anything,
        "arrays": blocks,
        "specs": lambda p: (SPECS[p["lies"]],),
        "given": ("replicated", "sharded"),
        "under": ("nothing",),
    }
    return Target(name=name, call=call, **options | others)


options = {"check": alike, "given": ("jax", "replicated", "sharded")}
TARGETS = (
    target("meshes.bytes_held", lambda p: stored, reference=lambda p, a: 2, **options),
    target("meshes.bytes_missing", missing, reference=lambda p, a: 1, **options),
)

test_cases, test_draws = make_tests(TARGETS)
