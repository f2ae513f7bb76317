from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from on_devices import as_double, assert_close, devices, noise

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
WRAP, WALLS = {"mode": "wrap"}, {"constant_values": WALL}


def field(shape=SHAPE, dtype=jnp.float32, seed=0):
    """Return a random grid [N@x, M@y]."""
    return jax.device_put(jnp.asarray(noise(*shape, seed=seed), dtype), BLOCKS)


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


def windows(grid, mesh, widths, **padding):
    """Return the overlapping windows of all blocks of a padded grid, side by side."""
    whole = np.pad(grid, [(width, width) for width in widths], **padding)
    rows, columns = (
        [slice(i * n // count, (i + 1) * n // count + 2 * width) for i in range(count)]
        for n, count, width in zip(grid.shape, mesh, widths, strict=True)
    )
    return np.block([[whole[i, j] for j in columns] for i in rows])


def march(grid, steps, rate=0.2, **padding):
    """Take the same steps in NumPy, on the whole grid at once."""
    for _ in range(steps):
        u = np.pad(grid, 1, **padding)
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        grid = grid + rate * (around - 4 * grid)
    return grid


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
        expected = windows(np.asarray(grid), mesh, (width, width), **beyond)
        np.testing.assert_array_equal(run(grid), expected)
    program = measure(run)
    assert program.counts == {"collective-permute": 4}
    assert program.sent == 4 * cells(mesh, width)


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
        after, program = run(grid), measure(run)  # nothing is gathered
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
        owners = windows(numbers, mesh, (width, width), **mode)
        sums = np.bincount(owners.ravel(), as_double(weights).ravel(), grid.size + 1)
        assert_close(answer, sums[1:].reshape(SHAPE))
        assert answer.sharding.is_equivalent_to(grid.sharding, 2)
    assert program.counts == {"collective-permute": 4}
    assert program.sent == 4 * cells(mesh, width)


def test_nobody_sends_round_the_ends_of_a_line():
    with devices((8, 1)):
        [up, down] = measure(walled(1), field()).collectives
        pairs = {(i, i + 1) for i in range(7)}
        assert {frozenset(up.groups), frozenset(down.groups)} == {
            frozenset(pairs),
            frozenset((after, before) for before, after in pairs),
        }


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
        grid, fine = field((8, 16), jnp.bfloat16), field((8, 16))
        wanted = march(as_double(grid), 2, **WRAP)
        assert_close(diffuse(grid, 2, jnp.float32(0.2)), wanted, eps)
        walls = march(as_double(grid), 2, **WALLS)
        assert_close(diffuse_open(grid, 2, 0.2, WALL), walls, eps)
        for step in diffuse, diffuse_open:
            assert step(fine, 2, np.float64(0.2)).dtype == jnp.float32


GRID = np.ones((8, 16), np.float32)


@pytest.mark.parametrize(
    ("grid", "options", "words"),
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
def test_what_is_no_number_and_no_grid_is_refused(grid, options, words):
    with devices((2, 4)):
        for step in diffuse, diffuse_open:
            with pytest.raises(ValueError, match=words):
                step(grid, **{"steps": 1, **options})


def test_steps_without_a_mesh_are_refused():
    for step in diffuse, diffuse_open:
        with pytest.raises(ValueError, match=r"no mesh axis \['x', 'y'\] in context"):
            step(GRID, 1)


ROWS = {"in_specs": jax.P("x"), "out_specs": jax.P("x"), "axis_names": {"x"}}
WIDE = "a block of 4 cells cannot fill a halo of {}: take a width from 1 to 4"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (periodic(0), WIDE.format(0)),
        (walled(5), WIDE.format(5)),
        (lambda grid: diffuse(grid, 5, width=5), "cannot fill a halo of 5"),
        (lambda grid: diffuse_open(grid, 1, value=GRID), "value has the shape"),
        (lambda grid: exchange(grid, "z", 0), "no axis 'z' here: call it inside"),
        (lambda grid: exchange_open(grid, "z", 0), "no axis 'z' here"),
        (by_block(lambda block: exchange(block, "x", 2)), r"\(4, 4\) has no axis 2"),
        (
            jax.shard_map(lambda block: exchange(block, "x", 1), **ROWS),
            "is itself cut along axis 1",
        ),
    ],
)
def test_a_halo_that_cannot_be_filled_is_refused(call, words):
    with devices((2, 4)), pytest.raises(ValueError, match=words):
        call(field((8, 16)))
