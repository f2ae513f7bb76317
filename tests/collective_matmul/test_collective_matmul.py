import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType
from on_devices import as_double, assert_close, devices, factors

from examples.collective_matmul import ag_matmul, cost, matmul_rs, ring_matmul
from examples.communication import measure

ROWS, COLUMNS = jax.P("x", None), jax.P(None, "x")
LAYOUTS = {
    ring_matmul: (ROWS, ROWS, ROWS),
    ag_matmul: (ROWS, COLUMNS, COLUMNS),
    matmul_rs: (COLUMNS, ROWS, ROWS),
}
RINGS = [(1, 1), (8, 1), (1, 8), (2, 4), (4, 2), (3, 1)]  # the last: a subset
SIZES = (24, 48, 72)

each_product = pytest.mark.parametrize("multiply", LAYOUTS)
each_way = pytest.mark.parametrize("ways", [1, 2])
each_mesh = pytest.mark.parametrize("mesh", RINGS)
each_ring = pytest.mark.parametrize("mesh", [(1, 1), (8, 1), (4, 2)])


def operands(multiply, sizes=SIZES, dtype=jnp.float32):
    """Return random a and b as `multiply` wants them."""
    return factors(LAYOUTS[multiply][:2], sizes, dtype)


@each_mesh
@each_way
@each_product
def test_the_product_is_that_of_numpy(multiply, ways, mesh):
    with devices(mesh):
        a, b = operands(multiply)
        c = multiply(a, b, ways=ways)
        assert_close(c, as_double(a) @ as_double(b))
        wanted = jax.NamedSharding(jax.sharding.get_mesh(), LAYOUTS[multiply][2])
        assert c.sharding.is_equivalent_to(wanted, 2)


@each_way
@each_product
def test_auto_axes_give_the_same(multiply, ways):
    with devices((4, 2), AxisType.Auto):
        a, b = operands(multiply)
        c = multiply(a, b, ways=ways)
        assert_close(c, as_double(a) @ as_double(b))
        wanted = jax.NamedSharding(jax.sharding.get_mesh(), LAYOUTS[multiply][2])
        assert c.sharding.is_equivalent_to(wanted, 2)


@each_way
@each_product
def test_panels_of_one_row_cannot_be_halved_and_arrive_all_the_same(multiply, ways):
    with devices((8, 1)):
        a, b = operands(multiply, (8, 8, 8))
        assert_close(multiply(a, b, ways=ways), as_double(a) @ as_double(b))


@each_product
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.complex64])
def test_every_type_is_multiplied_and_kept(multiply, dtype):
    with devices((8, 1)):
        a, b = operands(multiply, dtype=dtype)
        c = multiply(a, b, ways=2)
        assert_close(c, as_double(a) @ as_double(b), eps=float(jnp.finfo(dtype).eps))
    assert c.dtype == dtype


@each_product
def test_integers_are_exact(multiply):
    with devices((8, 1)):
        a, b = (10_000 * x for x in operands(multiply, dtype=jnp.int32))
        c = multiply(a, b)
        np.testing.assert_array_equal(c, np.asarray(a) @ np.asarray(b))
    assert c.dtype == jnp.int32


@pytest.mark.parametrize("multiply", [ring_matmul, ag_matmul])
def test_narrow_sums_are_rounded_once(multiply):
    """Sums near 2304, where bfloat16 has every 16th number: at most 8 away."""
    random = np.random.default_rng(0).uniform(0.5, 1, 2 * 16 * 4096)
    with devices((8, 1)):
        arrays = operands(multiply, (16, 4096, 16), jnp.bfloat16)
        a, b = (
            jax.device_put(jnp.asarray(part.reshape(x.shape), x.dtype), x.sharding)
            for part, x in zip(np.split(random, 2), arrays, strict=True)
        )
        error = as_double(multiply(a, b)) - as_double(a) @ as_double(b)
    assert np.abs(error).max() < 8.01


