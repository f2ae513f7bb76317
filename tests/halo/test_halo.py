import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
MESHES = [(1, 1), (8, 1), (1, 8), (2, 4), (4, 2), (3, 2)]  # the last: a subset
KINDS = [AxisType.Explicit, AxisType.Auto]
SHAPE = (48, 32)
WALL = 3

each_mesh = pytest.mark.parametrize("mesh", MESHES)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=["explicit", "auto"])
each_mesh_and_a_kind = pytest.mark.parametrize(
    ("mesh", "kind"),
    [*zip(MESHES, KINDS * 3, strict=True), ((2, 4), KINDS[0]), ((4, 2), KINDS[1])],
)
each_mesh_and_two_widths = pytest.mark.parametrize(
    ("mesh", "width"), list(zip(MESHES * 2, [1, 2, 4] * 2 + [2, 4, 1] * 2, strict=True))
)
each_width = pytest.mark.parametrize("width", [1, 2, 4])
each_dtype = pytest.mark.parametrize(
    "dtype", [jnp.float32, jnp.bfloat16, jnp.complex64]
)


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


@functools.cache  # so that one program serves all tests on a mesh
def periodic(width):
    return by_block(lambda block: surround(block, width))


@functools.cache
def walled(width):
    return by_block(lambda block: surround_open(block, width, WALL))


def windows(whole, mesh, width):
    """Cut a padded grid into the overlapping windows of all blocks, side by side."""
    n, m = ((size - 2 * width) // k for size, k in zip(whole.shape, mesh, strict=True))
    rows = [slice(i * n, i * n + n + 2 * width) for i in range(mesh[0])]
    columns = [slice(j * m, j * m + m + 2 * width) for j in range(mesh[1])]
    return np.block([[whole[i, j] for j in columns] for i in rows])


def wrapped(grid, width):
    return np.pad(np.asarray(grid), width, mode="wrap")


def bordered(grid, width):
    return np.pad(np.asarray(grid), width, constant_values=WALL)


def march(grid, steps, rate, **padding):
    """Take the same steps in NumPy, on the whole grid at once."""
    for _ in range(steps):
        u = np.pad(grid, 1, **padding)
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        grid = grid + rate * (around - 4 * grid)
    return grid


WRAP, WALLS = {"mode": "wrap"}, {"constant_values": WALL}
each_pad = pytest.mark.parametrize(
    ("pad", "padded"), [(periodic, wrapped), (walled, bordered)], ids=["ring", "line"]
)


@each_mesh
@each_width
@each_pad
def test_a_padded_block_is_a_window_of_the_padded_grid(pad, padded, width, mesh):
    with devices(mesh):
        grid = field()
        expected = windows(padded(grid, width), mesh, width)
        np.testing.assert_array_equal(pad(width)(grid), expected)


@each_pad
def test_a_halo_may_be_as_wide_as_the_block(pad, padded):
    with devices((4, 2)):
        grid = field((12, 6))
        np.testing.assert_array_equal(pad(3)(grid), windows(padded(grid, 3), (4, 2), 3))


@each_dtype
@each_kind
@each_pad
def test_every_type_is_passed_on_unchanged(pad, padded, kind, dtype):
    with devices((2, 4), kind):
        grid = field(dtype=dtype)
        answer = pad(2)(grid)
        assert answer.dtype == dtype
        np.testing.assert_array_equal(answer, windows(padded(grid, 2), (2, 4), 2))


def test_one_axis_alone_is_extended_and_further_axes_ride_along():
    with devices((8, 1)):
        grid = jax.device_put(np.arange(96.0).reshape(16, 3, 2), jax.P("x"))
        spec = {"in_specs": jax.P("x"), "out_specs": jax.P("x")}
        ring = jax.shard_map(lambda block: exchange(block, "x", 0), **spec)
        line = jax.shard_map(lambda block: exchange_open(block, "x", 0), **spec)
        before, after = (slice(i, None, 4) for i in (0, 3))
        host = np.array(grid)
        around, along = np.asarray(ring(grid)), np.asarray(line(grid))
    np.testing.assert_array_equal(around[before], np.roll(host, 1, 0)[::2])
    np.testing.assert_array_equal(around[after], np.roll(host, -1, 0)[1::2])
    host[-1] = 0
    np.testing.assert_array_equal(along[before], np.roll(host, 1, 0)[::2])


@each_mesh
@each_kind
def test_heat_on_a_ring_is_that_of_numpy(kind, mesh):
    with devices(mesh, kind):
        grid = field()
        after = diffuse(grid, 7, rate=0.15)
        assert_close(after, march(as_double(grid), 7, 0.15, **WRAP))
        assert after.sharding.is_equivalent_to(grid.sharding, 2)


@each_mesh
@each_kind
def test_heat_between_walls_is_that_of_numpy(kind, mesh):
    with devices(mesh, kind):
        grid = field()
        after = diffuse_open(grid, 7, rate=0.15, value=WALL)
        assert_close(after, march(as_double(grid), 7, 0.15, **WALLS))
        assert after.sharding.is_equivalent_to(grid.sharding, 2)


@each_dtype
@pytest.mark.parametrize("rate", [0.2, np.float32(0.2)], ids=["weak", "strong"])
def test_heat_keeps_its_type(dtype, rate):
    with devices((2, 4)):
        grid = field(dtype=dtype)
        ring, line = diffuse(grid, 3, rate, 2), diffuse_open(grid, 3, rate, 3.0)
        assert ring.dtype == line.dtype == dtype
        eps = float(jnp.finfo(dtype).eps)
        assert_close(ring, march(as_double(grid), 3, 0.2, **WRAP), eps)
        assert_close(line, march(as_double(grid), 3, 0.2, **WALLS), eps)


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 6])
@pytest.mark.parametrize("width", [2, 3])
def test_a_wide_halo_gives_the_same_values(width, steps):
    with devices((2, 4)):
        grid = field()
        assert_close(diffuse(grid, steps, width=width), as_double(diffuse(grid, steps)))


