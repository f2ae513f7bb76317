import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
from on_devices import devices, noise

from examples import fft, sine_cosine
from examples.communication import measure

TYPES = {"dst1": 1, "dst2": 2, "dct1": 1, "dct2": 2}
PAIRS = {
    name: (getattr(sine_cosine, name), getattr(sine_cosine, f"i{name}"))
    for name in TYPES
}
SHAPE = 7, 9, 12

each_pair = pytest.mark.parametrize("name", TYPES)


def in_scipy(name, a, axis):
    return getattr(scipy.fft, name[:3])(a, TYPES[name], axis=axis)


def agree(answer, expected, eps=2e-6):
    inside = tuple(map(slice, expected.shape))
    assert (
        np.abs(np.asarray(answer)[inside] - expected).max()
        <= eps * np.abs(expected).max()
    )


@each_pair
def test_a_line_is_transformed_as_by_scipy_and_comes_back(name):
    """In single and double precision, under strict promotion."""
    there, back = PAIRS[name]
    sizes = (3, 8, 9) if name == "dct1" else (1, 3, 8, 9)
    dtypes = np.float32, np.float64, np.complex128
    lines = [noise(2, n, 3, dtype=dtype) for n in sizes for dtype in dtypes]

    @jax.jit
    def run(lines):
        found = [there(a, 1) for a in lines]
        return found, [back(b, 1) for b in found]

    with jax.numpy_dtype_promotion("strict"), jax.enable_x64(True):
        for a, b, home in zip(lines, *run(lines), strict=True):
            eps = 2e-6 if a.dtype == np.float32 else 1e-14
            assert b.dtype == a.dtype
            agree(b, in_scipy(name, a, 1), eps)
            agree(home, a, eps)


def test_one_point_has_no_two_walls():
    for f in PAIRS["dct1"]:
        with pytest.raises(
            ValueError, match="a line of 1 point has no two walls: pass"
        ):
            f(jnp.ones((3, 1)), 1)


def test_a_field_between_walls_is_transformed_axis_by_axis():
    """Another pair for each axis, sizes that nothing divides, and back."""
    a, names = noise(*SHAPE, dtype=np.float32), ("dst1", "dct2", "dct1")
    into, out = zip(*(PAIRS[name] for name in names), strict=True)
    expected = a
    for axis, name in enumerate(names):
        expected = in_scipy(name, expected, axis)
    with devices((2, 4)):
        run = jax.jit(lambda a: fft.along_axes(a, into)).lower(a).compile()
        b = run(a)
        agree(b, expected.transpose(1, 2, 0))
        agree(fft.along_axes_back(b, out, SHAPE), a)
    assert measure(run).counts == {"all-to-all": 2}


@pytest.mark.parametrize(
    ("name", "wave", "first"),
    [
        ("DIRICHLET_POINTS", np.sin, 1),
        ("DIRICHLET_CELLS", np.sin, 1),
        ("NEUMANN_POINTS", np.cos, 0),
        ("NEUMANN_CELLS", np.cos, 0),
    ],
)
def test_an_equation_between_walls_has_the_solution_of_a_wave(name, wave, first):
    """-u'' = f: of waves 2, 3 and 1 between walls u is f over 14 pi^2."""
    pair = getattr(sine_cosine, name)
    grids = {
        "DIRICHLET_POINTS": lambda n: (np.arange(n) + 1) / (n + 1),
        "NEUMANN_POINTS": lambda n: np.arange(n) / (n - 1),
    }
    grid = grids.get(name, lambda n: (np.arange(n) + 0.5) / n)
    x, y, z = np.meshgrid(*map(grid, SHAPE), indexing="ij")
    f = wave(2 * np.pi * x) * wave(3 * np.pi * y) * wave(np.pi * z)

    def symbol(*k):
        return sum((np.pi * (each + first)) ** 2 for each in k)

    with devices((2, 4)):
        placed = f.astype(np.float32)
        solve = jax.jit(lambda f: fft.solve_in_spectrum(f, symbol, [pair] * 3))
        run = solve.lower(placed).compile()
        agree(run(placed), f / (14 * np.pi**2), 1e-5)
    assert measure(run).counts == {"all-to-all": 4}


@each_pair
def test_its_derivatives_are_those_of_the_matrix(name):
    a = noise(6, 2, dtype=np.float32)
    matrix = in_scipy(name, np.eye(6, dtype=np.float32), 0)
    slope = jax.grad(lambda a: (PAIRS[name][0](a, 0) ** 3).sum())
    gradient, second = jax.jit(lambda a: jax.jvp(slope, (a,), (jnp.ones((6, 2)),)))(a)
    agree(gradient, matrix.T @ (3 * (matrix @ a) ** 2), 1e-5)
    agree(second, matrix.T @ (6 * (matrix @ a) * (matrix @ np.ones((6, 2)))), 1e-5)


def test_lines_on_devices_send_nothing():
    with devices((8,)):
        lines = jax.device_put(noise(16, 9, dtype=np.float32), jax.P("x"))
        there = jax.shard_map(lambda b: sine_cosine.dst2(b, 1), out_specs=jax.P("x"))
        assert measure(there, lines).counts == {}
        each = jax.vmap(lambda line: sine_cosine.dct2(line, 0))(lines)
    agree(each, in_scipy("dct2", np.asarray(lines), 1))
