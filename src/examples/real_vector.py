# SPDX-License-Identifier: MIT-0
"""The Fourier transform of one long real vector: half of everything.

As a matrix, row after row, a vector has columns that a transform may begin with. Those
of real numbers have half as many frequencies, so that half of the rows is left, and
each stands for another one, conjugated. What remains is half as long.

    a      [N@(x,y)]     N = R C numbers, index n = C n1 + n2, and zeros
    rows   [H@(x,y), C]  H = R // 2 + 1, frequency k = k1 + R k2
    half   [K@(x,y)]     K = N // 2 + 1 frequencies in their order, and zeros

Devices hold whole rows: of C numbers in a vector, of R in its spectrum. Zeros follow up
to as many rows as the devices divide. In what is passed they may be there or not, and
what stands in their place is not read; JAX gathers a vector without them, unless the
devices divide R (for a spectrum, C // 2 + 1). Of P devices each sends 1.5 (1 - 1/P) / P
of the complex vector in 3 all-to-alls, or two thirds of that for `rows`; zeros are
sent, too: `cost` has the bytes. Axes before the last are a batch in the same messages.

`fftfreq` and `rfftfreq` have the frequencies as spectra lie, also as matrices.

Source: Bailey, FFTs in external or hierarchical memory, Supercomputing 1989.

    JAX_NUM_CPU_DEVICES=8 python real_vector.py

Copy this file alone: it needs JAX and NumPy.
"""

import functools
import math
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Names = tuple[str, ...]  # mesh axes that cut an axis of an array, together
Over = str | Sequence[str] | None

Cost = namedtuple("Cost", "sent counts")  # one device's bytes, and its collectives
NORMS = None, "backward", "ortho", "forward"


class Half(NamedTuple):
    """A real vector as a matrix of r rows and c columns, cut over mesh axes `names`."""

    size: int
    r: int
    c: int
    names: Names
    norm: str | None = None

    @property
    def h(self) -> int:
        """How many rows are left of r."""
        return self.r // 2 + 1

    @property
    def w(self) -> int:
        """How many rows of r frequencies the spectrum has."""
        return self.c // 2 + 1

    def padded(self, rows: int) -> int:
        """Return this number of rows, and zeros, so that all devices have as many."""
        return rows + -rows % axis_size(self.names)


# ------------------------------------------------------------ the mesh


def mesh_with(*names: str) -> jax.sharding.AbstractMesh:
    """Return the mesh in context, or raise ValueError if it lacks one of these axes."""
    mesh = jax.sharding.get_abstract_mesh()
    if missing := [name for name in names if name not in mesh.shape]:
        raise ValueError(f"no mesh axis {missing} in context: use `jax.set_mesh(mesh)`")
    return mesh


def mesh_sizes(*names: str) -> list[int]:
    """Return the sizes of mesh axes, or raise ValueError: two types may abort XLA."""
    mesh = mesh_with(*names)
    if len({(n in mesh.auto_axes, n in mesh.manual_axes) for n in names}) > 1:
        raise ValueError(f"axes {names} of two types: make all Auto or all Explicit")
    return [mesh.shape[name] for name in names]


def axis_size(names: tuple[str, ...]) -> int:
    """Return the number of devices along these axes of the mesh in context."""
    sizes = jax.sharding.get_abstract_mesh().shape
    return math.prod(sizes[name] for name in names)


def axes_that_cut(over: Over) -> Names:
    """Return the mesh axes that cut, or raise ValueError saying what to pass."""
    mesh = jax.sharding.get_abstract_mesh()
    default = ("x", "y") if "y" in mesh.shape else ("x",)
    names = default if over is None else (over,) if isinstance(over, str) else (*over,)
    if len({*names}) < max(len(names), 1):
        raise ValueError(f"over = {over}: pass one mesh axis or more, each once")
    mesh_sizes(*names)
    if {*names} & {*mesh.manual_axes}:
        raise ValueError(f"axes {names} are Manual: call this outside of `shard_map`")
    return names


# ------------------------------------------------------------ what is asked


