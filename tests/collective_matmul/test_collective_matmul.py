from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matmul.test_matmul import measure_product
from on_devices import AUTO, EXPLICIT, as_double, assert_close, devices, factors

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
    ("mesh", "ways", "kind"), [((8, 1), 1, EXPLICIT), ((4, 2), 2, AUTO)]
)
@each_product
def test_the_product_is_that_of_numpy_in_one_panel_a_hop(multiply, mesh, ways, kind):
    """With its gradients. Halves go round in opposite directions."""
    with devices(mesh, kind):
        a, b = operands(multiply, dtype=jnp.complex64)
        specs = LAYOUTS[multiply]
        program = measure_product(partial(multiply, ways=ways), a, b, specs)
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
def test_bfloat16_travels_as_bfloat16(multiply):
    """As written: XLA for CPUs then widens it, having no products of bfloat16."""
    with devices((8, 1)):
        lowered = multiply.lower(*operands(multiply, dtype=jnp.bfloat16)).as_text()
    sent = [line for line in lowered.splitlines() if "collective_permute" in line]
    assert {"xbf16>" in line for line in sent} == {True}


@each_product
def test_both_ways_hold_at_most_twice_as_much(multiply):
    """The page compares one way with its formula."""
    with devices((8,)):
        given = operands(multiply, (1920, 480, 120))
        both = (partial(multiply, ways=ways) for ways in (1, 2))
        one, two = (measure(each, *given).temporaries for each in both)
    assert two <= 2 * one


@each_product
def test_two_types_that_lie_elsewhere_are_multiplied(multiply):
    """Where nothing is promoted, in panels of one row, which cannot be halved."""
    sizes = {ring_matmul: (4, 4, 3), ag_matmul: (4, 3, 4), matmul_rs: (4, 4, 3)}
    with devices((4, 2)), jax.numpy_dtype_promotion("strict"):
        a, b = operands(multiply, sizes[multiply])
        numbers = np.asarray(b.astype(jnp.bfloat16))
        c = multiply(jax.device_put(a, jax.P("y")), numbers, ways=2)
    assert c.dtype == jnp.float32
    assert_close(c, as_double(a) @ as_double(numbers))


F8 = jnp.ones((24, 48), jnp.float8_e4m3fn)
TALL = {ring_matmul: (8, 12, 8), ag_matmul: (8, 8, 12), matmul_rs: (12, 8, 8)}


def ones(m, k, n):
    return jnp.ones((m, k)), jnp.ones((k, n))


@each_product
def test_what_is_no_product_on_a_ring_is_refused(multiply):
    a, b = ones(24, 48, 72)
    with devices((8, 1)):
        for given, ways, words in (
            (ones(*TALL[multiply]), 1, "= 12 cannot be cut into 8 parts: pad it to 16"),
            ((a, a), 1, r"\(24, 48\) x \(24, 48\) is no product"),
            ((a, [[1.0]]), 1, r"\(24, 48\) x list is no product"),
            (ones(8, 0, 8), 1, r"\(8, 0\) x \(0, 8\) .* is empty"),
            ((F8, b), 1, "have no common type: convert one"),
            ((a, b), 3, "1 or 2 ways round, not 3"),
            ((a, b), 1.0, r"1 or 2 ways round, not 1\.0"),
        ):
            with pytest.raises(ValueError, match=words):
                multiply(*given, ways=ways)
    with pytest.raises(ValueError, match=r"no mesh axis \['x'\] in context"):
        multiply(a, b)
