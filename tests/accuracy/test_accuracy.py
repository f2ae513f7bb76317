import functools
import itertools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.sharding import AxisType
from on_devices import assert_agreed, devices, noise

from examples import accuracy
from examples.accuracy import assess_blocks, norm1
from examples.communication import measure
from examples.norm_estimate import Inverse

N = 64
KINDS = [AxisType.Explicit, AxisType.Auto]
BLOCKS = jax.P("x", "y")


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def assess(a, b, x, solver, axes=("x", "y")):
    return accuracy.assess(a, b, x, Inverse(solver), axes)


def condition(a, solver):
    return accuracy.condition(a, Inverse(solver))


def dense(a):
    """Return a solver that holds a whole: quick to compile."""
    factors = jax.scipy.linalg.lu_factor(jax.reshard(a, jax.P()))
    solve = jax.scipy.linalg.lu_solve
    return functools.partial(solve, factors), functools.partial(solve, factors, trans=2)


@jax.jit
def densely(a, b):
    """Solve, and say how well: [N, N], [N] or [N, K]."""
    solver = dense(a)
    x = solver[0](b)
    return x, assess(a, b, x, solver), condition(a, solver)


# -------------------------------------------------------------------- matrices


def twins(n, near=1e-8):
    """Two columns that are nearly equal."""
    a = noise(n, n)
    a[:, 1] = a[:, 0] + near * a[:, 1]
    return a


def graded(n):
    return noise(n, n) * np.logspace(0, -12, n)


ZOO = {
    "noise": noise(N, N),
    "twins": twins(N),
    "graded": graded(N),
    "Hilbert and more": scipy.linalg.hilbert(N) + 1e-9 * np.eye(N),
    "growth": np.tril(-np.ones((N, N)), -1) + np.eye(N) + np.eye(N)[:, -1:] * 1.0,
    "kernel": np.exp(-(np.subtract.outer(np.arange(N), np.arange(N)) ** 2) / 40)
    + 1e-6 * np.eye(N),
    "Toeplitz": scipy.linalg.toeplitz(0.9 ** np.arange(N)),
    "upper triangle": np.triu(np.full((N, N), -0.5), 1) + np.eye(N),
    "orthogonal": np.linalg.qr(noise(N, N))[0],
    "identity": np.eye(N),
}
each_matrix = pytest.mark.parametrize("name", ZOO)


# ----------------------------------------------------------------- right numbers


@each_matrix
def test_estimates_are_near_and_errors_below_their_bounds(name):
    """At least a third of the truth; b = a x, in all digits and in half of them."""
    a, x = ZOO[name], noise(N, 2)
    for dtype in np.float64, np.float32:
        low, eps = a.astype(dtype), np.finfo(dtype).eps
        exact = low.astype(a.dtype)
        b = (exact @ x).astype(dtype)
        with devices():
            found, report, one = densely(low, b)
        if (condition := np.linalg.cond(exact, np.inf)) > 1e-2 / eps:
            assert not report.condition < 1e-3 / eps
            continue  # what is beyond has no truth in NumPy
        for estimate, norm in (one, 1), (report.condition, np.inf):
            truth = np.linalg.cond(exact, norm)
            assert truth / 3 < estimate < truth * (1 + 30 * condition * eps)
        truth = np.linalg.solve(exact, b)
        error = np.abs(found - truth).max(0) / np.abs(found).max(0)
        assert (error <= report.forward + 2 * eps).all()
        assert (report.forward <= (N + 2) * eps * report.condition).all()
        assert (report.hpl < 1).all()


# ----------------------------------------------------------------------- any mesh


def multiplied(inverse):
    """Return a solver that multiplies by an inverse from NumPy."""
    pair = inverse, inverse.conj().T
    return tuple(lambda b, m=m: jnp.asarray(m).astype(b.dtype) @ b for m in pair)


def expected(a, b, x):
    """The backward errors and the condition number, in NumPy."""
    residual, size = np.abs(b - a @ x), np.abs(a) @ np.abs(x) + np.abs(b)
    norm = np.abs(a).sum(1).max()
    backward = residual.max(0) / (norm * np.abs(x).max(0) + np.abs(b).max(0))
    return backward, (residual / size).max(0), np.linalg.cond(a, np.inf)


