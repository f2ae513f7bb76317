# SPDX-License-Identifier: MIT-0
"""The Fourier transform of one long vector that is split over devices.

A vector has one axis, and it is cut. Written as a matrix, row after row, it has two: a
transform along the columns, a factor for every number, a transform along the rows, and
the frequencies stand there column after column.

    a     [N@(x,y)]       on a mesh with axes x and y, or with x alone
    rows  [R@(x,y), C]    N = R C, index n = C n1 + n2, frequency k = k1 + R k2

Of P devices, each sends 3 (1 - 1/P) / P of the vector in 3 all-to-alls, or two of the
three for the order above, where P^2 divides N. Other sizes are cut into blocks of
N / P, rounded up, with zeros at the end; where a block ends within a row, an exchange
carries a row more, and blocks of rows and columns are rounded up, too: `cost` has the
bytes. If N has no factors near its root, devices would hold more than they can share.
Then it is a product of two polynomials (Bluestein): two exchanges of N numbers, and
three of M >= 2 N - 1.

Indices and norms are those of `jax.numpy.fft`; `over` names the mesh axes that cut, all
of them the one axis, and leaves the others alone. Other axes of the array are a batch,
in the same messages.

Sources: Bailey, FFTs in external or hierarchical memory, Supercomputing 1989;
Bluestein, A linear filtering approach to the computation of discrete Fourier transform,
IEEE Trans. Audio Electroacoust. 18 (1970).

    JAX_NUM_CPU_DEVICES=8 python four_steps.py

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


class Options(NamedTuple):
    """The arguments of a transform, beside its array."""

    n: int | None = None
    axis: int = -1
    norm: str | None = None
    over: Over = None


class Layout(NamedTuple):
    """What cuts the axes of an array before and after, and its sizes with zeros.

    The vectors lie along `axis`, or as matrices along the last `core` axes.
    """

    before: tuple[Names, ...]
    after: tuple[Names, ...]
    sizes: tuple[int, ...]
    axis: int
    core: int


class Plan(NamedTuple):
    """All that is known of a transform before it runs, and no array.

    size: of the vector, without zeros; r, c: of its matrix; names: what cuts it
    """

    norm: str | None
    size: int
    r: int
    c: int
    names: Names

    def block(self) -> int:
        """Return how many numbers of the vector a device has, zeros included."""
        return -(-self.size // axis_size(self.names))


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


def cut_names(over: Over) -> Names:
    """Return the mesh axes that cut, or raise ValueError saying what to pass."""
    mesh = jax.sharding.get_abstract_mesh()
    if over is None:
        over = ("x", "y") if "y" in mesh.shape else ("x",)
    names = (over,) if isinstance(over, str) else (*over,)
    if not names or len({*names}) < len(names):
        raise ValueError(f"over = {over}: pass one mesh axis or more, each once")
    mesh_sizes(*names)
    if {*names} & {*mesh.manual_axes}:
        raise ValueError(f"axes {names} are Manual: call this outside of `shard_map`")
    return names


# ------------------------------------------------------------ a matrix


@functools.cache
def best_matrix(size: int, count: int) -> tuple[int, int]:
    """Return R and C for a vector: R C is its size, or the size of a convolution.

    Of R C = size those with the smallest blocks, zeros included, and nearest to each
    other. If a row or a column of these is more than a device should hold, R C is
    twice the size or more: such a vector is transformed by `bluestein`.
    """
    pairs = [(r, size // r) for r in range(1, math.isqrt(size) + 1) if size % r == 0]
    shares = {(r, c): (-(-r // count), -(-c // count)) for r, c in pairs}
    r, c = min(pairs, key=lambda pair: (math.prod(shares[pair]), -pair[0]))
    rows, columns = shares[r, c]
    longer = math.isqrt(2 * size - 2) // count * count + count
    wider = -(-(2 * size - 1) // (longer * count)) * count
    much = max(rows * c, columns * r) > 2 * longer * wider // count
    return (longer, wider) if much and size < 2**30 else (r, c)


def rows_and_columns(size: int, over: Over = None) -> tuple[int, int]:
    """Return R and C, the rows and columns of the matrix that holds a vector of `size`.

    R <= C, both as near to each other as can be, where the square of the devices
    divides `size`; else in the smallest blocks. Raises ValueError for a size without
    factors that devices can share.
    """
    plan = vector_plan(
        jax.ShapeDtypeStruct((size,), jnp.float32), Options(None, -1, None, over)
    )
    refuse_without_factors(plan)
    return plan.r, plan.c


def block_starts(block: int, c: int, count: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return where the blocks of a vector begin if it is read in rows of `c`.

    Returns for each device the row and the column of its first number, and in how many
    rows, at most, a block lies.
    """
    begin = np.arange(count) * block
    rows = (begin + block - 1) // c - begin // c + 1
    return begin // c, begin % c, int(rows.max())


