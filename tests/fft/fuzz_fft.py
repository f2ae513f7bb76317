"""Fourier transforms of fields and planes, there and back."""

import jax
import jax.numpy as jnp
import numpy as np
from fuzzing import Target, dtypes, make_tests, sizes
from hypothesis import strategies as st

from examples import fft

NORMS = None, "backward", "ortho", "forward"
KEYS = {"dtype": dtypes, "norm": st.sampled_from(NORMS)}
KEYS |= dict.fromkeys(("i", "j", "k"), sizes)
KEYS |= {"over": st.sampled_from([None, "x", "y", ("y", "x")])}
anything = st.fixed_dictionaries(KEYS)
reals = {**KEYS, "dtype": dtypes.filter(lambda name: not name.startswith("complex"))}
real = {"parameters": st.fixed_dictionaries(reals)}


def shape(p, rank):
    """The sizes of a field or a plane, whatever they are."""
    return tuple(p[name] for name in "ijk"[:rank])


def numbers(rank):
    """The array of a case, complex."""
    return lambda p, random: (random.normal(size=(*shape(p, rank), 2)) @ [1, 1j],)


def inside(answer, sizes):
    """What an array has without the zeros that fill it up."""
    if jax.sharding.get_abstract_mesh().explicit_axes:
        answer = jax.reshard(answer, jax.P())  # JAX slices what is cut, evenly only
    return answer[tuple(slice(size) for size in sizes)]


def of_array(name, rank, call, reference, **options):
    """The target of a function of one array."""
    specs = (jax.P("x", "y") if rank == 3 else jax.P("x"),)
    return Target(
        name=f"fft.{name}",
        arrays=numbers(rank),
        call=call,
        reference=reference,
        specs=lambda p: specs,
        **{"parameters": anything, **options},
    )


def one(name, rank):
    """The target of a transform that NumPy has; zeros may follow."""

    def reference(p, a):
        return getattr(np.fft, name)(a.astype(complex), norm=p["norm"])

    def call(p):
        sizes = shape(p, rank)
        transform = getattr(fft, name)
        return lambda a: inside(transform(a, norm=p["norm"], over=p["over"]), sizes)

    return of_array(name, rank, call, reference)


def pair(there, back, rank, **more):
    """The target of a transform and its inverse, which leave what was there."""

    def call(p):
        options = {"norm": p["norm"], "over": p["over"]}
        go, home = getattr(fft, there), getattr(fft, back)
        sizes = shape(p, rank)
        return lambda a: inside(home(go(a, **options), sizes, **options), sizes)

    return of_array(there, rank, call, lambda p, a: a * 1.0, **more)


def equation(p):
    """A field whose spectrum is that of another, divided by what is never 0."""

    def symbol(*waves):
        return 1 + sum(wave**2 for wave in waves)

    sizes = shape(p, 3)
    return lambda f: inside(fft.solve_in_spectrum(f, symbol, over=p["over"]), sizes)


def solution(p, f):
    """The same in NumPy."""
    waves = np.meshgrid(*(np.fft.fftfreq(n, 1 / n) for n in f.shape), indexing="ij")
    answer = np.fft.ifftn(np.fft.fftn(f) / (1 + sum(wave**2 for wave in waves)))
    return answer if np.iscomplexobj(f) else answer.real


def same(block, axis):
    """Leave the lines along an axis as they are."""
    return block


def flipped(p):
    """Turn the first axis around on the way there, and the last on the way back."""

    def call(a):
        there = fft.along_axes(a, (jnp.flip, same, same), over=p["over"])
        each = same, same, jnp.flip
        home = fft.along_axes_back(there, each, shape(p, 3), over=p["over"])
        return inside(home, shape(p, 3))

    return call


def grid(name):
    """The target of what is known of a spectrum without any array."""

    def reference(p, zero):
        if name == "mask":
            return [np.ones(shape(p, 3), bool)]
        waves = [np.fft.fftfreq(n, 1 / n).round() for n in shape(p, 3)]
        return np.meshgrid(*waves, indexing="ij")

    def call(p):
        def run(zero):
            sizes = shape(p, 3)
            found = getattr(fft, name)(sizes, over=p["over"])
            found = found if name == "wave_numbers" else [found]
            full = np.broadcast_shapes(*(each.shape for each in found))
            return [inside(np.broadcast_to(each, full), sizes) for each in found]

        return run

    return Target(
        name=f"fft.{name}",
        parameters=anything,
        arrays=lambda p, random: (np.zeros(()),),
        call=call,
        reference=reference,
        under=("nothing",),
    )


REFUSALS = (
    "axes {} of two types: make all Auto or all Explicit",
    "{} is {}: pass an array of numbers",
    # XLA:CPU fails at an FFT of axes of one number, in a loop, in another order of axes
    "{}fft_thunk.cc:168) LayoutUtil::IsMonotonicWithDim0Major{}",
)

TARGETS = (
    one("fftn", 3),
    one("ifftn", 3),
    one("fft2", 2),
    one("ifft2", 2),
    pair("fftn_transposed", "ifftn_transposed", 3),
    pair("rfftn", "irfftn", 3, **real),
    pair("rfftn_transposed", "irfftn_transposed", 3, **real),
    pair("rfft2", "irfft2", 2, **real),
    of_array("solve_in_spectrum", 3, equation, solution),
    of_array("along_axes", 3, flipped, lambda p, a: 1.0 * a[::-1, :, ::-1]),
    grid("mask"),
    grid("wave_numbers"),
)

test_cases, test_draws = make_tests(TARGETS, REFUSALS)