def assert_expected(report, a, b, x, rtol=1e-9):
    backward, componentwise, condition = expected(a, b, x)
    np.testing.assert_allclose(report.backward, backward, rtol)
    np.testing.assert_allclose(report.componentwise, componentwise, rtol)
    assert condition / 3 < report.condition < condition * (1 + rtol)
    assert (report.forward < report.condition).all()


def test_any_mesh_says_what_numpy_says():
    """Of a size that nothing divides, and of an x that solves but by half."""
    a, x = (noise(29, k, dtype=np.complex128, seed=k) for k in (29, 3))
    b = a @ x + 1e-3 * noise(29, 3, seed=2)
    with devices((3, 2), AxisType.Auto):
        report = jax.jit(lambda *v: assess(*v, multiplied(np.linalg.inv(a))))(a, b, x)
        assert_expected(report, a, b, x)


def test_one_right_hand_side_is_one_number():
    a, x = noise(29, 29), noise(29, seed=1)
    b = a @ x + 1e-3
    with devices():
        report = jax.jit(lambda *v: assess(*v, multiplied(np.linalg.inv(a))))(a, b, x)
        assert_expected(report, a, b, x)
        assert report.forward.shape == report.digits.shape == report.hpl.shape == ()
        assert str(report).startswith("29 equations in float64.\n")


def test_axes_have_any_name_and_others_are_left_alone():
    a, x = noise(24, 24), noise(24, 2, seed=1)
    b, solver, names = a @ x + 1e-3, multiplied(np.linalg.inv(a)), ("data", "model")
    with devices((2, 2, 2), AxisType.Auto, ("data", "z", "model")):
        placed = jax.device_put(a, jax.P(*names))
        report = jax.jit(lambda *v: assess(*v, solver, names))(placed, b, x)
        assert_expected(report, a, b, x)
        norm = jax.jit(norm1, static_argnums=1)(placed, names)
        np.testing.assert_allclose(norm, np.linalg.norm(a, 1))


def test_the_size_of_the_numbers_does_not_matter():
    """Powers of two leave each number as it was, though sums of rows have no room."""
    a, x, b = noise(16, 16), noise(16, 2), noise(16, 2, seed=1)
    inverse = np.linalg.inv(a)
    with devices():
        run = jax.jit(
            lambda c, *v: assess(
                *v, (lambda b: (inverse @ b) * c, lambda b: (inverse.T @ b) * c)
            )
        )
        plain = run(1.0, a, b, x)
        for of_a, of_x in (2.0**1020, 2.0**-90), (2.0**-1000, 2.0**-1), (1, 2.0**900):
            scaled = run(1 / of_a, a * of_a, b * (of_a * of_x), x * of_x)
            for name in "forward", "backward", "componentwise", "condition":
                numbers = getattr(plain, name), getattr(scaled, name)
                np.testing.assert_array_equal(*numbers)


def multiplied_by(inverse):
    return lambda b: inverse @ b, lambda b: inverse.T @ b


# ------------------------------------------------------------ what is no number


def test_what_is_not_finite_makes_nan_and_no_digit():
    a, x = noise(16, 16), noise(16, 2)
    inverse = np.linalg.inv(a)
    with devices(kind=AxisType.Auto):
        run = jax.jit(lambda m, *v: assess(*v, multiplied_by(m)))
        for bad, where in itertools.product((np.nan, np.inf), range(4)):
            arrays = [inverse.copy(), a.copy(), a @ x, x.copy()]
            arrays[where][13, 1] = bad
            report = run(*arrays)
            assert np.isnan(report.forward[1])
            assert report.digits[1] == 0
            assert "NaN came out, of a, b, x or a solve: no digit" in str(report)
            alone = where > 1  # the other side has its own b and x
            assert np.isfinite(report.forward[0]) == alone
        assert np.isnan(norm1(np.where(a == a[3, 3], np.nan, a)))


