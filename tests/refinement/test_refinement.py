import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from on_devices import AUTO, EXPLICIT, assert_agreed, devices, noise

from examples.communication import measure
from examples.refinement import dense, place, refine, refine_blocks

N = 29
BLOCKS = jax.P("x", "y")
EPS = np.finfo(np.float64).eps
pytestmark = pytest.mark.usefixtures("double")


def gathered(a):
    """Make a solver of a matrix that every device holds whole, of sides anywhere."""
    factors = jax.scipy.linalg.lu_factor(place(a, jax.P()))

    def solve(b, trans):
        return jax.scipy.linalg.lu_solve(factors, place(b, jax.P()), trans)

    return functools.partial(solve, trans=0), functools.partial(solve, trans=2)


def conditioned(n, condition, dtype=np.float64):
    """Return a matrix with this condition number."""
    left, right = (np.linalg.qr(noise(n, n, dtype=dtype, seed=s))[0] for s in (1, 2))
    return left * np.geomspace(1, 1 / condition, n) @ right


def assert_solved(a, x, b, factor=1.0):
    """Assert what refinement stops at, in the norms that it uses."""
    left, norm = np.abs(b - a @ x).max(0), np.linalg.norm(a, np.inf)
    limit = norm * np.abs(x).max(0) * EPS * np.sqrt(len(a))
    assert (left <= factor * limit).all()


@functools.cache  # so that one program serves several tests
def program(*factors):
    """Return `refine` with these factors, and perhaps a fallback."""
    return jax.jit(lambda a, b: refine(a, b, *factors))


def test_it_converges_to_all_digits_while_half_of_them_see_the_matrix():
    x, steps = noise(N, 3, dtype=np.complex128), []
    with devices():
        for condition in 1e1, 1e5:
            a = conditioned(N, condition, np.complex128)
            refined = program(gathered)(a, a @ x)
            assert refined.converged.all()
            assert not refined.fell_back.any()
            assert refined.x.sharding.is_fully_replicated
            assert_solved(a, refined.x, a @ x)
            assert np.abs(refined.x - x).max() < 100 * EPS * condition
            steps.append(int(refined.steps))
    assert steps[0] <= 3
    assert steps[0] < steps[1] <= 6


def test_one_function_is_enough_for_a_hermitian_matrix_and_strict_promotion():
    a, x = conditioned(N, 1e2, np.complex128), noise(N, 2)
    a = a @ a.conj().T
    with devices(), jax.numpy_dtype_promotion("strict"):
        refined = program(dense, dense)(a, a @ x)
        assert refined.converged.all()
        assert_solved(a, refined.x, a @ x)


def test_beyond_it_the_fallback_has_all_digits():
    a, x = conditioned(N, 1e10), noise(N, 3)
    b = a @ x
    b[:, 1] = 0  # whose solution is known, and stays
    with devices():
        missed = program(gathered)(a, b)
        solved = program(gathered, gathered)(a, b)
    how = (missed, 0, "There is no fallback."), (solved, 1, "Solved by the fallback.")
    for refined, fell_back, words in how:
        assert refined.converged.tolist() == [False, True, False]
        assert refined.fell_back.tolist() == [fell_back, False, fell_back]
        assert f"2 of 3 right-hand sides did not converge.\n{words}" in str(refined)
    assert np.abs(missed.x - x)[:, 0].max() > 1e-3
    assert_solved(a, solved.x, b)


def test_the_fallback_runs_only_for_what_does_not_converge():
    x, called = noise(N, 3), []

    def sevens(a):
        jax.debug.callback(called.append, a[0, 0])
        return lambda b: 0 * b + 7

    with devices():
        run = program(gathered, sevens)
        a = conditioned(N, 1e3)
        refined = run(a, a @ x)
        jax.effects_barrier()
        assert not called
        assert str(refined) == "3 solves with factors of float32: converged."
        assert "only types are known" in str(jax.eval_shape(run, a, x))
        found = run(conditioned(N, 1e10), x * [1, 0, 1]).x
        jax.effects_barrier()
        assert called
    assert (np.asarray(found) == [7, 0, 7]).all()  # what converged stays


