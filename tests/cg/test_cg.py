"""Conjugate gradients agree with NumPy, step by step, and send one message a step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse.linalg
from cases import each_refusal
from on_devices import AUTO, EXPLICIT, assert_close, devices

from examples.cg import Solution, Stop, cg, lanczos, powers_of, s_step_cg
from examples.communication import measure
from examples.halo import exchange_open

N = 24
AXES = "x", "y"
BLOCKS, WHOLE = jax.P("x", "y"), jax.P()
SOLUTION = Solution(BLOCKS, WHOLE, WHOLE)
SECOND = scipy.linalg.toeplitz([2, -1] + [0] * (N - 2))
MATRIX = np.kron(SECOND, np.eye(N)) + np.kron(np.eye(N), SECOND) + np.eye(N * N)


@pytest.fixture(autouse=True)
def eight_devices():
    """Put two by four devices in context; some tests take others."""
    with devices():
        yield


def stencil(u):
    """Apply MATRIX, the five-point stencil of -Laplace plus one, to a block."""
    rows, columns = exchange_open(u, "x", 0), exchange_open(u, "y", 1)
    around = rows[:-2] + rows[2:] + columns[:, :-2] + columns[:, 2:]
    return 5 * u - around


def field(seed=0):
    return np.random.default_rng(seed).standard_normal((N, N)).astype(np.float32)


def put(x):
    return jax.device_put(x, BLOCKS)


def by_block(f, outs=SOLUTION, ins=BLOCKS):
    """Return the program that runs `f` on the blocks of its arguments."""
    return jax.jit(jax.shard_map(f, in_specs=ins, out_specs=outs))


def one_step(*stop):
    return by_block(lambda b: cg(stencil, b, AXES, stop=Stop(*stop)))


def three_steps(*stop):
    """Return a solver by three steps at once, scaled to eigenvalues below 1."""
    powers = powers_of(lambda v: stencil(v) / 9)
    return by_block(lambda b: s_step_cg(powers, b / 9, AXES, 3, Stop(*stop)))


each_solver = pytest.mark.parametrize("make", [one_step, three_steps])


@functools.cache
def compiled(make, mesh=(2, 4), kind=EXPLICIT):
    """Compile a solver for the mesh in context, once for all right-hand sides."""
    return make().lower(put(field())).compile()


def dense(b, a=MATRIX):
    """Solve the same system in double precision."""
    return np.linalg.solve(a, b.ravel()).reshape(N, N)


@each_solver
@pytest.mark.parametrize(
    ("mesh", "kind", "scale"),
    [((2, 4), EXPLICIT, 1), ((3, 2), AUTO, 1e37), ((3, 2), AUTO, 1e-34)],
)
def test_the_solution_is_that_of_the_dense_solver(mesh, kind, scale, make):
    """Of large and small numbers, too."""
    with devices(mesh, kind):
        b = put(field() * np.float32(scale))
        x, iterations, residual = compiled(make, mesh, kind)(b)
        assert_close(x / scale, dense(field()), 1e-5)
        assert x.sharding.is_equivalent_to(b.sharding, 2)
        assert 10 < iterations < 60
        assert 0 < residual <= 1e-5


@each_solver
def test_each_step_is_a_step_of_the_textbook(make):
    x, iterations, _ = make(0, 6)(put(field()))
    expected, _ = scipy.sparse.linalg.cg(MATRIX, field().ravel(), rtol=0, maxiter=6)
    assert iterations == 6
    assert_close(x, expected.reshape(N, N), 1e-4)


def test_a_preconditioner_saves_steps_and_changes_nothing_else():
    """Of a complex system."""
    weight = 1 + 10 * np.arange(N * N).reshape(N, N).astype(np.float32) / N**2
    w, b = weight * np.exp(1j * field(1)), (field() + 1j * field(2))
    a = w.ravel()[:, None] * MATRIX * w.ravel().conj()

    @by_block
    def solve(b, w, divisor):
        return cg(lambda v: w * stencil(w.conj() * v), b, AXES, lambda r: r / divisor)

    plain = solve(*put((b, w, np.ones_like(weight))))
    better = solve(*put((b, w, weight**2)))
    assert better.iterations < plain.iterations / 2
    assert_close(better.x, dense(b, a), 1e-4)
    assert (better.x.dtype, better.residual.dtype) == (jnp.complex64, jnp.float32)


# ------------------------------------------------------------------------ gradients


@pytest.mark.parametrize(("make", "kind"), [(one_step, EXPLICIT), (three_steps, AUTO)])
def test_the_gradient_is_another_solution(make, kind):
    solve, expected = make(), dense(field(1))

    @jax.jit
    def both_modes(b, v):
        slope = jax.grad(lambda b: (solve(b).x * v).sum())
        return slope(b), jax.jvp(lambda b: solve(b).x, (b,), (v,))[1]

    with devices(kind=kind):
        b, v = put((field(), field(1)))
        gradient, along = both_modes(b, v)
    assert gradient.sharding.is_equivalent_to(b.sharding, 2)
    assert_close(gradient, expected, 1e-5)
    assert_close(along, expected, 1e-5)


def test_a_gradient_reaches_the_matrix_beside_arrays_that_do_not_vary():
    """A constant and an argument."""
    b, d, eye = field(), 2 + field(1) ** 2, np.eye(N // 2, dtype=np.float32)

    def twice(b, d, other):
        x = cg(lambda v: d * (eye @ other @ v), b, AXES, lambda r: other @ r / 4).x
        return x + s_step_cg(powers_of(lambda v: d * v / 9), b / 9, AXES, 2).x

    program = by_block(twice, BLOCKS, (BLOCKS, BLOCKS, WHOLE))
    slopes = jax.jit(jax.grad(lambda b, d: program(b, d, eye).sum(), (0, 1)))
    in_b, in_d = slopes(*put((b, d)))
    assert_close(in_b, 2 / d, 1e-4)
    assert_close(in_d, -2 * b / d**2, 1e-4)


# ------------------------------------------------------- zeros, and what is no number


@each_solver
def test_zeros_and_what_is_no_number_take_no_step(make):
    """One NaN on one device of eight is no success, nor are infinities on all."""
    run, b = compiled(make), field()
    x, *numbers = run(put(0 * b))
    assert not np.any(x)
    assert numbers == [0, 0]
    for bad in np.nan, -np.inf:
        b[-1, -1] = bad
        for wrong in b, np.full_like(b, bad):
            x, iterations, residual = run(put(wrong))
            assert (iterations, np.isnan(residual)) == (0, True)
            assert np.isnan(x).any()


def test_a_system_with_no_solution_in_its_type_is_no_success():
    def residuals(b, d):
        one = cg(lambda v: d * v, b, AXES)
        other = s_step_cg(powers_of(lambda v: d * v), b, AXES, 1)
        return one.residual, other.residual

    one, corner = np.ones((N, N), np.float32), np.arange(N * N).reshape(N, N) == 0
    given = [(1e38 * one, 1e-3 * one), (1e-30 * one, 1e20 * one)]
    for weight in np.float32([0, np.inf, np.nan]):
        given.append((field(), np.where(corner, weight, 3 + field(1) ** 2)))
    program = by_block(residuals, (WHOLE, WHOLE))
    for problem in given:
        assert not np.any(np.array(program(*put(problem))) <= 1e-5)


@each_solver
def test_the_residual_is_that_of_the_result(make):
    """Not of the recurrence, which goes on falling where rounding stops the rest."""
    x, _, residual = make(0, 300)(put(field()))
    rest = field().ravel() - MATRIX @ np.asarray(x, float).ravel()
    true = np.linalg.norm(rest) / np.linalg.norm(field())
    assert 1e-9 < true < 1e-5
    np.testing.assert_allclose(residual, true, rtol=0.5, atol=1e-7)


@pytest.mark.parametrize("mesh", [(2, 4), (3, 2)])
def test_lanczos_finds_the_outer_eigenvalues_in_one_sum_a_step(mesh):
    true = np.linalg.eigvalsh(MATRIX)[[0, -1]]
    with devices(mesh):
        run = by_block(lambda v: lanczos(stencil, v, AXES, 60), (WHOLE, WHOLE))
        run = run.lower(put(field())).compile()
        found = scipy.linalg.eigvalsh_tridiagonal(*run(put(field())))[[0, -1]]
        assert np.isnan(run(put(0 * field()))[0]).all()
    assert measure(run).counts["all-reduce"] == 60 + 2
    np.testing.assert_allclose(found, true, rtol=1e-2)
    assert true[0] * (1 - 1e-5) <= found[0] <= found[1] <= true[1] * (1 + 1e-5)


@each_refusal(
    (lambda b: cg(stencil, b.astype(int), AXES), "b is int32: pass floating-point"),
    (lambda b: cg(stencil, [1.0], AXES), "b is list: pass floating-point"),
    (lambda b: cg(stencil, b, AXES, stop=Stop(np.nan)), r"tol=nan, .*: pass"),
    (lambda b: cg(stencil, b, AXES, stop=Stop(1, -1)), r"maxiter=-1\): pass"),
    (lambda b: s_step_cg(powers_of(stencil), b, AXES, 0), "s = 0 for b of float32"),
    (lambda b: s_step_cg(powers_of(stencil), b * 1j, AXES, 2), "pass s >= 1 and"),
    (lambda b: lanczos(stencil, b, AXES, 0), "0 steps give no matrix"),
    (lambda b: cg(stencil, b, ("x", "w")), r"no axis \['w'\] here: call it"),
    (lambda b: cg(lambda v: v[:2], b, AXES), r"matvec makes float32\[2, 6\] of"),
    (lambda b: cg(stencil, b, AXES, jnp.sum), r"precondition makes float32\[\] of"),
)
def test_what_makes_no_sense_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        by_block(call)(put(field()))