@pytest.mark.parametrize(
    ("mesh", "pad", "width"),
    [
        *zip(MESHES, [periodic] * 6, [1, 2, 4] * 2, strict=True),
        *zip(MESHES, [walled] * 6, [2, 4, 1] * 2, strict=True),
    ],
)
def test_the_transpose_adds_the_halo_back_to_its_owners(pad, width, mesh):
    """<pad(u), v> is <u, transpose(v)>: every copy of a cell returns to it."""
    with devices(mesh):
        grid = field()
        padded, pull = jax.vjp(pad(width), grid)
        weights = np.random.default_rng(1).standard_normal(padded.shape)
        weights = jax.device_put(weights.astype(np.float32), BLOCKS)
        [back] = jax.jit(pull)(weights)
        numbers = np.arange(1, grid.size + 1).reshape(SHAPE)
        mode = WRAP if pad is periodic else {"constant_values": 0}
        owners = windows(np.pad(numbers, width, **mode), mesh, width)
        sums = np.bincount(owners.ravel(), as_double(weights).ravel(), grid.size + 1)
        assert_close(back, sums[1:].reshape(SHAPE))
        assert back.sharding.is_equivalent_to(grid.sharding, 2)


@each_mesh_and_a_kind
def test_the_gradient_of_heat_is_heat(kind, mesh):
    """A step is symmetric, so the gradient of <step(u), v> by u is step(v)."""
    with devices(mesh, kind):
        grid, weights = field(), field(seed=1)

        def loss(grid):
            return (diffuse(grid, 5, width=2) * weights).sum()

        gradient = jax.jit(jax.grad(loss))(grid)
        assert_close(gradient, march(as_double(weights), 5, 0.2, **WRAP))
        assert gradient.sharding.is_equivalent_to(grid.sharding, 2)


@each_mesh
def test_the_gradient_between_walls_is_heat_between_cold_walls(mesh):
    with devices(mesh):
        grid, weights = field(), field(seed=1)

        def loss(grid, value):
            return (diffuse_open(grid, 5, value=value) * weights).sum()

        gradient, slope = jax.jit(jax.grad(loss, (0, 1)))(grid, float(WALL))
        assert_close(gradient, march(as_double(weights), 5, 0.2, constant_values=0))
        warmer = march(np.zeros(SHAPE), 5, 0.2, constant_values=1)
        assert_close(slope, (warmer * as_double(weights)).sum(), eps=1e-5)


