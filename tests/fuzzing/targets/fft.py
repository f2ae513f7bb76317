"""Fourier transforms of fields, planes and vectors, there and back."""

import math

import jax
import numpy as np
from fuzzing.harness import Target, dtypes
from hypothesis import strategies as st

from examples import fft

INNER = (
    "check_array",
    "check_axes",
    "fft_columns",
    "fft_planes",
    "four_steps",
    "ifft_columns",
    "ifft_planes",
    "inverse_four_steps",
    "irfft_planes",
    "on_blocks",
    "place",
    "real",
    "real_back",
    "recut",
    "rfft_planes",
    "straight",
    "straight_back",
    "field_turned",
    "field_turned_back",
    "twiddles",
    "vector",
    "vector_back",
    "vector_turned",
    "vector_turned_back",
)
INNER += ("ifft_transposed", "ifftn_transposed", "irfftn")  # called with the others
NORMS = None, "backward", "ortho", "forward"
KEYS = {"dtype": dtypes, "norm": st.sampled_from(NORMS), "even": st.booleans()}
KEYS |= {name: st.integers(1, 4) for name in ("i", "j", "k")}
anything = st.fixed_dictionaries(KEYS)


def field(p):
    """The sizes of a field, which the mesh divides if they shall be even."""
    x, y = p["mesh"]["x"], p["mesh"]["y"]
    whole = (x * p["i"], math.lcm(x, y) * p["j"], y * p["k"])
    return whole if p["even"] else (p["i"], 3 * p["j"], 2 * p["k"] + 1)


def plane(p):
    """The sizes of a plane."""
    x = p["mesh"]["x"] if p["even"] else 1
    return x * p["i"], x * p["j"]


def vector(p):
    """The size of a vector."""
    return ((p["mesh"]["x"] ** 2 if p["even"] else 1) * p["i"] * p["j"],)


def cut(p, shape, counts):
    """Raise ValueError for what the mesh cannot cut, which is refused in words."""
    if any(size % count for size, count in zip(shape, counts, strict=True)):
        raise ValueError("JAX cuts evenly or not at all")


def numbers(shape):
    """The array of a case, complex."""
    return lambda p, random: (random.normal(size=(*shape(p), 2)) @ [1, 1j],)


def as_numpy(name, shape):
    """The transform of NumPy, for sizes that can be cut."""

    def reference(p, a):
        x, y = p["mesh"]["x"], p["mesh"]["y"]
        counts = {1: (x * x,), 2: (x, x), 3: (x, math.lcm(x, y), y)}[a.ndim]
        cut(p, a.shape, counts)
        return getattr(np.fft, name)(a.astype(complex), norm=p["norm"])

    return reference


def there_and_back(there, back):
    """Two transforms, one after the other."""

    def call(p):
        return lambda a: back(there(a, norm=p["norm"]), norm=p["norm"])

    return call


def unchanged(p, a):
    """What a transform and its inverse leave."""
    return as_numpy("fft", None)(p, a) * 0 + a


def half_and_back(p):
    """The transforms of real fields, one after the other."""
    shape = list(field(p))
    return lambda a: fft.irfftn(fft.rfftn(a, norm=p["norm"]), shape, norm=p["norm"])


def real_unchanged(p, a):
    """A real field, as it was; any last size will do."""
    x, y = p["mesh"]["x"], p["mesh"]["y"]
    cut(p, a.shape, (x, math.lcm(x, y), 1))
    if np.iscomplexobj(a):
        raise ValueError("not real")
    return a.astype(float)


FIELD, PLANE, VECTOR = (jax.P("x", "y"), jax.P("x"), jax.P("x"))


def one(name, shape, spec):
    """The target of a transform that NumPy has."""
    return Target(
        name=f"fft.{name}",
        parameters=anything,
        arrays=numbers(shape),
        call=lambda p: lambda a: getattr(fft, name)(a, norm=p["norm"]),
        reference=as_numpy(name, shape),
        specs=lambda p: (spec,),
    )


def pair(there, back, shape, spec):
    """The target of a transform that has no counterpart in NumPy, and its inverse."""
    return Target(
        name=f"fft.{there}",
        parameters=anything,
        arrays=numbers(shape),
        call=there_and_back(getattr(fft, there), getattr(fft, back)),
        reference=unchanged,
        specs=lambda p: (spec,),
    )


TARGETS = (
    one("fftn", field, FIELD),
    one("ifftn", field, jax.P(None, "x", "y")),
    one("fft2", plane, PLANE),
    one("ifft2", plane, jax.P(None, "x")),
    one("fft", vector, VECTOR),
    one("ifft", vector, VECTOR),
    pair("fftn_transposed", "ifftn_transposed", field, FIELD),
    pair("fft_transposed", "ifft_transposed", vector, VECTOR),
    Target(
        name="fft.rfftn",
        parameters=anything,
        arrays=numbers(field),
        call=half_and_back,
        reference=real_unchanged,
        specs=lambda p: (FIELD,),
    ),
)
