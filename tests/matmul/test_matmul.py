import inspect
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType
from on_devices import as_double, assert_close, devices, factors

from examples.communication import measure
from examples.matmul import cannon, cost, summa, summa_25d

SOURCE = Path(inspect.getfile(inspect.unwrap(cannon))).parents[1]  # or a copy of it
SQUARES = [(1, 1), (2, 2)]
GRIDS = [(1, 1), (8, 1), (1, 8), (2, 4), (4, 2), (2, 2), (3, 2)]  # the last: subsets
CUBES = [(1, 1, 1), (2, 2, 2), (1, 2, 4), (4, 1, 2), (2, 4, 1), (2, 3, 1), (1, 1, 8)]
CASES = (
    [(summa, mesh) for mesh in GRIDS]
    + [(cannon, mesh) for mesh in SQUARES]
    + [(summa_25d, mesh) for mesh in CUBES]
)
EIGHT = [(summa, (4, 2)), (cannon, (2, 2)), (summa_25d, (2, 2, 2))]
LAYOUTS = {
    summa: (jax.P("x", "y"), jax.P("x", "y"), jax.P("x", "y")),
    cannon: (jax.P("x", "y"), jax.P("x", "y"), jax.P("x", "y")),
    summa_25d: (jax.P("x", ("z", "y")), jax.P(("z", "x"), "y"), jax.P("x", ("y", "z"))),
}

each_case = pytest.mark.parametrize(("multiply", "mesh"), CASES)
each_of_eight = pytest.mark.parametrize(("multiply", "mesh"), EIGHT)


def operands(multiply, sizes=(24, 96, 48), dtype=jnp.float32):
    """Return random a and b as `multiply` wants them."""
    return factors(LAYOUTS[multiply][:2], sizes, dtype)


@each_case
def test_the_product_is_that_of_numpy(multiply, mesh):
    with devices(mesh):
        a, b = operands(multiply)
        assert_close(multiply(a, b), as_double(a) @ as_double(b))


@each_of_eight
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.complex64, jnp.int32])
def test_every_type_is_multiplied_and_kept(multiply, mesh, dtype):
    with devices(mesh):
        a, b = operands(multiply, dtype=dtype)
        c = multiply(a, b)
        assert_close(
            c,
            as_double(a) @ as_double(b),
            eps=float(jnp.finfo(dtype).eps) if dtype != jnp.int32 else 0,
        )
    assert c.dtype == dtype


@pytest.mark.parametrize(("multiply", "mesh"), EIGHT[:2])
def test_narrow_sums_are_rounded_once(multiply, mesh):
    """Sums near 2304, where bfloat16 has every 16th number: at most 8 away."""
    random = np.random.default_rng(0).uniform(0.5, 1, 2 * 16 * 4096)
    with devices(mesh):
        arrays = operands(multiply, (16, 4096, 16), jnp.bfloat16)
        a, b = (
            jax.device_put(jnp.asarray(part.reshape(x.shape), x.dtype), x.sharding)
            for part, x in zip(np.split(random, 2), arrays, strict=True)
        )
        error = as_double(multiply(a, b)) - as_double(a) @ as_double(b)
    assert np.abs(error).max() < 8.01


@each_of_eight
def test_auto_axes_give_the_same(multiply, mesh):
    with devices(mesh, AxisType.Auto):
        a, b = operands(multiply)
        c = multiply(a, b)
        assert_close(c, as_double(a) @ as_double(b))
        wanted = jax.NamedSharding(jax.sharding.get_mesh(), LAYOUTS[multiply][2])
        assert c.sharding.is_equivalent_to(wanted, 2)


@each_case
def test_the_product_lies_as_promised(multiply, mesh):
    with devices(mesh):
        c = multiply(*operands(multiply))
        wanted = jax.NamedSharding(jax.sharding.get_mesh(), LAYOUTS[multiply][2])
        assert c.sharding.is_equivalent_to(wanted, 2)


