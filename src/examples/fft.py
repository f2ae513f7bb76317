# SPDX-License-Identifier: MIT-0
"""Fourier transforms of fields that are split over devices, of any size.

A transform along an axis needs that axis whole. So each device transforms what it has
whole, and an all-to-all then cuts an axis that is done and joins one that is not.

    slabs     [N0@x, N1, N2]    -> [N0, N1@x, N2]      a mesh with an axis x, and no y
    pencils   [N0@x, N1@y, N2]  -> [N0, N1@x, N2@y]    a mesh with axes x and y
    plane     [N0@(x,y), N1]    -> [N0, N1@(x,y)]      or over x alone

Indices, norms and arguments are those of `jax.numpy.fft`, and one more says which mesh
axes cut: `over=("data", "model")` cuts the first of `axes` over data and the second
over model, `over=("x", ("y", "z"))` the second over y and z together; with more mesh
axes than axes to cut, the last one takes the rest. Axes that are not transformed are a
batch, in the same messages. Further mesh axes are left alone; what is Auto on them has
no type to tell how a batch lies: `jax.vmap(fftn, spmd_axis_name="z")` does.
The transposed transforms do without the last step: a field ends as [N1@x, N2@y, N0].

JAX cuts into equal parts. So a cut axis that the mesh does not divide is followed by
zeros: 30 over 4 is 32. In what a transform takes they may be there or not: `s` tells
the sizes without them, and what stands in their place is not read. `mask` tells which
they are. Where all is divided, each of P = X Y devices sends

    slabs     (1 - 1/P) / P of the array in 1 all-to-all; a plane likewise
    pencils   (1 - 1/X) / P + (1 - 1/Y) / P in 2

which is the least for a swap of axes in which each device keeps its share; it is no
bound on the transform. `cost` has the bytes of any call. Input of NumPy, or that lies
otherwise, is laid out as above first. One axis alone, a long vector, is another method.

    JAX_NUM_CPU_DEVICES=8 python fft.py

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
Over = str | Sequence[str | Sequence[str]] | None
Sizes = Sequence[int] | None

Cost = namedtuple("Cost", "sent counts")  # one device's bytes, and its collectives
NORMS = None, "backward", "ortho", "forward"


class Options(NamedTuple):
    """The arguments of a transform, beside its array."""

    s: Sizes = None
    axes: Sizes = None
    norm: str | None = None
    over: Over = None


class Kind(NamedTuple):
    """What sort of transform it is: a row of the table `KINDS`."""

    back: bool = False
    real: bool = False  # the last axis has half of the frequencies
    transposed: bool = False  # the first axis ends last


class Axis(NamedTuple):
    """How an axis of an array lies: its size without zeros, and what cuts it."""

    true: int
    names: Names = ()

    def share(self) -> int:
        """Return how much of it a device has."""
        return -(-self.true // axis_size(self.names))

    def size(self) -> int:
        """Return its size with the zeros."""
        return self.share() * axis_size(self.names)


class Plan(NamedTuple):
    """All that is known of a transform before it runs, and no array.

    axes, sizes: of the field that is transformed, without zeros; cuts: what cuts the
    first of them, the second, ..; each: a function for every axis, or none
    """

    kind: Kind
    norm: str | None
    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    cuts: tuple[Names, ...]
    each: tuple[Callable, ...] = ()

    def modes(self) -> tuple[int, ...]:
        """Return the sizes of the spectrum, without zeros."""
        *others, last = self.sizes
        return (*others, last // 2 + 1 if self.kind.real else last)


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


def cuts_of(over: Over, count: int) -> tuple[Names, ...]:
    """Return which mesh axes cut the first `count` axes; the last takes the rest."""
    mesh = jax.sharding.get_abstract_mesh()
    if over is None:
        over = ("x", "y") if "y" in mesh.shape else ("x",)
    over = (over,) if isinstance(over, str) else over
    groups = [(each,) if isinstance(each, str) else (*each,) for each in over]
    names = sum(groups, ())
    if not names or len({*names}) < len(names):
        raise ValueError(f"over = {over}: pass one mesh axis or more, each once")
    mesh_sizes(*names)
    if {*names} & {*mesh.manual_axes}:
        raise ValueError(f"axes {names} are Manual: call this outside of `shard_map`")
    last = sum(groups[count - 1 :], ())
    return (*groups[: count - 1], *([last] if last else []))


# ------------------------------------------------------------ what is asked


def check_array(name: str, a: Array):
    """Raise ValueError unless this argument is an array of numbers."""
    kind = f"of {a.dtype}" if hasattr(a, "dtype") else f"a {type(a).__name__}"
    dtype = getattr(a, "dtype", object)
    if not (jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool):
        raise ValueError(f"{name} is {kind}: pass an array of numbers")


def integers(name: str, numbers: Sizes, count: int) -> tuple[int, ...]:
    """Return these as a tuple, or raise ValueError unless they are `count` integers."""
    found = np.atleast_1d(np.asarray(numbers))
    if found.shape != (count,) or found.dtype.kind not in "iu":
        raise ValueError(f"{name} = {numbers}: pass {count} integers")
    return tuple(found.tolist())


def check_axes(rank: int, axes: Sizes) -> tuple[int, ...]:
    """Return the axes that are meant, counted from 0, or raise ValueError."""
    axes = range(rank) if axes is None else axes
    axes = integers("axes", axes, np.size(axes))
    found = {axis % rank for axis in axes if -rank <= axis < rank}
    if len(found) < max(len(axes), 2):
        raise ValueError(f"axes = {axes} of {rank}: pass two or more, each once")
    return tuple(axis % rank for axis in axes)


def plan_of(kind: Kind, a: Array, options: Options, each: Sequence = ()) -> Plan:
    """Return the plan of a transform, or raise ValueError saying what to pass."""
    check_array("a", a)
    if options.norm not in NORMS:
        raise ValueError(f"norm = {options.norm!r}: pass one of {NORMS}")
    if kind.real and not kind.back and jnp.iscomplexobj(a):
        raise ValueError(f"{a.dtype} is not real: pass the real part, or call fftn")
    axes = check_axes(a.ndim, options.axes)
    cuts, shape = cuts_of(options.over, len(axes) - 1), field_order(kind, axes, a.shape)
    sizes = [shape[axis] for axis in axes] if options.s is None else options.s
    sizes = integers("s", sizes, len(axes))
    if min(sizes) < 1:
        raise ValueError(f"sizes {sizes}: an array without numbers has no transform")
    return Plan(kind, options.norm, axes, sizes, cuts, (*each,))


# ------------------------------------------------------------ how arrays lie


def field_order(kind: Kind, axes: Sequence[int], there: Sequence) -> list:
    """Return values for the axes of an array in the order of the field."""
    there = [*there]
    if kind.back and kind.transposed:
        there.insert(axes[0], there.pop(axes[-1]))
    return there


def explicit_layout(a: Array, cuts: Sequence[Names]) -> list[Axis]:
    """Return how `a` lies along Explicit mesh axes that cut nothing here."""
    mesh, spec = mesh_with(), getattr(jax.typeof(a).sharding, "spec", ())
    others = {*mesh.explicit_axes} - {*sum(cuts, ())}
    spec = [(each,) if isinstance(each, str) else each or () for each in spec]
    spec += [()] * (a.ndim - len(spec))
    names = [tuple(name for name in each if name in others) for each in spec]
    return [*map(Axis, a.shape, names)]


def layouts(plan: Plan, a: Array) -> tuple[list[Axis], list[Axis]]:
    """Return how the axes lie before a transform and after it."""
    field = field_order(plan.kind, plan.axes, explicit_layout(a, plan.cuts))
    spectrum, uncut = [*field], [()] * len(plan.axes)
    for i, axis in enumerate(plan.axes):
        field[axis] = Axis(plan.sizes[i], [*plan.cuts, *uncut][i])
        spectrum[axis] = Axis(plan.modes()[i], [(), *plan.cuts, *uncut][i])
    if plan.kind.transposed:
        spectrum.insert(plan.axes[-1], spectrum.pop(plan.axes[0]))
    return (spectrum, field) if plan.kind.back else (field, spectrum)


def check_shape(a: Array, layout: Sequence[Axis], plan: Plan):
    """Raise ValueError unless `a` has these sizes, with their zeros or without them."""
    true, full = [each.true for each in layout], [each.size() for each in layout]
    if any(n not in pair for n, *pair in zip(a.shape, true, full, strict=True)):
        wanted = f"{true}, or {full} with zeros" if true != full else f"{true}"
        raise ValueError(f"{[*a.shape]} is not for s = {plan.sizes}: pass {wanted}")


def lay_out(a: Array, layout: Sequence[Axis]) -> Array:
    """Lay `a` out like this along Explicit axes, and fill its axes up with zeros."""
    explicit = jax.sharding.get_abstract_mesh().explicit_axes

    def placed(a, layout):
        spec = [tuple(n for n in each.names if n in explicit) for each in layout]
        return jax.reshard(a, jax.P(*spec)) if explicit else a

    extra = [each.size() - n for n, each in zip(a.shape, layout, strict=True)]
    if any(extra):
        # JAX has no derivative of a pad beside an axis that is cut into one part
        whole = [
            Axis(n) if more or axis_size(each.names) == 1 else each
            for n, each, more in zip(a.shape, layout, extra, strict=True)
        ]
        a = placed(a, whole)
        a = jnp.pad(a, [(0, more) for more in extra])
    return placed(a, layout)


def working_type(a: jax.ShapeDtypeStruct) -> np.dtype:
    """Return the type in which `a` is transformed: single precision at least."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.promote_types(jnp.result_type(a.dtype, 1.0), jnp.float32)


