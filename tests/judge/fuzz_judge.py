"""A judge passes what is right, wherever it lies, and nothing else."""

import numpy as np
from fuzzing import make_tests
from meshes.fuzz_meshes import blocks, target

from examples import judge
from examples.shardings import differences

JUDGE = judge.Judge(differences=differences)


def verdicts(a):
    """Judge an array against its own numbers, and against others."""
    host = np.asarray(a)
    other = host.copy()
    other.flat[-1:] = ~other.flat[-1:] if host.dtype == bool else other.flat[-1] + 9
    same = JUDGE.value(a, host).passed, JUDGE.sharding(a, a, a.shape).passed
    return np.array([*same, not JUDGE.value(a, other).passed])


options = {
    "arrays": lambda p, random: blocks({**p, "n": 1 + p["n"]}, random),
    "reference": lambda p, a: np.ones(3),
}
TARGETS = (target("judge.Judge", lambda p: verdicts, **options),)

test_cases, test_draws = make_tests(TARGETS)