@each_case
def test_the_gradients_are_those_of_the_plain_product(multiply, mesh):
    with devices(mesh):
        a, b = operands(multiply)
        weights = multiply(a, b) ** 2
        gradient = jax.grad(lambda a, b: (multiply(a, b) * weights).sum(), (0, 1))
        da, db = jax.jit(gradient)(a, b)
        assert_close(da, as_double(weights) @ as_double(b).T)
        assert_close(db, as_double(a).T @ as_double(weights))
        assert (da.sharding, db.sharding) == (a.sharding, b.sharding)


@each_of_eight
def test_complex_gradients_are_those_of_the_plain_product(multiply, mesh):
    with devices(mesh):
        a, b = operands(multiply, dtype=jnp.complex64)
        c, pull = jax.vjp(multiply, a, b)
        da, db = pull(c)
        assert_close(da, as_double(c) @ as_double(b).T)
        assert_close(db, as_double(a).T @ as_double(c))


@each_case
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.complex64])
def test_it_sends_what_cost_says(multiply, mesh, dtype):
    with devices(mesh):
        a, b = operands(multiply, dtype=dtype)
        assert measure(multiply, a, b).sent == cost(multiply, a, b)


def test_messages_are_as_many_as_promised():
    with devices((4, 2)):
        counts = measure(lambda a, b: summa(a, b, panels=3), *operands(summa)).counts
        assert counts == {"all-gather": 6}
    with devices((2, 2)):
        counts = measure(cannon, *operands(cannon)).counts
        assert counts == {"collective-permute": 4}
    with devices((2, 2, 2)):
        counts = measure(summa_25d, *operands(summa_25d)).counts
        assert counts == {"all-gather": 8, "reduce-scatter": 1}


def test_more_panels_hold_less_and_send_as_much():
    with devices((4, 2)):
        a, b = operands(summa, (512, 512, 512))
        few, many = (measure(lambda a, b, p=p: summa(a, b, p), a, b) for p in (1, 8))
        assert few.sent == many.sent
        assert few.temporaries >= 6 * a.nbytes / 8  # a quarter of a, half of b
        assert many.temporaries <= 2 * a.nbytes / 8


def test_the_gradient_gathers_again_rather_than_keep_the_panels():
    with devices((4, 2)):
        a, b = operands(summa, (512, 512, 512))
        gradient = jax.grad(lambda a, b: (summa(a, b, 8) ** 2).sum(), (0, 1))
        program = measure(gradient, a, b)
        assert program.temporaries <= 4 * a.nbytes / 8
        assert program.sent == 3 * measure(summa, a, b).sent


SQUARE = """
import sys
import jax, numpy as np
from examples.communication import measure
from examples.matmul import cannon

p, block = int(sys.argv[1]), jax.P("x", "y")

def hops(collective):
    ends = np.unravel_index(np.transpose(collective.groups), (p, p))
    apart = [abs(first - last) for first, last in ends]
    return sum(np.minimum(d, p - d) for d in apart).max()

def put(*shape):
    return jax.device_put(np.ones(shape, np.float32), block)

def gradient(a, b):
    return jax.grad(lambda a, b: (cannon(a, b) ** 2).sum(), argnums=(0, 1))(a, b)

jax.set_mesh(jax.make_mesh((p, p), ("x", "y")))
for m, k, n in (960, 960, 960), (480, 96, 72), (96, 480, 192), (72, 96, 480):
    a, b, c = (4 * size // p**2 for size in (m * k, k * n, m * n))
    program, back = (measure(f, put(m, k), put(k, n)) for f in (cannon, gradient))
    far = sum(each.times * hops(each) for each in program.collectives)
    print(program.temporaries - (2 * a + 2 * b + c), far, program.sent == p * (a + b),
          back.sent == 2 * program.sent, back.temporaries > p * (a + b))
"""


