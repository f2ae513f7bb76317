"""Products of matrices of which one goes round a ring."""

import jax
from fuzzing import Target, dtypes, make_tests
from hypothesis import strategies as st
from matmul.fuzz_matmul import REFUSALS

from examples import collective_matmul

ROWS, COLUMNS = jax.P("x"), jax.P(None, "x")
SPECS = {
    "ring_matmul": (ROWS, ROWS),
    "ag_matmul": (ROWS, COLUMNS),
    "matmul_rs": (COLUMNS, ROWS),
}
CUT = {"ring_matmul": "mk", "ag_matmul": "mn", "matmul_rs": "mk"}
sizes = st.integers(0, 4)
choices = {
    "dtype": dtypes,
    "odd": st.sampled_from([0, 0, 0, 1]),
    "ways": st.sampled_from([None, 1, 2, 2]),
}
PARAMETERS = st.fixed_dictionaries(choices | dict.fromkeys("mkn", sizes))


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

    return Target(
        name=f"collective_matmul.{name}",
        parameters=PARAMETERS,
        arrays=arrays,
        call=call,
        reference=lambda p, a, b: a @ b,
        specs=lambda p: SPECS[name],
        plain=lambda p: p["m"] * p["k"] * p["n"] > 0 and not p["odd"],
        axes=("x",),
        differentiate=(0, 1),
    )


TARGETS = tuple(map(target, SPECS))

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