def half_of(size: int, over: Over = None, norm: str | None = None) -> Half:
    """Return how a real vector of this size lies as a matrix.

    Of all R C = size it is the one that sends the least, zeros included. Raises
    ValueError for a size whose factors leave devices idle.
    """
    if norm not in NORMS:
        raise ValueError(f"norm = {norm!r}: pass one of {NORMS}")
    if not isinstance(size, (int, np.integer)) or size < 1:
        raise ValueError(f"n = {size}: pass an integer from 1")
    names = axes_that_cut(over)
    r, c = best_half(int(size), count := axis_size(names))
    found = Half(int(size), r, c, names, norm)
    if found.padded(r) * found.padded(c) > 4 * size > 4 * count**2:
        raise ValueError(
            f"n = {size} has no factors that {count} devices can share: transform it "
            f"as complex numbers, or pass {size + -size % count**2} numbers"
        )
    return found


@functools.cache
def best_half(size: int, count: int) -> tuple[int, int]:
    """Return R and C with the least to send from `count` devices."""
    low = [r for r in range(1, math.isqrt(size) + 1) if size % r == 0]

    def sent(r):
        up, c = (lambda n: n + -n % count), size // r
        return up(r) * up(c) + up(r // 2 + 1) * 2 * (up(c) + 2 * up(c // 2 + 1))

    r = min({*low, *(size // r for r in low)}, key=lambda r: (sent(r), r))
    return r, size // r


def check_real(a: Array, real: bool):
    """Raise ValueError unless this is an array of numbers, of real ones if asked."""
    dtype = getattr(a, "dtype", None)
    if dtype is None or not (jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool):
        raise ValueError(f"a is {dtype or type(a).__name__}: pass an array of numbers")
    if real and jnp.issubdtype(dtype, jnp.complexfloating):
        raise ValueError(f"{dtype} is not real: pass the real part, or transform both")
    if not a.ndim:
        raise ValueError("a is one number: pass a vector")


def check_padded(have: Sequence[int], true: Sequence[int], full: Sequence[int], n: int):
    """Raise ValueError unless an array has these sizes, with their zeros or without."""
    if not all(map(lambda *each: each[0] in each[1:], have, true, full)):
        wanted = f"{[*true]}, or {[*full]} with zeros" if true != full else f"{[*true]}"
        raise ValueError(f"{[*have]} is not for n = {n}: pass {wanted}")


# ------------------------------------------------------------ blocks


def recut(a: Array, names: Names, split: int, join: int, size: int) -> Array:
    """Cut the axis `split` of a block over mesh axes, and join `join`, of this size.

    Zeros fill the one up to equal parts, and those in the other are dropped. A barrier
    hides them: XLA:CPU gives a part of zeros alone a layout of its own, and fails.
    """
    more = (np.arange(a.ndim) == split) * -a.shape[split] % lax.axis_size(names)
    a = lax.optimization_barrier(jnp.pad(a, [(0, n) for n in more])) if any(more) else a
    a = lax.all_to_all(a, names, split, join, tiled=True)
    return lax.slice_in_dim(a, 0, size, axis=join)


def half_twiddles(half: Array, sign: int, plan: Half) -> Array:
    """Return exp(sign 2 pi i j k / N) for each row j and column k of a block [H, C@x].

    With k = first + rest it is a product of two: small angles, and integers that
    cannot overflow.
    """
    rows, width = jnp.arange(half.shape[0])[:, None], half.shape[1]
    rank = lax.axis_index(plan.names).astype(rows.dtype)

    def turn(count, step):
        angle = count.astype(half.real.dtype) * (sign * 2 * math.pi * step / plan.size)
        return lax.complex(jnp.cos(angle), jnp.sin(angle))

    return turn(rows * rank, width) * turn(rows * jnp.arange(width)[None], 1)


def to_rows(block: Array, plan: Half) -> Array:
    """Transform a block of a real vector, in half of the rows: [N@x] -> [H@x, C]."""
    columns = recut(block.reshape(-1, plan.c), plan.names, 1, 0, plan.r)
    half = jnp.fft.rfft(columns, axis=0, norm=plan.norm)
    half = half * half_twiddles(half, -1, plan)
    return jnp.fft.fft(recut(half, plan.names, 0, 1, plan.c), norm=plan.norm)


def from_rows(rows: Array, plan: Half) -> Array:
    """Undo `to_rows`: [H@x, C] -> [N@x]."""
    half = recut(jnp.fft.ifft(rows, norm=plan.norm), plan.names, 1, 0, plan.h)
    half = half * half_twiddles(half, 1, plan)
    columns = jnp.fft.irfft(half, plan.r, axis=0, norm=plan.norm)
    return recut(columns, plan.names, 0, 1, plan.c).ravel()


def block_frequencies(plan: Half, rows: int, across: bool) -> Array:
    """Return the frequency k1 + R k2 of each place of a block, cut along k1, or k2."""
    here = lax.axis_index(plan.names) * rows + jnp.arange(rows, dtype=jnp.int32)
    all_of_it = jnp.arange(plan.c if across else plan.r, dtype=jnp.int32)
    k1, k2 = (here, all_of_it) if across else (all_of_it, here)
    return k1[None] + plan.r * k2[:, None]


def to_natural_order(rows: Array, plan: Half) -> Array:
    """Put the frequencies in their order: [H@x, C] -> [K@x].

    Row k1 has those of row R - k1 too, conjugated and backwards.
    """
    both = jnp.stack([rows, rows[:, ::-1].conj()], axis=1)[:, :, : plan.w]
    both = recut(both, plan.names, 2, 0, plan.h)
    found = jnp.concatenate([both[:, 0], both[1 : (plan.r + 1) // 2, 1][::-1]]).T
    inside = block_frequencies(plan, len(found), across=False) <= plan.size // 2
    return jnp.where(inside, found, 0).ravel()


def from_natural_order(block: Array, plan: Half) -> Array:
    """Undo `to_natural_order`: [K@x] -> [H@x, C]."""
    block = block.reshape(-1, plan.r)
    mirror = jnp.roll(block[:, ::-1], 1, axis=1)
    both = jnp.stack([block, mirror])[:, :, : plan.h]
    low, high = recut(both, plan.names, 2, 1, plan.w)
    k = block_frequencies(plan, low.shape[1], across=True)
    high = jnp.where(k[:1] == 0, jnp.roll(low, -1, axis=0), high)  # R - 0 is a row on
    low, high = (jnp.pad(each, [(0, plan.c - plan.w), (0, 0)]) for each in (low, high))
    return jnp.where(k <= plan.size // 2, low, high[::-1].conj()).T


def to_spectrum(block: Array, plan: Half) -> Array:
    """Transform a block of a real vector: [N@x] -> [K@x]."""
    return to_natural_order(to_rows(block, plan), plan)


def from_spectrum(block: Array, plan: Half) -> Array:
    """Undo `to_spectrum`: [K@x] -> [N@x]."""
    return from_rows(from_natural_order(block, plan), plan)


# ------------------------------------------------------------ vectors


def explicit_batch_cuts(a: Array, batch: int, names: Names) -> list[Names]:
    """Return what cuts the batch of `a`, of the Explicit mesh axes not in `names`."""
    mesh, spec = mesh_with(), getattr(jax.typeof(a).sharding, "spec", ())
    spec = [(each,) if isinstance(each, str) else each or () for each in (*spec,)]
    others, spec = {*mesh.explicit_axes} - {*names}, [*spec, *[()] * a.ndim][:batch]
    return [tuple(name for name in each if name in others) for each in spec]


@jax.jit(static_argnames=("run", "plan", "full", "core"))
def on_half(run: Callable, a: Array, plan: Half, full, core: int) -> Array:
    """Fill `a` up to these sizes, lay it out, and transform blocks into `core` axes."""
    mesh, batch = jax.sharding.get_abstract_mesh(), a.ndim - len(full)
    cut = explicit_batch_cuts(a, batch, plan.names)
    with jax.numpy_dtype_promotion("standard"):
        a = a.astype(jnp.promote_types(jnp.result_type(a.dtype, 1.0), jnp.float32))

    def placed(a, *cut):
        spec = [tuple(n for n in each if n in mesh.explicit_axes) for each in cut]
        return jax.reshard(a, jax.P(*spec)) if mesh.explicit_axes else a

    if a.shape[batch:] != full:
        extra = [(0, size - n) for size, n in zip(full, a.shape[batch:], strict=True)]
        # JAX has no derivative of a pad beside an axis that is cut into one part
        cuts = [each if axis_size(each) > 1 else () for each in cut]
        a = jnp.pad(placed(a, *cuts, *[()] * len(full)), [(0, 0)] * batch + extra)
    names = {*mesh.axis_names} - {*mesh.manual_axes} if mesh.manual_axes else set()
    ends = [jax.P(*cut, plan.names, *[None] * (k - 1)) for k in (len(full), core)]

    @jax.shard_map(in_specs=ends[0], out_specs=ends[1], axis_names=names)
    def of_blocks(block):
        each = functools.partial(run, plan=plan)
        for _ in range(batch):
            each = jax.vmap(each)
        return each(block)

    return of_blocks(placed(a, *cut, plan.names, *[()] * (len(full) - 1)))


def from_real(run: Callable, core: int, a: Array, plan: Half) -> Array:
    """Check a real vector, and transform it."""
    full = plan.padded(plan.r) * plan.c
    check_padded(a.shape[-1:], (plan.size,), (full,), plan.size)
    return on_half(run, a, plan, (full,), core)


def rfft(a: Array, n=None, norm=None, over=None) -> Array:
    """Transform a real vector, as `jnp.fft.rfft` does.

    a: [N@(x,y)] -> [K@(x,y)], all of x and y along one axis, or x alone

    K = N // 2 + 1 frequencies, and zeros up to whole rows. `n` tells N without its
    zeros. `norm` is "backward" (as for None), "ortho" or "forward". Raises ValueError
    for complex numbers, and for a long vector whose size has no factors.
    """
    check_real(a, real=True)
    plan = half_of(a.shape[-1] if n is None else n, over, norm)
    return from_real(to_spectrum, 1, a, plan)


def irfft(a: Array, n: int, norm=None, over=None) -> Array:
    """Return the real vector of n numbers whose transform by `rfft` is `a`.

    a: [K@(x,y)] -> [N@(x,y)], and zeros up to whole rows

    `n` has to be told: vectors of 8 and of 9 numbers have 5 frequencies.
    """
    check_real(a, real=False)
    plan = half_of(n, over, norm)
    full = plan.padded(plan.w) * plan.r
    check_padded(a.shape[-1:], (n // 2 + 1,), (full,), n)
    return on_half(from_spectrum, a, plan, (full,), 1)


def rfft_transposed(a: Array, n=None, norm=None, over=None) -> Array:
    """Transform a real vector, and leave half of the rows of its matrix.

    a: [N@(x,y)] -> [H@(x,y), C], with r, c and h of `half_of(N)`

    The frequency k1 + R k2 stands in row k1 and column k2; above N / 2 it is a negative
    one, N less. It takes two thirds of the exchanges of `rfft`.
    """
    check_real(a, real=True)
    plan = half_of(a.shape[-1] if n is None else n, over, norm)
    return from_real(to_rows, 2, a, plan)


def irfft_transposed(a: Array, n: int, norm=None, over=None) -> Array:
    """Undo `rfft_transposed`.

    a: [H@(x,y), C] -> [N@(x,y)], and zeros up to whole rows
    """
    check_real(a, real=False)
    plan = half_of(n, over, norm)
    if a.ndim < 2:
        raise ValueError(f"{a.dtype}{[*a.shape]}: pass a matrix, or call irfft")
    full = plan.padded(plan.h), plan.c
    check_padded(a.shape[-2:], (plan.h, plan.c), full, n)
    return on_half(from_rows, a, plan, full, 1)


# ------------------------------------------------------------ in the spectrum


@jax.jit(static_argnames=("n", "rows", "cut", "real"))
def counted(n: int, rows: tuple[int, int, int], cut: jax.P, *, real: bool) -> Array:
    """Return the frequency of each place, counted in waves, as a spectrum lies.

    rows: how many there are, how many of them have numbers, and how far they lie apart;
    0 is what stands elsewhere.
    """
    full, inside, apart = rows
    k = jnp.arange(full, dtype=jnp.int32)
    if len(cut) == 2:
        k = k[:, None] + apart * jnp.arange(n // apart, dtype=jnp.int32)[None]
    last = n // 2 if real else (n - 1) // 2
    signed = jnp.where(k <= last, k, 0 if len(cut) == 1 and real else k - n)
    place = jnp.expand_dims(jnp.arange(full), [*range(1, len(cut))])
    found = jnp.where(place < inside, signed, 0).astype(float)
    explicit = jax.sharding.get_abstract_mesh().explicit_axes
    lay = jax.reshard if {*cut[0]} & {*explicit} else lax.with_sharding_constraint
    return lay(found, cut)


def fftfreq(n: int, d: float = 1.0, matrix=None, over=None) -> Array:
    """Return the frequencies of a complex spectrum of n numbers, as `jnp.fft.fftfreq`.

    () -> [N@(x,y)], and zeros up to the next multiple; or for a `matrix` of R rows and
    C columns, () -> [R@(x,y), C] with that of k1 + R k2 in row k1 and column k2

    Raises ValueError unless R C is n.
    """
    names = axes_that_cut(over)
    r, c = (n, 1) if matrix is None else matrix
    if r * c != n or n < 1:
        raise ValueError(f"matrix = {matrix} does not hold n = {n}: pass R C = n")
    cut = jax.P(names) if matrix is None else jax.P(names, None)
    return counted(n, (r + -r % axis_size(names), r, r), cut, real=False) / (n * d)


def rfftfreq(n: int, d: float = 1.0, over=None) -> Array:
    """Return the frequencies of what `rfft` returns for n numbers, and zeros.

    () -> [K@(x,y)]
    """
    plan = half_of(n, over)
    rows = plan.padded(plan.w) * plan.r, n // 2 + 1, 1
    return counted(n, rows, jax.P(plan.names), real=True) / (n * d)


def rfftfreq_transposed(n: int, d: float = 1.0, over=None) -> Array:
    """Return the frequencies of what `rfft_transposed` returns for n numbers, signed.

    () -> [H@(x,y), C]
    """
    plan = half_of(n, over)
    rows = plan.padded(plan.h), plan.h, plan.r
    return counted(n, rows, jax.P(plan.names, None), real=True) / (n * d)


def cost(transform: Callable, n: int, dtype=np.float32, over=None) -> Cost:
    """Predict what `transform` of this module sends for n numbers of this type."""
    plan = half_of(n, over)
    count, word = axis_size(plan.names), np.dtype(dtype).itemsize
    full, wide = plan.padded(plan.r) // count, plan.padded(plan.c) // count
    high, short = plan.padded(plan.h) // count, plan.padded(plan.w) // count
    sent = [full * wide, 2 * high * wide]
    sent += [] if "transposed" in transform.__name__ else [4 * high * short]
    total = word * (count - 1) * sum(sent)
    return Cost(total, {"all-to-all": len(sent)} if total else {})


def main():
    """Transform a wave on every device there is, and find its frequency."""
    n = 64 * jax.device_count()
    with jax.set_mesh(jax.make_mesh((n // 64,), ("x",))):
        spectrum = rfft(jnp.cos(6 * jnp.pi * jnp.arange(n) / n), norm="forward")
        power, waves = jax.device_get((jnp.abs(spectrum) ** 2, rfftfreq(n, 1 / n)))
        print(f"{jax.typeof(spectrum)}  {power[3]:.2f} at {waves[3]:.0f} waves")


if __name__ == "__main__":
    main()