@pytest.mark.parametrize(
    ("function", "kinds", "part"),
    [
        (refine, (EXPLICIT, AUTO, EXPLICIT), (24, 4)),
        (refine_blocks, (AUTO, AUTO, AUTO), (12, 2)),
    ],
)
def test_axes_have_any_name_and_others_are_left_alone(function, kinds, part):
    """The other axis is of another type, or of the same one."""
    a, b, names = conditioned(24, 1e4), noise(24, 4), ("data", "model")
    with jax.set_mesh(jax.make_mesh((2, 2, 2), ("data", "z", "model"), kinds)):
        run = jax.jit(lambda a, b: function(a, b, gathered, None, names))
        found = run(jax.device_put(a, jax.P(*names)), b)
        assert found.x.addressable_shards[0].data.shape == part
    assert np.all(found.converged)
    assert_solved(a, np.asarray(found.x), b, factor=8.0)


def test_a_solver_that_takes_sixteen_bits_gets_what_is_left_around_one():
    """What is left falls to 1e-12, where the least float16 is 6e-8."""
    a, b = conditioned(N, 10), noise(N, 3)

    def factor(a):
        def narrow(solve):
            return lambda b: solve(b.astype("float16").astype(a.dtype))

        return tuple(map(narrow, gathered(a)))

    with devices():
        found = program(factor)(a, b)
    assert found.converged.all()
    assert_solved(a, found.x, b)


@pytest.mark.parametrize("where", [0, 1], ids=["a", "b"])
def test_nan_is_no_success(where):
    arrays = [conditioned(N, 1e2), noise(N, 3)]
    arrays[where][3, 1] = np.nan
    with devices():
        refined = program(gathered, gathered)(*arrays)
    good = [where == 1, False, where == 1]  # another b does not matter
    assert refined.converged.tolist() == good
    assert refined.fell_back.tolist() == np.logical_not(good).tolist()
    assert np.isfinite(refined.x).all(0).tolist() == good
    assert "x is not finite." in str(refined)


def test_eight_bits_converge_for_small_condition_numbers_only():
    """Steps grow with the condition number, until none halves what is left."""

    def coarse(a):
        return gathered(a.astype(jnp.bfloat16).astype(a.dtype))

    x = noise(N)
    with devices():
        run, found = program(coarse), []
        for condition in 3, 30, 1e4:
            a = conditioned(N, condition)
            found.append(run(a, a @ x))
    assert [bool(each.converged) for each in found] == [True, True, False]
    assert 5 < found[0].steps < found[1].steps <= 30
    assert found[2].steps < 10


@pytest.mark.parametrize(
    ("function", "mesh"), [(refine, (2, 4)), (refine_blocks, (3, 2))]
)
def test_derivatives_go_through_the_exact_solve(function, mesh):
    """Forward, reverse and second, by a and b; also through the fallback."""
    b, weights = noise(12, 4, dtype=complex), np.arange(1.0, 5)[None]
    ways = noise(12, 12, dtype=complex, seed=3), noise(12, 4, dtype=complex, seed=4)

    def derivatives(solve):
        def loss(a, b):
            return (jnp.abs(solve(a, b)) ** 2 * weights).sum()

        first = jax.grad(loss, (0, 1))
        return jax.jit(lambda *v: [jax.jvp(f, v, ways) for f in (loss, first)])

    theirs = derivatives(jnp.linalg.solve)
    for condition, fallback in (1e2, None), (1e10, gathered):
        a, rtol = conditioned(12, condition, np.complex128), 1e-12 * condition
        ours = derivatives(lambda a, b, f=fallback: function(a, b, gathered, f).x)
        with devices(mesh):
            answers = jax.tree.leaves(ours(a, b))
        for answer, truth in zip(answers, jax.tree.leaves(theirs(a, b)), strict=True):
            assert np.abs(answer - truth).max() <= rtol * np.abs(truth).max()


