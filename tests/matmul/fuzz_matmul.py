"""Products of matrices in blocks."""

import math
from functools import partial

import jax
from fuzzing import Target, dtypes, make_tests
from hypothesis import strategies as st

from examples import matmul

BLOCKS = jax.P("x", "y")
LAYERS = jax.P("x", ("z", "y")), jax.P(("z", "x"), "y")
choices = {
    "dtype": dtypes,
    "odd": st.sampled_from([0, 0, 0, 1]),
    "panels": st.sampled_from([None, 1, 3, 0]),
}
sizes = dict.fromkeys(("m", "k", "n"), st.sampled_from([1, 2, 3, 4, 0]))
parameters = st.fixed_dictionaries(choices | sizes)


def parts(p, name):
    """Into how many parts M, K and N are cut."""
    x, y, z = (p["mesh"].get(axis, 1) for axis in "xyz")
    panels = 4 if p["panels"] is None else max(p["panels"], 1)
    return (x, x, x) if name == "cannon" else (x, math.lcm(x, y) * z * panels, y * z)


def target(name, axes=("x", "y"), specs=(BLOCKS, BLOCKS)):
    """Return the target of one of the products."""
    is_cannon = name == "cannon"

    def operands(p, random):
        """Two matrices, of sizes that can be cut or not."""
        cut = zip("mkn", parts(p, name), strict=True)
        m, k, n = (p[size] * count + p["odd"] for size, count in cut)
        random = random.normal
        return random(size=(m, k, 2)) @ [1, 1j], random(size=(k, n, 2)) @ [1, 1j]

    def call(p):
        some = p["panels"] is not None and not is_cannon
        return partial(getattr(matmul, name), **{"panels": p["panels"]} if some else {})

    def reference(p, a, b):
        if p["panels"] == 0 and not is_cannon:
            raise ValueError("no panels")
        return a @ b

    def plain(p):
        """Say which calls may not be refused."""
        square = p["mesh"]["x"] == p["mesh"]["y"] or not is_cannon
        cut = p["m"] * p["k"] * p["n"] > 0 and not p["odd"]
        return square and cut and p["panels"] is None

    return Target(
        name=f"matmul.{name}",
        parameters=parameters,
        arrays=operands,
        call=call,
        reference=reference,
        specs=lambda p: specs,
        plain=plain,
        axes=axes,
        differentiate=(0, 1),
    )


REFUSALS = (
    "Cannon needs a square mesh, not {} x {}: use summa",
    "{} = {} cannot be cut into {} parts: pad it to {}",
    "{} x {} is no product of two matrices, or is empty",
)

TARGETS = (
    target("summa"),
    target("cannon"),
    target("summa_25d", ("x", "y", "z"), LAYERS),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
