"""A picture shows on each device the elements that the device holds."""

import numpy as np
from fuzzing import make_tests
from meshes.fuzz_meshes import target

from examples import pictures


def drawn(a):
    """Write into a copy of every device what its box in the picture encloses."""
    picture = pictures.draw(a)
    assert picture.shape == a.shape
    host, same = np.asarray(a), []
    for shard in a.addressable_shards:
        box = picture.boxes[shard.device.id]
        part = tuple(slice(*edges) for edges in box)
        same.append(np.array_equal(host[part], shard.data))
    svg = picture._repr_html_()
    assert svg.count("<svg") == svg.count("</svg>") == 1
    assert picture.facts[0].startswith(a.dtype.name)
    return np.array(same)


def all_there(p, arrays, result, expected):
    """Every device's box holds its elements."""
    assert result.all()
    assert len(result) == np.prod([*p["mesh"].values()])


def reference(p, a):
    """Nobody draws what has no elements."""
    if not a.size:
        raise ValueError("nothing to draw")


options = {"reference": reference, "check": all_there}
TARGETS = (target("pictures.draw", lambda p: drawn, **options),)

test_cases, test_draws = make_tests(TARGETS)
