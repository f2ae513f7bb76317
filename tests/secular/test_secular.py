import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from on_devices import AUTO, EXPLICIT, assert_agreed, devices, noise

from examples import secular
from examples.communication import measure
from examples.secular import eigh_tridiagonal, eigvalsh_tridiagonal, find_roots

N = 96
EPS = np.finfo(np.float64).eps
find = jax.jit(find_roots)
pytestmark = pytest.mark.usefixtures("double")


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
    i, j, random = np.arange(N), np.arange(1, N), np.random.default_rng(0)
    ones, uniform = np.ones(N - 1), 10.0 ** random.uniform(-15, 0, N)
    glued = np.tile(np.abs(np.arange(12) - 5.5), N // 12)
    return {
        "random": (noise(N), noise(N - 1, seed=1)),
        "chain": (np.full(N, 2.0), -ones),
        "Wilkinson": (np.abs(i - N / 2), ones),
        "glued Wilkinson": (glued, np.where(j % 12, 1.0, 1e-8)),
        "nearly diagonal": (np.ones(N), 1e-20 * ones),
        "diagonal": (noise(N), 0 * ones),
        "zero": (0.0 * i, 0 * ones),
        "graded down": (10.0 ** (-i / 8), 10.0 ** (-j / 8)),
        "graded up": (10.0 ** (i / 8 - 12), 10.0 ** (j / 8 - 12)),
        "log-uniform": (uniform, random.permutation(uniform)[1:]),
        "integers": (
            1.0 * random.integers(-2, 3, N),
            1.0 * random.integers(-1, 2, N - 1),
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
            alone, size = compiled(eigvalsh_tridiagonal)(d, e), np.abs(w).max() or 1
            np.testing.assert_allclose(alone / size, w / size, atol=30 * EPS)


def test_a_matrix_is_divided_by_its_norm_first():
    """Then a power of two changes no bit of a vector; squares would overflow."""
    d, e = ZOO["random"]
    with devices((2, 4)):
        run = compiled(eigh_tridiagonal)
        w, q = run(d, e)
        assert_agreed(w, q)
        rows = jax.NamedSharding(jax.sharding.get_mesh(), jax.P(("x", "y")))
        assert q.sharding.is_equivalent_to(rows, 2)
        for scale in 2.0**600, 2.0**-600:
            other, turned = run(d * scale, e * scale)
            np.testing.assert_array_equal(turned, q)
            np.testing.assert_array_equal(other, w * scale)


@pytest.mark.parametrize(
    ("copies", "exponents", "seeds"), [(1, (-12, 0), 20), (4, (-34, -1), 30)]
)
def test_roots_are_exact_to_rounding(copies, exponents, seeds):
    """Up to the last digit of mu: the guess that was accepted, not the next one.

    Of clustered poles and tiny weights, too, where the formula of the textbook cancels.
    """
    j = np.arange(32, dtype=np.int32)
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        d = np.sort(np.repeat(random.uniform(0, 1, 32 // copies), copies))
        o = np.asarray(secular.move_apart(jnp.asarray(d)))
        weight = 10.0 ** random.uniform(*exponents, 32)
        near, mu = map(np.asarray, find(d, o, weight, np.int32(31), j))
        away = (d[None] - d[near][:, None]) + (o[None] - o[near][:, None])
        away -= mu[:, None]  # from each root to each pole
        terms = weight / away
        bound = 16 * (1 + np.abs(terms).sum(1))
        bound += (np.abs(terms) / np.abs(away)).sum(1) * np.abs(mu)
        assert (np.abs(1 + terms.sum(1)) <= EPS * bound).all()


def test_rows_that_devices_do_not_divide_are_joined_as_predicted():
    """All vectors go to all; another axis of the mesh is left alone."""
    d, e = noise(31), noise(30, seed=1)
    mesh = jax.make_mesh((3, 2), ("a", "b"), (AUTO, EXPLICIT))
    with jax.set_mesh(mesh), jax.numpy_dtype_promotion("strict"):
        run = jax.jit(lambda d, e: eigh_tridiagonal(d, e, "a")).lower(d, e).compile()
        w, q = run(d, e)
        assert w.sharding.is_fully_replicated
        assert q.sharding.is_fully_replicated
        assert_agreed(w, q)
        predicted = secular.cost(eigh_tridiagonal, jnp.asarray(d), "a")
    program = measure(run)
    assert (program.counts, program.sent) == (predicted.counts, predicted.sent)
    assert max(errors(d, e, w, q)) < 30
    expected = np.linalg.eigvalsh(dense(d, e))
    np.testing.assert_allclose(w, expected, atol=1e-14 * np.abs(expected).max())


def test_nan_gives_nan():
    with devices((2, 4)):
        for part, wrong in (0, np.nan), (1, np.nan), (0, np.inf):
            given = [each.copy() for each in ZOO["random"]]
            given[part][40] = wrong
            alone = compiled(eigvalsh_tridiagonal)(*given)
            for answer in alone, *compiled(eigh_tridiagonal)(*given):
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


E = np.ones(7)


def values(d, e=E, axes=("x", "y")):
    return eigvalsh_tridiagonal(d, e, axes)


@each_refusal(
    (lambda d: values(d, d), r"d \(8,\) and e \(8,\) of float64, float64"),
    (lambda d: values(d, E.astype("f4")), "of float64, float32: pass"),
    (lambda d: values(d, [1.0]), "e is no array of"),
    (lambda d: values(d, E, ("x", "x")), "pass the name of a mesh axis"),
    (lambda d: eigh_tridiagonal(d, E, "z"), r"no mesh axis \['z'\] in context"),
    (jax.grad(lambda d: values(d, E).sum()), "have no derivative here"),
    (jax.shard_map(values, in_specs=jax.P(), out_specs=jax.P()), "use `conquer`"),
)
def test_what_is_no_tridiagonal_problem_is_refused(call, words):
    with devices((2, 4)), pytest.raises(ValueError, match=words):
        call(np.ones(8))
