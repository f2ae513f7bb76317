# SPDX-License-Identifier: MIT-0
"""Eigenvalues and eigenvectors of a tridiagonal matrix, by joining pieces in pairs.

A tridiagonal matrix is torn into a piece for each device, by a change of rank one a
tear. Two pieces that are solved have diag(d) + rho z z^T in their vectors: its
eigenvalues are the roots of 1 + rho sum z_i^2 / (d_i - x), its vectors z / (d - x).

    d, e    [N], [N - 1]    diagonal and subdiagonal, on all devices
    w       [N]             eigenvalues in ascending order, on all devices
    q       [N@(x,y), N]    eigenvectors in columns, whole rows: P = X Y devices
    z       [2s]            last row of one piece's q, first row of the other's
    roots   [2s]            each from the pole next to it: d + o + mu

In a join each device finds the roots of its own rows, sends them, and multiplies its
own rows by vectors that it makes a tile at a time, so q is never sent: five vectors
are, in each of log2 P joins. They cost 4 N^3 / 3P multiplications a device, and hold
2 N^2 / P words. Values alone carry the first and the last row of each piece, and cost
N^2 / P in a join.

Equal poles are moved apart by a rounding, and weights are no less than one: errors
as of rounding beside the norm, and no poles that are left out, so all shapes are known.

Sources: Cuppen, A divide and conquer method for the symmetric tridiagonal eigenproblem,
Numerische Mathematik 36 (1981). Gu and Eisenstat, A divide-and-conquer algorithm for
the symmetric tridiagonal eigenproblem, SIAM J. Matrix Anal. Appl. 16 (1995). Li,
Solving secular equations stably and efficiently, LAPACK Working Note 89 (1993). Tisseur
and Dongarra, A parallel divide and conquer algorithm for the symmetric eigenvalue
problem, SIAM J. Sci. Comput. 20 (1999).

    JAX_NUM_CPU_DEVICES=8 python secular.py

Copy this file alone: it needs JAX only.
"""

import functools
import math
from collections import Counter
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

CHUNKS = 8  # parts, at most, in which a device finds its roots, to hold less at a time
TURNS = 80  # rounds, at most, of the search for roots: 5 to 9 are usual
DTYPES = "float32", "float64"
Axes = str | tuple[str, ...]

dot = functools.partial(jnp.dot, precision=lax.Precision.HIGHEST)
count_up = functools.partial(jnp.arange, dtype=jnp.int32)  # with 64 bits or without


class Roots(NamedTuple):
    """Roots of a secular equation, and what makes the vectors that belong to them.

    Poles are d + o, ascending, of weight z^2; a root is from_d + from_o + mu, and its
    vector is z / (d + o - root) / norm. `order` sorted the poles.
    """

    d: Array
    o: Array
    z: Array
    order: Array
    from_d: Array
    from_o: Array
    mu: Array
    norm: Array


class Pair(NamedTuple):
    """The pair of pieces of size s that a device is in, inside `jax.shard_map`.

    Of [0, 2s), `last` is the last index there is, and the rows of the device are
    those from `at` on; the pair begins at row `start` of `size` in all.
    """

    axes: Axes
    s: int
    rows: int
    size: int
    start: Array
    at: Array
    last: Array


class Cost(NamedTuple):
    """What one device should send: bytes in all, for each purpose; collectives."""

    sent: int
    parts: dict[str, int]
    counts: dict[str, int]


# ------------------------------------------------------------------- the equation


def move_apart(d: Array) -> Array:
    """Return what to add to ascending numbers so that they differ, and no more."""
    add = jnp.append(0 * d[:1], jnp.finfo(d.dtype).eps / d.size - jnp.diff(d))
    return lax.scan(lambda o, add: (jnp.maximum(o + add, 0),) * 2, 0 * d[0], add)[1]


def pole_gaps(d: Array, o: Array, i: Array) -> Array:
    """Return the poles minus poles i, to the last digit: [n], [n], [k] -> [k, n]."""
    return (d[None] - d[i][:, None]) + (o[None] - o[i][:, None])


def brackets(d: Array, o: Array, weight: Array, last: Array, j: Array):
    """Return the pole next to each root, how far the next one is, and two bounds.

    -> near: [k], far: [k] from there, low and high: [k], between which mu is
    """
    top, up = j == last, jnp.minimum(j + 1, last)
    above = weight.sum() * (1 + 8 * jnp.finfo(d.dtype).eps)
    gap = jnp.where(top, above, (d[up] - d[j]) + (o[up] - o[j]))
    middle = 1 + (weight[None] / (pole_gaps(d, o, j) - gap[:, None] / 2)).sum(1)
    left = (middle >= 0) | top
    near, far = jnp.where(left, j, up), jnp.where(left, gap, -gap)
    ends = jnp.stack([0 * far, far / 2])
    ends += jnp.where(top & (middle < 0), far / 2, 0)[None]
    return near, far, ends.min(0), ends.max(0)


