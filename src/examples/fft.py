# SPDX-License-Identifier: MIT-0
"""Fourier transforms of arrays that are split over devices.

A transform along an axis needs that axis whole. So each device transforms what it has
whole, and an all-to-all then cuts an axis that is done and joins one that is not.

    slabs     [N0@x, N1, N2]    -> [N0, N1@x, N2]      a mesh with an axis x, and no y
    pencils   [N0@x, N1@y, N2]  -> [N0, N1@x, N2@y]    a mesh with axes x and y
    plane     [N0@x, N1]        -> [N0, N1@x]          a mesh with an axis x
    vector    [N@x]             -> [N@x]               a mesh with an axis x

Indices and norms are those of `jax.numpy.fft`. The transposed transforms do without the
last step: a field ends as [N1@x, N2@y, N0], with the axis that was transformed last
together in memory, and a vector as a matrix [R@x, C]. Of P = X Y devices, each sends

    slabs     (1 - 1/P) / P of the array in 1 all-to-all; a plane likewise
    pencils   (1 - 1/X) / P + (1 - 1/Y) / P in 2
    vector    3 (1 - 1/P) / P in 3, or 2 (1 - 1/P) / P in 2 if transposed

which is the least for a swap of axes in which each device keeps its share; it is no
bound on the transform. `cost` has the bytes. Input of NumPy, or that lies otherwise, is
laid out as above first. The method for vectors is that of Bailey, "FFTs in external or
hierarchical memory", Supercomputing 1989.

    JAX_NUM_CPU_DEVICES=8 python fft.py

Copy this file alone: it needs JAX only.
"""

import math
from collections import namedtuple
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Cost = namedtuple("Cost", "sent counts")  # one device's bytes, and its collectives
NORMS = None, "backward", "ortho", "forward"


def mesh_with(*names: str) -> jax.sharding.AbstractMesh:
    """Return the mesh in context, or raise ValueError if it lacks one of these axes."""
    mesh = jax.sharding.get_abstract_mesh()
    if missing := [name for name in names if name not in mesh.shape]:
        raise ValueError(f"no mesh axis {missing} in context: use `jax.set_mesh(mesh)`")
    return mesh


def mesh_sizes(*names: str) -> list[int]:
    """Return the sizes of these axes of the mesh in context, or raise ValueError."""
    mesh = mesh_with(*names)
    # XLA may abort between two types: Auto, Manual (inside `jax.shard_map`), Explicit
    if len({(n in mesh.auto_axes, n in mesh.manual_axes) for n in names}) > 1:
        raise ValueError(f"axes {names} of two types: make all Auto or all Explicit")
    return [mesh.shape[name] for name in names]


def counts() -> tuple[int, int]:
    """Return X and Y of the mesh in context, where Y is 1 if it has no axis y."""
    return (*mesh_sizes(*cuts()), 1)[:2]


def ways(name: str) -> int:
    """Return the size of the mesh axis `name`, or 1 if the mesh has none."""
    return jax.sharding.get_abstract_mesh().shape.get(name, 1)


def cuts() -> tuple[str, ...]:
    """Return the mesh axes that cut a field: x and y for pencils, x alone for slabs."""
    return ("x", "y") if "y" in jax.sharding.get_abstract_mesh().shape else ("x",)


def check_cut(name: str, size: int, count: int):
    """Raise ValueError unless an axis of this size can be cut into `count` parts."""
    below = size // count * count
    if size < 1 or size != below:
        fits = " or ".join(str(fit) for fit in (below, below + count) if fit > 0)
        raise ValueError(
            f"{name} = {size} cannot be cut into {count} equal parts: take {fits}"
        )


def check_array(name: str, a: Array):
    """Raise ValueError unless this argument is an array of numbers."""
    kind = f"of {a.dtype}" if hasattr(a, "dtype") else f"a {type(a).__name__}"
    dtype = getattr(a, "dtype", object)
    if not (jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool):
        raise ValueError(f"{name} is {kind}: pass an array of numbers")


def check_axes(a: Array, norm: str | None, **counts: int):
    """Raise ValueError unless `a` has these axes, and each can be cut so many times."""
    check_array("a", a)
    if norm not in NORMS:
        raise ValueError(f"norm = {norm!r}: pass one of {NORMS}")
    if a.ndim != len(counts):
        raise ValueError(
            f"{a.dtype}{list(a.shape)} has not the axes {', '.join(counts)}: for a "
            "batch, take `jax.vmap` of the transform"
        )
    for (name, count), size in zip(counts.items(), a.shape, strict=True):
        check_cut(name, size, count)


