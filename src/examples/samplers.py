# SPDX-License-Identifier: MIT-0
"""An atlas of samplers: what each function of jax.random does when devices share it.

Every sampler draws 1024 times, compiled once for all devices along a mesh axis and once
for a single one. The two programs give what is sent and held; their draws are compared.

    key      key<fry>[]      one key, the same on all devices
    draws    [1024@x, ..]    Auto axes, asked for by `out_shardings`
    type     [1024@x, ..]    Explicit axes, asked for by `out_sharding`

Each program runs once; nearly all the time is compilation.

    JAX_NUM_CPU_DEVICES=8 python samplers.py

Copy this file alone: it needs JAX and NumPy. `survey_all` takes the function `measure`
of the book's `communication.py`, which reads the compiled programs.
"""

import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

SIZE = 1024
P3 = np.array([0.2, 0.3, 0.5], np.float32)
SAMPLERS = {  # with what to call each; `shape` is (SIZE,) unless it is given
    "ball": {"d": 3},
    "bernoulli": {},
    "beta": {"a": 2.0, "b": 3.0},
    "binomial": {"n": 100.0, "p": 0.3},
    "bits": {},
    "categorical": {"logits": np.log(P3)},
    "cauchy": {},
    "chisquare": {"df": 3.0},
    "choice": {"a": SIZE},
    "choice, replace=False": {"a": SIZE, "replace": False},
    "dirichlet": {"alpha": P3},
    "double_sided_maxwell": {"loc": 0.0, "scale": 1.0},
    "exponential": {},
    "f": {"dfnum": 3.0, "dfden": 4.0},
    "gamma": {"a": 2.0},
    "generalized_normal": {"p": 1.5},
    "geometric": {"p": 0.3},
    "gumbel": {},
    "laplace": {},
    "loggamma": {"a": 2.0},
    "logistic": {},
    "lognormal": {},
    "maxwell": {},
    "multinomial": {"n": 100.0, "p": P3, "shape": (SIZE, 3)},
    "multivariate_normal": {"mean": 0 * P3, "cov": np.diag(P3)},
    "normal": {},
    "orthogonal": {"n": 3},
    "pareto": {"b": 2.0},
    "permutation": {"x": SIZE},
    "poisson": {"lam": 5.0},
    "rademacher": {},
    "randint": {"minval": 0, "maxval": 100},
    "rayleigh": {"scale": 1.0},
    "split": {"num": SIZE},
    "t": {"df": 3.0},
    "triangular": {"left": 0.0, "mode": 0.5, "right": 1.0},
    "truncated_normal": {"lower": -1.0, "upper": 1.0},
    "uniform": {},
    "wald": {"mean": 2.0},
    "weibull_min": {"scale": 1.0, "concentration": 2.0},
}
NO_SAMPLERS = {  # the other public names of jax.random
    *("Key", "PRNGKey", "clone", "fold_in", "key", "key_data", "key_dtype"),
    *("key_impl", "random_gamma_p", "wrap_key_data"),
}


@dataclass(frozen=True)
class Entry:
    """What a sampler does when its `SIZE` draws lie on all devices along `x`.

    `messages` are the collectives by kind, each in every iteration of a loop if there
    is one. `held` and `alone` are temporary bytes, of one of the devices and of a
    device that draws everything. `values` says how both draws compare: "same", "last
    bits" or "different". `explicit` is the type under an Explicit mesh.
    """

    name: str
    messages: str
    held: int
    alone: int
    values: str
    explicit: str


def unknown_samplers() -> list[str]:
    """Return the public names of jax.random that this module does not know."""
    names = {name for name in dir(random) if not name.startswith("_")}
    return sorted(names - NO_SAMPLERS - {name.partition(",")[0] for name in SAMPLERS})


def find_sampler(name: str) -> Callable | None:
    """Return the function of jax.random that a row of the atlas calls, if there is."""
    return getattr(random, name.partition(",")[0], None)


def draw_by(name: str, **sharding) -> Callable:
    """Return the function of a key that draws as the atlas does."""
    sampler, given = find_sampler(name), SAMPLERS[name]
    if "shape" in inspect.signature(sampler).parameters:
        given = {"shape": (SIZE,)} | given
    return lambda key: sampler(key, **given, **sharding)


def on(count: int):
    """Put an Auto mesh of the first `count` devices along `x` in context."""
    auto, devices = (jax.sharding.AxisType.Auto,), jax.devices()[:count]
    return jax.set_mesh(jax.make_mesh((count,), ("x",), auto, devices=devices))


def spread(name: str, **options) -> Callable:
    """Return the sampler, jitted so that the devices in context share its draws."""
    return jax.jit(draw_by(name), out_shardings=jax.P("x"), compiler_options=options)


def closeness(a, b) -> str:
    """Return how close two arrays are: "same", "last bits" or "different"."""
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        a, b = random.key_data(a), random.key_data(b)
    a, b = np.asarray(a), np.asarray(b)
    if np.array_equal(a, b):
        return "same"
    rounded = np.issubdtype(a.dtype, np.inexact) and np.allclose(a, b, 1e-5, 1e-6)
    return "last bits" if rounded else "different"


def explicit_type(name: str) -> str:
    """Return the type of the draws where axes are Explicit, or why there is none."""
    if "out_sharding" not in inspect.signature(find_sampler(name)).parameters:
        return "no out_sharding"
    with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
        traced = jax.make_jaxpr(draw_by(name, out_sharding=jax.P("x")))(random.key(0))
    return str(traced.out_avals[0])


def survey_one(name: str, measure: Callable) -> Entry:
    """Return what a sampler does on all devices; compile it for them and for one.

    name: a key of `SAMPLERS`. measure: the function of that name from
    communication.py. XLA may spare itself some work on the code of a device, which
    changes neither messages nor memory, and last bits at most.
    """
    draw = spread(name, xla_backend_optimization_level=0)
    with on(jax.device_count()):
        program = draw.lower(random.key(0)).compile()
        shared, values = measure(program), program(random.key(0))
    with on(1):
        program = draw.lower(random.key(0)).compile()
        alone, expected = measure(program), program(random.key(0))
    kinds = [f"{step.kind}, {step.bytes} B" for step in shared.collectives]
    return Entry(
        name,
        "; ".join(f"{kinds.count(kind)} {kind}" for kind in sorted({*kinds})) or "none",
        shared.temporaries,
        alone.temporaries,
        closeness(values, expected),
        explicit_type(name),
    )


def survey_all(measure: Callable) -> list[Entry]:
    """Survey every sampler of jax.random, those without messages first.

    measure: from communication.py. Raises ValueError if jax.random has a public name
    that this module does not know, so that none is left out in silence.
    """
    if names := unknown_samplers():
        raise ValueError(
            f"jax.random has {', '.join(names)}: add it to SAMPLERS or NO_SAMPLERS"
        )
    here = [name for name in SAMPLERS if find_sampler(name)]
    with ThreadPoolExecutor() as pool:  # XLA compiles outside of Python's lock
        entries = pool.map(lambda name: survey_one(name, measure), here)
        return sorted(entries, key=lambda e: (e.messages != "none", e.name))


def main():
    """Print for how many samplers the type under Explicit axes can be split."""
    here = [name for name in SAMPLERS if find_sampler(name)]
    split = [name for name in here if "@" in explicit_type(name)]
    print(f"{len(here)} samplers on {jax.device_count()} devices, types Explicit:")
    print(f"{len(split)} split their draws, {len(here) - len(split)} do not")


if __name__ == "__main__":
    main()
