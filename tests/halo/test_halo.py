from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from on_devices import AUTO, EXPLICIT, as_double, assert_close, devices, noise

from examples import halo
from examples.communication import measure
from examples.halo import diffuse, diffuse_open, surround, surround_open

BLOCKS = jax.P("x", "y")
SHAPE = (48, 32)
WALL = 3
WRAP, WALLS = {"mode": "wrap"}, {"constant_values": WALL}


def field(shape=SHAPE):
    """Return a random grid [N@x, M@y]."""
    return jax.device_put(noise(*shape, dtype=np.float32), BLOCKS)


def by_block(pad):
    """Return the program that pads every block, and lays the results side by side."""
    return jax.jit(jax.shard_map(pad, in_specs=BLOCKS, out_specs=BLOCKS))


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


@pytest.mark.parametrize(
    ("pad", "beyond", "mesh", "kind"),
    [
        (partial(surround, width=8), WRAP, (2, 4), EXPLICIT),
        (partial(surround_open, width=16, value=WALL), WALLS, (3, 2), AUTO),
    ],
    ids=["ring", "line"],
)
def test_a_padded_block_is_a_window_in_two_messages_an_axis(pad, beyond, mesh, kind):
    """Corners are free, and a halo may be as wide as the block."""
    width = pad.keywords["width"]
    with devices(mesh, kind):
        grid = field()
        run = by_block(pad).lower(grid).compile()
        padded, program = run(grid), measure(run)
    window = windows(as_double(grid), mesh, (width, width), **beyond)
    np.testing.assert_array_equal(padded, window)
    assert program.counts == {"collective-permute": 4}
    n, m = np.array(SHAPE) // mesh
    assert program.sent == 4 * 2 * width * (m + n + 2 * width)


@pytest.mark.parametrize(
    ("heat", "beyond", "mesh", "kind", "steps"),
    [
        (partial(diffuse, width=2), WRAP, (2, 4), EXPLICIT, 9),
        (partial(diffuse_open, value=WALL), WALLS, (3, 2), AUTO, 7),
    ],
    ids=["ring", "line"],
)
def test_heat_is_that_of_numpy_in_few_messages(heat, beyond, mesh, kind, steps):
    """A halo of width w lasts for w steps; a rate of any type is converted."""
    with devices(mesh, kind), jax.numpy_dtype_promotion("strict"):
        grid, rate = field(), jnp.bfloat16(0.15)
        run = jax.jit(lambda u: heat(u, steps, rate)).lower(grid).compile()
        after, program = run(grid), measure(run)  # nothing is gathered
        assert after.sharding.is_equivalent_to(grid.sharding, 2)
    assert after.dtype == jnp.float32
    assert_close(after, march(as_double(grid), steps, float(rate), **beyond))
    exchanges = -(-steps // heat.keywords.get("width", 1))
    assert program.counts == {"collective-permute": 4 * exchanges}


def test_grids_of_numpy_copies_and_cut_otherwise_are_laid_out():
    grid = noise(8, 16, dtype=np.float32)
    periodic, walls = march(grid, 3, **WRAP), march(grid, 3, **WALLS)
    with devices((2, 2, 2), names=("other", "x", "y")):
        for given in grid, jax.device_put(grid, jax.P(None, "other")):
            assert_close(diffuse(given, 3, width=2), periodic)
        both = jax.device_put(grid, jax.P(("other", "x"), "y"))
        assert_close(diffuse_open(both, 3, value=WALL), walls)


def along_x(axis):
    return partial(halo.exchange, axis_name="x", axis=axis)


GRID = np.ones((8, 16), np.float32)
ROWS = {"in_specs": jax.P("x"), "out_specs": jax.P("x"), "axis_names": {"x"}}
WIDE = "a block of 4 cells cannot fill a halo of {}: take a width from 1 to 4"


@each_refusal(
    (lambda f: f(np.ones((47, 16)), 1), "N = 47 cannot be cut into 2 .* a grid of 48"),
    (lambda f: f(np.ones((48, 30)), 1), "M = 30 cannot be cut into 4 .* a grid of 32"),
    (lambda f: f(GRID[0], 1), r"float32\[16\] is no grid of heat: pass two axes"),
    (lambda f: f(GRID[:0], 1), "a block of 0 cells cannot fill a halo of 1"),
    (lambda f: f([[1.0]], 1), "list is no grid of heat: pass"),
    (lambda f: f(GRID, 1.5), r"1\.5 steps cannot be taken"),
    (lambda f: f(GRID, 1, GRID), "rate has the shape"),
    (lambda f: f(GRID, 1, 1j), "rate is complex and the grid float"),
)
def test_what_is_no_number_and_no_grid_is_refused(call, words):
    for step in diffuse, diffuse_open:
        with devices((2, 4)), pytest.raises(ValueError, match=words):
            call(step)
        with pytest.raises(ValueError, match=r"no mesh axis \['x', 'y'\] in context"):
            step(GRID, 1)


@each_refusal(
    (by_block(partial(surround, width=0)), WIDE.format(0)),
    (by_block(partial(surround_open, width=5)), WIDE.format(5)),
    (lambda grid: diffuse(grid, 5, width=5), "cannot fill a halo of 5"),
    (lambda grid: diffuse_open(grid, 1, value=GRID), "value has the shape"),
    (lambda grid: halo.exchange(grid, "z", 0), "no axis 'z' here: call it inside"),
    (lambda grid: halo.exchange_open(grid, "z", 0), "no axis 'z' here"),
    (by_block(along_x(2)), r"\(4, 4\) has no axis 2"),
    (jax.shard_map(along_x(1), **ROWS), "is itself cut along axis 1"),
)
def test_a_halo_that_cannot_be_filled_is_refused(call, words):
    with devices((2, 4)), pytest.raises(ValueError, match=words):
        call(field((8, 16)))
