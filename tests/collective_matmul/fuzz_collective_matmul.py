"""Products of matrices of which one goes round a ring."""

import jax
import jax.numpy as jnp
from fuzzing import Target, dtypes, make_tests
from hypothesis import strategies as st

from examples import collective_matmul

ROWS, COLUMNS = jax.P("x"), jax.P(None, "x")
SPECS = {
    "ring_matmul": (ROWS, ROWS),
    "ag_matmul": (ROWS, COLUMNS),
    "matmul_rs": (COLUMNS, ROWS),
}
CUT = {"ring_matmul": "mk", "ag_matmul": "mn", "matmul_rs": "mk"}
sizes = st.integers(0, 4)


def tame(p):
    """Ask for three ways of fractions only: integers have no gradient to refuse."""
    exact = not jnp.issubdtype(p["dtype"], jnp.inexact)
    return p | ({"ways": 2} if exact and p["ways"] == 3 else {})


PARAMETERS = st.fixed_dictionaries(
    {
        "dtype": dtypes,
        "m": sizes,
        "k": sizes,
        "n": sizes,
        "odd": st.sampled_from([0, 0, 0, 1]),
        "ways": st.sampled_from([None, 1, 2, 2, 3]),
    }
).map(tame)


def target(name):
    """Return the target of one of the products."""
    f = getattr(collective_matmul, name)

    def arrays(p, random):
        x = p["mesh"]["x"]
        m, k, n = (p[s] * (x if s in CUT[name] else 1) + p["odd"] for s in "mkn")
        random = random.normal
        return random(size=(m, k, 2)) @ [1, 1j], random(size=(k, n, 2)) @ [1, 1j]

    def call(p):
        ways = p["ways"]
        return f if ways is None else lambda a, b: f(a, b, ways=ways)

    def reference(p, a, b):
        if p["ways"] == 3:
            raise ValueError("a ring has two ways round")
        return a @ b

    return Target(
        name=f"collective_matmul.{name}",
        parameters=PARAMETERS,
        arrays=arrays,
        call=call,
        reference=reference,
        specs=lambda p: SPECS[name],
        plain=lambda p: (
            p["m"] * p["k"] * p["n"] > 0 and p["odd"] == 0 and p["ways"] != 3
        ),
        axes=("x",),
        differentiate=(0, 1),
    )


REFUSALS = (
    "{} = {} cannot be cut into {} parts: pad it to {}",
    "{} x {} is no product of two matrices, or is empty",
)

TARGETS = tuple(map(target, SPECS))

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