@jax.jit(static_argnames=("transform", "plan"))
def on_field(transform: Callable, a: Array, plan: Plan) -> Array:
    """Lay `a` out, and transform the block of every device."""
    before, after = layouts(plan, a)
    mesh = jax.sharding.get_abstract_mesh()
    # over all axes: XLA:CPU has no transform of a block that is cut by Auto ones, too
    names = {*mesh.axis_names} - {*mesh.manual_axes} if mesh.manual_axes else set()
    specs = [jax.P(*(each.names for each in layout)) for layout in (before, after)]

    @jax.shard_map(in_specs=specs[0], out_specs=specs[1], axis_names=names)
    def run(block):
        return transform(block, plan)

    return run(lay_out(a, before).astype(working_type(a)))


def transform(kind: Kind, a: Array, options: Options, each: Sequence = ()) -> Array:
    """Check the arguments, and transform `a`."""
    plan = plan_of(kind, a, options, each)
    check_shape(a, layouts(plan, a)[0], plan)
    return on_field(inverse_block if kind.back else forward_block, a, plan)


def recut(a: Array, names: Names, split: int, join: int, size: int) -> Array:
    """Cut the axis `split` of a block over mesh axes, and join `join`, of this size.

    Zeros fill the one up to equal parts, and those in the other are dropped. A barrier
    hides them: XLA:CPU gives a part of zeros alone a layout of its own, and fails.
    """
    more = (np.arange(a.ndim) == split) * -a.shape[split] % lax.axis_size(names)
    a = lax.optimization_barrier(jnp.pad(a, [(0, n) for n in more])) if any(more) else a
    a = lax.all_to_all(a, names, split, join, tiled=True)
    return lax.slice_in_dim(a, 0, size, axis=join)