@pytest.mark.parametrize(("p", "far"), [(3, 2 * (1 + 2)), (4, 2 * (2 + 3))])
def test_cannon_holds_two_blocks_of_each_and_a_sum(run, p, far):
    """And goes 2 (p // 2 + p - 1) hops on a torus: on 2 x 2 devices nothing shows."""
    lines = run("-c", SQUARE, str(p), devices=p * p, cwd=SOURCE).splitlines()
    assert len(lines) == 4
    for line in lines:
        beyond, hops, *truths = line.split()
        assert 0 <= int(beyond) < 512  # counters and addresses, in bytes
        assert int(hops) == far
        assert truths == ["True"] * 3


def test_on_four_devices_three_blocks_are_enough():
    with devices((2, 2)):
        a, b = operands(cannon, (512, 512, 512))
        assert measure(cannon, a, b).temporaries <= 3 * a.nbytes / 4 + 512


@settings(deadline=None, derandomize=True, max_examples=15)
@given(st.data())
def test_any_shape_on_any_mesh_is_right_and_costs_what_it_should(data):
    multiply, mesh = data.draw(st.sampled_from(CASES))
    x, y, z = (*mesh, 1)[:3]
    panels = data.draw(st.integers(1, 3))
    factors = [data.draw(st.integers(1, 3)) for _ in range(3)]
    parts = x, math.lcm(x, y) * z * panels, y * z
    sizes = [factor * part for factor, part in zip(factors, parts, strict=True)]
    with devices(mesh, data.draw(st.sampled_from([AxisType.Explicit, AxisType.Auto]))):
        a, b = operands(multiply, sizes)
        options = {} if multiply is cannon else {"panels": panels}
        assert_close(multiply(a, b, **options), as_double(a) @ as_double(b))
        sent = measure(lambda a, b: multiply(a, b, **options), a, b).sent
        assert sent == cost(multiply, a, b)


TWELVE = """
import jax, numpy as np
from examples.matmul import cannon, summa, summa_25d

jobs = [
    (cannon, (3, 3), jax.P("x", "y"), jax.P("x", "y")),
    (summa, (3, 4), jax.P("x", "y"), jax.P("x", "y")),
    (summa_25d, (2, 3, 2), jax.P("x", ("z", "y")), jax.P(("z", "x"), "y")),
]
for multiply, shape, *specs in jobs:
    some = jax.devices()[: np.prod(shape)]
    names = ("x", "y", "z")[: len(shape)]
    with jax.set_mesh(jax.make_mesh(shape, names, devices=some)):
        random = np.random.default_rng(0)
        arrays = [random.integers(-9, 9, shape) for shape in [(24, 48), (48, 72)]]
        a, b = (jax.device_put(np.float32(x), s) for x, s in zip(arrays, specs))
        print((np.asarray(multiply(a, b)) == arrays[0] @ arrays[1]).all())
"""


def test_wider_meshes_agree_too(run):
    """On 2 x 2 devices Cannon cannot tell left from right; on 3 x 3 it can."""
    assert run("-c", TWELVE, devices=12, cwd=SOURCE) == "True\nTrue\nTrue\n"


