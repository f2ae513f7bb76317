import inspect
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from on_devices import as_double, assert_close, devices, factors

from examples.communication import measure
from examples.matmul import cannon, cost, summa, summa_25d

SOURCE = Path(inspect.getfile(inspect.unwrap(cannon))).parents[1]  # or a copy of it
EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto
EIGHT = [(summa, (4, 2)), (cannon, (2, 2)), (summa_25d, (2, 2, 2))]
LAYOUTS = {
    summa: (jax.P("x", "y"),) * 3,
    cannon: (jax.P("x", "y"),) * 3,
    summa_25d: (jax.P("x", ("z", "y")), jax.P(("z", "x"), "y"), jax.P("x", ("y", "z"))),
}

each_of_eight = pytest.mark.parametrize(("multiply", "mesh"), EIGHT)


def operands(multiply, sizes=(24, 96, 48), dtype=jnp.float32):
    """Return random a and b as `multiply` wants them."""
    return factors(LAYOUTS[multiply][:2], sizes, dtype)


@pytest.mark.parametrize(
    ("multiply", "mesh", "kind", "counts"),
    [
        (summa, (4, 2), EXPLICIT, {"all-gather": 8}),
        (summa, (3, 2), AUTO, {"all-gather": 8}),
        (cannon, (2, 2), AUTO, {"collective-permute": 4}),
        (summa_25d, (2, 2, 2), EXPLICIT, {"all-gather": 8, "reduce-scatter": 1}),
    ],
)
def test_the_product_is_that_of_numpy_and_lies_as_promised(
    multiply, mesh, kind, counts
):
    """In as many messages as promised, and as many bytes."""
    with devices(mesh, kind):
        a, b = operands(multiply)
        run = multiply.lower(a, b).compile()
        c, program = run(a, b), measure(run)
        assert_close(c, as_double(a) @ as_double(b))
        wanted = jax.NamedSharding(jax.sharding.get_mesh(), LAYOUTS[multiply][2])
        assert c.sharding.is_equivalent_to(wanted, 2)
        assert program.sent == cost(multiply, a, b)
    assert program.counts == counts


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
        c = multiply(a, b)
    assert c.dtype == jnp.bfloat16
    assert np.abs(as_double(c) - as_double(a) @ as_double(b)).max() < 8.01


@each_of_eight
def test_the_gradients_are_those_of_the_plain_product(multiply, mesh):
    """Complex ones: XLA forms them of real products."""

    @jax.jit
    def gradients(a, b):
        c, pull = jax.vjp(multiply, a, b)
        return c, *pull(c)

    with devices(mesh):
        a, b = operands(multiply, dtype=jnp.complex64)
        c, da, db = gradients(a, b)
        assert_close(da, as_double(c) @ as_double(b).T)
        assert_close(db, as_double(a).T @ as_double(c))
        assert (da.sharding, db.sharding) == (a.sharding, b.sharding)


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
        assert program.sent == 3 * cost(summa, a, b)


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
    numbers = np.random.default_rng(0).integers(-9, 9, shape)
    return jax.device_put(np.float32(numbers), block)

def gradient(a, b):
    return jax.grad(lambda a, b: (cannon(a, b) ** 2).sum(), argnums=(0, 1))(a, b)