def recut(a: Array, names: Names, split: int, join: int, size: int) -> Array:
    """Cut the axis `split` of a block over mesh axes, and join `join`, of this size.

    Zeros fill the one up to equal parts, and those in the other are dropped. A barrier
    hides them: XLA:CPU gives a part of zeros alone a layout of its own, and fails.
    """
    more = (np.arange(a.ndim) == split) * -a.shape[split] % lax.axis_size(names)
    a = lax.optimization_barrier(jnp.pad(a, [(0, n) for n in more])) if any(more) else a
    a = lax.all_to_all(a, names, split, join, tiled=True)
    return lax.slice_in_dim(a, 0, size, axis=join)


def to_columns(block: Array, r: int, c: int, names: Names) -> Array:
    """Read a vector in rows, and cut it by columns: [N@x] -> [R, C@x].

    Where blocks end within a row, its two pieces come from two devices, and are added.
    """
    count = lax.axis_size(names)
    row, column, rows = block_starts(size := block.size, c, count)
    if rows * c > size:
        begin = jnp.asarray(column, jnp.int32)[lax.axis_index(names)]
        block = jnp.roll(jnp.pad(block, (0, rows * c - size)), begin)
    pieces = recut(block.reshape(rows, c), names, 1, 0, count * rows)
    if (count * rows, rows * c) == (r, size):
        return pieces
    to = (row[:, None] + np.arange(rows)).ravel()
    return (
        jnp.zeros_like(pieces, shape=(r, pieces.shape[1]))
        .at[to]
        .add(pieces, mode="drop")
    )


def from_columns(columns: Array, c: int, size: int, names: Names) -> Array:
    """Undo `to_columns`: [R, C@x] -> [N@x], in blocks of `size`."""
    count = lax.axis_size(names)
    row, column, rows = block_starts(size, c, count)
    if (count * rows, rows * c) != (len(columns), size):
        of = (row[:, None] + np.arange(rows)).ravel()
        columns = columns.at[of].get(mode="fill", fill_value=0)
    pieces = recut(columns, names, 0, 1, c).ravel()
    if rows * c == size:
        return pieces
    begin = jnp.asarray(column, jnp.int32)[lax.axis_index(names)]
    return lax.dynamic_slice(pieces, (begin,), (size,))


def twiddles(block: Array, sign: int, c: int, names: Names) -> Array:
    """Return exp(sign 2 pi i j k / (R C)) for each row j and column k of a block.

    block: [R, C@x] -> the same. With k = first + rest, where `first` is this device's
    first column, it is a product of two: angles that are small, and integers that
    cannot overflow.
    """
    r, width = block.shape
    row, rest = jnp.arange(r)[:, None], jnp.arange(width)[None]
    rank = lax.axis_index(names).astype(row.dtype)

    def turn(count, step):
        angle = count.astype(block.real.dtype) * (sign * 2 * math.pi * step / (r * c))
        return lax.complex(jnp.cos(angle), jnp.sin(angle))

    return turn(row * rank, width) * turn(row * rest, 1)


def four_steps(columns: Array, c: int, names: Names, norm: str | None) -> Array:
    """Transform the vector that lies in these columns: [R, C@x] -> [R@x, C]."""
    block = jnp.fft.fft(columns, axis=0, norm=norm)
    block = block * twiddles(block, -1, c, names)
    return jnp.fft.fft(recut(block, names, 0, 1, c), norm=norm)


def inverse_four_steps(rows: Array, r: int, names: Names, norm: str | None) -> Array:
    """Undo `four_steps`: [R@x, C] -> [R, C@x]."""
    c = rows.shape[1]
    block = recut(jnp.fft.ifft(rows, norm=norm), names, 1, 0, r)
    block = block * twiddles(block, 1, c, names)
    return jnp.fft.ifft(block, axis=0, norm=norm)


# ------------------------------------------------------------ a product instead