@each_of_eight
def test_matrices_that_do_not_fit_together_are_refused(multiply, mesh):
    with devices(mesh):
        a, _ = operands(multiply)
        with pytest.raises(ValueError, match=r"\(24, 96\) x \(24, 96\) is no product"):
            multiply(a, a)
        with pytest.raises(ValueError, match="is no product of two matrices"):
            multiply(a, jnp.ones(96))


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [
        ((6, 16, 8), "M = 6 cannot be cut into 4 parts: pad it to 8"),
        ((8, 20, 8), "K = 20 cannot be cut into 16 parts: pad it to 32"),
        ((8, 16, 7), "N = 7 cannot be cut into 2 parts: pad it to 8"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(sizes, complaint):
    (m, k, n) = sizes
    with devices((4, 2)), pytest.raises(ValueError, match=complaint):
        summa(jnp.ones((m, k)), jnp.ones((k, n)))


def test_the_product_in_layers_asks_for_more():
    with devices((2, 2, 2)):
        with pytest.raises(ValueError, match="K = 8 cannot be cut into 16 parts"):
            summa_25d(jnp.ones((8, 8)), jnp.ones((8, 8)))
        with pytest.raises(ValueError, match="N = 6 cannot be cut into 4 parts"):
            summa_25d(jnp.ones((8, 16)), jnp.ones((16, 6)))


def test_cannon_refuses_a_mesh_that_is_not_square():
    with (
        devices((4, 2)),
        pytest.raises(ValueError, match="square mesh, not 4 x 2: use summa"),
    ):
        cannon(*operands(cannon))


def test_a_mesh_without_the_axes_is_refused():
    with pytest.raises(ValueError, match=r"no mesh axis \['x', 'y'\] in context"):
        summa(jnp.ones((8, 8)), jnp.ones((8, 8)))
    with devices((4, 2)), pytest.raises(ValueError, match=r"no mesh axis \['z'\]"):
        summa_25d(*operands(summa))


@each_of_eight
@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
def test_arrays_of_numpy_and_copies_are_laid_out(multiply, mesh, kind):
    with devices(mesh, kind):
        a, b = (np.asarray(x) for x in operands(multiply))
        for put in (lambda x: x), (lambda x: jax.device_put(x, jax.P())):
            assert_close(multiply(put(a), put(b)), as_double(a) @ as_double(b))


@each_of_eight
def test_two_types_are_multiplied_where_nothing_is_promoted(multiply, mesh):
    with devices(mesh), jax.numpy_dtype_promotion("strict"):
        a, b = operands(multiply)
        c = multiply(a, b.astype(jnp.bfloat16))
        assert c.dtype == jnp.float32
        assert_close(c, as_double(a) @ as_double(b.astype(jnp.bfloat16)))


@pytest.mark.parametrize(("multiply", "mesh"), EIGHT[:2])
def test_eight_bits_are_added_up_in_more(multiply, mesh):
    with devices(mesh):
        a, b = (jnp.sign(x) for x in operands(multiply, dtype=jnp.float8_e4m3fn))
        c = multiply(a, b)
        expected = jnp.asarray(as_double(a) @ as_double(b), jnp.float8_e4m3fn)
        assert c.dtype == jnp.float8_e4m3fn
        np.testing.assert_array_equal(as_double(c), as_double(expected))
        with pytest.raises(ValueError, match="have no common type: convert one"):
            multiply(a, b.astype(jnp.float32))


@pytest.mark.parametrize("multiply", [summa, cannon])
@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
def test_what_lies_along_another_axis_too_is_multiplied(multiply, kind):
    with devices((2, 2, 2), kind, ("ens", "x", "y")):
        a, b = (np.asarray(x) for x in operands(multiply))
        placed = jax.device_put(a, jax.P(("ens", "x"), "y"))
        assert_close(multiply(placed, b), as_double(a) @ as_double(b))


@pytest.mark.parametrize("multiply", [summa, summa_25d])
@pytest.mark.parametrize("panels", [0, -1, 2.0])
def test_no_panels_are_refused(multiply, panels):
    with devices((2, 2, 2)):
        a, b = operands(summa_25d)
        with pytest.raises(ValueError, match=f"in {panels} panels: pass 1 or more"):
            multiply(a, b, panels=panels)


@each_of_eight
def test_lists_and_nothing_are_refused(multiply, mesh):
    with devices(mesh):
        with pytest.raises(ValueError, match=r"list x \(1, 1\) is no product"):
            multiply([[1.0]], jnp.ones((1, 1)))
        with pytest.raises(ValueError, match=r"\(8, 0\) x \(0, 8\) .* is empty"):
            multiply(jnp.ones((8, 0)), jnp.ones((0, 8)))