def place(x: Array, spec: jax.P) -> Array:
    """Lay `x` out by `spec` on the mesh in context, whatever the type of its axes.

    Call it inside `jax.jit`. Those that `spec` names are all Auto or all Explicit.
    """
    mesh = jax.sharding.get_abstract_mesh()
    auto = {*jax.tree.leaves(tuple(spec))} <= {*mesh.auto_axes}
    x = jax.reshard(x, jax.P() if auto else spec) if mesh.explicit_axes else x
    return lax.with_sharding_constraint(x, spec) if auto else x


def working_type(a: jax.ShapeDtypeStruct) -> np.dtype:
    """Return the type in which `a` is transformed: single precision at least."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.promote_types(jnp.result_type(a.dtype, 1.0), jnp.float32)


@jax.jit(static_argnames=("transform", "before", "after", "options"))
def on_blocks(
    transform: Callable, a: Array, before: jax.P, after: jax.P, options: tuple
) -> Array:
    """Lay `a` out by `before`, and transform its blocks to those of `after`."""

    @jax.shard_map(in_specs=before, out_specs=after)
    def run(block):
        return transform(block, *options)

    return run(place(a, before).astype(working_type(a)))


def recut(block: Array, name: str, split: int, join: int) -> Array:
    """Cut the axis `split` over the mesh axis `name`, and join the axis `join`."""
    return lax.all_to_all(block, name, split, join, tiled=True)


# ------------------------------------------------------------ planes, then columns


def fft_planes(block: Array, name: str, norm: str | None) -> Array:
    """Transform the last two axes: [.., N@name, M] -> [.., N, M@name]."""
    if ways(name) == 1:
        return jnp.fft.fft2(block, norm=norm)
    last = block.ndim - 1
    block = recut(jnp.fft.fft(block, norm=norm), name, last, last - 1)
    return jnp.fft.fft(block, axis=last - 1, norm=norm)


def ifft_planes(block: Array, name: str, norm: str | None) -> Array:
    """Undo `fft_planes`: [.., N, M@name] -> [.., N@name, M]."""
    if ways(name) == 1:
        return jnp.fft.ifft2(block, norm=norm)
    last = block.ndim - 1
    block = jnp.fft.ifft(block, axis=last - 1, norm=norm)
    return jnp.fft.ifft(recut(block, name, last - 1, last), norm=norm)


def fft_columns(block: Array, norm: str | None) -> Array:
    """Transform the first axis, and put it last: [N0@x, N1, n2] -> [N1@x, n2, N0]."""
    block = jnp.moveaxis(recut(block, "x", 1, 0), 0, 2)
    return jnp.fft.fft(block, norm=norm)


def ifft_columns(block: Array, norm: str | None) -> Array:
    """Undo `fft_columns`: [N1@x, n2, N0] -> [N0@x, N1, n2]."""
    block = jnp.moveaxis(jnp.fft.ifft(block, norm=norm), 2, 0)
    return recut(block, "x", 0, 1)


def field_turned(block: Array, norm: str | None) -> Array:
    """Transform a block of a field: [N0@x, N1@y, N2] -> [N1@x, N2@y, N0]."""
    return fft_columns(fft_planes(block, "y", norm), norm)


def field_turned_back(block: Array, norm: str | None) -> Array:
    """Undo `field_turned`: [N1@x, N2@y, N0] -> [N0@x, N1@y, N2]."""
    return ifft_planes(ifft_columns(block, norm), "y", norm)


def straight(block: Array, norm: str | None) -> Array:
    """Transform a block of a field: [N0@x, N1@y, N2] -> [N0, N1@x, N2@y]."""
    return jnp.moveaxis(field_turned(block, norm), 2, 0)


def straight_back(block: Array, norm: str | None) -> Array:
    """Undo `straight`: [N0, N1@x, N2@y] -> [N0@x, N1@y, N2]."""
    return field_turned_back(jnp.moveaxis(block, 0, 2), norm)


def fftn_transposed(a: Array, *, norm: str | None = None) -> Array:
    """Transform a field, and leave its first axis last.

    a: [N0@x, N1@y, N2] -> [N1@x, N2@y, N0] on a mesh with axes x and y, or
    a: [N0@x, N1, N2] -> [N1@x, N2, N0] on a mesh without y

    This is `jnp.fft.fftn(a).transpose(1, 2, 0)`, and takes the least time and memory.
    `norm` is "backward" (as for None), "ortho" or "forward". Raises ValueError unless
    X divides N0, X and Y divide N1, and Y divides N2.
    """
    x, y = counts()
    check_axes(a, norm, N0=x, N1=math.lcm(x, y), N2=y)
    return on_blocks(field_turned, a, jax.P(*cuts()), jax.P(*cuts()), (norm,))


def ifftn_transposed(a: Array, *, norm: str | None = None) -> Array:
    """Undo `fftn_transposed`.

    a: [N1@x, N2@y, N0] -> [N0@x, N1@y, N2] on a mesh with axes x and y, or
    a: [N1@x, N2, N0] -> [N0@x, N1, N2] on a mesh without y
    """
    x, y = counts()
    check_axes(a, norm, N1=math.lcm(x, y), N2=y, N0=x)
    return on_blocks(field_turned_back, a, jax.P(*cuts()), jax.P(*cuts()), (norm,))


def fftn(a: Array, *, norm: str | None = None) -> Array:
    """Transform a field along its three axes, as `jnp.fft.fftn` does.

    a: [N0@x, N1@y, N2] -> [N0, N1@x, N2@y] on a mesh with axes x and y, or
    a: [N0@x, N1, N2] -> [N0, N1@x, N2] on a mesh without y

    Axes and indices keep their order. `norm` and errors are as in `fftn_transposed`.
    """
    x, y = counts()
    check_axes(a, norm, N0=x, N1=math.lcm(x, y), N2=y)
    return on_blocks(straight, a, jax.P(*cuts()), jax.P(None, *cuts()), (norm,))


def ifftn(a: Array, *, norm: str | None = None) -> Array:
    """Undo `fftn`, as `jnp.fft.ifftn` does.

    a: [N0, N1@x, N2@y] -> [N0@x, N1@y, N2] on a mesh with axes x and y, or
    a: [N0, N1@x, N2] -> [N0@x, N1, N2] on a mesh without y
    """
    x, y = counts()
    check_axes(a, norm, N0=x, N1=math.lcm(x, y), N2=y)
    return on_blocks(straight_back, a, jax.P(None, *cuts()), jax.P(*cuts()), (norm,))


# ------------------------------------------------------------ real fields


def half(size: int) -> int:
    """Return K, the frequencies kept of a real axis: a number that Y divides."""
    kept = size // 2 + 1
    return kept + -kept % ways("y")


def rfft_planes(block: Array, norm: str | None) -> Array:
    """Transform the last two axes of a real block: [n0, N1@y, N2] -> [n0, N1, K@y]."""
    if ways("y") == 1:
        return jnp.fft.rfft2(block, norm=norm)
    rows = jnp.fft.rfft(block, norm=norm)
    extra = half(block.shape[2]) - rows.shape[2]
    rows = jnp.pad(rows, [(0, 0), (0, 0), (0, extra)])
    return jnp.fft.fft(recut(rows, "y", 2, 1), axis=1, norm=norm)


def irfft_planes(block: Array, size: int, norm: str | None) -> Array:
    """Undo `rfft_planes`: [n0, N1, K@y] -> [n0, N1@y, N2], where N2 is `size`."""
    if ways("y") == 1:
        return jnp.fft.irfft2(block, (block.shape[1], size), norm=norm)
    rows = recut(jnp.fft.ifft(block, axis=1, norm=norm), "y", 1, 2)
    return jnp.fft.irfft(rows[..., : size // 2 + 1], size, norm=norm)


def real(block: Array, norm: str | None) -> Array:
    """Transform a real block of a field: [N0@x, N1@y, N2] -> [N0, N1@x, K@y]."""
    return jnp.moveaxis(fft_columns(rfft_planes(block, norm), norm), 2, 0)


def real_back(block: Array, size: int, norm: str | None) -> Array:
    """Undo `real`: [N0, N1@x, K@y] -> [N0@x, N1@y, N2], where N2 is `size`."""
    block = ifft_columns(jnp.moveaxis(block, 0, 2), norm)
    return irfft_planes(block, size, norm)


def rfftn(a: Array, *, norm: str | None = None) -> Array:
    """Transform a real field, and leave out the half that is only conjugated.

    a: [N0@x, N1@y, N2] -> [N0, N1@x, K@y] on a mesh with axes x and y, or
    a: [N0@x, N1, N2] -> [N0, N1@x, K] on a mesh without y

    K is N2 // 2 + 1, as in `jnp.fft.rfftn`, but rounded up to a multiple of Y, for JAX
    cuts into equal parts only. Zeros fill the rest, and `irfftn` takes them back. The
    `norm` is as in `fftn_transposed`. Raises ValueError if `a` is complex, or unless X
    divides N0, and X and Y divide N1; any N2 will do.
    """
    x, y = counts()
    check_axes(a, norm, N0=x, N1=math.lcm(x, y), N2=1)
    if jnp.iscomplexobj(a):
        raise ValueError(f"{a.dtype} is not real: pass the real part, or call fftn")
    return on_blocks(real, a, jax.P(*cuts()), jax.P(None, *cuts()), (norm,))


def irfftn(a: Array, s: Sequence[int], *, norm: str | None = None) -> Array:
    """Return the real field of the shape `s` whose transform by `rfftn` is `a`.

    a: [N0, N1@x, K@y] -> [N0@x, N1@y, N2] on a mesh with axes x and y, or
    a: [N0, N1@x, K] -> [N0@x, N1, N2] on a mesh without y

    `s` is (N0, N1, N2), which `a` alone does not tell. Raises ValueError unless `a` has
    the shape that `rfftn` returns for a field of that shape.
    """
    x, y = counts()
    check_axes(a, norm, N0=x, N1=math.lcm(x, y), K=y)
    s = np.atleast_1d(s)
    if s.shape != (3,) or s.dtype.kind not in "iu":
        raise ValueError(f"s = {s.tolist()}: pass the three sizes of the field")
    check_cut("N2", n := int(s[2]), 1)
    if a.shape != (*s[:2], half(n)):
        raise ValueError(
            f"a spectrum of the shape {a.shape} is not that of a field of the shape "
            f"{tuple(s.tolist())}: pass what rfftn returns, and the shape of the field"
        )
    return on_blocks(real_back, a, jax.P(None, *cuts()), jax.P(*cuts()), (n, norm))


# ------------------------------------------------------------ two axes


def fft2(a: Array, *, norm: str | None = None) -> Array:
    """Transform a plane along both axes, as `jnp.fft.fft2` does.

    a: [N0@x, N1] -> [N0, N1@x]

    `norm` is as in `fftn_transposed`. Raises ValueError unless X divides N0 and N1.
    """
    [x] = mesh_sizes("x")
    check_axes(a, norm, N0=x, N1=x)
    return on_blocks(fft_planes, a, jax.P("x"), jax.P(None, "x"), ("x", norm))


def ifft2(a: Array, *, norm: str | None = None) -> Array:
    """Undo `fft2`, as `jnp.fft.ifft2` does.

    a: [N0, N1@x] -> [N0@x, N1]
    """
    [x] = mesh_sizes("x")
    check_axes(a, norm, N0=x, N1=x)
    return on_blocks(ifft_planes, a, jax.P(None, "x"), jax.P("x"), ("x", norm))


# ------------------------------------------------------------ one axis


def rows_and_columns(size: int) -> tuple[int, int]:
    """Return R and C, the rows and columns of the matrix that holds a vector of `size`.

    X divides both, and R <= C are as near to each other as can be. Raises ValueError
    unless X * X divides `size`.
    """
    [x] = mesh_sizes("x")
    check_cut("N", size, x * x)
    rest = size // (x * x)
    least = max(d for d in range(1, math.isqrt(rest) + 1) if rest % d == 0)
    return least * x, rest // least * x


def twiddles(block: Array, sign: int) -> Array:
    """Return exp(sign 2 pi i j k / (R C)) for each row j and column k of a block.

    block: [R, C@x] -> the same. With k = first + rest, where `first` is this device's
    first column, it is a product of two: angles that are small, and integers that
    cannot overflow.
    """
    (r, width), size = block.shape, lax.axis_size("x")
    row, rest = jnp.arange(r)[:, None], jnp.arange(width)[None]
    rank = lax.axis_index("x").astype(row.dtype)

    def turn(count, total):
        angle = count.astype(block.real.dtype) * (sign * 2 * math.pi / total)
        return lax.complex(jnp.cos(angle), jnp.sin(angle))

    return turn(row * rank, r * size) * turn(row * rest, r * width * size)


def four_steps(rows: Array, norm: str | None) -> Array:
    """Transform the vector that lies in these rows: [R@x, C] -> [R@x, C]."""
    block = jnp.fft.fft(recut(rows, "x", 1, 0), axis=0, norm=norm)
    block = block * twiddles(block, -1)
    return jnp.fft.fft(recut(block, "x", 0, 1), norm=norm)


def inverse_four_steps(rows: Array, norm: str | None) -> Array:
    """Undo `four_steps`: [R@x, C] -> [R@x, C]."""
    block = recut(jnp.fft.ifft(rows, norm=norm), "x", 1, 0)
    block = block * twiddles(block, 1)
    return recut(jnp.fft.ifft(block, axis=0, norm=norm), "x", 0, 1)


def vector_turned(block: Array, norm: str | None) -> Array:
    """Transform a block of a vector: [N@x] -> [R@x, C]."""
    _, c = rows_and_columns(block.size * lax.axis_size("x"))
    return four_steps(block.reshape(-1, c), norm)


def vector_turned_back(block: Array, norm: str | None) -> Array:
    """Undo `vector_turned`: [R@x, C] -> [N@x]."""
    return inverse_four_steps(block, norm).reshape(-1)


def vector(block: Array, norm: str | None) -> Array:
    """Transform a block of a vector: [N@x] -> [N@x]."""
    return recut(vector_turned(block, norm), "x", 1, 0).T.reshape(-1)


def vector_back(block: Array, norm: str | None) -> Array:
    """Undo `vector`: [N@x] -> [N@x]."""
    r, _ = rows_and_columns(block.size * lax.axis_size("x"))
    return vector_turned_back(recut(block.reshape(-1, r).T, "x", 0, 1), norm)


def fft_transposed(a: Array, *, norm: str | None = None) -> Array:
    """Transform a vector, and leave it as a matrix that is read by columns.

    a: [N@x] -> [R@x, C], with R and C of `rows_and_columns(N)`

    The frequency k1 + R k2 stands in row k1 and column k2: `b.T.ravel()` has the order
    of `jnp.fft.fft`. `norm` is as in `fftn_transposed`. Raises ValueError unless X * X
    divides N.
    """
    check_axes(a, norm, N=mesh_sizes("x")[0] ** 2)
    return on_blocks(vector_turned, a, jax.P("x"), jax.P("x"), (norm,))


def ifft_transposed(a: Array, *, norm: str | None = None) -> Array:
    """Undo `fft_transposed`.

    a: [R@x, C] -> [N@x], where N = R C

    Raises ValueError unless X divides R and C.
    """
    [x] = mesh_sizes("x")
    check_axes(a, norm, R=x, C=x)
    return on_blocks(vector_turned_back, a, jax.P("x"), jax.P("x"), (norm,))


def fft(a: Array, *, norm: str | None = None) -> Array:
    """Transform a vector, as `jnp.fft.fft` does.

    a: [N@x] -> [N@x]

    `norm` is as in `fftn_transposed`. Raises ValueError unless X * X divides N.
    """
    check_axes(a, norm, N=mesh_sizes("x")[0] ** 2)
    return on_blocks(vector, a, jax.P("x"), jax.P("x"), (norm,))


def ifft(a: Array, *, norm: str | None = None) -> Array:
    """Undo `fft`, as `jnp.fft.ifft` does.

    a: [N@x] -> [N@x]
    """
    check_axes(a, norm, N=mesh_sizes("x")[0] ** 2)
    return on_blocks(vector_back, a, jax.P("x"), jax.P("x"), (norm,))


EXCHANGES = {fft2: "x", fft: "xxx", fft_transposed: "xx"}
EXCHANGES |= {ifft2: "x", ifft: "xxx", ifft_transposed: "xx"}


def cost(transform: Callable, a: jax.ShapeDtypeStruct) -> Cost:
    """Predict what `transform(a)` sends, for a transform of this module.

    Each exchange is along an axis of the mesh in context; fields make one along each.
    A vector is complex: a real one is exchanged first, and sends half in that exchange.
    """
    axes = EXCHANGES.get(transform, cuts())
    last = half(a.shape[-1]) if transform is rfftn else a.shape[-1]
    word = jnp.promote_types(working_type(a), jnp.complex64).itemsize
    block = math.prod(a.shape[:-1]) * last * word // math.prod(mesh_sizes(*set(axes)))
    sent = [block - block // ways(axis) for axis in axes if ways(axis) > 1]
    return Cost(sum(sent), {"all-to-all": len(sent)} if sent else {})


def main():
    """Transform a wave on every device there is, and find its frequency."""
    count = jax.device_count()
    with jax.set_mesh(jax.make_mesh((count,), ("x",))):
        n = 8 * count
        wave = jnp.cos(2 * jnp.pi * 3 * jnp.arange(n) / n)
        a = jnp.broadcast_to(wave[:, None, None], (n, n, 4))
        spectrum = fftn(jax.device_put(a, jax.P("x")), norm="forward")
        power = (jnp.abs(spectrum) ** 2).sum((1, 2))
        print(f"{jax.typeof(spectrum)}  power {power[3]:.2f} at 3, {power[4]:.2f} at 4")


if __name__ == "__main__":
    main()