def test_a_step_is_one_product():
    a, b = noise(N, N) + N * np.eye(N), noise(N, 2)

    def factor(a):
        return lambda b: b / N

    with devices():
        program = measure(lambda a, b: refine(a, b, factor).x, a, b)
    in_loop = [each for each in program.collectives if each.times is None]
    assert sorted(each.kind for each in in_loop) == ["all-gather", "all-reduce"]
    assert max(each.bytes for each in program.collectives) <= 8 * 32 * 2


def test_what_does_not_fit_is_refused_before_any_work():
    a, b, factor = np.eye(4), np.ones(4), lambda a: lambda b: b
    calls = [
        (refine, (a[:2], b, factor), r"a \(2, 4\) is no square matrix"),
        (refine, (a, b[:3], factor), r"b \(3,\) does not fit a \(4, 4\)"),
        (refine, ([[1.0]], b, factor), "a is a list"),
        (refine, (a.astype(int), b, factor), "a is int64, b float64: pass float64 or"),
        (refine, (a, b, lambda a: 3), "a int solves nothing"),
        (refine, (a, b, lambda a: lambda b: b[:2]), r"returned \(2, 1\): \(4, 1\) wen"),
        (refine, (a, b, factor, None, ("u", "y")), r"no mesh axis \['u'\] in context"),
        (refine_blocks, (a, b, factor), "call refine"),
        (refine_blocks, (a, np.ones((3, 2)), factor), "does not fit"),
    ]
    with devices():
        for function, arguments, complaint in calls:
            with pytest.raises(ValueError, match=complaint):
                function(*arguments)


def test_sides_in_blocks_are_refined_and_stay_there():
    """Of matrices of many condition numbers, the last beyond factors of float32."""
    b = noise(24, 8)

    @jax.jit
    def run(a, b):
        a, b = place(a, BLOCKS), place(b, BLOCKS)
        return refine_blocks(a, b, gathered, gathered)

    with devices((3, 2)):
        for c in 1e1, 1e5, 1e12:
            a = conditioned(24, c)
            found = run(a, b)
            assert_solved(a, np.asarray(found.x), b, factor=8.0)
            assert np.all(found.converged) == (c < 1e8)
            assert (np.asarray(found.fell_back) == ~np.asarray(found.converged)).all()
            assert found.x.addressable_shards[0].data.shape == (8, 4)
            assert_agreed(found.converged, found.x)
        b[6, 1] = np.nan
        found = run(conditioned(24, 1e3), b)
        assert_agreed(found.converged)
    good = np.arange(8) != 1
    assert np.asarray(found.converged).tolist() == good.tolist()
    assert np.isfinite(found.x).all(0).tolist() == good.tolist()


def measure_memory(f, *shapes):
    """Return the bytes of temporaries of a program of blocks, and its largest array."""
    sharding = jax.NamedSharding(jax.sharding.get_mesh(), BLOCKS)
    given = [jax.ShapeDtypeStruct(s, "float64", sharding=sharding) for s in shapes]
    compiled = jax.jit(f).lower(*given).compile()
    arrays = re.findall(r"\b[fcsu]\d+\[([\d,]+)\]", compiled.as_text())
    largest = max(math.prod(map(int, each.split(","))) for each in arrays)
    return compiled.memory_analysis().temp_size_in_bytes, largest


def test_no_device_holds_all_sides_of_refinement():
    """Eight devices hold an eighth of what one does, and no array of [N, K]."""
    n, k, held = 32, 512, []
    run = functools.partial(refine_blocks, factor=lambda a: lambda b: 2 * b)
    for shape in (1, 1), (2, 4):
        with devices(shape):
            held.append(measure_memory(run, (n, n), (n, k)))
    assert held[0][1] == n * k
    assert held[1][1] <= n * k / 4
    assert held[1][0] < held[0][0] / 4