# ------------------------------------------------------------ blocks of a field


def forward_block(block: Array, plan: Plan) -> Array:
    """Transform a block of a field: [N0@x, N1@y, N2] -> [N0, N1@x, N2@y]."""
    axes, whole = plan.axes, plan.axes[len(plan.cuts) :]
    for i, names in reversed([*enumerate(plan.cuts)]):
        if axis_size(names) > 1:
            block = transform_axes(block, whole, plan)
            block = recut(block, names, axes[i + 1], axes[i], plan.sizes[i])
            whole = ()
        whole = (axes[i], *whole)
    block = transform_axes(block, whole, plan)
    return jnp.moveaxis(block, axes[0], axes[-1]) if plan.kind.transposed else block


def transform_axes(block: Array, axes: Sequence[int], plan: Plan) -> Array:
    """Transform a block along axes that are whole, or back."""
    if plan.each:
        for axis in axes:
            block = plan.each[plan.axes.index(axis)](block, axis)
        return block
    if plan.kind.back and plan.kind.real and axes[-1] == plan.axes[-1]:
        sizes = [*(block.shape[axis] for axis in axes[:-1]), plan.sizes[-1]]
        return jnp.fft.irfftn(block, sizes, axes, plan.norm)
    real = plan.kind.real and jnp.isrealobj(block)
    run = jnp.fft.ifftn if plan.kind.back else jnp.fft.rfftn if real else jnp.fft.fftn
    return run(block, axes=axes, norm=plan.norm)