@each_ring
@each_way
@each_product
def test_the_gradients_are_those_of_the_plain_product(multiply, ways, mesh):
    with devices(mesh):
        a, b = operands(multiply)
        weights = multiply(a, b) ** 2

        def loss(a, b):
            return (multiply(a, b, ways=ways) * weights).sum()

        da, db = jax.jit(jax.grad(loss, (0, 1)))(a, b)
        assert_close(da, as_double(weights) @ as_double(b).T)
        assert_close(db, as_double(a).T @ as_double(weights))
        assert (da.sharding, db.sharding) == (a.sharding, b.sharding)


@each_product
def test_complex_gradients_are_those_of_the_plain_product(multiply):
    with devices((8, 1)):
        a, b = operands(multiply, dtype=jnp.complex64)
        c, pull = jax.vjp(multiply, a, b)
        da, db = pull(c)
        assert_close(da, as_double(c) @ as_double(b).T)
        assert_close(db, as_double(a).T @ as_double(c))


def test_each_gradient_is_one_of_the_other_products():
    with devices((8, 1)):
        a, b = operands(ag_matmul)
        c, pull = jax.vjp(ag_matmul, a, b)
        da, db = pull(c)
        assert_close(da, as_double(matmul_rs(c, b.T)))
        assert_close(db, as_double(ring_matmul(c.T, a)).T)


@each_mesh
@each_way
@each_product
def test_it_sends_the_panels_of_the_traveller(multiply, ways, mesh):
    with devices(mesh):
        a, b = operands(multiply)
        program = measure(lambda a, b: multiply(a, b, ways=ways), a, b)
        assert program.sent == cost(multiply, a, b)
    messages = ways * (mesh[0] - 1)
    assert program.counts == ({"collective-permute": messages} if messages else {})


@each_product
def test_the_halves_go_round_in_opposite_directions(multiply):
    with devices((8, 1)):
        program = measure(lambda a, b: multiply(a, b, ways=2), *operands(multiply))
    east, west = (set(hop.groups) for hop in program.collectives)
    assert east != west
    assert east == {(target, source) for source, target in west}


@each_product
def test_bfloat16_travels_as_bfloat16(multiply):
    """As written: XLA for CPUs then widens it, having no products of bfloat16."""
    with devices((8, 1)):
        lowered = multiply.lower(*operands(multiply, dtype=jnp.bfloat16)).as_text()
    sent = [line for line in lowered.splitlines() if "collective_permute" in line]
    assert sent
    assert all("xbf16>" in line for line in sent)


def held(multiply, count, sizes):
    """Return the words that one device of `count` holds beside operands and result."""
    m, k, n = sizes
    return {
        ring_matmul: 2 * k * n / count + m * n / count + 2 * m * k / count**2,
        ag_matmul: 2 * m * k / count + m * n / count**2,
        matmul_rs: m * n / count + m * k / count**2,
    }[multiply]


@each_product
@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (3, (480, 480, 480)),
        (3, (240, 1920, 480)),
        (4, (480, 480, 480)),
        (4, (1920, 480, 120)),
        (4, (240, 480, 1920)),
        (8, (1920, 480, 120)),
        (8, (240, 1920, 480)),
        (8, (240, 480, 1920)),
    ],
)
def test_it_holds_what_the_formula_says_for_rectangles_too(multiply, count, sizes):
    with devices((count,)):
        a, b = (
            jax.ShapeDtypeStruct(shape, jnp.float32, sharding=spec)
            for shape, spec in zip(
                (sizes[:2], sizes[1:]), LAYOUTS[multiply][:2], strict=True
            )
        )
        one, two = (
            measure(lambda a, b, w=w: multiply(a, b, ways=w), a, b).temporaries
            for w in (1, 2)
        )
    words = held(multiply, count, sizes)
    assert 0 <= one - 4 * words < 512  # counters and addresses, in bytes
    assert two <= 2 * one


