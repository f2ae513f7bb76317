"""QR of tall matrices, whose rows lie along one axis, or along two."""

import jax
import numpy as np
from fuzzing import NUMBERS, Target, make_tests, numbers_only
from hypothesis import strategies as st

from examples import tsqr

inexact = st.sampled_from([*NUMBERS, "float16", "bfloat16"])  # others have no gradient
axes = st.sampled_from(["x", "y", ["x"], ["y", "x"], ["x", "y"]])
KEYS = {"dtype": inexact, "m": st.integers(1, 40), "k": st.integers(1, 5)}
KEYS |= {"axis": axes, "sides": st.integers(0, 2)}


def matrix(p, random):
    """A random matrix [M, K], complex."""
    return (random.normal(size=(p["m"], p["k"], 2)) @ [1, 1j],)


def both(p, random):
    """A matrix and right-hand sides, [M] or [M, S]."""
    shape = (p["m"], p["sides"]) if p["sides"] else (p["m"],)
    return *matrix(p, random), random.normal(size=(*shape, 2)) @ [1, 1j]


def of_tall(function):
    """The reference of a function of a tall matrix."""

    def answer(a, *more):
        if len(a) < a.shape[1]:
            raise ValueError("not tall")
        return function(a, *more)

    return numbers_only(answer)


def factors(a):
    """Q and R, with a diagonal of R that is not negative."""
    q, r = np.linalg.qr(a)
    sign = np.sign(np.diag(r).real)
    return q * sign, r * sign[:, None]


def target(name, arrays, reference, **more):
    """The target of a function whose arguments all lie by rows."""
    return Target(
        name=f"tsqr.{name}",
        parameters=st.fixed_dictionaries(KEYS),
        arrays=arrays,
        call=lambda p: lambda *arrays: getattr(tsqr, name)(*arrays, p["axis"]),
        reference=of_tall(reference),
        specs=lambda p: (jax.P((*p["axis"],)),) * (2 if arrays == both else 1),
        rounding=1e5,
        **more,
    )


TARGETS = (
    target("qr", matrix, factors),
    target("lstsq", both, lambda a, b: np.linalg.lstsq(a, b)[0], differentiate=(0, 1)),
)

test_cases, test_draws = make_tests(TARGETS)