def inverse_block(block: Array, plan: Plan) -> Array:
    """Undo `forward_block`: [N0, N1@x, N2@y] -> [N0@x, N1@y, N2]."""
    axes, whole = plan.axes, ()
    if plan.kind.transposed:
        block = jnp.moveaxis(block, axes[-1], axes[0])
    for i, names in enumerate(plan.cuts):
        whole = (*whole, axes[i])
        if axis_size(names) > 1:
            block = transform_axes(block, whole, plan)
            block = recut(block, names, axes[i], axes[i + 1], plan.modes()[i + 1])
            whole = ()
    return transform_axes(block, (*whole, *axes[len(plan.cuts) :]), plan)


# ------------------------------------------------------------ fields


def fftn(a: Array, s=None, axes=None, norm=None, over=None) -> Array:
    """Transform a field along its axes, as `jnp.fft.fftn` does.

    a: [N0@x, N1@y, N2] -> [N0, N1@x, N2@y] on a mesh with axes x and y, or
    a: [N0@x, N1, N2] -> [N0, N1@x, N2] on a mesh without y

    The first of `axes` are cut over the mesh axes of `over`, and afterwards their
    successors are. `s` tells the sizes without the zeros that fill cut axes up: without
    it, all numbers of `a` count. `norm` is "backward" (as for None), "ortho" or
    "forward". Raises ValueError for fewer than two axes, or an empty one.
    """
    return transform(Kind(), a, Options(s, axes, norm, over))


def ifftn(a: Array, s=None, axes=None, norm=None, over=None) -> Array:
    """Undo `fftn`, as `jnp.fft.ifftn` does.

    a: [N0, N1@x, N2@y] -> [N0@x, N1@y, N2] on a mesh with axes x and y, or
    a: [N0, N1@x, N2] -> [N0@x, N1, N2] on a mesh without y

    What cut axes have beyond `s` is not read.
    """
    return transform(Kind(back=True), a, Options(s, axes, norm, over))


def fftn_transposed(a: Array, s=None, axes=None, norm=None, over=None) -> Array:
    """Transform a field, and leave its first axis last.

    a: [N0@x, N1@y, N2] -> [N1@x, N2@y, N0] on a mesh with axes x and y, or
    a: [N0@x, N1, N2] -> [N1@x, N2, N0] on a mesh without y

    This is `jnp.fft.fftn(a).transpose(1, 2, 0)`, and takes the least time and memory.
    The first of `axes` moves to the place of the last. Else it is `fftn`.
    """
    return transform(Kind(transposed=True), a, Options(s, axes, norm, over))