def test_complex_gradients_are_those_of_the_plain_steps():
    with devices((2, 4)):
        grid = field(dtype=jnp.complex64)
        after, pull = jax.vjp(lambda u: diffuse(u, 3), grid)
        assert_close(pull(after)[0], march(as_double(grid), 6, 0.2, **WRAP))


def cells(mesh, width, shape=SHAPE):
    """Return how many cells one device sends to fill the halos of all."""
    n, m = (size // count for size, count in zip(shape, mesh, strict=True))
    along_x, along_y = (count > 1 for count in mesh)
    return 2 * width * (m * along_x + (n + 2 * width) * along_y)


def permutes(mesh, times=1):
    count = 2 * times * sum(size > 1 for size in mesh)
    return {"collective-permute": count} if count else {}


@each_mesh_and_a_kind
@pytest.mark.parametrize("pad", [periodic, walled], ids=["ring", "line"])
def test_a_halo_is_two_messages_an_axis_and_corners_are_free(pad, kind, mesh):
    for width in 1, 3:
        with devices(mesh, kind):
            program = measure(pad(width), field())
        assert program.counts == permutes(mesh)
        assert program.sent == 4 * cells(mesh, width)


@pytest.mark.parametrize("pad", [periodic, walled], ids=["ring", "line"])
def test_the_transpose_sends_as_much_as_the_exchange(pad):
    with devices((2, 4)):
        padded, pull = jax.vjp(pad(2), field())
        program = measure(jax.jit(pull), jax.device_put(padded, BLOCKS))
    assert program.counts == permutes((2, 4))
    assert program.sent == 4 * cells((2, 4), 2)


def test_nobody_sends_round_the_ends_of_a_line():
    with devices((8, 1)):
        [up, down] = measure(walled(1), field()).collectives
        pairs = {(i, i + 1) for i in range(7)}
        assert {frozenset(up.groups), frozenset(down.groups)} == {
            frozenset(pairs),
            frozenset((after, before) for before, after in pairs),
        }


@each_mesh
def test_a_step_is_one_exchange(mesh):
    for step in diffuse, diffuse_open:
        with devices(mesh):
            program = measure(lambda grid, step=step: step(grid, 5), field())
        assert program.counts == permutes(mesh, 5)
        assert program.sent == 4 * 5 * cells(mesh, 1)


@each_mesh_and_two_widths
def test_a_halo_of_width_w_lasts_for_w_steps(width, mesh):
    with devices(mesh):
        program = measure(lambda grid: diffuse(grid, 9, width=width), field())
    rounds, rest = divmod(9, width)
    assert program.counts == permutes(mesh, rounds + (rest > 0))
    last = cells(mesh, rest) if rest else 0
    assert program.sent == 4 * (rounds * cells(mesh, width) + last)


def test_the_grid_is_never_gathered():
    with devices((2, 4)):
        grid = field((1024, 1024))
        assert measure(lambda grid: diffuse(grid, 10), grid).temporaries < (
            4 * grid.nbytes // 8
        )


@settings(deadline=None, derandomize=True, max_examples=12)
@given(st.data())
def test_any_grid_on_any_mesh_is_right_and_costs_what_it_should(data):
    mesh = data.draw(st.sampled_from(MESHES))
    kind = data.draw(st.sampled_from(KINDS))
    width = data.draw(st.integers(1, 3))
    shape = [count * data.draw(st.integers(width + 1, 7)) for count in mesh]
    steps = data.draw(st.integers(1, 5))
    with devices(mesh, kind):  # a block that is all edge goes round a ring of 2 once
        grid = field(shape)
        after = diffuse(grid, steps, width=width)
        assert_close(after, march(as_double(grid), steps, 0.2, **WRAP))
        program = measure(periodic(width), grid)
    assert program.sent == 4 * cells(mesh, width, shape)


@pytest.mark.parametrize("step", [diffuse, diffuse_open])
@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        ((47, 32), r"N = 47 cannot be cut into 2 parts: take a grid of 48"),
        ((48, 30), r"M = 30 cannot be cut into 4 parts: take a grid of 32"),
        ((48,), r"float32\[48\] is no grid of heat: pass two axes"),
        ((0, 32), "a block of 0 cells cannot fill a halo of 1"),
    ],
)
def test_grids_that_the_mesh_cannot_cut_are_refused(step, shape, complaint):
    with devices((2, 4)), pytest.raises(ValueError, match=complaint):
        step(jnp.ones(shape), 1)


