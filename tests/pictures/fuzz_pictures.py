"""A picture shows on each device the elements that the device holds."""

import numpy as np
from fuzzing import make_tests
from meshes.fuzz_meshes import target

from examples import pictures


def drawn(a):
    """Return of every device whether its box in the picture encloses what it holds."""
    picture, host = pictures.draw(a), np.asarray(a)
    assert picture.shape == a.shape
    assert picture.facts[0].startswith(a.dtype.name)
    svg = picture._repr_html_()
    assert svg.count("<svg") == svg.count("</svg>") == 1

    def is_there(shard):
        part = tuple(slice(*edges) for edges in picture.boxes[shard.device.id])
        return np.array_equal(host[part], shard.data)

    return np.array([*map(is_there, a.addressable_shards)])


def all_there(p, arrays, result, expected):
    """Every device's box holds its elements."""
    assert result.all()
    assert len(result) == np.prod([*p["mesh"].values()])


def reference(p, a):
    """Nobody draws what has no elements."""
    if not a.size:
        raise ValueError("nothing to draw")


TARGETS = (
    target("pictures.draw", lambda p: drawn, reference=reference, check=all_there),
)

test_cases, test_draws = make_tests(TARGETS)
