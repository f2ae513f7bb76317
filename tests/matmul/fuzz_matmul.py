"""Products of matrices in blocks."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from fuzzing import Target, dtypes, make_tests
from hypothesis import strategies as st

from examples import matmul

BLOCKS = jax.P("x", "y")
LAYERS = jax.P("x", ("z", "y")), jax.P(("z", "x"), "y")
sizes = st.integers(0, 4)


def tame(p):
    """Ask for no panels of fractions only: integers have no gradient to refuse."""
    exact = not jnp.issubdtype(p["dtype"], jnp.inexact)
    return p | ({"panels": 1} if exact and p["panels"] == 0 else {})


parameters = st.fixed_dictionaries(
    {
        "dtype": dtypes,
        "m": sizes,
        "k": sizes,
        "n": sizes,
        "odd": st.sampled_from([0, 0, 0, 1]),
        "panels": st.sampled_from([None, 1, 3, 0]),
    }
).map(tame)


def parts(p, name):
    """Into how many parts M, K and N are cut."""
    x, y, z = (p["mesh"].get(axis, 1) for axis in "xyz")
    if name == "cannon":
        return x, x, x
    panels = 4 if p["panels"] is None else p["panels"]
    return x, math.lcm(x, y) * z * panels, y * z


def plain(name):
    """Say which calls may not be refused."""

    def check(p):
        square = p["mesh"]["x"] == p["mesh"]["y"] or name != "cannon"
        filled = p["m"] * p["k"] * p["n"] > 0
        return square and filled and not p["odd"] and p["panels"] is None

    return check


def target(name, axes=("x", "y"), specs=(BLOCKS, BLOCKS)):
    """Return the target of one of the products."""
    f = getattr(matmul, name)

    def operands(p, random):
        """Two matrices, of sizes that can be cut or not."""
        cut = [max(part, 1) for part in parts(p, name)]
        m, k, n = (p[s] * c + p["odd"] for s, c in zip("mkn", cut, strict=True))
        random = random.normal
        return random(size=(m, k, 2)) @ [1, 1j], random(size=(k, n, 2)) @ [1, 1j]

    def call(p):
        some = p["panels"] is not None and name != "cannon"
        return partial(f, panels=p["panels"]) if some else f

    def reference(p, a, b):
        if name != "cannon" and p["panels"] == 0:
            raise ValueError("no panels")
        return a @ b

    return Target(
        name=f"matmul.{name}",
        parameters=parameters,
        arrays=operands,
        call=call,
        reference=reference,
        specs=lambda p: specs,
        plain=plain(name),
        axes=axes,
        differentiate=(0, 1),
    )


REFUSALS = (
    "Cannon needs a square mesh, not {} x {}: use summa",
    "axes {} of two types: make all Auto or all Explicit",
    "{} = {} cannot be cut into {} parts: pad it to {}",
    "{} x {} is no product of two matrices, or is empty",
)

TARGETS = (
    target("summa"),
    target("cannon"),
    target("summa_25d", ("x", "y", "z"), LAYERS),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