@pytest.mark.parametrize("width", [-1, 0, 5])
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


@pytest.mark.parametrize("step", [diffuse, diffuse_open])
def test_whole_numbers_and_steps_back_are_refused(step):
    with devices((2, 4)):
        with pytest.raises(ValueError, match=r"int32\[8,8\] is no grid of heat"):
            step(jnp.ones((8, 8), int), 1)
        with pytest.raises(ValueError, match="-1 steps cannot be taken"):
            step(jnp.ones((8, 8)), -1)


@pytest.mark.parametrize("step", [diffuse, diffuse_open])
def test_a_mesh_without_the_axes_is_refused(step):
    with pytest.raises(ValueError, match=r"no mesh axis \['x', 'y'\] in context"):
        step(jnp.ones((8, 8)), 1)


@pytest.mark.parametrize(
    ("names", "kind"),
    [(("other", "x", "y"), KINDS[0]), (("x", "y", "other"), KINDS[1])],
    ids=["first, explicit", "last, auto"],
)
def test_grids_of_numpy_copies_and_cut_otherwise_are_laid_out(kind, names):
    grid = np.random.default_rng(0).standard_normal((8, 16), np.float32)
    periodic, walls = march(grid, 3, 0.2, **WRAP), march(grid, 3, 0.2, **WALLS)
    with devices((2, 2, 2), kind, names):
        for spec in None, jax.P(), jax.P(("other", "x"), "y"), jax.P(None, "other"):
            given = grid if spec is None else jax.device_put(grid, spec)
            assert_close(diffuse(given, 3, width=2), periodic)
            assert_close(diffuse_open(given, 3, value=WALL), walls)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("kind", [float, np.float64, jnp.float32])
def test_rates_of_any_type_serve_where_nothing_is_promoted(kind, dtype):
    rate, eps = kind(0.2), float(jnp.finfo(dtype).eps)
    with devices((2, 4)), jax.numpy_dtype_promotion("strict"):
        grid = field((8, 16), dtype)
        assert_close(
            diffuse(grid, 2, rate), march(as_double(grid), 2, 0.2, **WRAP), eps
        )
        walls = march(as_double(grid), 2, 0.2, **WALLS)
        assert_close(diffuse_open(grid, 2, rate, WALL), walls, eps)


def test_what_is_no_number_and_no_grid_is_refused():
    with devices((2, 4)):
        grid = field((8, 16))
        for step in diffuse, diffuse_open:
            with pytest.raises(ValueError, match="rate has the shape"):
                step(grid, 1, rate=grid)
            with pytest.raises(ValueError, match="rate is complex and the grid float"):
                step(grid, 1, rate=1j)
            with pytest.raises(ValueError, match="list is no grid of heat: pass"):
                step([[1.0]], 1)
            with pytest.raises(ValueError, match=r"1\.5 steps cannot be taken"):
                step(grid, 1.5)
        with pytest.raises(ValueError, match="value has the shape"):
            diffuse_open(grid, 1, value=grid)


def test_a_halo_needs_an_axis_of_the_mesh_and_of_the_block():
    for extend in exchange, exchange_open:
        with pytest.raises(ValueError, match="no axis 'x' here: call it inside"):
            extend(jnp.ones(8), "x", 0)
        with devices((2, 4)):
            with pytest.raises(ValueError, match=r"a block \(4, 4\) has no axis 2"):
                by_block(lambda block, f=extend: f(block, "x", 2))(field((8, 16)))
            some = {
                "in_specs": jax.P("x"),
                "out_specs": jax.P("x"),
                "axis_names": {"x"},
            }
            with pytest.raises(ValueError, match="is itself cut along axis 1"):
                jax.shard_map(lambda b, f=extend: f(b, "x", 1), **some)(field((8, 16)))
