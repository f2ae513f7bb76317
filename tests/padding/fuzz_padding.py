"""Shapes that no mesh divides: every size, and a spec of any two axes."""

import math
from dataclasses import replace

import jax
import numpy as np
from fuzzing import Target, dtypes, make_tests, sizes
from hypothesis import strategies as st

from examples import padding

SPECS = {
    "whole": ((), ()),
    "rows": (("x",), ()),
    "columns": ((), ("y",)),
    "blocks": (("x",), ("y",)),
    "both": ((), ("x", "y")),
}
KEYS = {"dtype": dtypes, "n": sizes, "m": sizes, "spec": st.sampled_from([*SPECS])}


def spec(p):
    """The spec of a case."""
    return jax.P(*SPECS[p["spec"]])


def larger(p):
    """The sizes rounded up, one after the other."""
    pairs = zip((p["n"], p["m"]), SPECS[p["spec"]], strict=True)
    return tuple(n + -n % math.prod(map(p["mesh"].get, names)) for n, names in pairs)


def padded(p, a, fill=7):
    """The matrix in the corner of a larger one."""
    both = np.full(larger(p), fill).astype(a.dtype)
    both[: p["n"], : p["m"]] = a
    return both


REFUSALS = (
    "a {} is no array: pass one",
    "{} names mesh axes of two types: pass to `jax.make_mesh` as axis_types "
    "either Auto for all of them or Explicit for all",
)

PAD = Target(
    name="padding.pad_to_mesh",
    parameters=st.fixed_dictionaries(KEYS),
    arrays=lambda p, random: (random.normal(size=(p["n"], p["m"], 2)) @ [1, 1j],),
    call=lambda p: lambda a: padding.pad_to_mesh(a, spec(p), 7),
    reference=padded,
    specs=lambda p: (spec(p),),
)
MASK = replace(  # which takes no array: times a number
    PAD,
    name="padding.valid_mask",
    arrays=lambda p, random: (np.array(1 + random.random() + 0j),),
    call=lambda p: (
        lambda a: padding.valid_mask((p["n"], p["m"]), spec(p)).astype(a.dtype) * a
    ),
    reference=lambda p, a: padded(p, np.asarray(a), fill=0),
    specs=lambda p: (),
    given=("numpy", "jax"),
)
CUT = replace(
    PAD,
    name="padding.unpad",
    arrays=lambda p, random: (random.normal(size=(*larger(p), 2)) @ [1, 1j],),
    call=lambda p: lambda a: padding.unpad(a, (p["n"], p["m"])),
    reference=lambda p, a: a[: p["n"], : p["m"]],
)

test_cases, test_draws = make_tests((PAD, MASK, CUT), REFUSALS)