@settings(deadline=None, derandomize=True, max_examples=15)
@given(st.data())
def test_any_shape_on_any_ring_is_right_and_costs_what_it_should(data):
    multiply = data.draw(st.sampled_from(list(LAYOUTS)))
    mesh = data.draw(st.sampled_from(RINGS))
    kind = data.draw(st.sampled_from([AxisType.Explicit, AxisType.Auto]))
    ways = data.draw(st.sampled_from([1, 2]))
    sizes = [mesh[0] * data.draw(st.integers(1, 5)) for _ in range(3)]
    with devices(mesh, kind):
        a, b = operands(multiply, sizes)
        assert_close(multiply(a, b, ways=ways), as_double(a) @ as_double(b))
        sent = measure(lambda a, b: multiply(a, b, ways=ways), a, b).sent
        assert sent == cost(multiply, a, b)


@each_product
def test_matrices_that_do_not_fit_together_are_refused(multiply):
    with devices((8, 1)):
        a, _ = operands(multiply)
        with pytest.raises(ValueError, match=r"\(24, 48\) x \(24, 48\) is no product"):
            multiply(a, a)


@pytest.mark.parametrize(
    ("multiply", "sizes", "complaint"),
    [
        (ring_matmul, (12, 8, 8), "M = 12 cannot be cut into 8 parts: pad it to 16"),
        (ring_matmul, (8, 12, 8), "K = 12 cannot be cut into 8 parts: pad it to 16"),
        (ag_matmul, (12, 8, 8), "M = 12 cannot be cut into 8 parts: pad it to 16"),
        (ag_matmul, (8, 8, 12), "N = 12 cannot be cut into 8 parts: pad it to 16"),
        (matmul_rs, (12, 8, 8), "M = 12 cannot be cut into 8 parts: pad it to 16"),
        (matmul_rs, (8, 12, 8), "K = 12 cannot be cut into 8 parts: pad it to 16"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(multiply, sizes, complaint):
    m, k, n = sizes
    with devices((8, 1)), pytest.raises(ValueError, match=complaint):
        multiply(jnp.ones((m, k)), jnp.ones((k, n)))


@each_product
def test_sizes_that_need_not_divide_are_served(multiply):
    sizes = {ring_matmul: (8, 8, 3), ag_matmul: (8, 3, 8), matmul_rs: (8, 8, 3)}
    with devices((8, 1)):
        a, b = operands(multiply, sizes[multiply])
        assert_close(multiply(a, b), as_double(a) @ as_double(b))


@each_product
def test_a_third_way_round_is_refused(multiply):
    with devices((8, 1)), pytest.raises(ValueError, match="1 or 2 ways round, not 3"):
        multiply(*operands(multiply), ways=3)


@each_product
def test_a_mesh_without_the_axis_is_refused(multiply):
    with pytest.raises(ValueError, match=r"no mesh axis \['x'\] in context"):
        multiply(jnp.ones((8, 8)), jnp.ones((8, 8)))


@each_product
@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
def test_arrays_of_numpy_and_copies_are_laid_out(multiply, kind):
    with devices((4, 2), kind):
        a, b = (np.asarray(x) for x in operands(multiply))
        both = jax.device_put(a, jax.P(("x", "y")))
        for left in a, jax.device_put(a, jax.P()), both:
            assert_close(multiply(left, b, ways=2), as_double(a) @ as_double(b))


@each_product
def test_two_types_are_multiplied_where_nothing_is_promoted(multiply):
    with devices((8, 1)), jax.numpy_dtype_promotion("strict"):
        a, b = operands(multiply)
        c = multiply(a, b.astype(jnp.bfloat16))
        assert c.dtype == jnp.float32
        assert_close(c, as_double(a) @ as_double(b.astype(jnp.bfloat16)))


@each_product
def test_lists_and_nothing_are_refused(multiply):
    with devices((8, 1)):
        with pytest.raises(ValueError, match=r"\(1, 1\) x list is no product"):
            multiply(jnp.ones((1, 1)), [[1.0]])
        with pytest.raises(ValueError, match=r"\(8, 0\) x \(0, 8\) .* is empty"):
            multiply(jnp.ones((8, 0)), jnp.ones((0, 8)))
        with pytest.raises(ValueError, match=r"1 or 2 ways round, not 1\.0"):
            multiply(*operands(multiply), ways=1.0)