def ifftn_transposed(a: Array, s=None, axes=None, norm=None, over=None) -> Array:
    """Undo `fftn_transposed`; `s` and `axes` are those of the field.

    a: [N1@x, N2@y, N0] -> [N0@x, N1@y, N2] on a mesh with axes x and y, or
    a: [N1@x, N2, N0] -> [N0@x, N1, N2] on a mesh without y
    """
    return transform(Kind(back=True, transposed=True), a, Options(s, axes, norm, over))


def rfftn(a: Array, s=None, axes=None, norm=None, over=None) -> Array:
    """Transform a real field, and leave out the half that is only conjugated.

    a: [N0@x, N1@y, N2] -> [N0, N1@x, K@y] on a mesh with axes x and y, or
    a: [N0@x, N1, N2] -> [N0, N1@x, K] on a mesh without y

    K is N2 // 2 + 1, as in `jnp.fft.rfftn`, and zeros. Arguments are as in `fftn`.
    Raises ValueError if `a` is complex.
    """
    return transform(Kind(real=True), a, Options(s, axes, norm, over))


def irfftn(a: Array, s, axes=None, norm=None, over=None) -> Array:
    """Return the real field of the sizes `s` whose transform by `rfftn` is `a`.

    a: [N0, N1@x, K@y] -> [N0@x, N1@y, N2] on a mesh with axes x and y, or
    a: [N0, N1@x, K] -> [N0@x, N1, N2] on a mesh without y

    `s` is (N0, N1, N2), which `a` alone does not tell: with its zeros it may have the
    shape of fields of many sizes, [16, 16, 12] on 2 x 4 devices for N2 from 16 to 23,
    and another one gives another field. Raises ValueError unless `a` has the shape that
    `rfftn` returns for a field of these sizes.
    """
    return transform(Kind(back=True, real=True), a, Options(s, axes, norm, over))


def rfftn_transposed(a: Array, s=None, axes=None, norm=None, over=None) -> Array:
    """Transform a real field as `rfftn` does, and leave its first axis last.

    a: [N0@x, N1@y, N2] -> [N1@x, K@y, N0] on a mesh with axes x and y, or
    a: [N0@x, N1, N2] -> [N1@x, K, N0] on a mesh without y

    Of all transforms of a real field this takes the least time and memory.
    """
    return transform(Kind(real=True, transposed=True), a, Options(s, axes, norm, over))


def irfftn_transposed(a: Array, s, axes=None, norm=None, over=None) -> Array:
    """Undo `rfftn_transposed`; `s` and `axes` are those of the field.

    a: [N1@x, K@y, N0] -> [N0@x, N1@y, N2] on a mesh with axes x and y, or
    a: [N1@x, K, N0] -> [N0@x, N1, N2] on a mesh without y
    """
    return transform(Kind(True, True, True), a, Options(s, axes, norm, over))


# ------------------------------------------------------------ planes


def fft2(a: Array, s=None, axes=(-2, -1), norm=None, over=None) -> Array:
    """Transform planes along both axes, as `jnp.fft.fft2` does.

    a: [.., N0@(x,y), N1] -> [.., N0, N1@(x,y)], all of x and y along one axis

    It is `fftn` of the last two axes; `over="x"` leaves y alone.
    """
    return fftn(a, s, axes, norm, over)


def ifft2(a: Array, s=None, axes=(-2, -1), norm=None, over=None) -> Array:
    """Undo `fft2`, as `jnp.fft.ifft2` does.

    a: [.., N0, N1@(x,y)] -> [.., N0@(x,y), N1]
    """
    return ifftn(a, s, axes, norm, over)


def rfft2(a: Array, s=None, axes=(-2, -1), norm=None, over=None) -> Array:
    """Transform real planes, and leave out the half that is only conjugated.

    a: [.., N0@(x,y), N1] -> [.., N0, K@(x,y)], with K as in `rfftn`
    """
    return rfftn(a, s, axes, norm, over)


