# SPDX-License-Identifier: MIT-0
"""Sine and cosine transforms of lines, for fields that end at walls.

A sine is 0 at both walls, a cosine has no slope there. Points lie between the walls, or
on them, or in the middle of cells; that gives a pair of transforms each:

    DIRICHLET_POINTS   DST-I    0 at walls, beside points;       x = (j + 1) / (N + 1)
    DIRICHLET_CELLS    DST-II   0 at walls, beside cells;        x = (j + 1/2) / N
    NEUMANN_POINTS     DCT-I    no slope at walls, two points;   x = j / (N - 1)
    NEUMANN_CELLS      DCT-II   no slope at walls, beside cells; x = (j + 1/2) / N

    block  [.., N, ..] -> [.., N, ..]    N numbers along an axis that is whole

Number k of a sine transform belongs to sin(pi (k + 1) x), of a cosine transform to
cos(pi k x). Names and scales are those of `scipy.fft` without a norm. Every device
transforms the lines that it has, and sends nothing. To make an axis whole is the work
of others, which take such a pair for each axis of a field as an argument.

DCT-II is one Fourier transform of N numbers; the others are as long, or twice. Source:
Makhoul, A fast cosine transform in one and two dimensions, IEEE Trans. Acoust. Speech
Signal Process. 28 (1980).

    JAX_NUM_CPU_DEVICES=8 python sine_cosine.py

Copy this file alone: it needs JAX and NumPy.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def transform_parts(transform: Callable, block: Array, axis: int) -> Array:
    """Apply a transform of real lines along the last axis to all along `axis`."""
    lines = jnp.moveaxis(block, axis, -1)
    if jnp.iscomplexobj(lines):
        lines = lax.complex(transform(lines.real), transform(lines.imag))
    else:
        lines = transform(lines)
    return jnp.moveaxis(lines, -1, axis)


def rotate_phases(waves: Array, sign: int) -> Array:
    """Return waves times exp(sign i pi k / (2 N)) for each place k of N."""
    angle = np.arange(waves.shape[-1]) * (sign * math.pi / (2 * waves.shape[-1]))
    return waves * jnp.broadcast_to(np.exp(1j * angle).astype(waves.dtype), waves.shape)


def flip_signs(lines: Array) -> Array:
    """Return lines in which every second number has the other sign."""
    return jnp.where(np.arange(lines.shape[-1]) % 2 == 0, lines, -lines)


# ------------------------------------------------------------ points: both directions


def dst1(block: Array, axis: int) -> Array:
    """Return sums of 2 a_j sin(pi (k + 1) (j + 1) / (N + 1))."""

    def transform(lines):
        zero = jnp.zeros_like(lines[..., :1])
        odd = jnp.concatenate([zero, lines, zero, -lines[..., ::-1]], axis=-1)
        return -jnp.fft.rfft(odd).imag[..., 1:-1]

    return transform_parts(transform, block, axis)


def idst1(block: Array, axis: int) -> Array:
    """Undo `dst1`."""
    return dst1(block, axis) / (2 * (block.shape[axis] + 1))


def dct1(block: Array, axis: int) -> Array:
    """Return a_0 + (-1)^k a_(N-1) and sums of 2 a_j cos(pi k j / (N - 1)) between them.

    Raises ValueError for a line of one point, which cannot have two walls.
    """
    if block.shape[axis] < 2:
        raise ValueError("a line of 1 point has no two walls: pass 2 points or more")

    def transform(lines):
        even = jnp.concatenate([lines, lines[..., -2:0:-1]], axis=-1)
        return jnp.fft.rfft(even).real

    return transform_parts(transform, block, axis)


def idct1(block: Array, axis: int) -> Array:
    """Undo `dct1`."""
    return dct1(block, axis) / (2 * (block.shape[axis] - 1))


# ------------------------------------------------------------ cells


def dct2(block: Array, axis: int) -> Array:
    """Return sums of 2 a_j cos(pi k (j + 1/2) / N)."""

    def transform(lines):
        halves = lines[..., ::2], lines[..., 1::2][..., ::-1]
        waves = jnp.fft.fft(jnp.concatenate(halves, axis=-1))
        return 2 * rotate_phases(waves, -1).real

    return transform_parts(transform, block, axis)


def idct2(block: Array, axis: int) -> Array:
    """Undo `dct2`."""

    def transform(lines):
        n = lines.shape[-1]
        other = jnp.concatenate([jnp.zeros_like(lines[..., :1]), lines[..., :0:-1]], -1)
        halves = jnp.fft.ifft(rotate_phases(lax.complex(lines, -other), 1)).real / 2
        place = np.empty(n, int)  # where in the halves a number of the line stands
        place[::2], place[1::2] = np.split(np.arange(n), [-(-n // 2)])
        place[1::2] = place[1::2][::-1]
        return halves[..., place]

    return transform_parts(transform, block, axis)


def dst2(block: Array, axis: int) -> Array:
    """Return sums of 2 a_j sin(pi (k + 1) (j + 1/2) / N)."""
    return jnp.flip(dct2(transform_parts(flip_signs, block, axis), axis), axis)


def idst2(block: Array, axis: int) -> Array:
    """Undo `dst2`."""
    return transform_parts(flip_signs, idct2(jnp.flip(block, axis), axis), axis)


DIRICHLET_POINTS, NEUMANN_POINTS = (dst1, idst1), (dct1, idct1)
DIRICHLET_CELLS, NEUMANN_CELLS = (dst2, idst2), (dct2, idct2)


def main():
    """Transform a line on each device there is, and find the one wave in it."""
    count = jax.device_count()
    with jax.set_mesh(jax.make_mesh((count,), ("x",))):
        x = (jnp.arange(32) + 0.5) / 32
        lines = jnp.tile(jnp.sin(3 * jnp.pi * x), (count, 1))
        there = jax.shard_map(lambda block: dst2(block, 1), out_specs=jax.P("x"))
        waves = jax.jit(there)(jax.device_put(lines, jax.P("x")))
        first = jax.device_get(waves)[0] / 32
        print(f"{jax.typeof(waves)}  {first[2]:.2f} at 3, {first[3]:.2f} at 4")


if __name__ == "__main__":
    main()
