from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
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

each_product = pytest.mark.parametrize("multiply", LAYOUTS)


def operands(multiply, sizes=(24, 48, 72), dtype=jnp.float32):
    """Return random a and b as `multiply` wants them."""
    return factors(LAYOUTS[multiply][:2], sizes, dtype)


@pytest.mark.parametrize(
    ("mesh", "ways", "kind"),
    [((8, 1), 1, AxisType.Explicit), ((4, 2), 2, AxisType.Auto)],
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
    assert program.counts == {"collective-permute": ways * (mesh[0] - 1)}
    routes = {frozenset(hop.groups) for hop in program.collectives}
    back = {frozenset((end, start) for start, end in route) for route in routes}
    assert len(routes) == ways
    assert ways == 1 or routes == back


@pytest.mark.parametrize("multiply", [ring_matmul, ag_matmul])
def test_narrow_sums_are_rounded_once(multiply):
    """Sums near 2304, where bfloat16 has every 16th number: at most 8 away."""
    random = np.random.default_rng(0).uniform(0.5, 1, (2, 16, 4096))
    with devices((8, 1)):
        a, b = (jnp.asarray(each, jnp.bfloat16) for each in random)
        c = multiply(a, b.T)
    assert c.dtype == jnp.bfloat16
    assert np.abs(as_double(c) - as_double(a) @ as_double(b).T).max() < 8.01


@each_product
def test_the_gradients_are_those_of_the_plain_product(multiply):
    @jax.jit
    def gradients(a, b):
        c, pull = jax.vjp(partial(multiply, ways=2), a, b)
        return c, *pull(c)

    with devices((4, 2)):
        a, b = operands(multiply, dtype=jnp.complex64)
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


@each_product
def test_it_holds_what_the_formula_says_for_rectangles_too(multiply):
    p, m, k, n = 8, 1920, 480, 120
    with devices((p,)):
        a, b = (
            jax.ShapeDtypeStruct(shape, jnp.float32, sharding=spec)
            for shape, spec in zip(((m, k), (k, n)), LAYOUTS[multiply], strict=False)
        )
        one, two = (
            measure(partial(multiply, ways=ways), a, b).temporaries for ways in (1, 2)
        )
    words = {
        ring_matmul: 2 * k * n / p + m * n / p + 2 * m * k / p**2,
        ag_matmul: 2 * m * k / p + m * n / p**2,
        matmul_rs: m * n / p + m * k / p**2,
    }[multiply]
    assert 0 <= one - 4 * words < 512  # counters and addresses, in bytes
    assert two <= 2 * one


@each_product
def test_arrays_of_numpy_and_those_cut_otherwise_are_laid_out(multiply):
    """In panels of one row, which cannot be halved, and sizes that need not divide."""
    sizes = {ring_matmul: (4, 4, 3), ag_matmul: (4, 3, 4), matmul_rs: (4, 4, 3)}
    with devices((4, 2)):
        a, b = (np.asarray(x) for x in operands(multiply, sizes[multiply]))
        c = multiply(jax.device_put(a, jax.P("y")), b, ways=2)
        assert_close(c, as_double(a) @ as_double(b))


@each_product
def test_two_types_are_multiplied_where_nothing_is_promoted(multiply):
    with devices((8, 1)), jax.numpy_dtype_promotion("strict"):
        a, b = operands(multiply)
        c = jax.eval_shape(multiply, a, b.astype(jnp.bfloat16))
        assert c.dtype == jnp.float32


@pytest.mark.parametrize(
    ("multiply", "sizes", "complaint"),
    [
        (ring_matmul, (8, 12, 8), "K = 12 cannot be cut into 8 parts: pad it to 16"),
        (ag_matmul, (8, 8, 12), "N = 12 cannot be cut into 8 parts: pad it to 16"),
        (matmul_rs, (12, 8, 8), "M = 12 cannot be cut into 8 parts: pad it to 16"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(multiply, sizes, complaint):
    m, k, n = sizes
    with devices((8, 1)), pytest.raises(ValueError, match=complaint):
        multiply(jnp.ones((m, k)), jnp.ones((k, n)))


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