def irfft2(a: Array, s, axes=(-2, -1), norm=None, over=None) -> Array:
    """Return the real planes of the sizes `s` whose transform by `rfft2` is `a`.

    a: [.., N0, K@(x,y)] -> [.., N0@(x,y), N1]
    """
    return irfftn(a, s, axes, norm, over)


def along_axes(a: Array, each: Sequence, s=None, axes=None, over=None) -> Array:
    """Apply to each axis, when it is whole, a function of its own; turn as above.

    a: [N0@x, N1@y, N2] -> [N1@x, N2@y, N0], as in `fftn_transposed`

    `each` has a function (block, axis) -> block for every axis, which transforms the
    lines along it and keeps their number. Sine and cosine transforms are such.
    """
    return transform(Kind(transposed=True), a, Options(s, axes, None, over), each)


def along_axes_back(a: Array, each: Sequence, s=None, axes=None, over=None) -> Array:
    """Apply to each axis, when it is whole, a function of its own; turn back.

    a: [N1@x, N2@y, N0] -> [N0@x, N1@y, N2], as in `ifftn_transposed`
    """
    return transform(Kind(True, False, True), a, Options(s, axes, None, over), each)


KINDS = {fftn: Kind(), rfftn: Kind(real=True), fftn_transposed: Kind(transposed=True)}
KINDS |= {fft2: Kind(), rfft2: Kind(real=True), along_axes: Kind(transposed=True)}
KINDS |= {rfftn_transposed: Kind(real=True, transposed=True)}
BACK = (
    ifftn,
    irfftn,
    ifftn_transposed,
    ifft2,
    irfft2,
    along_axes_back,
    irfftn_transposed,
)
KINDS |= zip(BACK, [kind._replace(back=True) for kind in KINDS.values()], strict=True)


# ------------------------------------------------------------ in the spectrum


@jax.jit(static_argnames=("layout", "place"))
def count_axis(layout: tuple[Axis, ...], place: int) -> Array:
    """Count an axis of an array that lies so: [1, .., N@x, .., 1], N with its zeros."""
    names, explicit = (
        layout[place].names,
        jax.sharding.get_abstract_mesh().explicit_axes,
    )
    count = jnp.arange(layout[place].size(), dtype=jnp.int32)
    count = jnp.expand_dims(count, [i for i in range(len(layout)) if i != place])
    lay = jax.reshard if {*names} & {*explicit} else lax.with_sharding_constraint
    return lay(count, jax.P(*[None] * place, names)) if names else count


def mode_grid(s: Sizes, transform: Callable, over: Over) -> list[Array]:
    """Return for each axis of a field of sizes `s` its numbers, as the spectrum lies.

    (N0, N1, N2) -> [N0, 1, 1], [1, N1@x, 1], [1, 1, N2@y] for `fftn`
    """
    kind, field = KINDS[transform], np.broadcast_to(0, s)
    _, layout = layouts(plan_of(kind, field, Options(over=over)), field)
    places = [*range(len(layout))]
    places.insert(0, places.pop(-1 if kind.transposed else 0))
    return [count_axis((*layout,), place) for place in places]


def mask(s: Sizes, transform: Callable = fftn, over: Over = None) -> Array:
    """Return where the spectrum by `transform` of a field of sizes `s` has numbers.

    (N0, N1, N2) -> bool[N0, N1@x, N2@y] for `fftn`: False where zeros fill an axis up
    """
    *sizes, last = s
    sizes = *sizes, last // 2 + 1 if KINDS[transform].real else last
    inside = [k < n for k, n in zip(mode_grid(s, transform, over), sizes, strict=True)]
    return functools.reduce(jnp.logical_and, inside)