def bluestein(block: Array, plan: Plan, sign: int) -> Array:
    """Transform a vector as a product of polynomials: [N@x] -> [N@x], not scaled.

    With 2 n k = n^2 + k^2 - (k - n)^2 the sum over n is a convolution with a chirp, and
    that a product of two spectra of R C >= 2 N - 1 numbers.
    """
    size, r, c, names = plan[1:]
    rank, total = lax.axis_index(names), r * c

    def chirp(index, sign):
        turns = square_modulo(index, 2 * size).astype(block.real.dtype)
        angle = turns * (sign * math.pi / size)
        return jnp.where(index < size, lax.complex(jnp.cos(angle), jnp.sin(angle)), 0)

    own = chirp(rank * block.size + jnp.arange(block.size, dtype=jnp.int32), sign)
    width = c // lax.axis_size(names)
    column = rank * width + jnp.arange(width, dtype=jnp.int32)
    index = jnp.arange(r, dtype=jnp.int32)[:, None] * c + column[None]
    kernel = chirp(jnp.minimum(index, total - index), -sign)
    block = jnp.where(own == 0, 0, block.astype(own.dtype) * own)  # zeros may be NaN
    columns = to_columns(block, r, c, names)
    product = four_steps(columns, c, names, None) * four_steps(kernel, c, names, None)
    columns = inverse_four_steps(product, r, names, None)
    return from_columns(columns, c, block.size, names) * own


def square_modulo(numbers: Array, size: int) -> Array:
    """Return the squares of integers modulo `size`, below 2^31, without overflow."""
    numbers, size = numbers.astype(jnp.uint32) % np.uint32(size), np.uint32(size)
    bits = int(size).bit_length()

    def add_bit(i, square):
        bit = (numbers >> (bits - 1 - i).astype(jnp.uint32)) & np.uint32(1)
        return (square * np.uint32(2) % size + bit * numbers) % size

    return lax.fori_loop(0, bits, add_bit, jnp.zeros_like(numbers))


# ------------------------------------------------------------ blocks of a vector


def fft_to_matrix(block: Array, plan: Plan) -> Array:
    """Transform a block of a vector: [N@x] -> [R@x, C]."""
    _, _, r, c, names = plan
    return four_steps(to_columns(block, r, c, names), c, names, plan.norm)


def ifft_from_matrix(rows: Array, plan: Plan) -> Array:
    """Undo `fft_to_matrix`: [R@x, C] -> [N@x]."""
    columns = inverse_four_steps(rows, plan.r, plan.names, plan.norm)
    return from_columns(columns, plan.c, plan.block(), plan.names)


def fft_block(block: Array, plan: Plan) -> Array:
    """Transform a block of a vector: [N@x] -> [N@x]."""
    if plan.r * plan.c > plan.size:
        return bluestein(block, plan, -1) * norm_factor(plan, "forward")
    return from_columns(fft_to_matrix(block, plan).T, plan.r, block.size, plan.names)


def ifft_block(block: Array, plan: Plan) -> Array:
    """Undo `fft_block`: [N@x] -> [N@x]."""
    if plan.r * plan.c > plan.size:
        return bluestein(block, plan, 1) * norm_factor(plan, "backward")
    return ifft_from_matrix(to_columns(block, plan.c, plan.r, plan.names).T, plan)


def norm_factor(plan: Plan, whole: str) -> float:
    """Return what a norm multiplies by, if `whole` is that which divides by N."""
    powers = {"ortho": -0.5, whole: -1.0}
    return plan.size ** powers.get(plan.norm or "backward", 0.0)


# ------------------------------------------------------------ what is asked


def check_array(name: str, a: Array):
    """Raise ValueError unless this argument is an array of numbers."""
    kind = f"of {a.dtype}" if hasattr(a, "dtype") else f"a {type(a).__name__}"
    dtype = getattr(a, "dtype", object)
    if not (jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool):
        raise ValueError(f"{name} is {kind}: pass an array of numbers")


def integer(name: str, number: int, least: int, most: int) -> int:
    """Return this number, or raise ValueError for none from `least` to `most`."""
    array = np.asarray(number)
    if array.shape or array.dtype.kind not in "iu" or not least <= array <= most:
        raise ValueError(f"{name} = {number}: pass an integer from {least} to {most}")
    return int(array)


def vector_plan(a: Array, options: Options) -> Plan:
    """Return the plan for the vectors along an axis, or raise ValueError."""
    check_array("a", a)
    if options.norm not in NORMS:
        raise ValueError(f"norm = {options.norm!r}: pass one of {NORMS}")
    axis = integer("axis", options.axis, -a.ndim, a.ndim - 1)
    size = a.shape[axis] if options.n is None else options.n
    size, names = integer("n", size, 1, 2**62), cut_names(options.over)
    plan = Plan(options.norm, size, *best_matrix(size, axis_size(names)), names)
    if a.shape[axis] not in (size, plan.block() * axis_size(names)):
        raise ValueError(
            f"{a.shape[axis]} numbers are not n = {size}: pass as many, or "
            f"{plan.block() * axis_size(names)} with zeros at the end"
        )
    return plan


