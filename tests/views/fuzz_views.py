"""Numbers in a picture are those of the shards, or they do not fit."""

import numpy as np
from fuzzing import make_tests
from meshes.fuzz_meshes import target
from pictures.fuzz_pictures import all_there, reference

from examples import pictures, views


def written(a):
    """Say of each device whether its line has the words of its shard."""
    picture = pictures.draw(a)
    try:
        lines = views.numbers(picture, a).view.lines
    except ValueError as error:
        if "such numbers do not fit" not in str(error):
            raise
        large = a.shape[1] * 20 * views.LETTER > views.WIDE or a.shape[0] > 32
        return np.full(len(picture.boxes), large)
    words = [line.replace(" /", "").split() for line in lines]
    counts = {int(device): len(numbers) for _, device, _, *numbers in words}
    return np.array([counts[s.device.id] == s.data.size for s in a.addressable_shards])


options = {"reference": reference, "check": all_there}
TARGETS = (target("views.numbers", lambda p: written, **options),)

test_cases, test_draws = make_tests(TARGETS)