def test_what_is_solved_exactly_may_hide_a_rounding():
    with devices():
        run = jax.jit(lambda *v: assess(*v, multiplied_by(np.eye(8))))
        report = run(np.eye(8), np.zeros((8, 2)), np.zeros((8, 2)))
        assert report.backward.tolist() == report.forward.tolist() == [0, 0]
        ones = run(np.eye(8), np.ones((8, 2)), np.ones((8, 2)))
        assert ones.backward.tolist() == [0, 0]
        hidden = (8 + 1) * ones.unit * (1 + 1)  # what rounding may hide
        np.testing.assert_allclose(ones.forward, [hidden, hidden])
        missed = run(np.eye(8), np.ones((8, 2)), np.zeros((8, 2)))
        assert missed.backward.tolist() == [1, 1]
        assert missed.forward.tolist() == [np.inf, np.inf]
        assert "at most inf: no digit is sure" in str(missed)


# ------------------------------------------------------------------- the words


def test_a_report_is_words_when_it_is_printed():
    a, x = twins(16, 1e-3), noise(16, 2)
    x[:, 1] *= 1e-3  # a right-hand side of which x explains little
    b = a @ x + np.array([0, 1e-3]) * noise(16, 2, seed=3)
    with devices():
        run = jax.jit(lambda *v: assess(*v, multiplied(np.linalg.inv(a))))
        text = str(run(a, b, x)).splitlines()
    assert (
        text[0] == "16 equations in float64, 2 right-hand sides; the worst is number 1."
    )
    assert text[1].startswith("Backward error 1e-01, 1e+15 roundings; of each")
    assert text[2].startswith("Condition number about ")
    assert text[3].endswith("no digit is sure.")
    with devices():
        typed = jax.eval_shape(run, a, b, x)
        empty = run(a, b[:, :0], x[:, :0])
    assert str(typed) == "Report of [16], of which only types are known"
    assert (
        str(empty)
        == "16 equations in float64, 0 right-hand sides; the worst is number 0."
    )


# -------------------------------------------------------- solvers, and what is sent


def test_no_device_ever_holds_more_than_its_block():
    a, b = noise(N, N), noise(N, 2)
    solver = (lambda b: b + 1), (lambda b: b + 1)
    with devices():
        run = jax.jit(lambda a, b: assess(a, b, b, solver).forward)
        program = measure(run, jax.device_put(a, BLOCKS), b)
    words = 8 * N * (2 + 1)
    assert program.counts == {"all-reduce": 3, "all-gather": 2}
    assert max(each.bytes for each in program.collectives) <= words
    assert all(each.times == 1 for each in program.collectives)
    assert {p.sent for p in program.everywhere} == {program.sent}


# ------------------------------------------------------------------ derivatives


def test_x_has_its_derivative_beside_a_report_whose_own_is_nan():
    a, b = noise(12, 12) + 12 * np.eye(12), noise(12)
    x = np.linalg.solve(a, b)
    wanted = -np.outer(np.linalg.solve(a.T, 2 * x), x)

    def both(a):
        solver = dense(a)
        x = solver[0](b)
        return (x**2).sum(), assess(a, b, x, solver)

    @jax.jit
    def derivatives(a):
        turned = jax.grad(lambda a: both(a)[1].condition)(a)
        return jax.grad(both, has_aux=True)(a), turned, jax.jvp(both, (a,), (a,))[1]

    with devices():
        (gradient, report), turned, (change, tangent) = derivatives(a)
    np.testing.assert_allclose(gradient, wanted, atol=1e-10 * np.abs(wanted).max())
    assert np.isfinite(report.forward)
    assert np.isnan(turned).all()
    np.testing.assert_allclose(change, (wanted * a).sum(), rtol=1e-10)
    assert np.isnan([tangent.forward, tangent.backward, tangent.condition]).all()


# --------------------------------------------------------------------- refusals


