"""A recording has what each place of the mesh holds, before a program and after it."""

import numpy as np
from fuzzing import make_tests
from meshes.fuzz_meshes import blocks, target
from pictures.fuzz_pictures import all_there

from examples import films


def places(held, a):
    """Say for each place of the mesh whether what is held there is its shard of `a`."""
    shards = {shard.device: np.asarray(shard.data) for shard in a.addressable_shards}
    devices = list(a.sharding.mesh.devices.flat)
    assert [*held] == [*range(len(devices))]
    return np.array([np.array_equal(held[i], shards[d]) for i, d in enumerate(devices)])


def stored(a):
    """Return what `shards` has."""
    return places(films.shards(a), a)


def recorded(a):
    """Record a program that does nothing, twice."""
    first, *_, last = films.record([lambda a: a] * 2, a)
    assert last.pairs == ()
    return places(first.held, a) & places(last.held, a)


options = {
    "arrays": lambda p, random: blocks({**p, "n": 1 + p["n"]}, random),
    "reference": lambda p, a: a,
    "check": all_there,
}
TARGETS = (
    target("films.shards", lambda p: stored, **options),
    target("films.record", lambda p: recorded, **options),
)

test_cases, test_draws = make_tests(TARGETS)
