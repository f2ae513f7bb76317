import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from on_devices import assert_agreed, devices, noise

from examples import secular
from examples.communication import measure
from examples.secular import eigh_tridiagonal, eigvalsh_tridiagonal, find_roots

N = 96
EPS = np.finfo(np.float64).eps
find = jax.jit(find_roots)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def dense(d, e):
    return np.diag(d) + np.diag(e, 1) + np.diag(e, -1)


def errors(d, e, w, q):
    """Return residual and angles, in eps."""
    t, w, q = dense(d, e), np.asarray(w), np.asarray(q)
    norm = np.abs(t).sum(1).max() or 1
    assert (np.diff(w) >= 0).all()
    residual = np.abs(t / norm @ q - q * (w / norm)).max()
    return residual / EPS, np.abs(q.T @ q - np.eye(len(w))).max() / EPS


def zoo():
    """Return diagonals and subdiagonals that break one method or another."""
    i, random = np.arange(N), np.random.default_rng(0)
    ones, small = np.ones(N - 1), np.abs(i - N / 2)
    uniform = 10.0 ** random.uniform(-15, 0, N)
    glued = np.tile(np.abs(np.arange(12) - 5.5), N // 12)
    weak = np.where(i[1:] % 12, 1.0, 1e-8)
    return {
        "random": (noise(N), noise(N - 1, seed=1)),
        "chain": (2 + 0 * ones[0] * i, -ones),
        "Wilkinson": (small, ones),
        "glued Wilkinson": (glued, weak),
        "nearly diagonal": (np.ones(N), 1e-20 * ones),
        "diagonal": (noise(N), 0 * ones),
        "zero": (0.0 * i, 0 * ones),
        "graded down": (10.0 ** (-i / 8), 10.0 ** (-i[1:] / 8)),
        "graded up": (10.0 ** (i / 8 - 12), 10.0 ** (i[1:] / 8 - 12)),
        "log-uniform": (uniform, random.permutation(uniform)[1:]),
        "integers": (
            random.integers(-2, 3, N) * 1.0,
            random.integers(-1, 2, N - 1) * 1.0,
        ),
        "tears of both signs": (i % 3.0, noise(N - 1, seed=2)),
    }


ZOO = zoo()


@functools.cache
def compiled(f):
    """Compile a solver of a matrix of N rows, on the mesh in context."""
    d, e = (jax.ShapeDtypeStruct((n,), np.float64) for n in (N, N - 1))
    return jax.jit(f).lower(d, e).compile()


def test_vectors_are_orthogonal_and_residuals_are_rounding_whatever_the_spectrum():
    with devices((2, 4)):
        for name, (d, e) in ZOO.items():
            w, q = compiled(eigh_tridiagonal)(d, e)
            residual, angles = errors(d, e, w, q)
            assert residual < 16, name
            assert angles < 40, name
            w_alone, size = compiled(eigvalsh_tridiagonal)(d, e), np.abs(w).max() or 1
            np.testing.assert_allclose(w_alone / size, w / size, atol=30 * EPS)


def test_a_matrix_is_divided_by_its_norm_first():
    """Then a power of two changes no bit of a vector; squares would overflow."""
    d, e = ZOO["random"]
    with devices((2, 4)):
        run = compiled(eigh_tridiagonal)
        w, q = run(d, e)
        assert_agreed(w, q)
        for scale in 2.0**600, 2.0**-600:
            other, turned = run(d * scale, e * scale)
            np.testing.assert_array_equal(turned, q)
            np.testing.assert_array_equal(other, w * scale)


def assert_roots(weight, away, mu):
    """Assert that 1 + sum weight / away is 0, up to rounding and the last digit of mu.

    away: [roots, poles], from each root to each pole
    """
    terms = weight / away
    bound = 16 * (1 + np.abs(terms).sum(1))
    bound += (np.abs(terms) / np.abs(away)).sum(1) * np.abs(mu)
    assert (np.abs(1 + terms.sum(1)) <= EPS * bound).all()


def test_a_root_is_the_guess_that_was_accepted():
    """Not the next one, which may be anywhere: angles would stay perfect."""
    j = np.arange(24, dtype=np.int32)
    for seed in range(20):
        random = np.random.default_rng(seed)
        d = np.sort(random.uniform(0, 1, 24))
        weight = 10.0 ** random.uniform(-12, 0, 24)
        near, mu = map(np.asarray, find(d, 0 * d, weight, np.int32(23), j))
        away = d[None] - d[near][:, None] - mu[:, None]
        assert_roots(weight, away, mu)


def test_roots_of_clustered_poles_and_tiny_weights_are_exact_to_rounding():
    """The textbook's formula of the quadratic equation cancels here."""
    j = np.arange(32, dtype=np.int32)
    for seed in range(60):
        random = np.random.default_rng(seed)
        d = np.sort(np.repeat(random.uniform(0, 1, 8), 4))
        o = np.asarray(secular.move_apart(jnp.asarray(d)))
        weight = 10.0 ** random.uniform(-34, -1, 32)
        near, mu = map(np.asarray, find(d, o, weight, np.int32(31), j))
        away = (d[None] - d[near][:, None]) + (o[None] - o[near][:, None])
        assert_roots(weight, away - mu[:, None], mu)


def test_equal_poles_are_moved_apart_and_others_are_not():
    d = np.array([0.0, 0, 0, 0.5, 0.5, 1])
    o = secular.move_apart(d)
    step = EPS / len(d)
    np.testing.assert_allclose(o, step * np.array([0, 1, 2, 0, 1, 0]), atol=1e-30)


def test_rows_that_devices_do_not_divide_are_joined_as_predicted():
    """All vectors go to all."""
    d, e = noise(31), noise(30, seed=1)
    with devices((3,)), jax.numpy_dtype_promotion("strict"):
        vectors, alone = (
            jax.jit(lambda d, e, f=f: f(d, e, "x")).lower(d, e).compile()
            for f in (eigh_tridiagonal, eigvalsh_tridiagonal)
        )
        w, q = vectors(d, e)
        assert w.sharding.is_fully_replicated
        assert q.sharding.is_fully_replicated
        assert_agreed(w, q)
        program = measure(vectors)
        predicted = secular.cost(eigh_tridiagonal, jnp.asarray(d), "x")
    assert (program.counts, program.sent) == (predicted.counts, predicted.sent)
    assert max(errors(d, e, w, q)) < 30
    expected = np.linalg.eigvalsh(dense(d, e))
    for found in w, alone(d, e):
        np.testing.assert_allclose(found, expected, atol=1e-14 * np.abs(expected).max())


def test_another_axis_of_the_mesh_is_left_alone():
    d, e = noise(16), noise(15, seed=1)
    kinds = AxisType.Auto, AxisType.Explicit
    with jax.set_mesh(jax.make_mesh((4, 2), ("a", "b"), kinds)):
        w, q = eigh_tridiagonal(d, e, "a")
        rows = jax.NamedSharding(q.sharding.mesh, jax.P("a"))
        assert q.sharding.is_equivalent_to(rows, 2)
    assert max(errors(d, e, w, q)) < 30


def test_nan_gives_nan():
    d, e = ZOO["random"]
    with devices((2, 4)):
        for name, wrong in ("d", np.nan), ("e", np.nan), ("d", np.inf):
            bad = {"d": d.copy(), "e": e.copy()}
            bad[name][70] = wrong
            w, q = compiled(eigh_tridiagonal)(*bad.values())
            alone = compiled(eigvalsh_tridiagonal)(*bad.values())
            for answer in w, q, alone:
                assert np.isnan(answer).all()


def test_a_join_sends_vectors_only_as_predicted():
    d = jax.ShapeDtypeStruct((N,), np.float64)
    with devices((2, 4)):
        for f in eigh_tridiagonal, eigvalsh_tridiagonal:
            program = measure(compiled(f))
            assert max(step.bytes for step in program.collectives) <= 2 * 8 * N
            expected = secular.cost(f, d)
            assert program.counts == expected.counts
            assert program.sent == expected.sent <= (2 + 8 * 3) * 8 * N
        with pytest.raises(ValueError, match="no cost is known"):
            secular.cost(find_roots, d)


def test_what_is_no_tridiagonal_problem_is_refused():
    d, e = np.ones(8), np.ones(7)
    cases = (
        ((d, d), r"d \(8,\) and e \(8,\) of float64, float64: pass \[N\] and"),
        ((d, e.astype(np.float32)), "of float64, float32: pass"),
        ((d, [1.0]), "e is no array of"),
        ((d, e, ("x", "x")), "pass the name of a mesh axis, or several"),
        ((d, e, "z"), r"no mesh axis \['z'\] in context"),
    )
    along_x = functools.partial(eigvalsh_tridiagonal, axes="x")
    specs = {"in_specs": (jax.P(), jax.P()), "out_specs": jax.P()}
    with devices((2, 4)):
        for f in eigh_tridiagonal, eigvalsh_tridiagonal:
            for bad, complaint in cases:
                with pytest.raises(ValueError, match=complaint):
                    f(*bad)
            with pytest.raises(ValueError, match="have no derivative here"):
                jax.grad(lambda d, f=f: jnp.sum(f(d, e)[0]))(d)
        with pytest.raises(ValueError, match="use `conquer`"):
            jax.shard_map(along_x, **specs)(d, e)
