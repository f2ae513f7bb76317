import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from norm_estimate.test_norm_estimate import by
from on_devices import AUTO, EXPLICIT, assert_agreed, devices, noise

from examples import accuracy
from examples.accuracy import assess_blocks, norm1
from examples.communication import measure
from examples.norm_estimate import Inverse

N = 16
AXES = "x", "y"
BLOCKS = jax.P(*AXES)
pytestmark = pytest.mark.usefixtures("double")


def assess(a, b, x, solver, axes=AXES):
    return accuracy.assess(a, b, x, Inverse(solver), axes)


@jax.jit
def judged(inverse, a, b, x, unit=1.0):
    """Return the report on x, by an inverse: one program for many tests."""
    return assess(a, b, x, by(inverse, unit=unit))


SHEAR = np.eye(N)
SHEAR[:2, 1] = 1, 1e-8
HARD = {
    "twins": noise(N, N) @ SHEAR,  # two columns are nearly equal
    "graded": noise(N, N) * np.logspace(0, -12, N),
}


@pytest.mark.parametrize("name", HARD)
def test_estimates_are_near_and_errors_below_their_bounds(name):
    """At least a third of the truth; b = a x in all digits."""
    a, truth, eps = HARD[name], noise(N, 2, seed=1), np.finfo(float).eps
    b = a @ truth
    x, inverse = np.linalg.solve(a, b), np.linalg.inv(a)
    with devices():
        report = judged(inverse, a, b, x)
    condition = np.linalg.cond(a, np.inf)
    assert condition / 3 < report.condition < condition * (1 + 30 * condition * eps)
    error = np.abs(x - truth).max(0) / np.abs(x).max(0)
    assert (error <= report.forward).all()
    assert (report.forward <= (N + 2) * eps * report.condition).all()
    assert (report.hpl < 1).all()


def assert_expected(report, a, b, x, rtol=1e-9):
    """Assert what NumPy says of the errors and the condition number."""
    residual, size = np.abs(b - a @ x), np.abs(a) @ np.abs(x) + np.abs(b)
    largest = np.abs(a).sum(1).max() * np.abs(x).max(0) + np.abs(b).max(0)
    np.testing.assert_allclose(report.backward, residual.max(0) / largest, rtol)
    np.testing.assert_allclose(report.componentwise, (residual / size).max(0), rtol)
    condition = np.linalg.cond(a, np.inf)
    assert condition / 3 < report.condition < condition * (1 + rtol)
    error = np.abs(x - np.linalg.solve(a, b)).max(0) / np.abs(x).max(0)
    assert (error <= 1.01 * np.asarray(report.forward)).all()


def test_axes_have_any_name_and_others_are_left_alone():
    """The other axis is of the same type, or not; in blocks, numbers lie as sides."""
    a, x, names = noise(24, 24), noise(24, 4, seed=1), ("data", "model")
    b, inverse, every = a @ x + 1e-3, np.linalg.inv(a), ("data", "z", "model")
    with devices((2, 2, 2), AUTO, every):
        placed = jax.device_put(a, jax.P(*names))
        run = jax.jit(lambda *v: assess(*v, by(inverse), names))
        assert_expected(run(placed, b, x), a, b, x)
        norm = jax.jit(norm1, static_argnums=1)(placed, names)
        np.testing.assert_allclose(norm, np.linalg.norm(a, 1))
    kinds = EXPLICIT, AUTO, EXPLICIT
    with jax.set_mesh(jax.make_mesh((2, 2, 2), every, kinds)):
        known = Inverse(by(inverse, names), names)
        report = jax.jit(lambda *v: assess_blocks(*v, known, names))(a, b, x)
        assert_expected(report, a, b, x)
        numbers = report.backward, report.componentwise, report.forward
        specs = {jax.typeof(each).sharding.spec for each in numbers}
        assert specs == {jax.P("model")}
        assert_agreed(*numbers, report.condition)


def test_the_size_of_the_numbers_does_not_matter():
    """Powers of two leave each number as it was, though sums of rows have no room."""
    a, x, b = noise(N, N), noise(N, 2), noise(N, 2, seed=1)
    inverse = np.linalg.inv(a)
    with devices():
        plain = judged(inverse, a, b, x)
        for of_a, of_x in (2.0**1020, 2.0**-90), (2.0**-1000, 2.0**-1), (1, 2.0**900):
            scaled = judged(inverse, a * of_a, b * (of_a * of_x), x * of_x, 1 / of_a)
            for pair in zip(*map(jax.tree.leaves, (plain, scaled)), strict=True):
                np.testing.assert_array_equal(*pair)


def test_what_is_not_finite_makes_nan_and_no_digit():
    a, x = noise(N, N), noise(N, 2)
    with devices():
        for bad, where in itertools.product((np.nan, np.inf), range(4)):
            arrays = [np.linalg.inv(a), a.copy(), a @ x, x.copy()]
            arrays[where][13, 1] = bad
            report = judged(*arrays)
            assert np.isnan(report.forward[1])
            assert report.digits[1] == 0
            assert "NaN came out, of a, b, x or a solve: no digit" in str(report)
            alone = where > 1  # the other side has its own b and x
            assert np.isfinite(report.forward[0]) == alone
        assert np.isnan(norm1(np.where(a == a[3, 3], np.nan, a)))