def wave_numbers(s: Sizes, transform: Callable = fftn, over=None) -> list[Array]:
    """Return for each axis how many waves the numbers of a spectrum stand for.

    (N0, N1, N2) -> [N0, 1, 1], [1, N1@x, 1], [1, 1, N2@y] for `fftn`: for a field of
    these sizes 0, 1, .., -1, as `fftfreq(n) * n` has them, lying as the spectrum by
    `transform` does. The last axis of a real transform has 0, 1, .. without negative
    ones. Divided by the length of the field they are frequencies.
    """
    found, half = mode_grid(s, transform, over), [False] * (len(s) - 1)
    half.append(KINDS[transform].real)
    return [
        jnp.where((2 * k < n) | full, k, k - n).astype(float)
        for k, n, full in zip(found, s, half, strict=True)
    ]


def solve_in_spectrum(f: Array, symbol: Callable, each=(), s=None, over=None) -> Array:
    """Return the field whose spectrum, times `symbol(k0, k1, k2)`, is that of `f`.

    f: [N0@x, N1@y, N2] -> the same

    `symbol` takes the `wave_numbers` of a periodic field; where it is 0, the answer has
    0. With `each`, for every axis a pair of functions there and back, as `along_axes`
    takes them, k0, .. count their numbers from 0.
    """
    check_array("f", f)
    sizes, fft, ifft = f.shape if s is None else s, fftn_transposed, ifftn_transposed
    if not jnp.iscomplexobj(f):
        fft, ifft = rfftn_transposed, irfftn_transposed
    numbers = wave_numbers(sizes, fft, over)
    if each:
        into, out = zip(*each, strict=True)
        fft = functools.partial(along_axes, each=into)
        ifft = functools.partial(along_axes_back, each=out)
        numbers = [k.astype(float) for k in mode_grid(sizes, along_axes, over)]
    spectrum = fft(f, s=s, over=over)
    by = symbol(*numbers).astype(spectrum.dtype)
    solved = jnp.where(by == 0, 0, spectrum / jnp.where(by == 0, 1, by))
    return ifft(solved, s=sizes, over=over)


# ------------------------------------------------------------ what it costs


def cost(transform, a: jax.ShapeDtypeStruct, s=None, axes=None, over=None) -> Cost:
    """Predict what `transform(a, s, axes, over=over)` sends.

    Each exchange cuts an axis of a block, filled up with zeros, in equal parts, and
    keeps one of them. A batch counts as it lies.
    """
    axes = (-2, -1) if axes is None and transform.__name__.endswith("2") else axes
    plan = plan_of(KINDS[transform], a, Options(s, axes, None, over))
    field, cuts = layouts(plan, a)[plan.kind.back], plan.cuts
    batch = [each.share() for i, each in enumerate(field) if i not in plan.axes]
    before = [field[axis].share() for axis in plan.axes]
    uncut = [()] * len(before)
    after = [*map(Axis.share, map(Axis, plan.modes(), [(), *cuts, *uncut]))]
    word = jnp.promote_types(working_type(a), jnp.complex64)
    sent = [
        math.prod(batch + before[: i + 1] + after[i + 1 :]) * (axis_size(names) - 1)
        for i, names in enumerate(cuts)
        if axis_size(names) > 1
    ]
    return Cost(word.itemsize * sum(sent), {"all-to-all": len(sent)} if sent else {})


def main():
    """Transform a wave on every device there is, and find its frequency."""
    n = 8 * jax.device_count()
    with jax.set_mesh(jax.make_mesh((n // 8,), ("x",))):
        wave = jnp.cos(2 * jnp.pi * 3 * jnp.arange(n) / n)
        a = jnp.broadcast_to(wave[:, None, None], (n, n, 4))
        spectrum = fftn(jax.device_put(a, jax.P("x")), norm="forward")
        power = (jnp.abs(spectrum) ** 2).sum((1, 2))
        print(f"{jax.typeof(spectrum)}  power {power[3]:.2f} at 3, {power[4]:.2f} at 4")


if __name__ == "__main__":
    main()
