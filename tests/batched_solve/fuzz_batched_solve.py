"""Batches of small systems, solved where they lie."""

import jax
import jax.numpy as jnp
import numpy as np
from fuzzing import DTYPES, NUMBERS, Target, make_tests
from hypothesis import strategies as st

from examples import batched_solve

BATCH = jax.P("batch")
choices = {
    "b": st.integers(1, 5),
    "odd": st.sampled_from([0, 0, 0, 1]),
    "n": st.integers(1, 3),
}
numeric = st.sampled_from([dtype for dtype in DTYPES if dtype != "bool"])


def systems(p, random):
    """Matrices with a heavy diagonal, and sides: as many as can be cut, or one more."""
    n, count = p["n"], p["b"] * p["mesh"]["batch"] + p["odd"]
    numbers = random.normal(size=(count, n + 1, n, 2)) @ [1, 1j]
    return numbers[:, 1:] / 4 + 8 * np.eye(n), numbers[:, 0]


def definite(p, random):
    """Hermitian positive definite matrices, or symmetric ones."""
    a, b = systems(p, random)
    a = a if "complex" in p["dtype"] else a.real
    return a @ a.conj().mT, b


def solutions(p, a, b):
    """NumPy's solution of each system."""
    return np.linalg.solve(a, b[..., None])[..., 0]


def iterate(p):
    """Conjugate gradients, to nearly the last digit."""
    tolerance = 30 * float(jnp.finfo(p["dtype"]).eps)
    return batched_solve.independently(
        lambda a, b: batched_solve.conjugate_gradients(a, b, tolerance)[0]
    )


def padded(p, a, b):
    """The systems, and 1 x = 0 until the mesh divides their number."""
    more = -len(a) % p["mesh"]["batch"]
    ones = np.broadcast_to(np.eye(p["n"]), (more, p["n"], p["n"]))
    return np.concatenate([a, ones]), np.concatenate([b, np.zeros((more, p["n"]))])


REFUSALS = (
    "a batch of {}, shape {}, cannot be cut into {} parts: pad it to {}, see "
    "`pad_systems`",
    "a {} and b {} are no batch of systems: pass arrays [B, n, n] and [B, n]",
    "a {} and b {} are no system: pass [n, n] and [n]",
)


def target(name, reference, arrays=systems, dtype=numeric, **options):
    """Return the target of a function of a batch."""
    usual = {
        "call": lambda p: getattr(batched_solve, name),
        "specs": lambda p: (BATCH,) * 2,
        "differentiate": (0, 1),
    }
    return Target(
        name=f"batched_solve.{name}",
        parameters=st.fixed_dictionaries({"dtype": dtype} | choices),
        arrays=arrays,
        reference=reference,
        axes=("batch",),
        **usual | options,
    )


TARGETS = (
    target("solve_batch", solutions),
    target(
        "residuals",
        lambda p, a, x, b: np.linalg.norm(
            (1.0 * a @ x[..., None])[..., 0] - b, axis=-1
        ),
        lambda p, random: (*systems(p, random), systems(p, random)[1]),
        specs=lambda p: (BATCH,) * 3,
        differentiate=(0, 1, 2),
    ),
    target(
        "conjugate_gradients",
        solutions,
        definite,
        st.sampled_from(NUMBERS),
        call=iterate,
        plain=lambda p: not p["odd"] or p["mesh"]["batch"] == 1,
        rounding=1e4,
    ),
    target("pad_systems", padded, under=("nothing",)),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
