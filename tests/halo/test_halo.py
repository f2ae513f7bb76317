from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from on_devices import as_double, assert_close, devices

from examples.communication import measure
from examples.halo import (
    diffuse,
    diffuse_open,
    exchange,
    exchange_open,
    surround,
    surround_open,
)

BLOCKS = jax.P("x", "y")
EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto
SHAPE = (48, 32)
WALL = 3


def field(shape=SHAPE, dtype=jnp.float32, seed=0):
    """Return a random grid [N@x, M@y]."""
    array = np.random.default_rng(seed).standard_normal(shape)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        array = array * (1 + 2j) + 3j * array**2
    return jax.device_put(jnp.asarray(array, dtype), BLOCKS)


def by_block(pad):
    """Return the program that pads every block, and lays the results side by side."""

    @jax.jit
    def run(grid):  # on whatever mesh is in context
        return jax.shard_map(pad, in_specs=BLOCKS, out_specs=BLOCKS)(grid)

    return run


@cache  # so that one program serves all tests on a mesh
def periodic(width):
    return by_block(lambda block: surround(block, width))


@cache
def walled(width):
    return by_block(lambda block: surround_open(block, width, WALL))


def windows(whole, mesh, width):
    """Cut a padded grid into the overlapping windows of all blocks, side by side."""
    n, m = ((size - 2 * width) // k for size, k in zip(whole.shape, mesh, strict=True))
    rows = [slice(i * n, i * n + n + 2 * width) for i in range(mesh[0])]
    columns = [slice(j * m, j * m + m + 2 * width) for j in range(mesh[1])]
    return np.block([[whole[i, j] for j in columns] for i in rows])


def march(grid, steps, rate, **padding):
    """Take the same steps in NumPy, on the whole grid at once."""
    for _ in range(steps):
        u = np.pad(grid, 1, **padding)
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        grid = grid + rate * (around - 4 * grid)
    return grid


WRAP, WALLS = {"mode": "wrap"}, {"constant_values": WALL}


def cells(mesh, width):
    """Return how many cells one device sends to fill the halos of all."""
    n, m = (size // count for size, count in zip(SHAPE, mesh, strict=True))
    return 2 * width * (m + n + 2 * width)


@pytest.mark.parametrize(
    ("pad", "beyond", "mesh", "width", "kind"),
    [(periodic, WRAP, (2, 4), 8, EXPLICIT), (walled, WALLS, (3, 2), 16, AUTO)],
    ids=["ring", "line"],
)
def test_a_padded_block_is_a_window_in_two_messages_an_axis(
    pad, beyond, mesh, width, kind
):
    """Corners are free, and a halo may be as wide as the block."""
    with devices(mesh, kind):
        grid = field()
        run = pad(width).lower(grid).compile()
        expected = windows(np.pad(np.asarray(grid), width, **beyond), mesh, width)
        np.testing.assert_array_equal(run(grid), expected)
    program = measure(run)
    assert program.counts == {"collective-permute": 4}
    assert program.sent == 4 * cells(mesh, width)


@pytest.mark.parametrize(
    ("extend", "beyond"), [(exchange, WRAP), (exchange_open, {"constant_values": 0})]
)
def test_one_axis_alone_is_extended_and_further_axes_ride_along(extend, beyond):
    host = np.arange(96.0, dtype=np.float32).reshape(16, 3, 2)
    along = {"in_specs": jax.P("x"), "out_specs": jax.P("x")}
    with devices((8, 1)):
        extended = jax.shard_map(lambda block: extend(block, "x", 0), **along)
        found = np.asarray(extended(jax.device_put(host, jax.P("x"))))
    whole = np.pad(host, ((1, 1), (0, 0), (0, 0)), **beyond)
    blocks = [whole[first : first + 4] for first in range(0, 16, 2)]
    np.testing.assert_array_equal(found, np.concatenate(blocks))


@pytest.mark.parametrize(
    ("heat", "beyond", "mesh", "kind", "steps"),
    [
        (partial(diffuse, width=2), WRAP, (2, 4), EXPLICIT, 9),
        (partial(diffuse, width=3), WRAP, (3, 2), AUTO, 2),
        (partial(diffuse_open, value=WALL), WALLS, (3, 2), EXPLICIT, 7),
    ],
    ids=["ring", "wide", "line"],
)
def test_heat_is_that_of_numpy_in_few_messages(heat, beyond, mesh, kind, steps):
    """A halo of width w lasts for w steps."""
    with devices(mesh, kind):
        grid = field()
        step = jax.jit(lambda u: heat(u, steps, 0.15))
        run = step.lower(grid).compile()
        after, program = run(grid), measure(run)
        assert_close(after, march(as_double(grid), steps, 0.15, **beyond))
        assert after.sharding.is_equivalent_to(grid.sharding, 2)
    width = heat.keywords.get("width", 1)
    rounds, rest = divmod(steps, width)
    assert program.counts == {"collective-permute": 4 * (rounds + (rest > 0))}
    last = cells(mesh, rest) if rest else 0
    assert program.sent == 4 * (rounds * cells(mesh, width) + last)


@pytest.mark.parametrize(
    ("mesh", "pad", "width"), [((2, 4), periodic, 2), ((3, 2), walled, 1)]
)
def test_the_transpose_adds_the_halo_back_to_its_owners(pad, width, mesh):
    """<pad(u), v> is <u, transpose(v)>: every copy of a cell returns to it."""
    with devices(mesh):
        grid = field()
        shape = jax.eval_shape(pad(width), grid).shape
        weights = field(shape, seed=1)
        back = jax.jit(lambda u, v: jax.vjp(pad(width), u)[1](v)[0])
        run = back.lower(grid, weights).compile()
        answer, program = run(grid, weights), measure(run)
        numbers = np.arange(1, grid.size + 1).reshape(SHAPE)
        mode = WRAP if pad is periodic else {"constant_values": 0}
        owners = windows(np.pad(numbers, width, **mode), mesh, width)
        sums = np.bincount(owners.ravel(), as_double(weights).ravel(), grid.size + 1)
        assert_close(answer, sums[1:].reshape(SHAPE))
        assert answer.sharding.is_equivalent_to(grid.sharding, 2)
    assert program.counts == {"collective-permute": 4}
    assert program.sent == 4 * cells(mesh, width)


def test_the_gradient_of_heat_is_heat():
    """A step is symmetric, so the gradient of <step(u), v> by u is step(v).

    Complex numbers are a pair each; between walls it is heat between cold ones.
    """

    def gradients(grid, weights, value):
        back = jax.vjp(lambda u: diffuse(u, 5, width=2), grid)[1]
        walls = jax.vjp(lambda u, value: diffuse_open(u, 5, value=value), grid, value)
        return back(weights)[0], *walls[1](weights)

    with devices((2, 4)):
        grid, weights = (field(dtype=jnp.complex64, seed=seed) for seed in (0, 1))
        value = jnp.asarray(WALL, jnp.complex64)
        ring, line, slope = jax.jit(gradients)(grid, weights, value)
        assert_close(ring, march(as_double(weights), 5, 0.2, **WRAP))
        assert_close(line, march(as_double(weights), 5, 0.2, constant_values=0))
        warmer = march(np.zeros(SHAPE), 5, 0.2, constant_values=1)
        assert_close(slope, (warmer * as_double(weights)).sum(), eps=1e-5)
        assert ring.sharding.is_equivalent_to(grid.sharding, 2)


def test_nobody_sends_round_the_ends_of_a_line():
    with devices((8, 1)):
        [up, down] = measure(walled(1), field()).collectives
        pairs = {(i, i + 1) for i in range(7)}
        assert {frozenset(up.groups), frozenset(down.groups)} == {
            frozenset(pairs),
            frozenset((after, before) for before, after in pairs),
        }


def test_the_grid_is_never_gathered():
    with devices((2, 4)):
        grid = field((1024, 1024))
        assert measure(lambda grid: diffuse(grid, 10), grid).temporaries < (
            4 * grid.nbytes // 8
        )


@pytest.mark.parametrize("width", [0, 5])
def test_a_halo_that_the_block_cannot_fill_is_refused(width):
    complaint = (
        f"a block of 4 cells cannot fill a halo of {width}: take a width from 1 to 4"
    )
    with devices((2, 4)):
        grid = field((8, 16))
        with pytest.raises(ValueError, match=complaint):
            diffuse(grid, 5, width=width)
        for pad in periodic, walled:
            with pytest.raises(ValueError, match=complaint):
                pad(width)(grid)


def test_grids_of_numpy_copies_and_cut_otherwise_are_laid_out():
    grid = np.random.default_rng(0).standard_normal((8, 16), np.float32)
    periodic, walls = march(grid, 3, 0.2, **WRAP), march(grid, 3, 0.2, **WALLS)
    with devices((2, 2, 2), names=("other", "x", "y")):
        for given in grid, jax.device_put(grid, jax.P(None, "other")):
            assert_close(diffuse(given, 3, width=2), periodic)
        both = jax.device_put(grid, jax.P(("other", "x"), "y"))
        assert_close(diffuse_open(both, 3, value=WALL), walls)


def test_rates_of_any_type_serve_where_nothing_is_promoted():
    eps = float(jnp.finfo(jnp.bfloat16).eps)
    with devices((2, 4)), jax.numpy_dtype_promotion("strict"):
        for rate, dtype in (
            (0.2, jnp.bfloat16),
            (np.float64(0.2), jnp.float32),
            (jnp.float32(0.2), jnp.bfloat16),
        ):
            grid = field((8, 16), dtype)
            for step in diffuse, diffuse_open:
                run = partial(step, steps=2, rate=rate)
                assert jax.eval_shape(run, grid).dtype == dtype
        wanted = march(as_double(grid), 2, 0.2, **WRAP)
        assert_close(diffuse(grid, 2, rate), wanted, eps)
        walls = march(as_double(grid), 2, 0.2, **WALLS)
        assert_close(diffuse_open(grid, 2, rate, WALL), walls, eps)


GRID = np.ones((8, 16), np.float32)


@pytest.mark.parametrize(
    ("grid", "options", "complaint"),
    [
        (np.ones((47, 16), "f4"), {}, "N = 47 cannot be cut into 2 .* a grid of 48"),
        (np.ones((48, 30), "f4"), {}, "M = 30 cannot be cut into 4 .* a grid of 32"),
        (GRID[0], {}, r"float32\[16\] is no grid of heat: pass two axes"),
        (GRID[:0], {}, "a block of 0 cells cannot fill a halo of 1"),
        ([[1.0]], {}, "list is no grid of heat: pass"),
        (GRID, {"steps": 1.5}, r"1\.5 steps cannot be taken"),
        (GRID, {"rate": GRID}, "rate has the shape"),
        (GRID, {"rate": 1j}, "rate is complex and the grid float"),
    ],
)
def test_what_is_no_number_and_no_grid_is_refused(grid, options, complaint):
    with devices((2, 4)):
        for step in diffuse, diffuse_open:
            with pytest.raises(ValueError, match=complaint):
                step(grid, **{"steps": 1, **options})


def test_walls_of_an_array_and_a_grid_without_a_mesh_are_refused():
    with devices((2, 4)), pytest.raises(ValueError, match="value has the shape"):
        diffuse_open(GRID, 1, value=GRID)
    for step in diffuse, diffuse_open:
        with pytest.raises(ValueError, match=r"no mesh axis \['x', 'y'\] in context"):
            step(GRID, 1)


def test_a_halo_needs_an_axis_of_the_mesh_and_of_the_block():
    for extend in exchange, exchange_open:
        with pytest.raises(ValueError, match="no axis 'x' here: call it inside"):
            extend(jnp.ones(8), "x", 0)
        with devices((2, 4)):
            with pytest.raises(ValueError, match=r"a block \(4, 4\) has no axis 2"):
                by_block(lambda block, f=extend: f(block, "x", 2))(field((8, 16)))
            rows = {"in_specs": jax.P("x"), "out_specs": jax.P("x")}
            with pytest.raises(ValueError, match="is itself cut along axis 1"):
                jax.shard_map(
                    lambda b, f=extend: f(b, "x", 1), **rows, axis_names={"x"}
                )(field((8, 16)))