def matrix_plan(a: Array, options: Options) -> Plan:
    """Return the plan for a vector that lies as a matrix, or raise ValueError."""
    check_array("a", a)
    if a.ndim < 2:
        raise ValueError(f"{a.dtype}{list(a.shape)}: pass a matrix, or call ifft")
    r, c = a.shape[-2:]
    flat = jax.ShapeDtypeStruct((r * c if options.n is None else options.n,), a.dtype)
    plan = vector_plan(flat, options)
    if options.n is None:
        return plan._replace(r=r, c=c)
    full = -(-plan.r // axis_size(plan.names)) * axis_size(plan.names)
    if r not in (plan.r, full) or c != plan.c:
        raise ValueError(
            f"a matrix of {r} x {c} is not for n = {plan.size}: pass {plan.r} x "
            f"{plan.c}, or {full} rows with zeros at the end"
        )
    return plan


def refuse_without_factors(plan: Plan):
    """Raise ValueError for a vector that has no matrix."""
    if plan.r * plan.c > plan.size:
        square = axis_size(plan.names) ** 2
        raise ValueError(
            f"n = {plan.size} has no factors that {axis_size(plan.names)} devices can "
            f"share: call fft, or pass {plan.size + -plan.size % square} numbers"
        )


# ------------------------------------------------------------ vectors


def explicit_cuts(a: Array, names: Names) -> list[Names]:
    """Return what cuts the axes of `a`, of the Explicit mesh axes not among `names`."""
    mesh, spec = mesh_with(), getattr(jax.typeof(a).sharding, "spec", ())
    spec = [(each,) if isinstance(each, str) else each or () for each in spec]
    spec += [()] * (a.ndim - len(spec))
    others = {*mesh.explicit_axes} - {*names}
    return [tuple(name for name in each if name in others) for each in spec]


def working_type(a: jax.ShapeDtypeStruct) -> np.dtype:
    """Return the type in which `a` is transformed: single precision at least."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.promote_types(jnp.result_type(a.dtype, 1.0), jnp.float32)


@jax.jit(static_argnames=("run", "plan", "lay"))
def on_vectors(run: Callable, a: Array, plan: Plan, lay: Layout) -> Array:
    """Lay `a` out, fill its axis up with zeros, and transform the blocks."""
    mesh = jax.sharding.get_abstract_mesh()
    # over all axes: XLA:CPU has no transform of a block that is cut by Auto ones, too
    names = {*mesh.axis_names} - {*mesh.manual_axes} if mesh.manual_axes else set()

    def placed(a, cut):
        spec = [
            tuple(name for name in each if name in mesh.explicit_axes) for each in cut
        ]
        return jax.reshard(a, jax.P(*spec)) if mesh.explicit_axes else a

    extra = [(0, size - n) for n, size in zip(a.shape, lay.sizes, strict=True)]
    if a.shape != lay.sizes:
        whole = zip(lay.before, extra, strict=True)
        # JAX has no derivative of a pad beside an axis that is cut into one part
        a = placed(a, [cut if axis_size(cut) > 1 > n else () for cut, (_, n) in whole])
        a = jnp.pad(a, extra)

    @jax.shard_map(
        in_specs=jax.P(*lay.before), out_specs=jax.P(*lay.after), axis_names=names
    )
    def of_blocks(block):
        each = functools.partial(run, plan=plan)
        for _ in range(block.ndim - lay.core):
            each = jax.vmap(each)
        return jnp.moveaxis(each(jnp.moveaxis(block, lay.axis, -1)), -1, lay.axis)

    return of_blocks(placed(a, lay.before).astype(working_type(a)))


def along_vectors(run: Callable, a: Array, options: Options) -> Array:
    """Transform the vectors along an axis of `a`."""
    plan = vector_plan(a, options)
    cut, sizes = explicit_cuts(a, plan.names), [*a.shape]
    cut[options.axis] = plan.names
    sizes[options.axis] = plan.block() * axis_size(plan.names)
    layout = Layout((*cut,), (*cut,), (*sizes,), options.axis, 1)
    return on_vectors(run, a, plan, layout)


def fft(a: Array, n=None, axis=-1, norm=None, over=None) -> Array:
    """Transform a vector, as `jnp.fft.fft` does.

    a: [N@(x,y)] -> [N@(x,y)], all of x and y along one axis

    Other axes than `axis` are a batch. If the devices do not divide N, zeros follow up
    to the next multiple; in `a` they may be there or not, and `n` tells N without them.
    `norm` is "backward" (as for None), "ortho" or "forward". Raises ValueError for an
    empty axis.
    """
    return along_vectors(fft_block, a, Options(n, axis, norm, over))


def ifft(a: Array, n=None, axis=-1, norm=None, over=None) -> Array:
    """Undo `fft`, as `jnp.fft.ifft` does.

    a: [N@(x,y)] -> [N@(x,y)]
    """
    return along_vectors(ifft_block, a, Options(n, axis, norm, over))


def fft_transposed(a: Array, n=None, norm=None, over=None) -> Array:
    """Transform vectors along the last axis, and leave them as matrices.

    a: [.., N@(x,y)] -> [.., R@(x,y), C], with R and C of `rows_and_columns(N)`

    The frequency k1 + R k2 stands in row k1 and column k2: `b[:R].T.ravel()` has the
    order of `jnp.fft.fft`. Rows of zeros follow if the devices do not divide R. Raises
    ValueError for sizes that have no such matrix; else it is `fft`.
    """
    options = Options(n, -1, norm, over)
    plan = vector_plan(a, options)
    refuse_without_factors(plan)
    *batch, _ = explicit_cuts(a, plan.names)
    sizes = *a.shape[:-1], plan.block() * axis_size(plan.names)
    lay = Layout((*batch, plan.names), (*batch, plan.names, ()), sizes, -1, 1)
    return on_vectors(fft_to_matrix, a, plan, lay)


def ifft_transposed(a: Array, n=None, norm=None, over=None) -> Array:
    """Undo `fft_transposed`.

    a: [.., R@(x,y), C] -> [.., N@(x,y)]

    Without `n`, N is R C, and R and C may be any. Raises ValueError unless `a` has the
    rows and columns for `n`.
    """
    plan = matrix_plan(a, Options(n, -1, norm, over))
    *batch, _, _ = explicit_cuts(a, plan.names)
    rows = -(-plan.r // axis_size(plan.names)) * axis_size(plan.names)
    lay = Layout((*batch, plan.names, ()), (*batch, plan.names), (), -1, 2)
    lay = lay._replace(sizes=(*a.shape[:-2], rows, plan.c))
    return on_vectors(ifft_from_matrix, a, plan, lay)


def cost(transform, a: jax.ShapeDtypeStruct, n=None, axis=-1, over=None) -> Cost:
    """Predict what `transform(a, n)` sends, for a transform of this module.

    A vector is complex: a real one is exchanged first, and sends half in that exchange,
    unless it is transformed as a convolution. A batch counts as it lies.
    """
    options, core = Options(n, axis, None, over), 1 + (transform is ifft_transposed)
    _, size, r, c, names = plan = (vector_plan, matrix_plan)[core - 1](a, options)
    count = axis_size(names)
    width, height = -(-c // count), -(-r // count)
    real = working_type(a).itemsize
    word = jnp.promote_types(working_type(a), jnp.complex64).itemsize
    rows = block_starts(plan.block(), c, count)[2] * width  # to columns, or from them
    rest = block_starts(plan.block(), r, count)[2] * height
    sent = [rest * real, width * height * word, rows * word]  # of ifft
    if r * c > size:
        sent = [rows * word] * 2 + [width * height * word] * 3
    elif transform is not ifft:
        sent = [rows * (word if core > 1 else real), width * height * word]
        sent += [rest * word] if transform is fft else []
    own = [*a.shape[-2:]] if core > 1 else [a.shape[axis]]
    batch = math.prod(a.shape) // math.prod(own)
    batch //= axis_size(sum(explicit_cuts(a, names), ()))
    total = batch * (count - 1) * sum(sent)
    return Cost(total, {"all-to-all": len(sent)} if total else {})


def main():
    """Transform a wave on every device there is, and find its frequency."""
    n = 64 * jax.device_count()
    with jax.set_mesh(jax.make_mesh((n // 64,), ("x",))):
        spectrum = fft(jnp.cos(6 * jnp.pi * jnp.arange(n) / n), norm="forward")
        power = jax.device_get(jnp.abs(spectrum) ** 2)
        print(f"{jax.typeof(spectrum)}  {power[3]:.2f} at 3, {power[4]:.2f} at 4")


if __name__ == "__main__":
    main()
