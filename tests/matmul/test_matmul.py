import inspect
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from fft.test_fft import lies
from on_devices import AUTO, EXPLICIT, as_double, assert_close, devices, factors

from examples.communication import measure
from examples.matmul import cannon, cost, summa, summa_25d

SOURCE = Path(inspect.getfile(inspect.unwrap(cannon))).parents[1]  # or a copy of it
LAYOUTS = {
    summa: (jax.P("x", "y"),) * 3,
    cannon: (jax.P("x", "y"),) * 3,
    summa_25d: (jax.P("x", ("z", "y")), jax.P(("z", "x"), "y"), jax.P("x", ("y", "z"))),
}


def operands(multiply, sizes=(24, 96, 48), dtype=jnp.float32):
    """Return random a and b as `multiply` wants them."""
    return factors(LAYOUTS[multiply][:2], sizes, dtype)


def measure_product(multiply, a, b, specs):
    """Fail unless a product and its gradients are NumPy's; return its program."""
    run = jax.jit(multiply).lower(a, b).compile()
    c = run(a, b)
    back = jax.jit(lambda a, b, c: jax.vjp(multiply, a, b)[1](c))(a, b, c)
    found, (one, two, three) = (*back, c), map(as_double, (a, b, c))
    wanted = three @ two.T, one.T @ three, one @ two
    for x, expected, spec in zip(found, wanted, specs, strict=True):
        assert lies(x, spec)
        assert_close(x, expected)
    return measure(run)


@pytest.mark.parametrize(
    ("multiply", "mesh", "kind", "counts"),
    [
        (summa, (4, 2), EXPLICIT, {"all-gather": 8}),
        (summa, (3, 2), AUTO, {"all-gather": 8}),
        (cannon, (2, 2), AUTO, {"collective-permute": 4}),
        (summa_25d, (2, 2, 2), EXPLICIT, {"all-gather": 8, "reduce-scatter": 1}),
    ],
)
def test_the_product_is_that_of_numpy_in_blocks(multiply, mesh, kind, counts):
    """With its gradients, and in as many messages and bytes as promised."""
    with devices(mesh, kind):
        a, b = operands(multiply, dtype=jnp.complex64)
        program = measure_product(multiply, a, b, LAYOUTS[multiply])
        assert (program.sent, program.counts) == (cost(multiply, a, b), counts)


@pytest.mark.parametrize(("multiply", "mesh"), [(summa, (4, 2)), (cannon, (2, 2))])
@pytest.mark.parametrize(("dtype", "k"), [("bfloat16", 4096), ("float8_e4m3fn", 96)])
def test_narrow_sums_are_rounded_once(multiply, mesh, dtype, k):
    with devices(mesh):
        a, b = (jnp.abs(x) for x in operands(multiply, (16, k, 16), dtype))
        c = multiply(a, b)
    expected = as_double(a) @ as_double(b)
    assert c.dtype == dtype
    bound = 0.55 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(as_double(c), expected, rtol=bound)


SQUARE = """
import sys
import jax, numpy as np
from examples.communication import measure
from examples.matmul import cannon

p = int(sys.argv[1])
jax.set_mesh(jax.make_mesh((p, p), ("x", "y")))

def hops(collective):
    ends = np.unravel_index(np.transpose(collective.groups), (p, p))
    apart = [abs(first - last) for first, last in ends]
    return sum(np.minimum(d, p - d) for d in apart).max()

def gradient(*both):
    return jax.grad(lambda a, b: (cannon(a, b) ** 2).sum(), argnums=(0, 1))(*both)

for m, k, n in (960, 960, 960), (480, 96, 72), (96, 480, 192):
    random = np.random.default_rng(0).integers
    given = [np.float32(random(-9, 9, size)) for size in ((m, k), (k, n))]
    expected, given = np.matmul(*given), jax.device_put(given, jax.P("x", "y"))
    a, b, c = (4 * size // p**2 for size in (m * k, k * n, m * n))
    run = cannon.lower(*given).compile()
    program, back = measure(run), measure(gradient, *given)
    far = sum(each.times * hops(each) for each in program.collectives)
    print(program.temporaries - (2 * a + 2 * b + c), far, program.sent == p * (a + b),
          back.sent == 2 * program.sent, back.temporaries > p * (a + b),
          (np.asarray(run(*given)) == expected).all())
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


@pytest.mark.parametrize(
    ("multiply", "kind"), [(summa, EXPLICIT), (cannon, AUTO), (summa_25d, EXPLICIT)]
)
def test_two_types_that_lie_elsewhere_are_multiplied(multiply, kind):
    """Of NumPy, and along another axis too, where nothing is promoted."""
    names, strict = ("z", "x", "y"), jax.numpy_dtype_promotion("strict")
    with devices((2, 2, 2), kind, names), strict:
        a, b = operands(multiply)
        numbers = np.asarray(b.astype(jnp.bfloat16))
        c = multiply(jax.device_put(a, jax.P(("z", "x"), "y")), numbers)
    assert c.dtype == jnp.float32
    assert_close(c, as_double(a) @ as_double(numbers))


def ones(*shapes):
    return [jnp.ones(shape) for shape in shapes]


A, B = (24, 96), (96, 48)


def on_another_mesh(multiply):
    with devices((4, 2)):
        multiply(*ones(A, B))


@each_refusal(
    (lambda: summa(*ones((5, 16), (16, 8))), "M = 5 .* into 2 parts: pad it to 6"),
    (lambda: summa(*ones((8, 20), (20, 8))), "K = 20 .* 8 parts: pad it to 24"),
    (lambda: summa(*ones((8, 16), (16, 7))), "N = 7 .* 2 parts: pad it to 8"),
    (lambda: summa_25d(*ones((8, 8), (8, 8))), "K = 8 cannot be cut into 16 parts"),
    (lambda: summa_25d(*ones((8, 16), (16, 6))), "N = 6 cannot be cut into 4"),
    (lambda: summa(*ones(A, B), panels=0), "in 0 panels: pass 1 or more"),
    (lambda: summa(*ones(A, B), panels=2.0), r"in 2\.0 panels: pass 1 or more"),
    (lambda: summa_25d(*ones(A, B), panels=-1), "in -1 panels: pass 1 or more"),
    (lambda: summa(*ones(A, A)), r"\(24, 96\) x \(24, 96\) is no product"),
    (lambda: cannon(*ones(A, 96)), "is no product of two matrices"),
    (lambda: summa_25d([[1.0]], *ones((1, 1))), r"list x \(1, 1\) is no product"),
    (lambda: cannon(*ones((8, 0), (0, 8))), r"\(8, 0\) x \(0, 8\) .* is empty"),
    (lambda: summa(jnp.ones(A, "float8_e4m3fn"), *ones(B)), "have no common type"),
    (lambda: on_another_mesh(cannon), "square mesh, not 4 x 2: use summa"),
    (lambda: on_another_mesh(summa_25d), r"no mesh axis \['z'\] in context"),
)
def test_what_is_no_product_is_refused(call, words):
    with devices((2, 2, 2)), pytest.raises(ValueError, match=words):
        call()
