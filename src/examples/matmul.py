# SPDX-License-Identifier: MIT-0
"""Matrix products in blocks: SUMMA on any mesh, Cannon on a square, 2.5D on a cube.

Every matrix is cut along both of its axes, so a block of the product needs a row of
blocks of a and a column of blocks of b. The three algorithms bring them there.

    summa       a  [M@x, K@y]      b  [K@x, N@y]      ->  c  [M@x, N@y]
    cannon      the same, on a mesh of p x p devices
    summa_25d   a  [M@x, K@(z,y)]  b  [K@(z,x), N@y]  ->  c  [M@x, N@(y,z)]

Words that one device sends, on X x Y (x Z) devices, P in all; MK, KN, MN are sizes
(`cost` gives the bytes):

    summa       (Y - 1) MK/P + (X - 1) KN/P                      2 panels collectives
    cannon      p (MK + KN)/P                                    2 p collectives
    summa_25d   (Y - 1) MK/P + (X - 1) KN/P + (Z - 1) MN/P       2 panels + 1

Only the first two of Cannon's 2 p, the skew, go further than to a neighbour on a torus.

Sources: Cannon, A Cellular Computer to Implement the Kalman Filter Algorithm, PhD
thesis, Montana State University 1969. Van de Geijn and Watts, SUMMA: Scalable Universal
Matrix Multiplication Algorithm, Concurrency 9 (1997). Solomonik and Demmel,
Communication-Optimal Parallel 2.5D Matrix Multiplication and LU Factorization
Algorithms, Euro-Par 2011, https://doi.org/10.1007/978-3-642-23397-5_10.

    JAX_NUM_CPU_DEVICES=8 python matmul.py

Copy this file alone: it needs JAX only.
"""

import math
from collections.abc import Callable
from numbers import Integral

import jax
import jax.numpy as jnp
from jax import Array, lax

BLOCKS = jax.P("x", "y")


def shift(x: Array, axis_name: str, step: int) -> Array:
    """Send `x` to the device `step` places further along the ring `axis_name`."""
    size = lax.axis_size(axis_name)
    return lax.ppermute(x, axis_name, [(i, (i + step) % size) for i in range(size)])