def next_guess(mu: Array, far: Array, own: Array, rest: Array, slope: Array) -> Array:
    """Solve rest - own / mu, the rest as if of one pole at `far`: [k] -> [k]."""
    # the rest becomes c + s / (far - mu): a quadratic equation
    c, s = rest - slope * (far - mu), slope * (far - mu) ** 2
    b = rest * far - slope * (far - mu) * mu + own
    root = jnp.sqrt((b - 2 * own) ** 2 + 4 * own * s)  # nothing cancels
    return jnp.where(b > 0, 2 * own * far / (b + root), (b - root) / (2 * c))


def find_roots(d: Array, o: Array, weight: Array, last: Array, j: Array):
    """Find those roots of 1 + sum weight / (d + o - x), from the pole next to each.

    d, o, weight: [n], of which the pole `last` is the last one; j: [k] -> near, mu:
    [k], the roots are d[near] + (o[near] + mu)
    """
    near, far, low, high = brackets(d, o, weight, last, j)
    own, away = weight[near], pole_gaps(d, o, near)
    others = jnp.where(count_up(d.size)[None] == near[:, None], 0, weight[None])

    eps = jnp.finfo(d.dtype).eps

    def improve(state):
        mu, low, high, done, turns = state
        ratio = 1 / jnp.where(others == 0, 1, away - mu[:, None])
        terms = others * ratio
        rest, slope = 1 + terms.sum(1), (terms * ratio).sum(1)
        f, size = rest - own / mu, 1 + jnp.abs(terms).sum(1) + jnp.abs(own / mu)
        low, high = jnp.where(f < 0, mu, low), jnp.where(f < 0, high, mu)
        new = next_guess(mu, far, own, rest, slope)
        small = jnp.abs(new - mu) <= eps * jnp.abs(mu)
        done |= (jnp.abs(f) <= 4 * eps * size) | small
        between = (low + high) / jnp.where(low * high > 0, 2, 16)
        new = jnp.where((new > low) & (new < high), new, between)
        return jnp.where(done, mu, new), low, high, done, turns + 1

    state = far / 2, low, high, jnp.isnan(far), 0

    def searching(state):
        return ~state[3].all() & (state[4] < TURNS)

    return near, lax.while_loop(searching, improve, state)[0]


def exact_weights(poles: tuple, roots: tuple, rho: Array, last: Array, i: Array):
    """Return `|z_i|` of the problem whose roots are exactly these: [k] -> [k]."""
    (d, o), (from_d, from_o, mu) = poles, (v[None] for v in roots)
    j, at_d, at_o = count_up(d.size)[None], d[i][:, None], o[i][:, None]
    pole = jnp.where(j < i[:, None], j, jnp.minimum(j + 1, last))
    other = jnp.where(j == last, rho, (d[pole] - at_d) + (o[pole] - at_o))
    ratio = ((from_d - at_d) + (from_o - at_o) + mu) / other
    return jnp.sqrt(jnp.abs(jnp.where(j <= last, ratio, 1)).prod(1))


# ----------------------------------------------------------------------- the join


def pair_of(s: int, rows: int, size: int, axes: Axes) -> Pair:
    """Return the own pair of pieces of size s, where each device has so many rows."""
    first = lax.axis_index(axes) * rows
    start = first // (2 * s) * (2 * s)
    last = jnp.minimum(2 * s, size - start) - 1  # the second piece may be missing
    return Pair(axes, s, rows, size, start, first - start, last)


def gather(v: Array, axes: Axes) -> Array:
    """Bring the parts of all devices together: [..., M/P] -> [..., M]."""
    return lax.all_gather(v, axes, axis=v.ndim - 1, tiled=True)


def pair_slice(v: Array, pair: Pair) -> Array:
    """Return what belongs to the pair, zeros where it ends: [..., M] -> [..., 2s]."""
    v = jnp.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, 2 * pair.s)])
    return lax.dynamic_slice_in_dim(v, pair.start, 2 * pair.s, -1)


def map_chunks(f, *vectors: Array):
    """Apply f to some entries of vectors at a time, to hold less: [k] -> [k], each."""
    cut = [v.reshape(math.gcd(CHUNKS, v.size), -1) for v in vectors]
    return jax.tree.map(jnp.ravel, lax.map(lambda parts: f(*parts), cut))


