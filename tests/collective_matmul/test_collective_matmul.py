from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_week
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


def operands(multiply, sizes=SIZES, dtype=jnp.float32):
    """Return random a and b as `multiply` wants them."""
    return factors(LAYOUTS[multiply][:2], sizes, dtype)


@pytest.mark.parametrize(
    ("mesh", "ways", "kind"),
    [
        ((8, 1), 1, AxisType.Explicit),
        ((4, 2), 2, AxisType.Auto),
        *(each_week(mesh, 2, AxisType.Explicit) for mesh in RINGS),
    ],
)
@each_product
def test_the_product_is_that_of_numpy_in_one_panel_a_hop(multiply, mesh, ways, kind):
    """Halves go round in opposite directions."""
    with devices(mesh, kind):
        a, b = operands(multiply)
        run = multiply.lower(a, b, ways=ways).compile()
        c, program = run(a, b), measure(run)
        assert_close(c, as_double(a) @ as_double(b))
        wanted = jax.NamedSharding(jax.sharding.get_mesh(), LAYOUTS[multiply][2])
        assert c.sharding.is_equivalent_to(wanted, 2)
        assert program.sent == cost(multiply, a, b)
    messages = ways * (mesh[0] - 1)
    assert program.counts == ({"collective-permute": messages} if messages else {})
    routes = {frozenset(hop.groups) for hop in program.collectives}
    back = {frozenset((end, start) for start, end in route) for route in routes}
    assert ways == 1 or routes == back
    assert mesh[0] < 3 or len(routes) == ways


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
        c = multiply(a, b)
    assert c.dtype == jnp.bfloat16
    assert np.abs(as_double(c) - as_double(a) @ as_double(b)).max() < 8.01


@pytest.mark.parametrize(
    ("mesh", "ways", "dtype"),
    [
        ((4, 2), 2, jnp.complex64),
        each_week((8, 1), 1, jnp.float32),
        each_week((1, 1), 2, jnp.float32),
    ],
)
@each_product
def test_the_gradients_are_those_of_the_plain_product(multiply, mesh, ways, dtype):
    @jax.jit
    def gradients(a, b):
        c, pull = jax.vjp(partial(multiply, ways=ways), a, b)
        return c, *pull(c)

    with devices(mesh):
        a, b = operands(multiply, dtype=dtype)
        c, da, db = gradients(a, b)
        assert_close(da, as_double(c) @ as_double(b).T)
        assert_close(db, as_double(a).T @ as_double(c))
        assert (da.sharding, db.sharding) == (a.sharding, b.sharding)


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
        each_week(3, (480, 480, 480)),
        each_week(3, (240, 1920, 480)),
        each_week(4, (240, 480, 1920)),
        (8, (1920, 480, 120)),
        each_week(8, (240, 1920, 480)),
        each_week(8, (240, 480, 1920)),
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
def test_panels_of_one_row_and_sizes_that_need_not_divide(multiply):
    """They cannot be halved, and arrive all the same."""
    sizes = {ring_matmul: (8, 8, 3), ag_matmul: (8, 3, 8), matmul_rs: (8, 8, 3)}
    with devices((8, 1)):
        a, b = operands(multiply, sizes[multiply])
        assert_close(multiply(a, b, ways=2), as_double(a) @ as_double(b))


@pytest.mark.parametrize("kind", [AxisType.Explicit, each_week(AxisType.Auto)])
@each_product
def test_arrays_of_numpy_and_those_cut_otherwise_are_laid_out(multiply, kind):
    with devices((4, 2), kind):
        a, b = (np.asarray(x) for x in operands(multiply))
        both = jax.device_put(a, jax.P(("x", "y")))
        assert_close(multiply(both, b, ways=2), as_double(a) @ as_double(b))


@each_product
def test_two_types_are_multiplied_where_nothing_is_promoted(multiply):
    with devices((8, 1)), jax.numpy_dtype_promotion("strict"):
        a, b = operands(multiply)
        c = jax.eval_shape(multiply, a, b.astype(jnp.bfloat16))
        assert c.dtype == jnp.float32


@each_product
def test_lists_nothing_and_a_third_way_round_are_refused(multiply):
    with devices((8, 1)):
        a, b = operands(multiply)
        with pytest.raises(ValueError, match=r"\(24, 48\) x \(24, 48\) is no product"):
            multiply(a, a)
        with pytest.raises(ValueError, match=r"\(1, 1\) x list is no product"):
            multiply(jnp.ones((1, 1)), [[1.0]])
        with pytest.raises(ValueError, match=r"\(8, 0\) x \(0, 8\) .* is empty"):
            multiply(jnp.ones((8, 0)), jnp.ones((0, 8)))
        for ways in 3, 1.0:
            with pytest.raises(ValueError, match=f"1 or 2 ways round, not {ways}"):
                multiply(a, b, ways=ways)
    with pytest.raises(ValueError, match=r"no mesh axis \['x'\] in context"):
        multiply(jnp.ones((8, 8)), jnp.ones((8, 8)))