jax.set_mesh(jax.make_mesh((p, p), ("x", "y")))
for m, k, n in (960, 960, 960), (480, 96, 72), (96, 480, 192):
    a, b, c = (4 * size // p**2 for size in (m * k, k * n, m * n))
    first, second = put(m, k), put(k, n)
    run = cannon.lower(first, second).compile()
    program, back = measure(run), measure(gradient, first, second)
    far = sum(each.times * hops(each) for each in program.collectives)
    product = np.asarray(first) @ np.asarray(second)
    print(program.temporaries - (2 * a + 2 * b + c), far, program.sent == p * (a + b),
          back.sent == 2 * program.sent, back.temporaries > p * (a + b),
          (np.asarray(run(first, second)) == product).all())
"""


@pytest.mark.parametrize(("p", "far"), [(3, 2 * (1 + 2)), (4, 2 * (2 + 3))])
def test_cannon_holds_two_blocks_of_each_and_a_sum(run, p, far):
    """And goes 2 (p // 2 + p - 1) hops on a torus: on 2 x 2 devices nothing shows.

    Nor can Cannon tell left from right there; on 3 x 3 it can.
    """
    lines = run("-c", SQUARE, str(p), devices=p * p, cwd=SOURCE).splitlines()
    assert len(lines) == 3
    for line in lines:
        beyond, hops, *truths = line.split()
        assert 0 <= int(beyond) < 512  # counters and addresses, in bytes
        assert int(hops) == far
        assert truths == ["True"] * 4


def test_on_four_devices_three_blocks_are_enough():
    with devices((2, 2)):
        a, b = operands(cannon, (512, 512, 512))
        assert measure(cannon, a, b).temporaries <= 3 * a.nbytes / 4 + 512


@pytest.mark.parametrize(
    ("multiply", "mesh", "sizes", "complaint"),
    [
        (summa, (4, 2), (6, 16, 8), "M = 6 cannot be cut into 4 parts: pad it to 8"),
        (summa, (4, 2), (8, 20, 8), "K = 20 cannot be cut into 16 parts: pad it to 32"),
        (summa, (4, 2), (8, 16, 7), "N = 7 cannot be cut into 2 parts: pad it to 8"),
        (summa_25d, (2, 2, 2), (8, 8, 8), "K = 8 cannot be cut into 16 parts"),
        (summa_25d, (2, 2, 2), (8, 16, 6), "N = 6 cannot be cut into 4 parts"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(multiply, mesh, sizes, complaint):
    m, k, n = sizes
    with devices(mesh), pytest.raises(ValueError, match=complaint):
        multiply(jnp.ones((m, k)), jnp.ones((k, n)))


def test_no_panels_and_another_mesh_are_refused():
    a, b = np.ones((24, 96), "f4"), np.ones((96, 48), "f4")
    with devices((2, 2, 2)):
        for multiply, panels in (summa, 0), (summa, 2.0), (summa_25d, -1):
            complaint = f"in {panels} panels: pass 1 or more"
            with pytest.raises(ValueError, match=complaint):
                multiply(a, b, panels=panels)
    with devices((4, 2)):
        with pytest.raises(ValueError, match="square mesh, not 4 x 2: use summa"):
            cannon(a, b)
        with pytest.raises(ValueError, match=r"no mesh axis \['z'\]"):
            summa_25d(a, b)
    with pytest.raises(ValueError, match=r"no mesh axis \['x', 'y'\] in context"):
        summa(a, b)


def test_arrays_of_numpy_and_copies_are_laid_out():
    with devices((2, 2, 2)):
        a, b = (np.asarray(x) for x in operands(summa_25d))
        copy = jax.device_put(b, jax.P())
        assert_close(summa_25d(a, copy), as_double(a) @ as_double(b))


@each_of_eight
def test_two_types_are_multiplied_where_nothing_is_promoted(multiply, mesh):
    with devices(mesh), jax.numpy_dtype_promotion("strict"):
        a, b = operands(multiply)
        c = jax.eval_shape(multiply, a, b.astype(jnp.bfloat16))
        assert c.dtype == jnp.float32


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


@pytest.mark.parametrize(("multiply", "kind"), [(summa, EXPLICIT), (cannon, AUTO)])
def test_what_lies_along_another_axis_too_is_multiplied(multiply, kind):
    with devices((2, 2, 2), kind, ("ens", "x", "y")):
        a, b = (np.asarray(x) for x in operands(multiply))
        placed = jax.device_put(a, jax.P(("ens", "x"), "y"))
        assert_close(multiply(placed, b), as_double(a) @ as_double(b))


@each_of_eight
def test_what_is_no_product_is_refused(multiply, mesh):
    with devices(mesh):
        a = np.ones((24, 96), "f4")
        with pytest.raises(ValueError, match=r"\(24, 96\) x \(24, 96\) is no product"):
            multiply(a, a)
        with pytest.raises(ValueError, match="is no product of two matrices"):
            multiply(a, jnp.ones(96))
        with pytest.raises(ValueError, match=r"list x \(1, 1\) is no product"):
            multiply([[1.0]], jnp.ones((1, 1)))
        with pytest.raises(ValueError, match=r"\(8, 0\) x \(0, 8\) .* is empty"):
            multiply(jnp.ones((8, 0)), jnp.ones((0, 8)))
