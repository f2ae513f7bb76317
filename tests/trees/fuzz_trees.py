"""Trees, laid out and made: a matrix, a vector and a scalar, by specs that divide."""

from dataclasses import replace

import jax
from fuzzing import Target, dtypes, make_tests
from hypothesis import strategies as st

from examples import trees

SPECS = {
    "whole": jax.P(),
    "rows": jax.P("x"),
    "columns": jax.P(None, "y"),
    "blocks": jax.P("x", "y"),
    "both": jax.P(("x", "y")),
}
anything = st.fixed_dictionaries(
    {"dtype": dtypes, "n": st.integers(1, 3), "spec": st.sampled_from([*SPECS])}
)


def spec(p):
    """The spec of a case."""
    return SPECS[p["spec"]]


def matrix(p, random):
    """A matrix that every spec divides."""
    unit = p["mesh"]["x"] * p["mesh"]["y"]
    return (random.normal(size=(p["n"] * unit, unit, 2)) @ [1, 1j],)


def laid(p):
    """Lay a tree out by rules of its paths, and count what a device holds."""

    def call(a):
        tree = {"w": a, "more": [a]}
        specs = trees.specs_by_path(tree, [(r"w|more/\d", spec(p))])
        placed = trees.shard_tree(tree, specs)
        assert trees.bytes_per_device(placed) > 0
        assert trees.batch_specs(tree, "x") == {"w": jax.P("x"), "more": [jax.P("x")]}
        return placed

    return call


REFUSALS = ("{}: {} cuts an axis by axes of two types",)

LAID = Target(
    name="trees.shard_tree",
    parameters=anything,
    arrays=matrix,
    call=laid,
    reference=lambda p, a: {"w": a, "more": [a]},
    specs=lambda p: (spec(p),),
    given=("numpy", "jax", "sharded", "replicated"),
    under=("nothing",),
)
MADE = replace(
    LAID,
    name="trees.sharded_init",
    call=lambda p: trees.sharded_init(lambda a: [a, a.T], spec(p)),
    reference=lambda p, a: [a, a.T],
    under=("nothing", "jit"),
)

test_cases, test_draws = make_tests((LAID, MADE), REFUSALS)