def test_what_does_not_fit_is_refused_before_any_work():
    a, b, solve = np.eye(4), np.ones(4), lambda b: b
    calls = [
        ((a[:2], b, b, solve), r"a \(2, 4\) is no square matrix"),
        ((a[:0, :0], b, b, solve), r"a \(0, 0\) is no square matrix"),
        ((a.astype(int), b, b, solve), "a is int64"),
        (([[1.0]], b, b, solve), "a is a list"),
        ((a, b[:3], b, solve), r"b \(3,\) does not fit a: pass \[4\]"),
        ((a, b, [1.0] * 4, solve), "x is a list"),
        ((a, b, b.astype(np.float16), solve), "x is float16"),
        ((a, b, b[:, None], solve), r"x \(4, 1\) is no solution for b \(4,\)"),
        ((a, b, b, (solve,)), "a tuple solves nothing"),
        ((a, b, b, 3), "a int solves nothing"),
        ((a, b, b, lambda b: b[:2]), r"solve returned \(2, 8\): \(4, 8\) went in"),
        ((a, b, b, solve, ("x", "u")), r"no mesh axis \['u'\] in context"),
    ]
    with devices():
        for arguments, complaint in calls:
            with pytest.raises(ValueError, match=complaint):
                assess(*arguments)
        with pytest.raises(ValueError, match="no square"):
            norm1(a[0])
        with pytest.raises(ValueError, match="solves nothing"):
            condition(a, None)


# ------------------------------------------------------ right-hand sides in blocks


def laid(inverse, out=BLOCKS):
    """Return a solver of blocks that multiplies by an inverse from NumPy."""

    def multiply(m, b):
        b = accuracy.place(b, jax.P())
        return accuracy.place(jnp.asarray(m).astype(b.dtype) @ b, out)

    return tuple(functools.partial(multiply, m) for m in (inverse, inverse.conj().T))


