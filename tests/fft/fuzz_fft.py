"""Fourier transforms of fields and planes, there and back."""

import jax
import jax.numpy as jnp
import numpy as np
from fuzzing import Target, dtypes, make_tests, sizes
from hypothesis import strategies as st

from examples import fft

keys = {"dtype": dtypes, "norm": st.sampled_from(fft.NORMS)}
keys |= dict.fromkeys("ijk", sizes)
keys |= {"over": st.sampled_from([None, "x", "y", ("y", "x")])}
anything = st.fixed_dictionaries(keys)
real = anything.filter(lambda p: not p["dtype"].startswith("complex"))


def shape(p, rank=3):
    """The sizes of a field or a plane, whatever they are."""
    return tuple(p[name] for name in "ijk"[:rank])


def options(p):
    """The options of a transform."""
    return {"norm": p["norm"], "over": p["over"]}


def inside(answer, *sizes):
    """What an array has without the zeros that fill it up."""
    if jax.sharding.get_abstract_mesh().explicit_axes:
        answer = jax.reshard(answer, jax.P())  # JAX slices what is cut, evenly only
    return answer[tuple(slice(size) for size in sizes)]


def target(name, rank, call, reference, parameters=anything, **more):
    """The target of a function of one array, whose answers zeros may follow."""

    def run(p):
        sizes = shape(p, rank)
        return lambda a: jax.tree.map(lambda b: inside(b, *sizes), call(a, p))

    def arrays(p, random):
        return (random.normal(size=(*shape(p, rank), 2)) @ [1, 1j],)

    spec = jax.P("x", "y") if rank == 3 else jax.P("x")
    more = {"arrays": arrays} | more
    return Target(
        name=f"fft.{name}",
        parameters=parameters,
        call=run,
        reference=reference,
        specs=lambda p: (spec,),
        **more,
    )


def one(name, rank):
    """The target of a transform that NumPy has."""
    ours, theirs = getattr(fft, name), getattr(np.fft, name)
    return target(
        name,
        rank,
        lambda a, p: ours(a, **options(p)),
        lambda p, a: theirs(a.astype(complex), norm=p["norm"]),
    )


def pair(there, back, rank, parameters=anything):
    """The target of a transform and its inverse, which leave what was there."""
    go, home = getattr(fft, there), getattr(fft, back)

    def call(a, p):
        return home(go(a, **options(p)), shape(p, rank), **options(p))

    return target(there, rank, call, lambda p, a: a * 1.0, parameters)


def symbol(*waves):
    """The symbol of an equation, never 0."""
    return 1 + sum(wave**2 for wave in waves)


def waves_of(sizes):
    """The wave numbers of a spectrum of these sizes, by NumPy."""
    waves = (np.fft.fftfreq(n, 1 / n).round() for n in sizes)
    return np.meshgrid(*waves, indexing="ij")


def solution(p, f):
    """The field whose spectrum is that of f, divided by the symbol, by NumPy."""
    answer = np.fft.ifftn(np.fft.fftn(f) / symbol(*waves_of(f.shape)))
    return answer if np.iscomplexobj(f) else answer.real


def same(block, axis):
    """Leave the lines along an axis as they are."""
    return block


def flip(a, p):
    """Turn the first axis around on the way there, and the last on the way back."""
    there = fft.along_axes(a, (jnp.flip, same, same), over=p["over"])
    each = same, same, jnp.flip
    return fft.along_axes_back(there, each, shape(p), over=p["over"])


REFUSALS = (
    # XLA:CPU fails at an FFT of axes of one number, in a loop, in another order of axes
    "{}fft_thunk.cc:168) LayoutUtil::IsMonotonicWithDim0Major{}",
)
NO_ARRAY = {"arrays": lambda p, random: (np.zeros(()),)}
NO_ARRAY |= {"given": ("numpy",), "under": ("nothing",)}

TARGETS = (
    one("fftn", 3),
    one("ifftn", 3),
    one("fft2", 2),
    one("ifft2", 2),
    pair("fftn_transposed", "ifftn_transposed", 3),
    pair("rfftn", "irfftn", 3, real),
    pair("rfftn_transposed", "irfftn_transposed", 3, real),
    pair("rfft2", "irfft2", 2, real),
    target(
        "solve_in_spectrum",
        3,
        lambda a, p: fft.solve_in_spectrum(a, symbol, over=p["over"]),
        solution,
    ),
    target("along_axes", 3, flip, lambda p, a: 1.0 * a[::-1, :, ::-1]),
    target(
        "mask",
        3,
        lambda zero, p: fft.mask(shape(p), over=p["over"]),
        lambda p, zero: np.ones(shape(p), bool),
        **NO_ARRAY,
    ),
    target(
        "wave_numbers",
        3,
        lambda zero, p: jnp.broadcast_arrays(
            *fft.wave_numbers(shape(p), over=p["over"])
        ),
        lambda p, zero: waves_of(shape(p)),
        **NO_ARRAY,
    ),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