def result_type(*arrays: Array) -> jnp.dtype:
    """Return the type of a result, also under strict promotion."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*arrays)


def product(a: Array, b: Array) -> Array:
    """Multiply two blocks: [m, k] x [k, n] -> [m, n]; narrow floats give float32."""
    dtype = result_type(a, b)
    narrow = jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32
    return jnp.dot(a, b, preferred_element_type=jnp.float32 if narrow else dtype)


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


def place(x: Array, spec: jax.P) -> Array:
    """Lay `x` out by `spec` on the mesh in context, whatever the type of its axes.

    Call it inside `jax.jit`. Those that `spec` names are all Auto or all Explicit.
    """
    mesh = jax.sharding.get_abstract_mesh()
    auto = {*jax.tree.leaves(tuple(spec))} <= {*mesh.auto_axes}
    x = jax.reshard(x, jax.P() if auto else spec) if mesh.explicit_axes else x
    return lax.with_sharding_constraint(x, spec) if auto else x


def can_promote(dtype: jnp.dtype) -> bool:
    """Return whether JAX finds a common type for this one and another."""
    bits = jnp.finfo if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo
    return dtype == jnp.bool or bits(dtype).bits >= (16 if bits is jnp.finfo else 8)


def check_matrices(a: Array, b: Array):
    """Raise ValueError unless a [M, K] and b [K, N] have a product."""
    one, two = (getattr(x, "shape", type(x).__name__) for x in (a, b))
    if len(one) != 2 or len(two) != 2 or one[1] != two[0] or 0 in (*one, *two):
        raise ValueError(f"{one} x {two} is no product of two matrices, or is empty")


def check_types(a: Array, b: Array):
    """Raise ValueError unless numbers of a and b have a common type."""
    if a.dtype != b.dtype and not (can_promote(a.dtype) and can_promote(b.dtype)):
        raise ValueError(f"{a.dtype}, {b.dtype} have no common type: convert one")


def check_divisible(name: str, size: int, count: int):
    """Raise ValueError unless an axis can be cut into so many equal parts."""
    if more := -size % count:
        raise ValueError(
            f"{name} = {size} cannot be cut into {count} parts: pad it to {size + more}"
        )


def check_product(a: Array, b: Array, *counts: int):
    """Raise ValueError unless M, K and N of a [M, K] and b [K, N] can be cut so."""
    check_matrices(a, b)
    check_types(a, b)
    for name, size, count in zip("MKN", (*a.shape, b.shape[1]), counts, strict=True):
        check_divisible(name, size, count)


def check_panels(a: Array, b: Array, panels: int, mesh: list[int]):
    """Raise ValueError unless this mesh can take a sum in so many panels."""
    if not isinstance(panels, Integral) or panels < 1:
        raise ValueError(f"a sum cannot be taken in {panels} panels: pass 1 or more")
    x, y, z = (*mesh, 1)[:3]
    check_product(a, b, x, math.lcm(x, y) * z * panels, y * z)


def multiply_panels(a: Array, b: Array, panels: int) -> Array:
    """Multiply all blocks of a layer x, y of the mesh: [m, k], [l, n] -> [m, n].

    Call it inside `jax.shard_map`. Any order of k gives the same sum. So k is cut into
    pieces, as many as fit both ways of cutting it, and panel number i takes slice i of
    every piece: each device holds a part of every panel, and a gather joins them.
    """
    x, y = lax.axis_size("x"), lax.axis_size("y")
    parts = math.lcm(x, y)
    width = a.shape[1] * y // (parts * panels)
    a_pieces = a.reshape(a.shape[0], parts // y, panels, width)
    b_pieces = b.reshape(parts // x, panels, width, b.shape[1])

    @jax.checkpoint  # the gradient gathers panels again rather than keep them all
    def add(i, total):
        rows = a_pieces[:, :, i].reshape(a.shape[0], parts // y * width)
        columns = b_pieces[:, i].reshape(parts // x * width, b.shape[1])
        rows = lax.all_gather(rows, "y", axis=1, tiled=True)
        columns = lax.all_gather(columns, "x", axis=0, tiled=True)
        return total + product(rows, columns)

    zeros = product(a[:, :0], b[:0])  # of the type of the sums
    return lax.fori_loop(0, panels, add, zeros).astype(result_type(a, b))


@jax.jit(static_argnames="panels")
def summa(a: Array, b: Array, panels: int = 4) -> Array:
    """Multiply block by block on any mesh of axes x and y.

    a: [M@x, K@y], b: [K@x, N@y] -> [M@x, N@y]

    Beside blocks and sums a device holds 1 / `panels` of its rows of a and its columns
    of b. Raises ValueError unless x divides M, y divides N, and the least common
    multiple of both, times `panels`, divides K.
    """
    check_panels(a, b, panels, mesh_sizes("x", "y"))

    @jax.shard_map(in_specs=(BLOCKS, BLOCKS), out_specs=BLOCKS)
    def multiply(a, b):
        return multiply_panels(a, b, panels)

    return multiply(place(a, BLOCKS), place(b, BLOCKS))


@jax.jit(static_argnames="panels")
def summa_25d(a: Array, b: Array, panels: int = 4) -> Array:
    """Multiply in layers: each z takes its share of k, and the layers are added up.

    a: [M@x, K@(z,y)], b: [K@(z,x), N@y] -> [M@x, N@(y,z)]

    A device holds z blocks of c while it adds, and adds up layers that are rounded to
    the type of the result. Raises ValueError unless x divides M, y z divides N, and
    z `panels` times the least common multiple of x and y divides K.
    """
    check_panels(a, b, panels, mesh_sizes("x", "y", "z"))
    specs = jax.P("x", ("z", "y")), jax.P(("z", "x"), "y")

    @jax.shard_map(in_specs=specs, out_specs=jax.P("x", ("y", "z")))
    def multiply(a, b):
        layer = multiply_panels(a, b, panels)
        numbers = layer.astype(jnp.int32) if layer.dtype == bool else layer
        total = lax.psum_scatter(numbers, "z", scatter_dimension=1, tiled=True)
        return total.astype(layer.dtype)  # what is true in some layer, of booleans

    return multiply(*map(place, (a, b), specs))


def skew(a: Array, b: Array) -> tuple[Array, Array]:
    """Move the blocks so that device i, j holds a[i, i + j] and b[i + j, j].

    Call it inside `jax.shard_map` over a square mesh.
    """
    p = lax.axis_size("x")
    west = [(i * p + j, i * p + (j - i) % p) for i in range(p) for j in range(p)]
    north = [(i * p + j, (i - j) % p * p + j) for i in range(p) for j in range(p)]
    return lax.ppermute(a, ("x", "y"), west), lax.ppermute(b, ("x", "y"), north)


@jax.jit
def cannon(a: Array, b: Array) -> Array:
    """Multiply on a square mesh; a device holds two blocks of a, two of b and the sum.

    a: [M@x, K@y], b: [K@x, N@y] -> [M@x, N@y]

    Its gradient keeps all the blocks that came by. Raises ValueError on a mesh that is
    not square, and unless its side divides M, K and N.
    """
    x, y = mesh_sizes("x", "y")
    if x != y:
        raise ValueError(f"Cannon needs a square mesh, not {x} x {y}: use summa")
    check_product(a, b, x, x, x)

    @jax.shard_map(in_specs=(BLOCKS, BLOCKS), out_specs=BLOCKS)
    def multiply(a, b):
        def step(_, carry):
            a, b, total = carry
            # neither the shifts nor the product need the other's result
            return shift(a, "y", -1), shift(b, "x", -1), total + product(a, b)

        zeros = product(a[:, :0], b[:0])  # of the type of the sums
        a, b, total = lax.fori_loop(0, x - 1, step, (*skew(a, b), zeros))
        return (total + product(a, b)).astype(result_type(a, b))

    return multiply(place(a, BLOCKS), place(b, BLOCKS))


def cost(multiply: Callable, a: Array, b: Array) -> int:
    """Return the bytes that one device sends in `multiply(a, b)`, of one dtype.

    `multiply` is `summa`, `cannon` or `summa_25d`, on the mesh in context.
    """
    x, y, z = (*mesh_sizes(*("xyz" if multiply is summa_25d else "xy")), 1)[:3]
    skewed = multiply is cannon and x > 1
    words = (y - 1 + skewed) * a.size + (x - 1 + skewed) * b.size
    words += (z - 1) * a.shape[0] * b.shape[1]
    return words * a.dtype.itemsize // (x * y * z)


def main():
    """Multiply a random matrix by itself by SUMMA on every device there is."""
    count = jax.device_count()
    x = max(i for i in range(1, math.isqrt(count) + 1) if count % i == 0)
    with jax.set_mesh(jax.make_mesh((x, count // x), ("x", "y"))):
        shape = (16 * count, 16 * count)
        a = jax.random.normal(jax.random.key(0), shape, out_sharding=BLOCKS)
        c = summa(a, a)
        print(f"{jax.typeof(c)}  mean square {(c**2).mean():.1f}, expect {len(a)}")


if __name__ == "__main__":
    main()