def equations(n, k, condition, dtype):
    """A matrix with this condition number, and an x that solves but nearly."""
    left, right = (np.linalg.qr(noise(n, n, seed=s))[0] for s in (1, 2))
    a = (left * np.geomspace(1, 1 / condition, n) @ right).astype(dtype)
    x = noise(n, k, dtype=np.dtype(dtype), seed=3)
    return a, a @ x + a.dtype.type(1e-2) * noise(n, k, dtype=np.dtype(dtype)), x


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((2, 4), "float32"), ((3, 2), "complex128")],
    ids=str,
)
def test_blocks_say_what_numpy_says(shape, dtype):
    """For many condition numbers; each number lies as its right-hand side."""
    n, k, kind = 24, 8, KINDS[shape[1] % 4 == 0]
    rtol = 1e-2 if np.finfo(dtype).bits == 32 else 1e-5
    with devices(shape, kind):
        run = jax.jit(lambda m, *v: assess_blocks(*v, Inverse(laid(m), ("x", "y"))))
        for c in (1e1, 1e3) if rtol == 1e-2 else (1e1, 1e6, 1e10):
            a, b, x = equations(n, k, c, dtype)
            given = [jax.device_put(v, BLOCKS) for v in (a, b, x)]
            report = run(np.linalg.inv(a), *given)
            a, b, x = (v.astype(np.complex128) for v in (a, b, x))
            assert_expected(report, a, b, x, rtol)
            error = np.abs(x - np.linalg.solve(a, b)).max(0) / np.abs(x).max(0)
            assert (error < np.asarray(report.forward) * (1 + rtol)).all()
            numbers = report.backward, report.componentwise, report.forward
            parts = {each.addressable_shards[0].data.shape for each in numbers}
            assert parts == {(k // shape[1],)}
            assert_agreed(*numbers, report.condition)
        assert str(report).startswith(f"24 equations in {dtype}, 8 right-hand sides; ")


def test_blocks_that_nothing_divides_say_what_whole_arrays_say():
    a, x = noise(29, 29), noise(29, 5, seed=1)
    b = a @ x + 1e-3 * noise(29, 5, seed=2)
    inverse = np.linalg.inv(a)
    with devices((2, 4)):
        known = Inverse(laid(inverse, jax.P()), ("x", "y"))
        report = jax.jit(lambda *v: assess_blocks(*v, known))(a, b, x)
        assert_expected(report, a, b, x)
        whole = jax.jit(lambda *v: assess(*v, multiplied(inverse)))(a, b, x)
        np.testing.assert_allclose(report.forward, whole.forward, 1e-9)
        np.testing.assert_allclose(report.condition, whole.condition, 1e-9)
        none = jax.jit(lambda *v: assess_blocks(*v, known))(a, b[:, :0], x[:, :0])
        assert none.forward.shape == (0,)


def test_blocks_lie_on_axes_of_any_name_beside_another():
    a, x = noise(8, 8), noise(8, 4, seed=1)
    b, names, kinds = a @ x + 1e-3, ("data", "model"), (KINDS[0], KINDS[1], KINDS[0])
    with jax.set_mesh(jax.make_mesh((2, 2, 2), ("data", "z", "model"), kinds)):
        known = Inverse(laid(np.linalg.inv(a), jax.P(*names)), names)
        report = jax.jit(lambda *v: assess_blocks(*v, known, names))(a, b, x)
        assert_expected(report, a, b, x)


def test_wide_blocks_are_multiplied_strip_by_strip(monkeypatch):
    """Also where the last strip is narrower than the others."""
    monkeypatch.setattr(accuracy, "WIDTH", 12)
    a, x = noise(40, 40), noise(40, 8, seed=1)
    for shape in (2, 4), (4, 2):
        with devices(shape):
            run = jax.jit(
                lambda a, x: [
                    accuracy.times_in_blocks(f, a, x, ("x", "y"))
                    for f in (accuracy.dot, accuracy.abs_product)
                ]
            )
            product, size = run(*(jax.device_put(v, BLOCKS) for v in (a, x)))
        np.testing.assert_allclose(product, a @ x, 1e-9, 1e-12)
        np.testing.assert_allclose(size, np.abs(a) @ np.abs(x))


def test_nan_in_one_column_of_blocks_leaves_the_others():
    a, x = noise(8, 8), noise(8, 4, seed=1)
    b = a @ x
    b[6, 2] = np.nan
    with devices((4, 2)):
        known = Inverse(laid(np.linalg.inv(a)), ("x", "y"))
        report = jax.jit(lambda *v: assess_blocks(*v, known))(a, b, x)
        for each in report.forward, report.backward, report.componentwise:
            assert np.isnan(each).tolist() == [False, False, True, False]
            assert_agreed(each)
        assert "the worst is number 2" in str(report)


def doubled(a, b, x):
    return assess_blocks(a, b, x, Inverse(lambda b: 2 * b, ("x", "y")))


def test_no_device_holds_all_sides_of_a_report():
    """Of eight, an eighth of what one holds, and no array above t P-th parts."""
    n, k, t, held = 32, 512, 4, []
    for shape in (1, 1), (2, 4):
        with devices(shape):
            sharding = jax.NamedSharding(jax.sharding.get_mesh(), BLOCKS)
            given = [
                jax.ShapeDtypeStruct(s, "float64", sharding=sharding)
                for s in ((n, n), (n, k), (n, k))
            ]
            compiled = jax.jit(doubled).lower(*given).compile()
        arrays = re.findall(r"\b[fcsu]\d+\[([\d,]+)\]", compiled.as_text())
        largest = max(math.prod(map(int, each.split(","))) for each in arrays)
        held.append((compiled.memory_analysis().temp_size_in_bytes, largest))
    assert held[0][1] == t * n * (k + 1)
    assert held[1][1] <= t * n * (k + 4) / 8 < n * k
    assert held[1][0] < held[0][0] / 6


def test_blocks_that_do_not_fit_are_refused_before_any_work():
    a, b, known = np.eye(4), np.ones((4, 2)), Inverse(lambda b: b, ("x", "y"))
    with devices((2, 2)):
        with pytest.raises(ValueError, match="call assess"):
            assess_blocks(a, b[:, 0], b[:, 0], known)
        with pytest.raises(ValueError, match=r"sides along \('x', 'y'\), not \(\)"):
            accuracy.assess(a, b, b, known)
        with pytest.raises(ValueError, match=r"pass Inverse\(solver, \('x', 'y'\)\)"):
            assess_blocks(a, b, b, Inverse(lambda b: b))
        with pytest.raises(ValueError, match="a function tells no norms: pass Inverse"):
            accuracy.assess(a, b, b, lambda b: b)
