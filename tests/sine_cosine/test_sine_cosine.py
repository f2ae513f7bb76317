import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
from fft.test_fft import agree
from on_devices import devices, noise

from examples import fft, sine_cosine
from examples.communication import measure

TYPES = {"dst1": 1, "dst2": 2, "dct1": 1, "dct2": 2}
SHAPE = 7, 9, 12

each_name = pytest.mark.parametrize("name", TYPES)


def there(name):
    return getattr(sine_cosine, name)


def back(name):
    return getattr(sine_cosine, f"i{name}")


def in_scipy(name, a, axis):
    return getattr(scipy.fft, name[:3])(a, TYPES[name], axis=axis)


@each_name
def test_a_line_is_transformed_as_by_scipy_and_comes_back(name):
    """In single and double precision, under strict promotion."""
    smallest = 3 if name == "dct1" else 1
    types = {smallest: np.float64, 8: np.float32, 9: np.complex128}
    lines = [noise(2, n, 3, dtype=dtype) for n, dtype in types.items()]

    @jax.jit
    def run(lines):
        found = [there(name)(a, 1) for a in lines]
        return found, [back(name)(b, 1) for b in found]

    with jax.numpy_dtype_promotion("strict"), jax.enable_x64(True):
        for a, b, home in zip(lines, *run(lines), strict=True):
            eps = 2e-6 if a.dtype == np.float32 else 1e-14
            assert b.dtype == a.dtype
            agree(b, in_scipy(name, a, 1), eps)
            agree(home, a, eps)


GRIDS = {
    "DIRICHLET_POINTS": lambda n: (np.arange(n) + 1) / (n + 1),
    "DIRICHLET_CELLS": lambda n: (np.arange(n) + 0.5) / n,
    "NEUMANN_POINTS": lambda n: np.arange(n) / (n - 1),
    "NEUMANN_CELLS": lambda n: (np.arange(n) + 0.5) / n,
}


@pytest.mark.parametrize(
    ("walls", "wave", "first"), [("DIRICHLET", np.sin, 1), ("NEUMANN", np.cos, 0)]
)
def test_an_equation_between_walls_has_the_solution_of_a_wave(walls, wave, first):
    """-u'' = f: of waves 2, 3 and 1 between walls u is f over 14 pi^2."""
    names = [f"{walls}_{at}" for at in ("POINTS", "CELLS", "POINTS")]
    grids = (GRIDS[name](n) for name, n in zip(names, SHAPE, strict=True))
    x, y, z = np.meshgrid(*grids, indexing="ij")
    f = wave(2 * np.pi * x) * wave(3 * np.pi * y) * wave(np.pi * z)
    pairs = [getattr(sine_cosine, name) for name in names]

    def symbol(*k):
        return sum((np.pi * (each + first)) ** 2 for each in k)

    with devices((2, 4)):
        placed = f.astype(np.float32)
        solve = jax.jit(lambda f: fft.solve_in_spectrum(f, symbol, pairs))
        run = solve.lower(placed).compile()
        agree(run(placed), f / (14 * np.pi**2), 1e-5)
    assert measure(run).counts == {"all-to-all": 4}


@each_name
def test_its_derivatives_are_those_of_the_matrix(name):
    a, ones = noise(6, 2, dtype=np.float32), np.ones((6, 2))
    matrix = in_scipy(name, np.eye(6, dtype=np.float32), 0)
    slope = jax.grad(lambda a: (there(name)(a, 0) ** 3).sum())
    gradient, second = jax.jit(lambda a: jax.jvp(slope, (a,), (jnp.ones((6, 2)),)))(a)
    agree(gradient, matrix.T @ (3 * (matrix @ a) ** 2), 1e-5)
    agree(second, matrix.T @ (6 * (matrix @ a) * (matrix @ ones)), 1e-5)


def test_lines_on_devices_send_nothing():
    with devices((8,)):
        lines = jax.device_put(noise(16, 9, dtype=np.float32), jax.P("x"))
        run = jax.shard_map(lambda b: sine_cosine.dst2(b, 1), out_specs=jax.P("x"))
        assert measure(run, lines).counts == {}
        each = jax.vmap(lambda line: sine_cosine.dct2(line, 0))(lines)
    agree(each, in_scipy("dct2", np.asarray(lines), 1))
