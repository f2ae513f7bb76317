"""Shapes that no mesh divides: every size, and a spec of any two axes."""

import jax
import numpy as np
from fuzzing import Target, dtypes, make_tests, sizes
from hypothesis import strategies as st

from examples import padding

SPECS = {
    "whole": jax.P(),
    "rows": jax.P("x"),
    "columns": jax.P(None, "y"),
    "blocks": jax.P("x", "y"),
    "both": jax.P(None, ("x", "y")),
}
KEYS = {"dtype": dtypes, "n": sizes, "m": sizes, "spec": st.sampled_from([*SPECS])}
anything = st.fixed_dictionaries(KEYS)


def spec(p):
    """The spec of a case."""
    return SPECS[p["spec"]]


def larger(p):
    """The sizes rounded up, one after the other."""
    found = []
    for size, entry in zip((p["n"], p["m"]), (*spec(p), None, None), strict=False):
        names = (entry,) if isinstance(entry, str) else entry or ()
        count = int(np.prod([p["mesh"][name] for name in names]))
        found.append((size + count - 1) // count * count)
    return tuple(found)


def matrix(p, random):
    """Any matrix."""
    return (random.normal(size=(p["n"], p["m"], 2)) @ [1, 1j],)


def padded(p, a):
    """The matrix in the corner of a larger one of sevens."""
    both = np.full(larger(p), 7, a.dtype) if a.dtype != bool else np.ones(larger(p))
    both[: p["n"], : p["m"]] = a
    return both.astype(a.dtype)


def mask(p, scale):
    """Where the matrix lies, times a number: a mask takes no array."""
    both = np.zeros(larger(p))
    both[: p["n"], : p["m"]] = 1
    return both * scale


def one(p, random):
    """A number."""
    return (np.array(1 + random.random() + 0j),)


REFUSALS = (
    "a {} is no array: pass one",
    "{} names mesh axes of two types: pass to `jax.make_mesh` as axis_types "
    "either Auto for all of them or Explicit for all",
)

TARGETS = (
    Target(
        name="padding.pad_to_mesh",
        parameters=anything,
        arrays=matrix,
        call=lambda p: lambda a: padding.pad_to_mesh(a, spec(p), 7),
        reference=padded,
        specs=lambda p: (spec(p),),
    ),
    Target(
        name="padding.valid_mask",
        parameters=anything,
        arrays=one,
        call=lambda p: (
            lambda a: padding.valid_mask((p["n"], p["m"]), spec(p)).astype(a.dtype) * a
        ),
        reference=mask,
        given=("numpy", "jax"),
    ),
    Target(
        name="padding.unpad",
        parameters=anything,
        arrays=lambda p, random: (random.normal(size=(*larger(p), 2)) @ [1, 1j],),
        call=lambda p: lambda a: padding.unpad(a, (p["n"], p["m"])),
        reference=lambda p, a: a[: p["n"], : p["m"]],
        specs=lambda p: (spec(p),),
    ),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