def test_what_is_solved_exactly_may_hide_a_rounding():
    one, zeros, ones = np.eye(N), np.zeros((N, 2)), np.ones((N, 2))
    hidden = (N + 1) * np.finfo(float).eps
    cases = (zeros, zeros, 0, 0), (ones, ones, 0, hidden), (ones, zeros, 1, np.inf)
    with devices():
        for b, x, backward, forward in cases:
            report = judged(one, one, b, x)
            np.testing.assert_allclose(report.backward, [backward] * 2)
            np.testing.assert_allclose(report.forward, [forward] * 2)
        assert "at most inf: no digit is sure" in str(report)


def test_no_device_ever_holds_more_than_its_block():
    with devices():
        a, b = jax.device_put(noise(64, 64), BLOCKS), noise(64, 2)
        run = functools.partial(assess, solver=lambda b: b + 1)
        program = measure(lambda a, b: run(a, b, b).forward, a, b)
    assert program.counts == {"all-reduce": 3, "all-gather": 2}
    for each in program.collectives:
        assert each.times == 1
        assert each.bytes <= 8 * 64 * (2 + 1)
    assert {p.sent for p in program.everywhere} == {program.sent}


def test_x_has_its_derivative_beside_a_report_whose_own_is_nan():
    a, b = noise(12, 12) + 12 * np.eye(12), noise(12)

    def solve(a):
        x = jnp.linalg.solve(a, b)
        return (x**2).sum(), x

    def both(a):
        solvers = tuple(functools.partial(jnp.linalg.solve, m) for m in (a, a.T))
        size, x = solve(a)
        return size, assess(a, b, x, solvers)

    @jax.jit
    def derivatives(a):
        turned = jax.grad(lambda a: both(a)[1].condition)(a)
        return jax.grad(both, has_aux=True)(a), turned, jax.jvp(both, (a,), (a,))[1]

    with devices():
        (gradient, report), turned, (change, tangent) = derivatives(a)
    wanted, _ = jax.grad(solve, has_aux=True)(a)
    np.testing.assert_allclose(gradient, wanted, atol=1e-10 * np.abs(wanted).max())
    np.testing.assert_allclose(change, (wanted * a).sum(), rtol=1e-10)
    assert np.isfinite(report.forward)
    assert np.isnan(turned).all()
    assert np.isnan([tangent.forward, tangent.backward, tangent.condition]).all()


def test_what_does_not_fit_is_refused_before_any_work():
    """What does not solve is refused by norm_estimate.py, with its own words."""
    a, b, known = np.eye(4), np.ones(4), Inverse(lambda b: b)
    blocks, both, judge = Inverse(lambda b: b, AXES), np.ones((4, 2)), accuracy.assess
    calls = [
        (judge, (a[:2], b, b, known), r"a \(2, 4\) is no square matrix"),
        (judge, (a.astype(int), b, b, known), "a is int64"),
        (judge, ([[1.0]], b, b, known), "a is a list"),
        (judge, (a, b[:3], b, known), r"b \(3,\) does not fit a: pass \[4\]"),
        (judge, (a, b, [1.0] * 4, known), "x is a list"),
        (judge, (a, b, b.astype(np.float16), known), "x is float16"),
        (judge, (a, b, b[:, None], known), r"x \(4, 1\) is no solution for"),
        (judge, (a, b, b, lambda b: b), "a function tells no norms: pass"),
        (judge, (a, b, b, blocks), r"sides along \('x', 'y'\), not \(\)"),
        (judge, (a, b, b, known, ("x", "u")), r"no mesh axis \['u'\] in con"),
        (accuracy.condition, (a, Inverse(None)), "a NoneType solves nothing"),
        (norm1, (a[0],), "no square"),
        (assess_blocks, (a, b, b, blocks), "call assess"),
        (assess_blocks, (a, both, both, known), r"pass Inverse\(solver, \('x', 'y'\)"),
    ]
    with devices((2, 2)):
        for function, arguments, complaint in calls:
            with pytest.raises(ValueError, match=complaint):
                function(*arguments)


def test_wide_blocks_are_multiplied_strip_by_strip(monkeypatch):
    """Also where the last strip is narrower than the others."""
    monkeypatch.setattr(accuracy, "WIDTH", 12)
    a, x = noise(40, 40), noise(40, 8, seed=1)
    with devices((2, 4)):
        placed = [jax.device_put(v, BLOCKS) for v in (a, x)]
        product, size = (
            accuracy.times_in_blocks(multiply, *placed, AXES)
            for multiply in (accuracy.dot, accuracy.abs_product)
        )
        np.testing.assert_allclose(product, a @ x, 1e-9, 1e-12)
        np.testing.assert_allclose(size, np.abs(a) @ np.abs(x))


def test_nan_in_one_column_of_blocks_leaves_the_others():
    """Also of sizes that nothing divides; there may be no column."""
    a, x = noise(7, 7), noise(7, 3, seed=1)
    b = a @ x
    b[6, 1] = np.nan
    with devices((4, 2)):
        known = Inverse(by(np.linalg.inv(a)), AXES)
        run = jax.jit(lambda *v: assess_blocks(*v, known))
        report = run(a, b, x)
        for each in report.forward, report.backward, report.componentwise:
            assert np.isnan(each).tolist() == [False, True, False]
            assert_agreed(each)
        assert "the worst is number 1" in str(report)
        assert jax.eval_shape(run, a, b[:, :0], x[:, :0]).forward.shape == (0,)