def sort_poles(lam: Array, z: Array, pair: Pair):
    """Sort poles, move equal ones apart, leave no weight 0: -> d, o, z, order."""
    there, eps = count_up(z.size) <= pair.last, jnp.finfo(z.dtype).eps
    size = jnp.maximum(jnp.abs(z), eps / math.sqrt(pair.size))
    z = jnp.where(there, jnp.where(z < 0, -size, size), 0)
    d = jnp.where(there, pair_slice(lam, pair), 8)  # behind all others
    order = jnp.argsort(d).astype(jnp.int32)
    d = d[order]
    return d, move_apart(d), z[order], order


def join_pieces(lam: Array, z: Array, rho: Array, pair: Pair) -> tuple[Array, Roots]:
    """Find the eigenvalues of diag(lam) + rho z z^T for each pair of pieces.

    lam: [M], of all; z: [2s], rho: [] of the own pair -> lam: [M], Roots of the pair
    """
    d, o, z, order = sort_poles(lam, z, pair)
    rho = jnp.maximum(rho, jnp.finfo(z.dtype).eps)
    mine = pair.at + count_up(pair.rows)

    find = functools.partial(find_roots, d, o, rho * z * z, pair.last)
    near, mu = map_chunks(find, mine)
    lam = gather(d[near] + (o[near] + mu), pair.axes)
    both = pair_slice(gather(jnp.stack([near.astype(mu.dtype), mu]), pair.axes), pair)
    from_d, from_o = (v[both[0].astype(jnp.int32)] for v in (d, o))

    def weights(i):
        return exact_weights((d, o), (from_d, from_o, both[1]), rho, pair.last, i)

    size = pair_slice(gather(map_chunks(weights, mine), pair.axes), pair)
    z = jnp.where(z < 0, -size, size)

    def length(i, mu):
        return ((z[None] / (pole_gaps(d, o, i) - mu[:, None])) ** 2).sum(1) ** 0.5

    norm = pair_slice(gather(map_chunks(length, near, mu), pair.axes), pair)
    return lam, Roots(d, o, z, order, from_d, from_o, both[1], norm)


