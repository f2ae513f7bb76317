"""Conjugate gradients agree with NumPy, step by step, and send one message a step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from on_devices import devices

from examples.cg import Solution, Stop, cg, lanczos, powers_of, s_step_cg
from examples.communication import measure
from examples.halo import exchange_open

N = 24
AXES = "x", "y"
BLOCKS = jax.P("x", "y")
SOLUTION = Solution(BLOCKS, jax.P(), jax.P())
EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto


def stencil(u):
    """Apply the five-point stencil of -Laplace plus one to a block."""
    rows, columns = exchange_open(u, "x", 0), exchange_open(u, "y", 1)
    around = rows[:-2] + rows[2:] + columns[:, :-2] + columns[:, 2:]
    return 5 * u - around


def matrix():
    """Return the same operator as a matrix."""
    one = np.eye(N)
    second = 2 * one - np.eye(N, k=1) - np.eye(N, k=-1)
    return np.kron(second, one) + np.kron(one, second) + np.eye(N * N)


def field(seed=0):
    return np.random.default_rng(seed).standard_normal((N, N)).astype(np.float32)


def put(x):
    return jax.device_put(x, BLOCKS)


def by_block(f, out_specs=SOLUTION):
    """Return the program that runs `f` on the blocks of its arguments."""
    return jax.jit(
        lambda *args: jax.shard_map(
            f, in_specs=(BLOCKS,) * len(args), out_specs=out_specs
        )(*args)
    )


@functools.cache  # so that one program serves all tests on a mesh
def solver(*stop):
    return by_block(lambda b: cg(stencil, b, AXES, stop=Stop(*stop)))


@functools.cache
def s_step(s, *stop):
    """Return a solver for the same system, scaled to eigenvalues below 1."""
    powers = powers_of(lambda v: stencil(v) / 9)
    return by_block(lambda b: s_step_cg(powers, b / 9, AXES, s, Stop(*stop)))


BOTH = {"cg": solver, "s-step": lambda: s_step(3)}
each_solver = pytest.mark.parametrize("make", BOTH.values(), ids=BOTH)


@functools.cache
def compiled(make, mesh=(2, 4), kind=EXPLICIT):
    """Compile a solver for the mesh in context, once for answers and messages."""
    return make().lower(put(field())).compile()


def textbook(a, b, steps):
    """Take steps of conjugate gradients, as Hestenes and Stiefel wrote them."""
    x, r, p = np.zeros_like(b), b, b
    for _ in range(steps):
        alpha = (r @ r) / (p @ a @ p)
        x, after = x + alpha * p, r - alpha * (a @ p)
        r, p = after, after + (after @ after) / (r @ r) * p
    return x


def assert_close(answer, expected, tolerance):
    error = np.abs(np.asarray(answer).reshape(-1) - np.reshape(expected, -1)).max()
    assert error <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize(("mesh", "kind"), [((2, 4), EXPLICIT), ((3, 2), AUTO)])
def test_the_solution_is_that_of_the_dense_solver(mesh, kind):
    b = field()
    with devices(mesh, kind):
        placed = put(b)
        for make in BOTH.values():
            x, iterations, residual = compiled(make, mesh, kind)(placed)
            assert_close(x, np.linalg.solve(matrix(), b.ravel().astype(float)), 1e-4)
            assert x.sharding.is_equivalent_to(placed.sharding, 2)
            assert 10 < iterations < 60
            true = np.linalg.norm(b.ravel() - matrix() @ np.asarray(x).ravel())
            assert true / np.linalg.norm(b) < 2e-5
            assert 0 < residual <= 1e-5


def test_each_step_is_a_step_of_the_textbook():
    b = field()
    expected = textbook(matrix(), b.ravel().astype(float), 6)
    with devices():
        for solve, tolerance in (solver(0, 6), 1e-4), (s_step(3, 0, 6), 1e-3):
            x, iterations, _ = solve(put(b))
            assert iterations == 6
            assert_close(x, expected, tolerance)


def loops(program):
    """Return the all-reduces in a loop of unknown length, and those outside."""
    sums = [c for c in program.collectives if c.kind == "all-reduce"]
    inside = [c for c in sums if c.times is None]
    return inside, [c for c in sums if c.times is not None]


def test_a_step_or_s_steps_reduce_once():
    with devices():
        inside, outside = loops(measure(compiled(BOTH["cg"])))
        assert [c.bytes for c in inside] == [3 * 4]
        largest, before, steps, after = 4, 3 * 4, 4, 2 * 4
        assert [c.bytes for c in outside] == [largest, before, steps, after]
        inside, outside = loops(measure(compiled(BOTH["s-step"])))
        assert [c.bytes for c in inside] == [(2 * (3 + 1)) ** 2 * 4]
        assert [c.bytes for c in outside] == [4, 4, 4, 2 * 4]


def test_a_preconditioner_saves_steps_and_changes_nothing_else():
    weight = 1 + 10 * np.arange(N * N).reshape(N, N).astype(np.float32) / N**2
    a = np.diag(weight.ravel()) @ matrix() @ np.diag(weight.ravel())

    def run(b, w, divisor):
        return cg(lambda v: w * stencil(w * v), b, AXES, lambda r: r / divisor)

    with devices():
        solve, b = by_block(run), put(field())
        plain = solve(b, put(weight), put(np.ones_like(weight)))
        better = solve(b, put(weight), put(weight**2))
        assert better.iterations < plain.iterations / 2
        assert_close(better.x, np.linalg.solve(a, field().ravel()), 1e-3)


@pytest.mark.parametrize("where", ["constant", "argument"])
def test_arrays_that_do_not_vary_may_be_captured(where):
    a, half = np.float32(2) * np.eye(6, dtype="float32"), np.full((6, 1), 0.5, "f4")
    b = field()[:, :12]

    def run(b, *fixed):
        first, second = fixed or (a, half)
        return cg(lambda v: first @ v, b, AXES, lambda r: second * r)

    with devices((4, 2)):
        fixed = () if where == "constant" else (a, half)
        specs = BLOCKS, *(jax.P() for _ in fixed)
        program = jax.jit(jax.shard_map(run, in_specs=specs, out_specs=SOLUTION))
        value, gradient = jax.value_and_grad(lambda b: program(b, *fixed).x.sum())(
            put(b)
        )
    assert_close(value, b.sum() / 2, 1e-4)
    assert_close(gradient, np.full(b.shape, 0.5), 1e-5)


def test_complex_systems_are_solved():
    phase = np.exp(1j * field(1)).astype(np.complex64)
    b = (field() + 1j * field(2)).astype(np.complex64)
    turn = np.diag(phase.ravel())

    def run(b, phase):
        return cg(lambda v: phase * stencil(v / phase), b, AXES)

    with devices():
        x, _, residual = by_block(run)(put(b), put(phase))
        assert_close(x, np.linalg.solve(turn @ matrix() @ turn.conj(), b.ravel()), 1e-4)
        assert (x.dtype, residual.dtype) == (jnp.complex64, jnp.float32)


@pytest.mark.parametrize(("name", "kind"), [("cg", EXPLICIT), ("s-step", AUTO)])
def test_the_gradient_is_another_solution(name, kind):
    solve = BOTH[name]()
    expected = np.linalg.solve(matrix(), field(1).ravel())

    @jax.jit
    def both_modes(b, v):
        slope = jax.grad(lambda b: (solve(b).x * v).sum())
        return slope(b), jax.jvp(lambda b: solve(b).x, (b,), (v,))[1]

    with devices(kind=kind):
        b, v = put((field(), field(1)))
        gradient, along = both_modes(b, v)
        assert gradient.sharding.is_equivalent_to(b.sharding, 2)
    assert_close(gradient, expected, 1e-4)
    assert_close(along, expected, 1e-4)


def test_a_gradient_reaches_the_matrix():
    b, d = field(), 2 + field(1) ** 2

    def both(b, d):
        one = cg(lambda v: d * v, b, AXES).x
        return one + s_step_cg(powers_of(lambda v: d * v / 9), b / 9, AXES, 2).x

    with devices():
        program = by_block(both, BLOCKS)
        gradient = jax.jit(jax.grad(lambda d: program(put(b), d).sum()))(put(d))
        assert_close(gradient, -2 * b / d**2, 1e-3)


@each_solver
def test_a_right_hand_side_of_zeros_takes_no_step(make):
    with devices():
        x, *numbers = compiled(make)(put(np.zeros((N, N), np.float32)))
    assert not np.any(x)
    assert numbers == [0, 0]


@each_solver
def test_large_and_small_numbers_are_solved_like_others(make):
    expected = np.linalg.solve(matrix(), field().ravel().astype(float))
    for scale in 1e37, 1e-34:
        with devices():
            x, iterations, residual = compiled(make)(put(field() * np.float32(scale)))
        assert 10 < iterations < 60
        assert 0 < residual <= 1e-5
        assert_close(x / scale, expected, 1e-4)


@each_solver
def test_one_number_that_is_none_is_no_success(make):
    for bad in np.nan, -np.inf:
        b = field()
        b[-1, -1] = bad  # on one device of eight
        with devices():
            for wrong in b, np.full_like(b, bad):
                x, iterations, residual = compiled(make)(put(wrong))
                assert (iterations, np.isnan(residual)) == (0, True)
                assert np.isnan(x).any()


def residuals(b, d):
    """Return the residuals of both solvers for a diagonal matrix."""
    one = cg(lambda v: d * v, b, AXES)
    other = s_step_cg(powers_of(lambda v: d * v), b, AXES, 1)
    return one.residual, other.residual


def test_a_system_with_no_solution_in_its_type_is_no_success():
    with devices():
        program = by_block(residuals, (jax.P(), jax.P()))
        for weight in 0, np.inf, np.nan:
            spread = 3 + field(1) ** 2
            spread[0, 0] = weight
            for residual in program(put(field()), put(spread)):
                assert not residual <= 1e-5
        for size, weight in (1e38, 1e-3), (1e-30, 1e20):
            b, d = (np.full((N, N), each, np.float32) for each in (size, weight))
            for residual in program(put(b), put(d)):
                assert not residual <= 1e-5


@pytest.mark.parametrize("s", [1, 3])
def test_steps_beyond_the_solution_change_nothing(s):
    """Rounding may leave p with p^T A p = 0: of one number, after one step, it does."""
    random = np.random.default_rng(2)

    def run(b, d):
        return s_step_cg(powers_of(lambda v: d * v), b, AXES, s, Stop(1e-6, 40)).x

    with devices((1, 1)):
        program = by_block(run, BLOCKS)
        for _ in range(20):
            b, d = np.float32(random.random((2, 1, 1)))
            d = (1 + d) / 2
            np.testing.assert_allclose(program(put(b), put(d)), b / d, rtol=1e-5)


def test_the_residual_is_that_of_the_result():
    """Not of the recurrence, which goes on falling where rounding stops the rest."""
    b = field()
    for solve in solver(0, 300), s_step(3, 0, 300):
        with devices():
            x, _, residual = solve(put(b))
        rest = b.ravel() - matrix() @ np.asarray(x, float).ravel()
        true = np.linalg.norm(rest) / np.linalg.norm(b)
        assert 1e-9 < true < 1e-5
        np.testing.assert_allclose(residual, true, rtol=0.5, atol=1e-7)


@functools.cache
def tridiagonal(steps, matvec=stencil):
    return by_block(lambda v: lanczos(matvec, v, AXES, steps), (jax.P(), jax.P()))


def values(diagonal, beside):
    full = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    return np.linalg.eigvalsh(full.astype(float))


@pytest.mark.parametrize("mesh", [(2, 4), (3, 2)])
def test_lanczos_finds_the_outer_eigenvalues_in_one_sum_a_step(mesh):
    true = np.linalg.eigvalsh(matrix())
    with devices(mesh):
        run = tridiagonal(60).lower(put(field())).compile()
        assert measure(run).counts["all-reduce"] == 60 + 2
        found = values(*run(put(field())))
        np.testing.assert_allclose(found[[0, -1]], true[[0, -1]], rtol=1e-2)
        assert true[0] * (1 - 1e-5) <= found[0] <= found[-1] <= true[-1] * (1 + 1e-5)


def cg_until(tol):
    """Return a call that stops at this tolerance."""
    return lambda b: cg(stencil, b, AXES, stop=Stop(tol))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda b: cg(stencil, b.astype(int), AXES), "b is int32: pass floating-point"),
        (lambda b: cg(stencil, [1.0], AXES), "b is list: pass floating-point"),
        (cg_until(-1), r"Stop\(tol=-1, .*pass numbers"),
        (cg_until(np.nan), r"Stop\(tol=nan, .*pass numbers"),
        (lambda b: s_step_cg(powers_of(stencil), b, AXES, 0), "s = 0 for b of float32"),
        (lambda b: s_step_cg(powers_of(stencil), b * 1j, AXES, 2), "pass s >= 1 and"),
        (lambda b: lanczos(stencil, b, AXES, 0), "0 steps give no matrix"),
        (lambda b: cg(stencil, b, ("x", "w")), r"no axis \['w'\] here: call it"),
        (
            lambda b: cg(lambda v: v[:2], b, AXES),
            r"matvec makes float32\[2, 6\] of float32\[12, 6\]: return a block",
        ),
        (
            lambda b: cg(stencil, b, AXES, lambda r: r.sum()),
            r"precondition makes float32\[\] of float32\[12, 6\]",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call, words):
    with devices(), pytest.raises(ValueError, match=words):
        by_block(call)(put(field()))
