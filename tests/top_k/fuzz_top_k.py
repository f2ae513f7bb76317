"""The largest numbers of rows."""

import jax
import numpy as np
from fuzzing import Target, dtypes, make_tests
from hypothesis import strategies as st

from examples import top_k

CUTS = {"rows": ("x", None), "columns": (None, "y"), "both": ("x", "y")}
rows = st.fixed_dictionaries(
    {
        "dtype": dtypes,
        "shape": st.lists(st.sampled_from([1, 2, 4, 6]), min_size=0, max_size=2),
        "n": st.sampled_from([1, 4, 12, 13, 24]),
        "k": st.integers(0, 5),
        "cut": st.sampled_from([*CUTS]),
    }
)


def scores(p, random):
    """Rows of different numbers, as long as they are fractions."""
    size = (*p["shape"], p["n"])
    return (random.permutation(int(np.prod(size))).reshape(size) / 64 - 1,)


def largest(p, a):
    """A stable sort of what is to be as small as possible."""
    if not 1 <= p["k"] <= p["n"] or np.iscomplexobj(a):
        raise ValueError("no such k, or no order")
    places = np.argsort(-a.astype(float), axis=-1, kind="stable")[..., : p["k"]]
    return np.take_along_axis(a, places, -1), places


def lying(p):
    """Rows that are split, cut, or both."""
    first, last = CUTS[p["cut"]]
    return (jax.P(*[first, None][: len(p["shape"])], last),)


TOP_K = Target(
    name="top_k.top_k",
    parameters=rows,
    arrays=scores,
    call=lambda p: lambda a: top_k.top_k(a, p["k"]),
    reference=largest,
    specs=lying,
)

test_cases, test_draws = make_tests((TOP_K,))