def make_rows(q: Array, roots: Roots, pair: Pair) -> Array:
    """Multiply rows of q by the vectors of a join, made in tiles: [L, s] -> [L, 2s].

    Where the last pair is not whole, its q ends where the matrix does.
    """
    seat = jnp.argsort(roots.order).astype(jnp.int32)
    seat = lax.dynamic_slice_in_dim(seat, pair.at // pair.s * pair.s, pair.s)
    d, o, z = (v[seat][:, None] for v in roots[:3])

    def tile(column):
        (from_d, from_o, mu, norm), there = column
        vectors = z / ((d - from_d) + (o - from_o) - mu) / norm
        return jnp.where(there, dot(q, vectors), 0)

    there = count_up(2 * pair.s // pair.rows) * pair.rows <= pair.last
    cut = tuple(v.reshape(-1, 1, pair.rows) for v in roots[4:]), there
    cut = jax.tree.map(lambda v: v[: pair.size // pair.rows], cut)
    return lax.map(tile, cut).swapaxes(0, 1).reshape(pair.rows, -1)


def make_edges(edges: Array, roots: Roots, pair: Pair) -> Array:
    """Multiply first and last row of a pair by its vectors: [2, 2s] -> [2, M]."""
    edges = (edges[:, roots.order] * roots.z[None])[:, None]

    def multiply_edges(from_d, from_o, mu, norm):
        away = (roots.d[None] - from_d[:, None]) + (roots.o[None] - from_o[:, None])
        return tuple((edges / (away - mu[:, None])[None]).sum(2) / norm[None])

    mine = [lax.dynamic_slice_in_dim(v, pair.at, pair.rows) for v in roots[4:]]
    return gather(jnp.stack(map_chunks(multiply_edges, *mine)), pair.axes)


# ----------------------------------------------------------- inside `jax.shard_map`


def solve_leaves(d: Array, e: Array, axes: Axes):
    """Tear a tridiagonal matrix apart, and solve the own piece.

    d, e: [M] -> lam: [M], q: [M/P, M/P], and for each level of joins the own pair, the
    strength rho of its tear and the sign
    """
    count, rank = lax.axis_size(axes), lax.axis_index(axes)
    rows = d.size // count
    tear = count_up(1, count) * rows - 1
    rho, sign = jnp.abs(e[tear]), jnp.where(e[tear] < 0, -1, 1).astype(e.dtype)
    d = d.at[tear].add(-rho).at[tear + 1].add(-rho)
    levels = []
    for level in range((count - 1).bit_length()):
        at = ((2 * (rank >> (level + 1)) + 1) << level) - 1
        both = [v.at[at].get(mode="fill", fill_value=0) for v in (rho, sign)]
        levels.append((pair_of(rows << level, rows, d.size, axes), *both))
    d, e = (lax.dynamic_slice_in_dim(v, rank * rows, rows) for v in (d, e))
    lam, q = jnp.linalg.eigh(jnp.diag(d) + jnp.diag(e[:-1], 1) + jnp.diag(e[:-1], -1))
    return gather(lam, axes), q, levels


def norm_of(d: Array, e: Array) -> Array:
    """Return the largest sum of a row of absolute values; 1 for 0, NaN if infinite."""
    norm = (jnp.abs(d) + jnp.abs(e) + jnp.abs(jnp.roll(e, 1))).max()
    norm = jnp.where(jnp.isfinite(norm), norm, jnp.nan)
    return norm + (norm == 0).astype(norm.dtype)


def conquer(d: Array, e: Array, axes: Axes) -> tuple[Array, Array]:
    """Solve a tridiagonal problem, inside `jax.shard_map` over these axes.

    d, e: [M], P divides M, the last of e is 0 -> w: [M], q: [M/P, M], the own rows
    """
    norm = norm_of(d, e)
    lam, q, levels = solve_leaves(d / norm, e / norm, axes)
    for pair, rho, sign in levels:
        # z has the last row of one piece, the first row of the other
        below = jnp.where(pair.at + pair.rows == pair.s, q[-1], 0)
        edge = jnp.where(pair.at == pair.s, q[0] * sign, below)
        z = jnp.zeros_like(lam, shape=pair.size + pair.s)
        half = pair.start + pair.at // pair.s * pair.s
        z = lax.dynamic_update_slice_in_dim(z, edge, half, 0)
        z = pair_slice(lax.psum(z[: pair.size], axes), pair)
        lam, roots = join_pieces(lam, z, rho, pair)
        q = make_rows(q, roots, pair)
    return lam * norm, q


def conquer_values(d: Array, e: Array, axes: Axes) -> Array:
    """Return what `conquer` does but q, and carry two rows of each piece for it."""
    norm = norm_of(d, e)
    lam, q, levels = solve_leaves(d / norm, e / norm, axes)
    edges = gather(jnp.stack([q[0], q[-1]]), axes)
    for pair, rho, sign in levels:
        first, last = pair_slice(edges, pair)
        left = count_up(2 * pair.s) < pair.s
        z = jnp.where(left, last, first * sign)
        lam, roots = join_pieces(lam, z, rho, pair)
        both = jnp.stack([jnp.where(left, first, 0), jnp.where(left, 0, last)])
        edges = make_edges(both, roots, pair)
    return lam * norm


IN_PAIRS = conquer, conquer_values  # `tridiagonal` of eigh.py


# ------------------------------------------------------------------ what you call


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


def check_tridiagonal(d: Array, e: Array, axes: Axes) -> tuple[str, ...]:
    """Return the names of axes, or raise ValueError for what is no such problem."""
    axes = (axes,) if isinstance(axes, str) else tuple(axes)
    if not axes or len({*axes}) < len(axes):
        raise ValueError(f"axes = {axes}: pass the name of a mesh axis, or several")
    mesh_sizes(*axes)
    if {*axes} & {*jax.sharding.get_abstract_mesh().manual_axes}:
        raise ValueError(f"axes {axes} are those of a `jax.shard_map`: use `conquer`")
    for name, v in ("d", d), ("e", e):
        if getattr(v, "dtype", object) not in DTYPES:
            raise ValueError(f"{name} is no array of {DTYPES}: take `.astype`")
    if d.ndim != 1 or e.shape != (d.size - 1,) or e.dtype != d.dtype:
        given = f"d {d.shape} and e {e.shape}"
        raise ValueError(f"{given} of {d.dtype}, {e.dtype}: pass [N] and [N - 1] alike")
    return axes


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def pad_and_solve(d: Array, e: Array, axes: tuple[str, ...], solve):
    """Fill up by poles that come last, and solve: [N], [N - 1] -> [M], [M@axes, M]."""
    more = -d.size % math.prod(mesh_sizes(*axes))
    e = jnp.pad(place(e, jax.P()), (0, more + 1))
    d = jnp.pad(place(d, jax.P()), (0, more))
    d = jnp.where(count_up(d.size) < d.size - more, d, 2 * norm_of(d, e))
    specs = {"in_specs": jax.P(), "out_specs": (jax.P(), jax.P(axes))}

    def run(d, e):
        lam, q = solve(d, e, axes)
        first = lax.axis_index(axes) == 0
        return lax.psum(jnp.where(first, lam, 0), axes), q

    return jax.shard_map(run, axis_names={*axes}, **specs)(d, e)


@pad_and_solve.defjvp
def refuse_jvp(axes, solve, primals, tangents):
    """Raise ValueError, before a loop without end would raise something obscure."""
    raise ValueError(
        "tridiagonal problems have no derivative here: differentiate eigh of the "
        "matrix, or pass lax.stop_gradient of d and e"
    )


def eigh_tridiagonal(d: Array, e: Array, axes: Axes = ("x", "y")):
    """Return eigenvalues and eigenvectors of a real symmetric tridiagonal matrix.

    d: [N], e: [N - 1] on all devices -> w: [N], ascending, on all devices; q: [N@axes,
    N], whole on all if the devices do not divide N

    float32 or float64. If a number is not finite, all results are NaN. Raises
    ValueError for what is no such matrix, another mesh, a derivative, and inside a
    `jax.shard_map` over `axes`.
    """
    return rows_of_vectors(d, e, check_tridiagonal(d, e, axes))


@jax.jit(static_argnames="axes")
def rows_of_vectors(d: Array, e: Array, axes: tuple[str, ...]):
    """Return eigenvalues and rows of vectors: [N], [N - 1] -> [N], [N@axes, N]."""
    w, q = pad_and_solve(d, e, axes, conquer)
    return w[: d.size], q if w.size == d.size else place(q, jax.P())[: d.size, : d.size]


def eigvalsh_tridiagonal(d: Array, e: Array, axes: Axes = ("x", "y")) -> Array:
    """Return the eigenvalues alone, all else as `eigh_tridiagonal`: -> [N]."""
    return values_alone(d, e, check_tridiagonal(d, e, axes))


@jax.jit(static_argnames="axes")
def values_alone(d: Array, e: Array, axes: tuple[str, ...]) -> Array:
    """Return eigenvalues alone: [N], [N - 1] -> [N]."""

    def solve(d, e, axes):
        lam = conquer_values(d, e, axes)
        return lam, lam[:1]  # in the place of rows

    return pad_and_solve(d, e, axes, solve)[0][: d.size]


def cost(function, d: jax.ShapeDtypeStruct, axes: Axes = ("x", "y")) -> Cost:
    """Predict what `eigh_tridiagonal(d, e)` or `eigvalsh_tridiagonal` sends.

    d: [N], on the mesh in context; or `conquer`, `conquer_values`, inside `eigh`
    """
    inner = {eigh_tridiagonal: conquer, eigvalsh_tridiagonal: conquer_values}
    solve = inner.get(function, function)
    if solve not in IN_PAIRS:
        raise ValueError(f"no cost is known of {function}: pass eigh_tridiagonal")
    size = math.prod(mesh_sizes(*((axes,) if isinstance(axes, str) else axes)))
    joins, vectors = (size - 1).bit_length(), solve is conquer
    more = joins if vectors else joins - 1  # the last join of values alone needs less
    whole = -(-d.size // size) * size  # filled up
    sent = [  # purpose, kind, vectors in one collective, how many of these
        ("leaves", "all-gather", 1, 1),
        ("edges", "all-gather", 2, 0 if vectors else joins),
        ("edges", "all-reduce", 2, joins if vectors else 0),
        ("roots", "all-gather", 1, joins),
        ("roots", "all-gather", 2, more),
        ("weights and norms", "all-gather", 1, 2 * more),
        ("values", "all-reduce", 2, function in inner),
    ]
    if function is eigh_tridiagonal and whole > d.size:
        sent.append(("whole", "all-gather", whole, 1))
    parts, counts = Counter(), Counter()
    for purpose, kind, many, times in sent if size > 1 else []:
        each = many * whole * d.dtype.itemsize * (size - 1) / size
        parts[purpose] += times * math.ceil(each)
        counts[kind] += times
    return Cost(parts.total(), dict(+parts), dict(+counts))


def main():
    """Find the frequencies of a chain of springs, on every device there is."""
    with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
        n = 16 * jax.device_count()
        w, q = eigh_tridiagonal(jnp.full(n, 2.0), jnp.full(n - 1, -1.0), "x")
        known = 2 - 2 * jnp.cos(jnp.pi * (jnp.arange(n) + 1) / (n + 1))
        error = jnp.abs(w - known).max()
        print(f"{jax.typeof(q)}  {'solved' if error < 1e-4 else 'not solved'}")


if __name__ == "__main__":
    main()
