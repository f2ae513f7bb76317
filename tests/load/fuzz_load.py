"""Reading into shardings, in one process: any shape, any spec, any dtype."""

import jax
from fuzzing import Target, dtypes, make_tests
from hypothesis import strategies as st

from examples import agreement, load

SPECS = {
    "whole": jax.P(),
    "rows": jax.P("x"),
    "columns": jax.P(None, "y"),
    "blocks": jax.P("x", "y"),
    "turned": jax.P("y", "x"),
    "both": jax.P(None, ("y", "x")),
}
sizes = st.sampled_from([0, 1, 2, 3, 4, 6, 8, 10, 12, 24])  # many divide
keys = {"dtype": dtypes, "n": sizes, "m": sizes, "spec": st.sampled_from([*SPECS])}
anything = st.fixed_dictionaries(keys)


def sharding(p):
    """The sharding of a case, on the mesh in context."""
    return jax.NamedSharding(jax.sharding.get_mesh(), SPECS[p["spec"]])


def matrix(p, random):
    """Any matrix."""
    return (random.normal(size=(p["n"], p["m"], 2)) @ [1, 1j],)


def whole(p, a):
    """The matrix itself; JAX refuses to cut it into unequal shards."""
    sharding(p).shard_shape(a.shape)
    return a


def checked(p, a):
    """Read a matrix and compare the shards with it."""
    read = load.read_slices(a, sharding(p))
    load.check_pieces(read, a)
    agreement.assert_replicated({"a": read})
    return read


def scattered(p, a):
    """Send a matrix from the first process, in pieces of a few bytes."""
    return load.scatter(a, sharding(p), limit=64)


def target(name, call):
    """A function that reads a source: called by nothing of JAX, for a NumPy array."""
    return Target(
        name=f"load.{name}",
        parameters=anything,
        arrays=matrix,
        call=lambda p: lambda a: call(p, a),
        reference=whole,
        given=("numpy",),
        under=("nothing",),
        rounding=0,
    )


TARGETS = (
    target("read_slices", lambda p, a: load.read_slices(a, sharding(p))),
    target("read_block", lambda p, a: load.read_block(a, sharding(p))),
    target("check_pieces", checked),
    target("scatter", scattered),
)

test_cases, test_draws = make_tests(TARGETS)
